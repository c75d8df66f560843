"""Ticks and batches of a consumer, as the queue's own functions give them, and their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from vedur.change.snapshot import Snapshot
from vedur.db import Database, Row
from vedur.queue.slices import Tick
from vedur.sql import query


@dataclass(frozen=True, slots=True)
class Batch:
    """An open batch: the events after tick `prev_tick` up to tick `tick`."""

    id: int
    prev_tick: int
    tick: int
    prev_event_seq: int
    event_seq: int
    time: datetime | None = None  # of tick `tick`


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
    rows = db.query(query("worker", "ticks"), [queue, first, last])
    return [_tick(r) for r in rows]


def _tick(row: Row) -> Tick:
    return Tick(row.tick_id, Snapshot.parse(row.snapshot), row.tick_event_seq, row.tick_time)


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
        rows = db.query(query("worker", "next_ticks"), [queue, at, page])
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
        row.prev_tick_event_seq,
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


def first_limit(backlog: int, limit: int) -> int:
    """How many events a batch may have when nothing is staged."""
    share = limit // FIRST_SHARE
    # Batches only grow where the next one is staged ahead.
    return share if backlog > limit and 2 * share >= PREFETCH_EVENTS else limit


def next_limit(before: int, limit: int) -> int:
    """How many events the batch after one of `before` events may have."""
    return max(1, min(limit, max(limit // FIRST_SHARE, 2 * before)))


def merge_count(backlog: int, limit: int) -> int | None:
    """`min_count` for next_batch_custom, so that a consumer that is behind takes many ticks.

    What is between one limit and two is requested by halves: while the last batch is
    merged nothing is left to be staged beside it, so it should not be the largest.
    """
    count = backlog if backlog <= limit else min(limit, (backlog - 1) // 2)
    return count if count > 0 else None


def count_up_to(reach: int, backlog: int, limit: int) -> int | None:
    """`min_count` for a consumer that may not pass a tick `reach` events away.

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
    """`min_count` and `min_interval` of the next batch.

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
    """Where the batch after `ticks[0]` will end for a requested size; None if there is none."""
    if len(ticks) < 2:
        return None
    start, newest = ticks[0], ticks[-1]
    if newest.event_seq - start.event_seq <= 2 * requested:
        return newest
    return next(t for t in ticks[1:] if t.event_seq - start.event_seq >= requested)


def slice_count(events: int, parallel: int, connections: int) -> int:
    """One task for a small batch, more for a large one, never more than connections allow."""
    return max(1, min(parallel, connections, -(-events // EVENTS_PER_SLICE)))
