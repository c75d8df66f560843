"""The events of any range of ticks as queries that can run side by side. Pure.

A tick is a snapshot. A range of ticks holds the transactions that its last tick sees and its
first does not: those that began between the two, less the ones still running at the last, plus
the ones that ran at the first and have ended since. That is a set of txids, so it can be cut
into ranges of the index on `ev_txid`, and no row is read twice. No open batch is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vedur.change.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Tick:
    """A row of pgq.tick."""

    id: int
    snapshot: Snapshot
    event_seq: int
    time: str = ""  # as a clock on the wall shows it where the provider is


@dataclass(frozen=True, slots=True)
class Slice:
    """Transactions low <= txid < high but for `without`, and `also` ones outside that range."""

    low: int
    high: int
    without: tuple[int, ...] = ()
    also: tuple[int, ...] = ()

    @property
    def condition(self) -> str:
        """The slice as SQL over ev_txid."""
        return self.over("ev_txid")

    def over(self, txid: str) -> str:
        """The slice as SQL over an expression."""
        parts = [f"{txid} >= {self.low} and {txid} < {self.high}"]
        if self.without:
            parts.append(f"{txid} <> all (array[{_numbers(self.without)}]::bigint[])")
        text = f"({' and '.join(parts)})"
        if not self.also:
            return text
        return f"({text} or {txid} = any (array[{_numbers(self.also)}]::bigint[]))"

    def contains(self, txid: int) -> bool:
        """The same in Python."""
        inside = self.low <= txid < self.high and txid not in self.without
        return inside or txid in self.also


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def whole(first: Tick, last: Tick) -> Slice:
    """All events after tick `first` up to tick `last`."""
    old, new = first.snapshot, last.snapshot
    low, high = old.xmax, max(old.xmax, new.xmax)
    return Slice(
        low,
        high,
        without=tuple(sorted(x for x in new.xip if low <= x < high)),
        also=tuple(sorted(x for x in old.xip if new.contains(x))),
    )


def cut(first: Tick, last: Tick, between: Sequence[Tick], count: int) -> list[Slice]:
    """The same events in up to `count` slices of about equal size.

    Ticks between say how events spread over txids; without them txids are cut evenly.
    """
    total = whole(first, last)
    borders = _borders(first, last, between, count, total)
    slices = []
    for at, (low, high) in enumerate(pairwise(borders)):
        without = tuple(x for x in total.without if low <= x < high)
        slices.append(Slice(low, high, without, total.also if at == 0 else ()))
    return slices or [total]


def _borders(
    first: Tick, last: Tick, between: Sequence[Tick], count: int, total: Slice
) -> list[int]:
    marks = [(first.event_seq, total.low)]
    marks += [(t.event_seq, t.snapshot.xmax) for t in between]
    marks.append((last.event_seq, total.high))
    borders = [total.low]
    for step in range(1, count):
        goal = first.event_seq + (last.event_seq - first.event_seq) * step // count
        border = _interpolate(marks, goal)
        if borders[-1] < border < total.high:
            borders.append(border)
    borders.append(total.high)
    return borders


def _interpolate(marks: list[tuple[int, int]], goal: int) -> int:
    for (seq1, xid1), (seq2, xid2) in pairwise(marks):
        if goal <= seq2:
            span = max(seq2 - seq1, 1)
            return xid1 + (xid2 - xid1) * (goal - seq1) // span
    return marks[-1][1]
