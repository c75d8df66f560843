"""Calls of `vedur.publish` and its kin: how events and ticks get into the queue of a branch, and
those of a part into a combined queue.

The SQL refuses every node that is not a branch (docs/design/cascade.md), or not a part of a
combined root (docs/design/combined.md). The worker comes here through `worker/branch_queue.py` and
`worker/combined_queue.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from vedur.db import Database
from vedur.errors import DatabaseError, StaleStage
from vedur.queue.passed import LeftOut, PassedPart
from vedur.sql import query

#: `vedur.publish` asks for the batch to be repeated, or to be staged again; `vedur.publish_part`
#: says that the node is not the root of the combined queue any more, or that this is closed.
_REPEAT = ("40001", "VB001", "VB002")


@dataclass(frozen=True, slots=True)
class TickRow:
    """A tick as it goes from node to node, all in the words of the server."""

    id: int
    time: str
    event_seq: int
    snapshot: str


@dataclass(frozen=True, slots=True)
class EndTick:
    """The tick with which a batch of a part ends, and the node that it was read from."""

    id: int
    time: datetime | None
    event_seq: int
    snapshot: str
    provider: str


@dataclass(frozen=True, slots=True)
class Passed:
    """What a batch passes on: the slices of a slot that hold its raw events, and its ticks."""

    slot: int
    slices: Sequence[int]
    events: int
    ticks: Sequence[TickRow]  # both ends included; none where the reader wants only the end
    end: EndTick
    watermark: int | None  # of the node itself, as it stands
    rules: Sequence[LeftOut] = ()  # which of the events this node leaves out
    above: Sequence[PassedPart] = ()  # which of them are missing already
    masks: Sequence[PassedPart] = ()  # of which tables they go on masked by this node


def read_tick_rows(provider: Database, queue: str, first: int, last: int) -> list[TickRow]:
    """Read the ticks of a range from the provider, both ends included."""
    rows = provider.query(query("publish", "ticks"), [queue, first, last])
    return [TickRow(r.tick_id, r.tick_time, r.tick_event_seq, r.tick_snapshot) for r in rows]


def publish(
    db: Database,
    queue: str,
    slot: int,
    slices: Sequence[int],
    events: int,
    ticks: Sequence[TickRow],
    watermark: int | None = None,
) -> int:
    """Write the events of some slices of a slot and all ticks of their range into the queue of a
    branch; belongs in the transaction of the data, before the position. Returns how many events.

    The first tick is the one that is published already. `watermark` replaces the global watermark
    that events tell. Raises StaleStage where the batch must be staged again.
    """
    values = {
        "queue": queue,
        "slot": slot,
        "slices": list(slices),
        "events": events,
        "ids": [t.id for t in ticks],
        "times": [t.time for t in ticks],
        "event_seqs": [t.event_seq for t in ticks],
        "snapshots": [t.snapshot for t in ticks],
        "watermark": watermark,
    }
    try:
        return int(db.value(query("publish", "publish"), values))
    except DatabaseError as error:
        if error.sqlstate not in _REPEAT:
            raise
        raise StaleStage(error.message) from error


def publish_part(
    db: Database,
    part: str,
    slot: int,
    slices: Sequence[int],
    events: int,
    end: EndTick,
) -> int:
    """Write the events of some slices of a slot, which a part has brought, into the combined queue,
    and the tick with which they end; belongs in the transaction of the data, before the position.
    Returns how many events. Raises StaleStage where the batch must be taken up again."""
    values = {
        "part": part,
        "slot": slot,
        "slices": list(slices),
        "events": events,
        "tick": end.id,
        "time": end.time,
        "event_seq": end.event_seq,
        "snapshot": end.snapshot,
        "provider": end.provider,
    }
    try:
        return int(db.value(query("combine", "publish"), values))
    except DatabaseError as error:
        if error.sqlstate not in _REPEAT:
            raise
        raise StaleStage(error.message) from error


def can_publish(db: Database) -> bool:
    """Read whether the SQL of this database is of a version that publishes."""
    return bool(db.value(query("publish", "can_publish")))


def read_copies_by_snapshot(db: Database, queue: str) -> list[str]:
    """Read the names of first copies of upstream's that read from this branch: while there are
    any, it must publish tick by tick."""
    return [str(row[0]) for row in db.query(query("publish", "copies_by_snapshot"), [queue])]
