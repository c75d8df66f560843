"""quarantine list, show, drop: read events in quarantine, or give them up."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.catalog.quarantine import (
    QuarantinedEvent,
    QuarantinedEventData,
    end_rows,
    get_event,
    get_events,
)
from vedur.errors import StateError, UsageError
from vedur.names import read_name
from vedur.node.position import lock_worker_position
from vedur.ops.quarantine.skip import require_quarantine
from vedur.ops.session import Session

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """Which events are meant: numbers in the quarantine, or tables; neither: all."""

    ids: tuple[int, ...] = ()
    tables: tuple[str, ...] = ()
    until_tick: int | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The tables by their names in the set, None for all."""
        return tuple(map(read_name, self.tables)) or None


def list_events(
    session: Session, choice: Choice, limit: int | None = None
) -> list[QuarantinedEvent]:
    """Read events in quarantine."""
    require_quarantine(session)
    return get_events(
        session.db,
        session.queue,
        tables=choice.names,
        ids=choice.ids or None,
        until=choice.until_tick,
        limit=limit,
    )


def show_event(session: Session, id: int) -> QuarantinedEventData:
    """Read one event with its data."""
    require_quarantine(session)
    event = get_event(session.db, session.queue, id)
    if event is None:
        raise StateError(f"there is no event {id} in quarantine: see quarantine list")
    return event


def drop(session: Session, choice: Choice, reason: str, *, sure: bool) -> list[QuarantinedEvent]:
    """Give events up; they stay in `vedur.quarantine_log`. Without `sure` only says which."""
    if not reason.strip():
        raise UsageError("quarantine drop needs --reason=TEXT: it is kept with the events")
    if not (choice.ids or choice.tables):
        raise UsageError("quarantine drop needs ID... or --table=NAME")
    require_quarantine(session)
    db = session.db
    with db.transaction():
        lock_worker_position(db, session.queue)
        rows = list_events(session, choice)
        if not rows:
            raise StateError("no such event in quarantine: see quarantine list")
        if not sure:
            raise UsageError(
                f"{len(rows)} event(s) would be given up: say --yes to do it; "
                "the rows will differ from the provider's until they change again, or repair"
            )
        end_rows(db, session.queue, [row.id for row in rows], "dropped", reason)
    for row in rows:
        log.warning(
            "gave up event %s of %s, key %s: %s",
            row.ev_id,
            row.table_name or row.ev_type,
            row.row_key,
            reason,
        )
    return rows
