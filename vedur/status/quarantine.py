"""What stops replay on a node, and what is in quarantine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vedur.catalog.quarantine import StuckEvent, get_stuck_events
from vedur.db import Database
from vedur.sql import query

#: More are counted by the commands; a page is for looking.
_MOST = 50


@dataclass(frozen=True)
class Quarantined:
    """Events of one table in quarantine, counted by cause; the oldest is `seconds` old.

    The table is empty for events that are not about rows.
    """

    table_name: str
    events: int
    refused: int
    held: int
    skipped: int
    seconds: float


#: Fields of a stuck event that pages and their JSON show. The server's detail may quote whole rows.
SHOWN = (
    "consumer_name",
    "table_name",
    "row_key",
    "ev_id",
    "ev_type",
    "tick_id",
    "sqlstate",
    "message",
    "attempts",
    "seconds",
)


def read_stuck_events(db: Database, queue: str) -> tuple[StuckEvent, ...]:
    """Read what stops consumers, the latest first."""
    stuck = get_stuck_events(db, queue)
    return tuple(sorted(stuck, key=lambda s: s.last_seen, reverse=True)[:_MOST])


def stuck_dict(stuck: StuckEvent) -> dict[str, Any]:
    """Convert to plain values for JSON."""
    return {name: getattr(stuck, name) for name in SHOWN}


def read_quarantine(db: Database, queue: str) -> tuple[Quarantined, ...]:
    """Count what is in quarantine, by table."""
    rows = db.query(query("overview", "quarantine"), [queue, _MOST])
    return tuple(Quarantined(**row._asdict()) for row in rows)
