"""A range of ticks as a source that several tasks can read side by side.

Ticks say how events spread over transactions, so most ranges are cut by txid (`slices.cut`). A
tick that holds most of the range cannot be cut like that: it may be one giant transaction. Then
the pieces are stretches of the event tables themselves. These are only ever appended to while
someone may read them, and all of the range is there, so no row can be missed or read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vedur.change.event import EventRange
from vedur.db import Database
from vedur.queue import batches
from vedur.queue.batches import Subscription
from vedur.queue.slices import Tick, cut, whole
from vedur.sql import query

#: A tick of that many slices' events is looked at: finding its place costs the provider one more
#: scan of it by the index, so it should be worth a second task by far.
GIANT_SLICES = 5
#: The same for what came late, of which nothing is known without a look: no more than that many
#: slices' events are counted.
LATE_SLICES = 2
#: Events on a page of a stretch that is read without the index; a page holds 20 to 60 of them.
DENSE_ROWS = 5
#: More rows than fit on a page of any size: a place in a table as one number.
_PAGE_ROWS = 1 << 16


def late_events(provider: Database, place: Subscription, ticks: Sequence[Tick]) -> int:
    """Events of transactions that were running at the first tick and have ended since, up to a
    number that makes them worth a second task.

    A tick knows what events had been written by then, not by whom: those of a transaction that
    takes longer than a tick are counted in ticks that do not hold them. An UPDATE of 200,000 rows
    looked like a range of no events, and one task read it all.
    """
    late = whole(ticks[0], ticks[-1]).also
    if not late:
        return 0
    text = query("worker", "late_events").format(
        events=place.events,
        txids=",".join(map(str, late)),
        most=LATE_SLICES * batches.EVENTS_PER_SLICE + 1,
    )
    return int(provider.value(text))


def event_range(
    provider: Database,
    place: Subscription,
    ticks: Sequence[Tick],
    count: int,
    also: str = "",
    late: int = 0,
) -> EventRange:
    """The events after the first of `ticks` up to the last, in up to `count` pieces.

    `also` is a further condition on events, as SQL; `late` what `late_events` says.
    """
    first, last = ticks[0], ticks[-1]
    more = f" and {also}" if also else ""
    conditions: list[str] = []
    if count > 1 and _lopsided(ticks, count, late):
        text = query("worker", "event_places")
        every = whole(first, last)
        found = provider.one(text.format(events=place.events, slice=every.condition))
        if found.first is not None and dense(found.first, found.last, found.events):
            # The index on txids would make every task read the whole transaction.
            base = every.over("(ev_txid + 0)")
            conditions = [f"{base} and {c}" for c in stretches(found.first, found.last, count)]
    if not conditions:
        conditions = [s.condition for s in cut(first, last, ticks[1:-1], count)]
    listed = tuple(c + more for c in conditions)
    return EventRange(place.events, listed, place.sub_id, last.time, last.id)


def _lopsided(ticks: Sequence[Tick], count: int, late: int = 0) -> bool:
    """Does one tick, or what came late, hold more than its share, and much?"""
    if late > LATE_SLICES * batches.EVENTS_PER_SLICE:
        return True
    total = ticks[-1].event_seq - ticks[0].event_seq
    largest = max(b.event_seq - a.event_seq for a, b in pairwise(ticks))
    return largest > GIANT_SLICES * batches.EVENTS_PER_SLICE and largest * count > total


def dense(first: str, last: str, events: int) -> bool:
    """Is most of a stretch made of these events? A transaction of hours lies among many others,
    which would all be read."""
    pages = (_number(last) - _number(first)) // _PAGE_ROWS + 1
    return events >= pages * DENSE_ROWS


def stretches(first: str, last: str, count: int) -> list[str]:
    """Conditions on ctid that together hold all from `first` to `last`, both included."""
    low, high = _number(first), _number(last) + 1
    borders = sorted({low + (high - low) * step // count for step in range(count + 1)})
    return [
        f"ctid >= '{_place(begin)}'::tid and ctid < '{_place(end)}'::tid"
        for begin, end in pairwise(borders)
    ]


def _number(place: str) -> int:
    page, row = place.strip("()").split(",")
    return int(page) * _PAGE_ROWS + int(row)


def _place(number: int) -> str:
    return f"({number // _PAGE_ROWS},{number % _PAGE_ROWS})"
