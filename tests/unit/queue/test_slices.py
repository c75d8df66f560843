"""Tick ranges as sets of txids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedur.change.snapshot import Snapshot
from vedur.queue.batches import (
    batch_size,
    expected_end,
    first_limit,
    merge_count,
    next_limit,
    slice_count,
)
from vedur.queue.slices import Tick, cut, whole


@st.composite
def snapshots(draw: st.DrawFn, above: int = 1) -> Snapshot:
    xmin = draw(st.integers(above, above + 10))
    xmax = draw(st.integers(xmin, xmin + 15))
    running = draw(st.sets(st.integers(xmin, max(xmin, xmax - 1)))) if xmax > xmin else set()
    return Snapshot(xmin, xmax, frozenset(x for x in running if x < xmax))


@st.composite
def tick_pairs(draw: st.DrawFn) -> tuple[Tick, Tick]:
    old = draw(snapshots())
    new = draw(snapshots(above=old.xmin))
    # Time goes forward: what an old snapshot saw, a newer one sees too.
    xmax = max(new.xmax, old.xmax)
    running = frozenset(x for x in new.xip if x < xmax and not old.contains(x))
    return Tick(1, old, 100), Tick(2, Snapshot(new.xmin, xmax, running), 160)


@given(tick_pairs(), st.integers(1, 5))
def test_slices_hold_each_transaction_of_the_range_once(
    ticks: tuple[Tick, Tick], count: int
) -> None:
    first, last = ticks
    for txid in range(60):
        wanted = last.snapshot.contains(txid) and not first.snapshot.contains(txid)
        assert whole(first, last).contains(txid) == wanted
        holders = [s for s in cut(first, last, [], count) if s.contains(txid)]
        assert len(holders) == int(wanted)


def test_ticks_between_balance_the_slices() -> None:
    def tick(number: int, xmax: int, seq: int) -> Tick:
        return Tick(number, Snapshot(xmax, xmax, frozenset()), seq)

    got = cut(tick(1, 100, 0), tick(3, 1100, 1000), [tick(2, 1000, 500)], 2)
    assert [(s.low, s.high) for s in got] == [(100, 1000), (1000, 1100)]


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


def test_small_batches_take_one_task() -> None:
    assert slice_count(0, 8, 8) == 1
    assert slice_count(20_001, 8, 8) == 2
    assert slice_count(10**7, 8, 3) == 3
