"""errors: what stops a node, what is in quarantine, and the next command to type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.quarantine import (
    StuckEvent,
    available,
    count_by_table,
    get_stuck_events,
)
from vedur.catalog.rejoin import get_rejoin_tables
from vedur.catalog.watch import read_table_problems
from vedur.change.event import parse_type
from vedur.errors import StateError, first_line
from vedur.log import mask
from vedur.node.info import NodeType, get_consumer_info
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
class ErrorReport:
    """One thing that needs a decision. `stuck` is the event or batch, where one stops a consumer;
    `actions` are commands without program and ini, or words."""

    kind: str  # event, batch, position, rejoin, copy, table, quarantine
    what: str
    message: str | None = None
    consumer: str | None = None
    table: str | None = None
    events: int | None = None
    first_seen: datetime | None = None
    stuck: StuckEvent | None = None
    actions: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: str, what: str, stuck: StuckEvent, actions: tuple[str, ...]) -> ErrorReport:
        """Report what stops a consumer."""
        return cls(
            kind,
            what,
            stuck.message,
            stuck.consumer_name,
            stuck.table_name,
            first_seen=stuck.first_seen,
            stuck=stuck,
            actions=actions,
        )

    @property
    def key(self) -> str | None:
        """The row, where one event stops a consumer and its row is known."""
        return self.stuck.row_key if self.stuck else None

    @property
    def operation(self) -> str | None:
        """The operation of the event in a word; a type that cannot be read stays as it is."""
        ev_type = self.stuck.ev_type if self.stuck else None
        if ev_type is None:
            return None
        try:
            return _OPS.get(parse_type(ev_type).op, ev_type)
        except StateError:
            return ev_type

    def as_json(self) -> dict[str, Any]:
        """Convert to plain values for `--json`; only what is known."""
        values: dict[str, Any] = {
            "kind": self.kind,
            "what": self.what,
            "message": self.message,
            "consumer": self.consumer,
            "table": self.table,
            "events": self.events,
            "first_seen": self.first_seen,
            "actions": self.actions,
        }
        if self.stuck is not None:
            stuck = self.stuck
            values |= {
                "dest_table": stuck.dest_table,
                "key": stuck.row_key,
                "ev_id": stuck.ev_id,
                "ev_txid": stuck.ev_txid,
                "ev_type": self.operation,
                "prev_tick": stuck.prev_tick,
                "tick": stuck.tick_id,
                "sqlstate": stuck.sqlstate,
                "detail": stuck.detail,
                "attempts": stuck.attempts,
                "last_seen": stuck.last_seen,
            }
        return {name: value for name, value in values.items() if value is not None}


_OPS = {"I": "insert", "U": "update", "D": "delete", "R": "truncate"}


def errors(session: Session) -> list[ErrorReport]:
    """Read everything on the local node that waits for a decision."""
    session.require_node()
    tables = {t.table_name: t for t in get_table_list(session.db, session.queue)}
    stopped = list(_stopped(session, tables))
    named = {report.table for report in stopped if report.kind == "event"}
    copies = [report for report in _copies(session) if report.table not in named]
    changed = _changed_by_hand(session)
    return [*stopped, *_rejoins(session), *copies, *changed, *_quarantined(session)]


def _changed_by_hand(session: Session) -> Iterator[ErrorReport]:
    """Yield reports of tables of this node that were changed by hand, so that other nodes have
    other rows."""
    for problem in read_table_problems(session.db, session.queue):
        if problem.severity == "fail":
            yield ErrorReport(
                "table", problem.what, table=problem.table_name, actions=(problem.action,)
            )


def _rejoins(session: Session) -> Iterator[ErrorReport]:
    left = get_rejoin_tables(session.db, session.queue)
    if left:
        # only resurrect leaves such tables on a branch, only rejoin on a leaf
        leaf = session.require_node().node_type is NodeType.LEAF
        word, again = ("rejoin", "rejoin --apply") if leaf else ("resurrect", "resurrect")
        yield ErrorReport(
            "rejoin",
            f"a {word} is under way or was broken off, {len(left)} table(s) are yet to be repaired",
            ", ".join(sorted(left)[:10]),
            actions=(
                f"{again}   (goes on where it was)",
                "resync TABLE   (copies a table anew instead)",
            ),
        )


def _stopped(session: Session, tables: dict[str, TableInfo]) -> Iterator[ErrorReport]:
    stuck = get_stuck_events(session.db, session.queue) if available(session.db) else []
    for event in stuck:
        yield _event(event, tables) if event.ev_id is not None else _batch(event)
    known = {event.consumer_name for event in stuck}
    for consumer in get_consumer_info(session.db, session.queue):
        text = (consumer.cur_error or "").strip()
        if text and consumer.consumer_name not in known:
            lost = is_lost(text)
            yield ErrorReport(
                "position" if lost else "batch",
                "the position of this node is lost"
                if lost
                else "the worker of this node is stopped",
                mask(first_line(text)),
                consumer.consumer_name,
                actions=_REJOIN if lost else (RETRIES,),
            )


def _event(stuck: StuckEvent, tables: dict[str, TableInfo]) -> ErrorReport:
    actions: tuple[str, ...]
    skip = f"skip --event={stuck.ev_id} --reason=TEXT"
    if stuck.table_name is None:
        what = "a script fails" if stuck.ev_type == "EXECUTE" else "a system event fails"
        actions = (
            "fix what it complains about; the worker retries by itself",
            f"{skip}   (this node goes on without it)",
        )
    else:
        copying = stuck.consumer_name.endswith(f".copy.{stuck.table_name}")
        what = "an event is refused" + (", the first copy cannot catch up" if copying else "")
        actions = (
            f"fix the table; the {'copy' if copying else 'worker'} retries by itself",
            f"change-table {stuck.table_name} --on-error=quarantine-row   "
            "(rows that are refused wait in quarantine, the others go on)",
            f"{skip}   (this event waits in quarantine, and later ones of its row)",
        )
        if stuck.table_name not in tables or not tables[stuck.table_name].local:
            actions = ("the table is no longer here: the next attempt goes on without it",)
    return ErrorReport.of("event", what, stuck, actions)


def _batch(stuck: StuckEvent) -> ErrorReport:
    if is_lost(stuck.message):
        return ErrorReport.of("position", _LOST, stuck, _REJOIN)
    return ErrorReport.of("batch", "a batch cannot be applied", stuck, (RETRIES,))


def _copies(session: Session) -> Iterator[ErrorReport]:
    for copy in read_copies(session.db, session.queue):
        if copy.error:
            yield ErrorReport(
                "copy",
                f"the first copy is stopped at step {copy.step} ({copy.step_name})",
                mask(copy.error),
                table=copy.table_name,
                actions=(
                    "fix the cause; the copy is tried again by itself and resumes where it was",
                ),
            )


def _quarantined(session: Session) -> Iterator[ErrorReport]:
    if not available(session.db):
        return
    for row in count_by_table(session.db, session.queue):
        if row.table_name is None:
            what = f"{row.events} system event(s) or script(s) in quarantine"
            only = ""
        else:
            scope = "the table takes no changes" if row.whole else f"{row.rows} row(s) wait"
            what = f"{row.events} event(s) in quarantine, {scope}"
            only = f" --table={row.table_name}"
        yield ErrorReport(
            "quarantine",
            what,
            table=row.table_name,
            events=row.events,
            first_seen=row.since,
            actions=(
                f"quarantine list{only}",
                f"quarantine replay{only}   (when the table is repaired)",
            ),
        )
