"""How large batches are, and giant ticks as stretches of the event tables."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vedur.change.snapshot import Snapshot
from vedur.queue.batches import (
    EVENTS_PER_SLICE,
    GIANT_SLICES,
    JOB_DISTANCE,
    LATE_SLICES,
    PREFETCH_EVENTS,
    Tick,
    _lopsided,
    batch_size,
    dense,
    expected_end,
    first_limit,
    merge_count,
    next_limit,
    pause_before,
    slice_count,
    stretches,
    whole,
)

GIANT = GIANT_SLICES * EVENTS_PER_SLICE + 1


def _place(text: str) -> tuple[int, int]:
    page, row = text.split(",")
    return int(page), int(row)


def _holds(condition: str, place: tuple[int, int]) -> bool:
    found = re.fullmatch(r"ctid >= '\((.*)\)'::tid and ctid < '\((.*)\)'::tid", condition)
    assert found
    return _place(found[1]) <= place < _place(found[2])


@given(
    st.tuples(st.integers(0, 5), st.integers(1, 291)),
    st.tuples(st.integers(0, 5), st.integers(1, 291)),
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 291)), max_size=20),
)
def test_every_place_is_in_one_stretch(
    one: tuple[int, int], two: tuple[int, int], count: int, places: list[tuple[int, int]]
) -> None:
    first, last = min(one, two), max(one, two)
    conditions = stretches(f"({first[0]},{first[1]})", f"({last[0]},{last[1]})", count)
    assert 1 <= len(conditions) <= count
    for place in [first, last, *places]:
        wanted = first <= place <= last
        assert sum(_holds(c, place) for c in conditions) == int(wanted), place


def _ticks(*seqs: int) -> list[Tick]:
    return [Tick(i, Snapshot(i, i, frozenset()), seq) for i, seq in enumerate(seqs, 1)]


def test_only_a_tick_with_more_than_its_share_is_cut_by_place() -> None:
    assert _lopsided(_ticks(0, GIANT), 2)
    assert _lopsided(_ticks(0, 10, GIANT + 10, GIANT + 20), 2)
    assert not _lopsided(_ticks(0, GIANT - 1), 2)
    assert not _lopsided(_ticks(*range(0, 40 * GIANT, GIANT)), 2)


def test_a_range_over_an_expression_holds_the_same_transactions() -> None:
    old, new = Snapshot(5, 9, frozenset((5, 7))), Snapshot(12, 20, frozenset((12, 15)))
    every = whole(Tick(1, old, 0), Tick(2, new, 1))
    assert every.over("(ev_txid + 0)") == every.condition.replace("ev_txid", "(ev_txid + 0)")
    assert every.also == (5, 7)


def test_what_came_late_can_be_a_giant() -> None:
    assert not _lopsided(_ticks(0, 10), 2, late=LATE_SLICES * EVENTS_PER_SLICE)
    assert _lopsided(_ticks(0, 10), 2, late=LATE_SLICES * EVENTS_PER_SLICE + 1)


def test_a_giant_among_many_others_is_left_to_the_index() -> None:
    assert dense("(10,1)", "(29,40)", 1000)
    assert dense("(10,1)", "(10,5)", 5)
    assert not dense("(10,1)", "(5000,1)", 1000)


def test_a_consumer_that_is_behind_takes_many_ticks() -> None:
    assert merge_count(0, 1000) is None
    assert merge_count(300, 1000) == 300
    assert merge_count(5000, 1000) == 1000
    assert merge_count(1900, 1000) == 949  # what is left is then no more
    assert first_limit(9000, 10_000) == 10_000
    assert first_limit(50_000, 10_000) == 2500
    assert first_limit(50_000, 3000) == 3000  # too few to be staged ahead, so it would stay that
    assert [next_limit(n, 1000) for n in (0, 250, 400, 3000)] == [250, 500, 800, 1000]
    ticks = [Tick(i, Snapshot(i, i, frozenset()), i * 400) for i in range(1, 9)]
    assert expected_end(ticks, 1000) == ticks[3]
    assert expected_end(ticks[:4], 1000) == ticks[3]
    assert expected_end(ticks[:4], merge_count(1200, 1000) or 0) == ticks[2]
    assert expected_end(ticks[:1], 1000) is None


def test_how_large_a_batch_is_asked_for() -> None:
    assert batch_size(0, 10_000) == (None, None)
    assert batch_size(700, 10_000) == (700, None)
    assert batch_size(50_000, 10_000) == (2500, None)
    assert batch_size(50_000, 10_000, staged=5000) == (5000, None)
    assert batch_size(300, 10_000, staged=5000) == (300, None)  # others have taken it
    assert batch_size(700, 10_000, collect=1000) == (1000, None)
    assert batch_size(700, 10_000, collect=1000, interval="5 s") == (1000, "5 s")
    assert batch_size(700, 10_000, interval="5 s") == (None, "5 s")
    assert batch_size(50_000, 10_000, interval="5 s") == (2500, None)
    assert batch_size(700, 10_000, reach=0) == (None, None)
    assert batch_size(700, 10_000, reach=200) == (200, None)
    assert batch_size(700, 10_000, reach=600) == (349, None)


def test_small_batches_that_are_jobs_keep_their_distance() -> None:
    assert pause_before(1, 0.0, by_job=True) == JOB_DISTANCE
    assert pause_before(1, JOB_DISTANCE / 2, by_job=True) == JOB_DISTANCE / 2
    assert pause_before(1, JOB_DISTANCE, by_job=True) == 0
    assert pause_before(1, 60.0, by_job=True) == 0
    assert pause_before(1, 0.0, by_job=False) == 0  # a resident task has it done for little
    assert pause_before(0, 0.0, by_job=True) == 0  # nothing but a tick
    assert pause_before(PREFETCH_EVENTS, 0.0, by_job=True) == 0  # a job is worth it


def test_small_batches_take_one_task() -> None:
    assert slice_count(0, 8, 8) == 1
    assert slice_count(20_001, 8, 8) == 2
    assert slice_count(10**7, 8, 3) == 3
