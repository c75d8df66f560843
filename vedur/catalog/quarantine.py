"""Typed face of what schema vedur knows about poisoned events: errors, skips, the quarantine."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from vedur.change.aside import Blame, SkipRequest
from vedur.db import Database, Row
from vedur.errors import VedurError
from vedur.sql import query

log = logging.getLogger(__name__)

_COLUMNS = query("quarantine", "columns").split("\n", 1)[-1]


def available(db: Database) -> bool:
    """Has this database the tables? An installation of an earlier version has not, and a role
    that is not in `londiste_writer` cannot use them."""
    return bool(db.value(query("quarantine", "available")))


# -- what stops a consumer ------------------------------------------------------------------------


def note_error(
    db: Database,
    queue: str,
    consumer: str,
    ticks: tuple[int, int],
    error: VedurError,
    blamed: Blame | None,
) -> None:
    """Record what stops a batch."""
    event = blamed.event if blamed else None
    said = {
        "queue": queue,
        "consumer": consumer,
        "prev_tick": ticks[0],
        "tick": ticks[1],
        "ev_id": event.ev_id if event else None,
        "ev_txid": event.ev_txid if event else None,
        "ev_type": event.ev_type if event else None,
        "table": blamed.table if blamed else None,
        "dest": blamed.dest if blamed else None,
        "key": blamed.key if blamed else None,
        "sqlstate": error.values.get("sqlstate"),
        "message": error.message,
        "detail": error.values.get("detail"),
    }
    db.execute(query("quarantine", "note_error"), said)


def clear_error(db: Database, queue: str, consumer: str) -> None:
    """The batch went through."""
    db.execute(query("quarantine", "clear_error"), [queue, consumer])


def forget_trouble(db: Database, queue: str, consumer: str) -> None:
    """The consumer has ended, or begins anew: what stopped it and what was asked of it is past."""
    if available(db):
        clear_error(db, queue, consumer)
        for request in get_open_skips(db, queue, consumer):
            end_skip(db, request, "the copy that it was asked of has ended")


def get_errors(db: Database, queue: str) -> list[Row]:
    """What stops consumers of a queue here."""
    return db.query(query("quarantine", "errors"), [queue]) if available(db) else []


# -- skips ----------------------------------------------------------------------------------------


def get_open_skips(db: Database, queue: str, consumer: str) -> list[SkipRequest]:
    """Decisions of operators that are not carried out yet."""
    rows = db.query(query("quarantine", "open_skips"), [queue, consumer])
    return [
        SkipRequest(r.id, r.reason, r.asked_by, r.ev_id, r.ev_txid, r.table_name, r.tick_id)
        for r in rows
    ]


def ask_skip(db: Database, queue: str, consumer: str, asked: SkipRequest) -> int:
    """Record a decision; the number it got."""
    values = [asked.ev_id, asked.ev_txid, asked.table_name, asked.tick_id, asked.reason]
    return int(db.value(query("quarantine", "ask_skip"), [queue, consumer, *values]))


def end_skip(db: Database, request: SkipRequest, outcome: str) -> None:
    """Say what became of a decision."""
    db.execute(query("quarantine", "end_skip"), [outcome, request.id])


# -- leaving the quarantine -----------------------------------------------------------------------


def end_table(db: Database, queue: str, table: str, outcome: str, reason: str) -> int:
    """All events of a table leave; they stay in the log of the quarantine."""
    text = query("quarantine", "end_table").format(columns=_COLUMNS)
    return db.execute(text, [queue, table, outcome, reason])


def end_rows(db: Database, queue: str, ids: Iterable[int], outcome: str, reason: str) -> int:
    """Chosen events leave."""
    text = query("quarantine", "end_rows").format(columns=_COLUMNS)
    return db.execute(text, [queue, list(ids), outcome, reason])


def end_staged(
    db: Database,
    queue: str,
    table: str,
    last: int,
    stay: Collection[int],
    keys: Collection[str] | None,
    reason: str,
) -> int:
    """Events of a table up to number `last` were applied, but for those that stay."""
    chosen = None if keys is None else list(keys)
    text = query("quarantine", "end_staged").format(columns=_COLUMNS)
    return db.execute(text, [queue, table, last, list(stay), chosen, chosen, reason])


# -- looking at it --------------------------------------------------------------------------------


def get_counts(db: Database, queue: str) -> list[Row]:
    """How much there is, by table."""
    return db.query(query("quarantine", "count"), [queue])


def count_waiting(db: Database, queue: str, table: str) -> int:
    """Events of a table that wait; 0 where there is no quarantine, or the role may not look."""
    if not db.value(query("quarantine", "readable")):
        return 0
    return int(db.value(query("quarantine", "waiting"), [queue, table]))


def get_list(
    db: Database,
    queue: str,
    *,
    tables: Collection[str] | None = None,
    ids: Collection[int] | None = None,
    until: int | None = None,
    limit: int | None = None,
) -> list[Row]:
    """Events in their order, without their data."""
    said = {
        "queue": queue,
        "tables": None if tables is None else list(tables),
        "ids": None if ids is None else list(ids),
        "until": until,
        "limit": limit,
    }
    return db.query(query("quarantine", "list"), said)


def get_event(db: Database, queue: str, id: int) -> Row | None:
    """One event whole."""
    return db.one(query("quarantine", "show"), [queue, id])
