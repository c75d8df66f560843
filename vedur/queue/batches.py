"""Batches of a consumer: as the queue gives them, how large, and as a source for several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from vedur.change.event import EventRange
from vedur.change.snapshot import Snapshot
from vedur.db import Database, Row
from vedur.sql import query


@dataclass(frozen=True, slots=True)
class Tick:
    """A row of pgq.tick."""

    id: int
    snapshot: Snapshot
    event_seq: int
    time: str = ""  # as a clock on the wall shows it where the provider is
    moment: datetime | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """An open batch: the events after tick `prev_tick` up to tick `tick`."""

    id: int
    prev_tick: int
    tick: int
    event_seq: int
    time: datetime | None = None  # of tick `tick`

    @property
    def origin(self) -> str:
        """Where the events are from, as `errors` says it."""
        return f"ticks: after {self.prev_tick} up to {self.tick}"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer's place in a queue and where the queue's events are."""

    sub_id: int
    events: str
    last_tick: int
    open_batch: int | None


def get_subscription(db: Database, queue: str, consumer: str) -> Subscription | None:
    """Read where a consumer stands; None where there is no such consumer."""
    row = db.one(query("worker", "subscription"), [queue, consumer])
    if row is None:
        return None
    return Subscription(row.sub_id, row.queue_data_pfx, row.sub_last_tick, row.sub_batch)


def get_ticks(db: Database, queue: str, first: int, last: int) -> list[Tick]:
    """Read the ticks from `first` to `last`, both included."""
    rows = db.query(query("worker", "ticks"), [db.database_zone(), queue, first, last])
    return [_tick(r) for r in rows]


def _tick(row: Row) -> Tick:
    snapshot = Snapshot.parse(row.snapshot)
    return Tick(row.tick_id, snapshot, row.tick_event_seq, row.tick_time, row.moment)


def get_ticks_ahead(
    db: Database, queue: str, first: int, last: int, events: int, page: int = 200
) -> list[Tick]:
    """Read the ticks from `first` to `last`, and on until one is more than `events` behind `last`.

    In pages: the backlog may hold very many ticks, and the cost of a batch must not grow
    with it. A page may reach further than asked for.
    """
    ticks: list[Tick] = []
    end: Tick | None = None
    while True:
        at = ticks[-1].id + 1 if ticks else first
        rows = db.query(query("worker", "next_ticks"), [db.database_zone(), queue, at, page])
        found = [_tick(r) for r in rows]
        ticks += found
        end = end or next((t for t in found if t.id >= last), None)
        if len(found) < page or (end and found[-1].event_seq - end.event_seq > events):
            return ticks


def get_backlog(db: Database, queue: str, tick: int, age: str = "0") -> int:
    """Read about how many events lie between a tick and the newest tick of some age."""
    return max(0, int(db.value(query("worker", "backlog"), [age, tick, queue]) or 0))


def next_batch(
    db: Database,
    queue: str,
    consumer: str,
    *,
    min_lag: str | None = None,
    min_count: int | None = None,
    min_interval: str | None = None,
) -> Batch | None:
    """Open the next batch, or read again the one that is open; None if there is none yet. Writes to
    the provider."""
    row = db.one(query("worker", "next_batch"), [queue, consumer, min_lag, min_count, min_interval])
    if row is None or row.batch_id is None:
        return None
    return Batch(
        row.batch_id,
        row.prev_tick_id,
        row.cur_tick_id,
        row.cur_tick_event_seq,
        row.cur_tick_time,
    )


def finish_batch(db: Database, batch: int) -> None:
    """Close a batch: writes the consumer's new place on the provider, which may forget it."""
    db.execute(query("worker", "finish_batch"), [batch])


# -- how much at once; pure -----------------------------------------------------------------------

# A consumer requests a batch of some number of events (`min_count`), and the queue answers with one
# that ends at a tick: at the newest, if no more than twice the requested size lies before it, else
# at the first tick that reaches the size. `batch_size` says what to request, `expected_end` where
# the batch will end: what is staged ahead of its batch is staged up to there.

#: Below this a second task costs more than it brings (a Spark task starts in about 20 ms, decodes
#: some 60,000 events in a second).
EVENTS_PER_SLICE = 20_000

#: A large backlog begins with a batch of that share of the limit, and batches grow to twice their
#: size: until the first one is staged nothing is merged, and merging is quicker than staging.
FIRST_SHARE = 4

#: Staging ahead costs a job of its own: not worth it for less.
PREFETCH_EVENTS = 2_000

#: A batch that is a Spark job costs some 50 ms of CPU, whatever is in it; ticks may come sooner.
JOB_DISTANCE = 0.1


def pause_before(backlog: int, since_last: float, *, by_job: bool) -> float:
    """Return the seconds to wait before a small batch, where the last one was a Spark job and began
    `since_last` seconds ago: some ticks together cost hardly more than one."""
    if not by_job or not 0 < backlog < PREFETCH_EVENTS:
        return 0.0
    return max(0.0, JOB_DISTANCE - since_last)


def first_limit(backlog: int, limit: int) -> int:
    """Return how many events a batch may have when nothing is staged."""
    share = limit // FIRST_SHARE
    # Batches only grow where the next one is staged ahead.
    return share if backlog > limit and 2 * share >= PREFETCH_EVENTS else limit


