"""A part that waits behind a combined queue: how far its own events about the set are carried out.

Where this node is a branch of the combined queue, rows of the part come through that. The position
of the part moves with it (`vedur.follow_part`), and behind it the worker of the part carries out
what its queue says of nodes and tables: `vedur.part_wait` has the tick up to which that is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Answer, Database, command
from vedur.sql import query


def read_handled_tick(db: Database, part: str) -> int | None:
    """Read up to which tick a part's events about its set are carried out; None where that is its
    position, because nobody has moved it but its own worker."""
    tick = db.value(query("combine", "handled_tick"), [part])
    return None if tick is None else int(tick)


def begin_waiting(db: Database, part: str, tick: int) -> None:
    """Write down that a new part, which begins at a tick, waits until the combined queue tells of
    it; belongs in the transaction that creates it."""
    db.execute(query("combine", "begin_waiting"), [part, tick])


def set_handled_tick(db: Database, part: str, tick: int) -> None:
    """Write it, in the transaction in which they are carried out."""
    db.execute(query("combine", "set_handled_tick"), [part, tick])


def end_waiting(db: Database, part: str) -> None:
    """Forget it: from now on the position of the part tells."""
    db.execute(query("combine", "end_waiting"), [part])


@dataclass(frozen=True)
class PartTick:
    """A tick of a part up to which a combined queue has it, as the root of that tells: what the
    part's queue has of the tick, and the node that it was read from. Older roots tell the id
    alone."""

    part: str
    id: int
    time: str | None = None
    event_seq: int | None = None
    snapshot: str | None = None
    provider: str | None = None


def follow_part(db: Database, combined: str, tick: PartTick) -> Answer:
    """Move a part to the tick that the combined queue has brought, in the transaction of its rows;
    nothing happens where this node has no such part."""
    said = (tick.part, tick.id, tick.time, tick.event_seq, tick.snapshot, tick.provider)
    return command(db, "vedur.follow_part", combined, *said, quiet=True)


@dataclass(frozen=True)
class PartPlace:
    """A part that is merged into a combined queue on a node: the tick up to which the tables have
    it, and the tables that it brings. Where `told` is False, that tick is not known yet."""

    name: str
    tick: int
    paused: bool
    told: bool
    tables: tuple[str, ...]


def read_parts(db: Database, combined: str) -> dict[str, PartPlace]:
    """Read the parts of a combined queue on a node, by name."""
    rows = db.query(query("combine", "parts"), [combined])
    return {
        r.queue_name: PartPlace(r.queue_name, r.last_tick_id, r.paused, r.told, tuple(r.tables))
        for r in rows
    }


def can_combine(db: Database) -> bool:
    """Read whether the SQL of this database is of a version that serves parts."""
    return bool(db.value(query("combine", "can_combine")))


def is_closed(db: Database, combined: str) -> bool:
    """Read whether a combined queue takes nothing: its root was closed for a takeover."""
    return bool(db.value(query("takeover", "is_closed"), [combined]))
