"""Where a query stands in its queue, and the consumer that holds the place for it.

A position is a tick: everything up to it is read. A tick that is in `pgq.tick` still has all events
after it, because rotation removes both in one transaction.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.db import Database
from vedur.errors import StateError
from vedur.pipeline.source.options import Offset, SourceOptions
from vedur.pipeline.source.task import Slice
from vedur.queue.batches import cut, get_subscription, get_ticks, slice_count
from vedur.sql import query

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reach:
    """A queue's event table and the ticks it has now."""

    events: str
    first: int
    last: int


def find_queue(db: Database, queue: str) -> Reach:
    """Look at the queue; one that cannot be read from is an error."""
    row = db.one(query("source", "queue"), [queue])
    if row is None:
        raise StateError(f'queue "{queue}" does not exist in this database: check its name')
    if row.last_tick is None:
        raise StateError(f'queue "{queue}" has no ticks: start the ticker (pgqd)')
    return Reach(row.events, row.first_tick, row.last_tick)


def resolve(reach: Reach, queue: str, offset: Offset) -> int:
    """Return a word or number as a tick; one that the queue has not reached is an error."""
    if offset == "earliest":
        return reach.first
    if offset == "latest":
        return reach.last
    if offset > reach.last:
        raise StateError(
            f'tick {offset} is ahead of queue "{queue}", which is at tick {reach.last}: '
            "this is another queue, or a database restored to an earlier state"
        )
    return offset


def existing(db: Database, options: SourceOptions, reach: Reach, tick: int) -> int:
    """Read the tick itself or, where there is a gap in the numbers, the one before it.

    Older than all that is left means that events are lost: an error, or the oldest that is left.
    """
    if tick >= reach.first:
        row = db.one(query("source", "tick_at_most"), [options.queue, tick])
        if row is not None:
            return int(row.tick_id)
    message = (
        f'events of queue "{options.queue}" after tick {tick} were rotated away unread, the oldest '
        f"tick is {reach.first}: "
    )
    if options.fail_on_loss:
        raise StateError(
            message + "rebuild what this query feeds, or set failOnDataLoss=false to go on without "
            'them; option "consumerName" keeps it from happening'
        )
    log.warning("%s%s", message, "going on from there")
    return reach.first


def end_within(db: Database, queue: str, start: int, last: int, limit: int | None) -> int:
    """Read how far a micro-batch goes: the last tick within the limit, one tick at least."""
    if limit is None or last <= start:
        return max(start, last)
    row = db.one(query("source", "tick_at_most"), [queue, start])
    over = row and db.value(
        query("source", "tick_beyond"), [queue, start, last, row.tick_event_seq + limit]
    )
    if over is None:
        return last
    return int(db.value(query("source", "tick_before"), [queue, start, over]) or over)


def plan_slices(
    db: Database, options: SourceOptions, reach: Reach, start: int, end: int
) -> list[Slice]:
    """Read the ticks after `start` up to `end`, and cut their events into partitions; none if there
    are no ticks between."""
    start = existing(db, options, reach, start)
    if end <= start:
        return []
    ticks = get_ticks(db, options.queue, start, end)
    if len(ticks) < 2:
        return []
    first, last = ticks[0], ticks[-1]
    count = slice_count(last.event_seq - first.event_seq, options.partitions, options.partitions)
    return [
        Slice(reach.events, part.condition, first.id, last.id)
        for part in cut(first, last, ticks[1:-1], count)
    ]


def take_place(db: Database, options: SourceOptions, reach: Reach) -> int:
    """Read where a new stream begins; with a consumer, write its place in the queue.

    A consumer that is there already has a place, and events after it may be unread: only the
    number of a tick moves it.
    """
    if options.consumer is None:
        start = resolve(reach, options.queue, options.start or "latest")
        return existing(db, options, reach, start)
    found = get_subscription(db, options.queue, options.consumer)
    if found is not None and not isinstance(options.start, int):
        return found.last_tick
    start = existing(db, options, reach, resolve(reach, options.queue, options.start or "latest"))
    db.execute(query("source", "move_consumer"), [options.queue, options.consumer, start])
    return start


def keep_place(db: Database, options: SourceOptions, reach: Reach, start: int) -> None:
    """Register a consumer that was dropped meanwhile where the query stands; asked at a restart."""
    if options.consumer is None:
        return
    if get_subscription(db, options.queue, options.consumer) is None:
        at = existing(db, options, reach, start)
        db.execute(query("source", "move_consumer"), [options.queue, options.consumer, at])
        log.warning('consumer "%s" was gone and is registered again', options.consumer)


def advance(db: Database, options: SourceOptions, tick: int) -> None:
    """Write that everything up to the tick is done: rotation may have it."""
    params = {"queue": options.queue, "consumer": options.consumer, "tick": tick}
    db.query(query("source", "advance_consumer"), params)
