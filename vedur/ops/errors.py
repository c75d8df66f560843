"""errors: what stands in the way of a node, what was put aside, and the next command to type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.quarantine import available, get_counts, get_errors
from vedur.catalog.rejoin import get_rejoin_tables
from vedur.change.event import parse_type
from vedur.db import Row
from vedur.errors import StateError
from vedur.log import mask
from vedur.node.info import get_consumer_info
from vedur.node.position import is_lost
from vedur.ops.session import Session
from vedur.status.snapshot import read_copies

RETRIES = "fix the cause shown above; the worker retries by itself. Its log says more"
_LOST = "the position of this node is lost"
#: What mends a lost position.
_REJOIN = (
    "rejoin   (says what is wrong and what it would do)",
    "rejoin --apply   (does it; nothing is copied where rows are there)",
)


@dataclass(frozen=True)
class Trouble:
    """One thing that needs a decision. `actions` are commands without program and ini, or words."""

    kind: str  # event, batch, position, rejoin, copy, quarantine
    what: str
    message: str | None = None
    consumer: str | None = None
    table: str | None = None
    dest_table: str | None = None
    key: str | None = None
    ev_id: int | None = None
    ev_txid: int | None = None
    ev_type: str | None = None
    prev_tick: int | None = None
    tick: int | None = None
    sqlstate: str | None = None
    detail: str | None = None
    attempts: int | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    events: int | None = None
    actions: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For `--json`: what is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def errors(session: Session) -> list[Trouble]:
    """Everything on the local node that waits for somebody."""
    session.require_node()
    tables = {t.table_name: t for t in get_table_list(session.db, session.queue)}
    stopped = list(_stopped(session, tables))
    named = {trouble.table for trouble in stopped if trouble.kind == "event"}
    copies = [trouble for trouble in _copies(session) if trouble.table not in named]
    return [*stopped, *_rejoins(session), *copies, *_quarantined(session)]


def _rejoins(session: Session) -> Iterator[Trouble]:
    left = get_rejoin_tables(session.db, session.queue)
    if left:
        yield Trouble(
            "rejoin",
            f"a rejoin is under way or was broken off, {len(left)} table(s) are yet to be repaired",
            ", ".join(sorted(left)[:10]),
            actions=(
                "rejoin --apply   (goes on where it was)",
                "resync TABLE   (copies a table anew instead)",
            ),
        )


def _stopped(session: Session, tables: dict[str, TableInfo]) -> Iterator[Trouble]:
    noted = get_errors(session.db, session.queue)
    for row in noted:
        yield _event(row, tables) if row.ev_id is not None else _batch(row)
    known = {row.consumer_name for row in noted}
    for consumer in get_consumer_info(session.db, session.queue):
        text = (consumer.cur_error or "").strip()
        if text and consumer.consumer_name not in known:
            lost = is_lost(text)
            yield Trouble(
                "position" if lost else "batch",
                "the position of this node is lost"
                if lost
                else "the worker of this node is stopped",
                mask(text.splitlines()[0]),
                consumer.consumer_name,
                actions=_REJOIN if lost else (RETRIES,),
            )


def _event(row: Row, tables: dict[str, TableInfo]) -> Trouble:
    actions: tuple[str, ...]
    skip = f"skip --event={row.ev_id} --reason=TEXT"
    if row.table_name is None:
        what = "a script fails" if row.ev_type == "EXECUTE" else "a system event fails"
        actions = (
            "fix what it complains about; the worker retries by itself",
            f"{skip}   (this node goes on without it)",
        )
    else:
        copying = row.consumer_name.endswith(f".copy.{row.table_name}")
        what = "an event is refused" + (", the first copy cannot catch up" if copying else "")
        actions = (
            f"fix the table; the {'copy' if copying else 'worker'} retries by itself",
            f"change-table {row.table_name} --on-error=quarantine-row   "
            "(rows that are refused wait in quarantine, the others go on)",
            f"{skip}   (this event waits in quarantine, and later ones of its row)",
        )
        if row.table_name not in tables or not tables[row.table_name].local:
            actions = ("the table is no longer here: the next attempt goes on without it",)
    return Trouble("event", what, **_fields(row), actions=actions)


def _batch(row: Row) -> Trouble:
    if is_lost(row.message):
        return Trouble("position", _LOST, **_fields(row), actions=_REJOIN)
    action = RETRIES
    return Trouble("batch", "a batch cannot be applied", **_fields(row), actions=(action,))


def _fields(row: Row) -> dict[str, Any]:
    return {
        "message": mask(row.message),
        "consumer": row.consumer_name,
        "table": row.table_name,
        "dest_table": row.dest_table,
        "key": row.row_key,
        "ev_id": row.ev_id,
        "ev_txid": row.ev_txid,
        "ev_type": _kind(row.ev_type),
        "prev_tick": row.prev_tick,
        "tick": row.tick_id,
        "sqlstate": row.sqlstate,
        "detail": mask(row.detail) if row.detail else None,
        "attempts": row.attempts,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
    }


_OPS = {"I": "insert", "U": "update", "D": "delete", "R": "truncate"}


def _kind(ev_type: str | None) -> str | None:
    """The operation in a word; what cannot be read stays as it is."""
    if ev_type is None:
        return None
    try:
        return _OPS.get(parse_type(ev_type).op, ev_type)
    except StateError:
        return ev_type


def _copies(session: Session) -> Iterator[Trouble]:
    for copy in read_copies(session.db, session.queue):
        if copy.error:
            yield Trouble(
                "copy",
                f"the first copy is stopped at step {copy.step} ({copy.step_name})",
                mask(copy.error),
                table=copy.table_name,
                actions=(
                    "fix the cause; the copy is tried again by itself and resumes where it was",
                ),
            )


def _quarantined(session: Session) -> Iterator[Trouble]:
    if not available(session.db):
        return
    for row in get_counts(session.db, session.queue):
        if row.table_name is None:
            what = f"{row.events} system event(s) or script(s) in quarantine"
            only = ""
        else:
            held = "the table takes no changes" if row.whole else f"{row.rows} row(s) wait"
            what = f"{row.events} event(s) in quarantine, {held}"
            only = f" --table={row.table_name}"
        yield Trouble(
            "quarantine",
            what,
            table=row.table_name,
            events=row.events,
            first_seen=row.since,
            actions=(
                f"quarantine list{only}",
                f"quarantine replay{only}   (when the table is mended)",
            ),
        )
