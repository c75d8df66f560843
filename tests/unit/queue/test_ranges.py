"""Giant ticks as stretches of the event tables."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vedur.change.snapshot import Snapshot
from vedur.queue.batches import EVENTS_PER_SLICE
from vedur.queue.ranges import GIANT_SLICES, LATE_SLICES, _lopsided, dense, stretches
from vedur.queue.slices import Tick, whole

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
