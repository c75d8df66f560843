"""quarantine: look at events that were put aside, or give them up; replay has its own module."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.catalog.quarantine import end_rows, get_counts, get_event, get_list
from vedur.db import Database, Row
from vedur.errors import StateError, UsageError
from vedur.names import read_name
from vedur.node.info import NodeInfo
from vedur.ops.session import Session
from vedur.ops.skip import require_quarantine
from vedur.sql import query

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


def list_events(session: Session, choice: Choice, limit: int | None = None) -> list[Row]:
    """Events in quarantine."""
    require_quarantine(session)
    return get_list(
        session.db,
        session.queue,
        tables=choice.names,
        ids=choice.ids or None,
        until=choice.until_tick,
        limit=limit,
    )


def show_event(session: Session, id: int) -> Row:
    """One event with its data."""
    require_quarantine(session)
    found = get_event(session.db, session.queue, id)
    if found is None:
        raise StateError(f"there is no event {id} in quarantine: see quarantine list")
    return found


def drop(session: Session, choice: Choice, reason: str, *, sure: bool) -> list[Row]:
    """Give events up; they stay in `vedur.quarantine_log`. Without `sure` only says which."""
    if not reason.strip():
        raise UsageError("quarantine drop needs --reason=TEXT: it is kept with the events")
    if not (choice.ids or choice.tables):
        raise UsageError("quarantine drop needs ID... or --table=NAME")
    info = require_quarantine(session)
    db = session.db
    with db.transaction():
        lock_position(db, session.queue, info)
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


def lock_position(db: Database, queue: str, info: NodeInfo) -> None:
    """No batch is committed until this transaction ends."""
    db.query(query("worker", "lock_position"), [queue, info.worker_name])


def counts(session: Session) -> list[Row]:
    """How much there is, by table."""
    require_quarantine(session)
    return get_counts(session.db, session.queue)
