"""Ticks and batches of a consumer, as the queue's own functions give them."""

from __future__ import annotations

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
