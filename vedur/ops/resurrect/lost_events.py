"""lost-events: what only a deposed root had, for people and programs to read."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from vedur.catalog.lost_events import (
    LostEvent,
    forget_lost_events,
    get_lost_events,
    keeps_lost_events,
)
from vedur.change.as_sql import as_sql
from vedur.errors import StateError
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def read(session: Session) -> Iterator[LostEvent]:
    """Read what was kept on this node, in the order of writing."""
    session.require_node()
    if not keeps_lost_events(session.db):
        raise StateError(
            "schema vedur of this database is of an earlier version, or the role of the ini may "
            "not read lost events there"
        )
    yield from get_lost_events(session.db, session.queue)


def as_text(event: LostEvent, *, sql: bool) -> str:
    """Return an event as a statement, or as a line for people."""
    statement = as_sql(event.event)
    if sql:
        tick = f"tick {event.tick_id}" if event.tick_id is not None else "no tick"
        return f"-- event {event.ev_id}, {event.ev_time.isoformat()}, {tick}\n{statement}"
    line = " ".join(statement.split())
    return f"{event.ev_id} {event.ev_time.isoformat()} {line}"


def forget(session: Session) -> None:
    """Delete what was kept."""
    log.info("%d event(s) deleted", forget_lost_events(session.db, session.queue))
