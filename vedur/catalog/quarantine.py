"""Typed face of schema vedur: events that stop consumers, skips, the quarantine."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from vedur.change.quarantine import FailedEvent, SkipRequest
from vedur.db import Database
from vedur.errors import VedurError
from vedur.log import mask
from vedur.sql import query

log = logging.getLogger(__name__)

_COLUMNS = query("quarantine", "columns").split("\n", 1)[-1]


@dataclass(frozen=True)
class StuckEvent:
    """What stops a consumer, for so many seconds: an event, or a batch where no event was found."""

    consumer_name: str
    prev_tick: int
    tick_id: int
    ev_id: int | None
    ev_txid: int | None
    ev_type: str | None
    table_name: str | None
    dest_table: str | None
    row_key: str | None
    sqlstate: str | None
    message: str
    detail: str | None
    attempts: int
    first_seen: datetime
    last_seen: datetime
    seconds: float


@dataclass(frozen=True)
class QuarantinedEvent:
    """An event in quarantine, without its data."""

    id: int
    table_name: str | None
    dest_table: str | None
    row_key: str | None
    ev_id: int
    ev_txid: int
    ev_type: str
    prev_tick: int
    tick_id: int
    holds: str
    cause: str
    sqlstate: str | None
    message: str | None
    reason: str | None
    decided_by: str | None
    quarantined_at: datetime


@dataclass(frozen=True)
class QuarantinedEventData:
    """An event in quarantine with its data: all columns of `vedur.quarantine`, in their order."""

    id: int
    queue_name: str
    consumer_name: str
    prev_tick: int
    tick_id: int
    ev_id: int
    ev_txid: int
    ev_type: str
    ev_data: str | None
    ev_extra1: str | None
    ev_extra2: str | None
    ev_extra3: str | None
    ev_extra4: str | None
    table_name: str | None
    dest_table: str | None
    row_key: str | None
    holds: str
    cause: str
    sqlstate: str | None
    message: str | None
    reason: str | None
    decided_by: str | None
    quarantined_at: datetime


@dataclass(frozen=True)
class TableCount:
    """How much of one table is in quarantine: `whole` if the table takes no changes at all. No
    table: events that are not about rows."""

    table_name: str | None
    events: int
    rows: int
    whole: bool
    since: datetime


def available(db: Database) -> bool:
    """Does this database have the tables, and may this role use them? An installation of an earlier
    version has none, and a role that is not in `londiste_writer` may not."""
    return bool(db.value(query("quarantine", "available")))


# -- what stops a consumer ------------------------------------------------------------------------


def record_stuck_event(
    db: Database,
    queue: str,
    consumer: str,
    ticks: tuple[int, int],
    error: VedurError,
    failed: FailedEvent | None,
) -> None:
    """Record what stops a batch; the same event again counts as one more attempt."""
    event = failed.event if failed else None
    said = {
        "queue": queue,
        "consumer": consumer,
        "prev_tick": ticks[0],
        "tick": ticks[1],
        "ev_id": event.ev_id if event else None,
        "ev_txid": event.ev_txid if event else None,
        "ev_type": event.ev_type if event else None,
        "table": failed.table if failed else None,
        "dest": failed.dest if failed else None,
        "key": failed.key if failed else None,
        "sqlstate": error.values.get("sqlstate"),
        "message": error.message,
        "detail": error.values.get("detail"),
    }
    db.execute(query("quarantine", "record_stuck_event"), said)


def clear_stuck_event(db: Database, queue: str, consumer: str) -> None:
    """Delete what stopped a consumer: its batch went through."""
    db.execute(query("quarantine", "clear_stuck_event"), [queue, consumer])


def forget_stuck_event(db: Database, queue: str, consumer: str) -> None:
    """Delete what stopped a consumer and end the skips that were asked of it: the consumer has
    ended, or starts again from the beginning."""
    if available(db):
        clear_stuck_event(db, queue, consumer)
        for request in get_open_skips(db, queue, consumer):
            end_skip(db, request, "the copy that it was asked of has ended")


def forget_stuck_events(db: Database, queue: str, consumers: Sequence[str]) -> None:
    """Do the same for several consumers; most of them have nothing of the kind."""
    if available(db):
        asked = {"queue": queue, "consumers": list(consumers)}
        for row in db.query(query("copies", "with_troubles"), asked):
            forget_stuck_event(db, queue, row.name)


def get_stuck_events(db: Database, queue: str) -> list[StuckEvent]:
    """Read what stops consumers of a queue here; passwords in messages are masked."""
    rows = db.query(query("quarantine", "stuck_events"), [queue])
    return [_masked(StuckEvent(*row)) for row in rows]


def _masked(stuck: StuckEvent) -> StuckEvent:
    detail = None if stuck.detail is None else mask(stuck.detail)
    return replace(stuck, message=mask(stuck.message), detail=detail)


# -- skips ----------------------------------------------------------------------------------------


def get_open_skips(db: Database, queue: str, consumer: str) -> list[SkipRequest]:
    """Read decisions of operators that are not carried out yet."""
    rows = db.query(query("quarantine", "open_skips"), [queue, consumer])
    return [
        SkipRequest(r.id, r.reason, r.asked_by, r.ev_id, r.ev_txid, r.table_name, r.tick_id)
        for r in rows
    ]


def ask_skip(db: Database, queue: str, consumer: str, asked: SkipRequest) -> int:
    """Record a decision to skip; returns its number."""
    values = [asked.ev_id, asked.ev_txid, asked.table_name, asked.tick_id, asked.reason]
    return int(db.value(query("quarantine", "ask_skip"), [queue, consumer, *values]))


def end_skip(db: Database, request: SkipRequest, outcome: str) -> None:
    """Record the outcome of a decision."""
    db.execute(query("quarantine", "end_skip"), [outcome, request.id])


# -- leaving the quarantine -----------------------------------------------------------------------


def end_table(db: Database, queue: str, table: str, outcome: str, reason: str) -> int:
    """Move all events of a table from the quarantine to its log; returns how many."""
    text = query("quarantine", "end_table").format(columns=_COLUMNS)
    return db.execute(text, [queue, table, outcome, reason])


def forget_values(db: Database, queue: str, table: str) -> None:
    """Forget what is kept of rows of a table: events in quarantine, the record of how others left
    it, and that of repairs. For rows that may not be here any more in the clear."""
    if not available(db):
        return
    end_table(db, queue, table, "obsolete", "the table has got a handler that rewrites its rows")
    db.execute(query("quarantine", "forget_values"), {"queue": queue, "table": table})


def end_rows(db: Database, queue: str, ids: Iterable[int], outcome: str, reason: str) -> int:
    """Move chosen events from the quarantine to its log; returns how many."""
    text = query("quarantine", "end_rows").format(columns=_COLUMNS)
    return db.execute(text, [queue, list(ids), outcome, reason])


@dataclass(frozen=True)
class ReplayedEvents:
    """Events in quarantine that were applied: those of a table up to number `last`, without those
    that `stay`; where `keys` are given, of the rows with these keys only."""

    table: str
    last: int
    stay: Collection[int]
    keys: Collection[str] | None = None


def end_staged(db: Database, queue: str, events: ReplayedEvents, reason: str) -> int:
    """Move events that were replayed to the log; returns how many."""
    chosen = None if events.keys is None else list(events.keys)
    text = query("quarantine", "end_staged").format(columns=_COLUMNS)
    words = [queue, events.table, events.last, list(events.stay), chosen, chosen, reason]
    return db.execute(text, words)


# -- looking at it --------------------------------------------------------------------------------


def count_by_table(db: Database, queue: str) -> list[TableCount]:
    """Count what is in quarantine, by table."""
    rows = db.query(query("quarantine", "count"), [queue])
    return [TableCount(*row) for row in rows]


def count_quarantined(db: Database, queue: str, table: str) -> int:
    """Count the events of a table in quarantine; 0 where the role may not read it."""
    if not db.value(query("quarantine", "readable")):
        return 0
    return int(db.value(query("quarantine", "waiting"), [queue, table]))


def get_events(
    db: Database,
    queue: str,
    *,
    tables: Collection[str] | None = None,
    ids: Collection[int] | None = None,
    until: int | None = None,
    limit: int | None = None,
) -> list[QuarantinedEvent]:
    """Read events in their order, without their data; each filter counts if it is given."""
    params = {
        "queue": queue,
        "tables": None if tables is None else list(tables),
        "ids": None if ids is None else list(ids),
        "until": until,
        "limit": limit,
    }
    return [QuarantinedEvent(*row) for row in db.query(query("quarantine", "list"), params)]


def get_event(db: Database, queue: str, id: int) -> QuarantinedEventData | None:
    """Read one event with its data."""
    row = db.one(query("quarantine", "show").format(columns=_COLUMNS), [queue, id])
    return None if row is None else QuarantinedEventData(*row)