def next_limit(before: int, limit: int) -> int:
    """Return how many events the batch after one of `before` events may have."""
    return max(1, min(limit, max(limit // FIRST_SHARE, 2 * before)))


def merge_count(backlog: int, limit: int) -> int | None:
    """Return `min_count` for next_batch_custom, so that a consumer that is behind takes many ticks.

    What is between one limit and two is requested by halves: while the last batch is
    merged nothing is left to be staged beside it, so it should not be the largest.
    """
    count = backlog if backlog <= limit else min(limit, (backlog - 1) // 2)
    return count if count > 0 else None


def count_up_to(reach: int, backlog: int, limit: int) -> int | None:
    """Return `min_count` for a consumer that may not pass a tick `reach` events away.

    With less than half of the backlog requested, pgq takes the first tick that is enough, and
    one that is near enough is. So half of the way is made each time, and none too much.
    """
    count = min(reach, (backlog - 1) // 2, limit)
    return count if count > 0 else None


def batch_size(
    backlog: int,
    limit: int,
    *,
    staged: int | None = None,
    reach: int | None = None,
    collect: int = 0,
    interval: str | None = None,
) -> tuple[int | None, str | None]:
    """Return `min_count` and `min_interval` of the next batch.

    `staged` is the size that makes it the one that is staged; `reach` how many events away the last
    tick is that it may end at. To `collect` events, or for an `interval`, is waited unless the
    backlog is large: pgq takes what fulfils either, so a count would end that wait at once, and an
    interval would make many small batches of a backlog.
    """
    if reach is not None:
        return count_up_to(reach, backlog, limit), None
    if interval and backlog <= limit:
        return collect or None, interval
    count = min(staged or 0, backlog) or merge_count(backlog, first_limit(backlog, limit)) or 0
    return max(count, collect) or None, None


def expected_end(ticks: Sequence[Tick], requested: int) -> Tick | None:
    """Return where the batch after `ticks[0]` will end for a requested size; None if there is
    none."""
    if len(ticks) < 2:
        return None
    start, newest = ticks[0], ticks[-1]
    if newest.event_seq - start.event_seq <= 2 * requested:
        return newest
    return next(t for t in ticks[1:] if t.event_seq - start.event_seq >= requested)


def slice_count(events: int, parallel: int, connections: int) -> int:
    """Return how many tasks a batch gets: one for a small batch, more for a large one, never more
    than connections allow."""
    return max(1, min(parallel, connections, -(-events // EVENTS_PER_SLICE)))


# -- a range of ticks as a source that several tasks can read side by side ------------------------

# Ticks say how events spread over transactions, so most ranges are cut by txid (`cut`). A
# tick that holds most of the range cannot be cut like that: it may be one giant transaction. Then
# the pieces are stretches of the event tables themselves. These are only ever appended to while
# someone may read them, and all of the range is there, so no row can be missed or read twice.

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
    """Read how many events are of transactions that were running at the first tick and have ended
    since, up to a number that makes them worth a second task.

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
        most=LATE_SLICES * EVENTS_PER_SLICE + 1,
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
    """Return the events after the first of `ticks` up to the last, in up to `count` pieces; reads
    where they lie if ticks do not tell.

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
    if late > LATE_SLICES * EVENTS_PER_SLICE:
        return True
    total = ticks[-1].event_seq - ticks[0].event_seq
    largest = max(b.event_seq - a.event_seq for a, b in pairwise(ticks))
    return largest > GIANT_SLICES * EVENTS_PER_SLICE and largest * count > total


def dense(first: str, last: str, events: int) -> bool:
    """Is most of a stretch made of these events? A transaction of hours lies among many others,
    which would all be read."""
    pages = (_number(last) - _number(first)) // _PAGE_ROWS + 1
    return events >= pages * DENSE_ROWS


def stretches(first: str, last: str, count: int) -> list[str]:
    """Return conditions on ctid that together hold all from `first` to `last`, both included."""
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


# -- slices ---------------------------------------------------------------------------------------

# The events of any range of ticks as queries that can run side by side; pure.
#
# A tick is a snapshot. A range of ticks holds the transactions that its last tick sees and its
# first does not: those that began between the two, less the ones still running at the last, plus
# the ones that ran at the first and have ended since. That is a set of txids, so it can be cut
# into ranges of the index on `ev_txid`, and no row is read twice. No open batch is needed.


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
        """Return the slice as SQL over an expression."""
        parts = [f"{txid} >= {self.low} and {txid} < {self.high}"]
        if self.without:
            parts.append(f"{txid} <> all (array[{_numbers(self.without)}]::bigint[])")
        text = f"({' and '.join(parts)})"
        if not self.also:
            return text
        return f"({text} or {txid} = any (array[{_numbers(self.also)}]::bigint[]))"

    def contains(self, txid: int) -> bool:
        """Is a transaction in the slice? The same as `over`, in Python."""
        inside = self.low <= txid < self.high and txid not in self.without
        return inside or txid in self.also


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def whole(first: Tick, last: Tick) -> Slice:
    """Return a slice of all events after tick `first` up to tick `last`."""
    old, new = first.snapshot, last.snapshot
    low, high = old.xmax, max(old.xmax, new.xmax)
    return Slice(
        low,
        high,
        without=tuple(sorted(x for x in new.xip if low <= x < high)),
        also=tuple(sorted(x for x in old.xip if new.contains(x))),
    )


def cut(first: Tick, last: Tick, between: Sequence[Tick], count: int) -> list[Slice]:
    """Cut the same events into up to `count` slices of about equal size.

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
