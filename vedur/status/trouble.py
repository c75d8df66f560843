"""What stands in the way of replay on a node, and what was put aside."""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database
from vedur.log import mask
from vedur.sql import query

#: More are counted by the commands; a page is for looking.
_MOST = 50


@dataclass(frozen=True)
class ReplayError:
    """What stops a consumer, for so many seconds: an event where it could be found."""

    consumer_name: str
    table_name: str | None
    row_key: str | None
    ev_id: int | None
    ev_type: str | None
    tick_id: int
    sqlstate: str | None
    message: str
    attempts: int
    seconds: float


@dataclass(frozen=True)
class Quarantined:
    """Events of one table that were put aside, counted by cause; the oldest is `seconds` old.

    The table is empty for events that are not about rows.
    """

    table_name: str
    events: int
    refused: int
    held: int
    skipped: int
    seconds: float


def read_errors(db: Database, queue: str) -> tuple[ReplayError, ...]:
    """Errors that are not solved, the latest first."""
    rows = db.query(query("overview", "replay_errors"), [queue, _MOST])
    return tuple(ReplayError(**{**row._asdict(), "message": mask(row.message)}) for row in rows)


def read_quarantine(db: Database, queue: str) -> tuple[Quarantined, ...]:
    """What was put aside, by table."""
    rows = db.query(query("overview", "quarantine"), [queue, _MOST])
    return tuple(Quarantined(**row._asdict()) for row in rows)
