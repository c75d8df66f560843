"""Tick ranges as sets of txids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedur.change.snapshot import Snapshot
from vedur.queue.batches import Tick, cut, whole


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
