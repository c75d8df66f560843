"""quarantine replay: apply events that were put aside, after all.

The quarantine is read as if it were an event table, through the pipeline of the worker: the net
change of each row, merged in one transaction with its leaving the quarantine. Since all later
events of a row are in quarantine too, that is the provider's row. What the server refuses again
stays, and what follows it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.aside import Held
from vedur.catalog.execute import set_role
from vedur.catalog.handlers import require_handlers
from vedur.catalog.quarantine import end_rows, end_staged
from vedur.catalog.tables import hold_ready
from vedur.change.aside import Blame, RowKey, blames_event
from vedur.change.event import Event, EventRange
from vedur.db import Database, Row, connect
from vedur.errors import StaleStage, StateError, VedurError
from vedur.failpoint import reach
from vedur.node.info import NodeInfo
from vedur.ops.compare import end_spark, start_spark
from vedur.ops.quarantine import Choice, list_events, lock_position
from vedur.ops.session import Session
from vedur.ops.skip import require_quarantine
from vedur.sql import query
from vedur.worker.protocol import warn_missing
from vedur.worker.system import SystemEvents

if TYPE_CHECKING:
    from vedur.pipeline.replay import SparkReplay
    from vedur.pipeline.session import SparkSession

log = logging.getLogger(__name__)

#: Events that come in while others are replayed are taken in further rounds.
_ROUNDS = 3


@dataclass(frozen=True)
class Replayed:
    """What became of one table; `error` is the first reason why some stayed."""

    table: str | None
    applied: int
    stayed: int
    error: str | None = None


def replay(
    session: Session,
    choice: Choice,
    *,
    replace: bool = False,
    spark: SparkSession | None = None,
) -> list[Replayed]:
    """Apply events of the quarantine, table by table, each in one transaction."""
    info = require_quarantine(session)
    chosen = list_events(session, choice)
    if (choice.ids or choice.tables) and not chosen:
        raise StateError("no such event in quarantine: see quarantine list")
    with connect(session.settings.db, name="replay", autocommit=True) as db:
        db.without_timeouts()
        if not db.value(query("quarantine", "lock_replay"), [session.queue]):
            raise StateError("another replay of the quarantine is running: wait for it to end")
        done = _replay_system(session, db, info, [r.id for r in chosen if r.table_name is None])
        names = sorted({r.table_name for r in chosen if r.table_name is not None})
        if not names:
            return done
        for name in names:
            _require(db, session.queue, name)
        own, spark = (spark is None), spark or start_spark(session)
        try:
            for name in names:
                ids = [r.id for r in chosen if r.table_name == name] if choice.ids else None
                table = _require(db, session.queue, name)
                until = choice.until_tick
                done.append(_Table(session, spark, db, info, table, ids, until, replace).run())
        finally:
            if own:
                end_spark(spark)
    return done


def _require(db: Database, queue: str, name: str) -> TableInfo:
    for table in get_table_list(db, queue):
        if table.table_name == name and table.ready:
            require_handlers([table])
            return table
    raise StateError(
        f'table "{name}" is not in sync here: a new copy ends its quarantine by itself, '
        "what waits since then can be replayed once the table is in sync"
    )


def _replay_system(
    session: Session, db: Database, info: NodeInfo, ids: Sequence[int]
) -> list[Replayed]:
    """Scripts and the like, each in a transaction; the first that fails is the command's error."""
    said = {"queue": session.queue, "ids": list(ids)}
    rows = db.query(query("quarantine", "system_rows"), said) if ids else []
    for row in rows:
        event = Event(row.ev_id, *row[2:])
        with db.transaction():
            lock_position(db, session.queue, info)
            set_role(db, "replica")
            SystemEvents(db, session.queue).handle(event)
            end_rows(db, session.queue, [row.id], "replayed", "by quarantine replay")
        log.info("replayed event %s, %s", row.ev_id, row.ev_type)
    return [Replayed(None, len(rows), 0)] if rows else []


@dataclass
class _Staying:
    """The `Aside` of a replay: what is refused again stays, with what follows of its row."""

    whole_table: bool
    held: Held = field(default_factory=Held)
    stay: list[int] = field(default_factory=list)
    error: str | None = None
    whole: Collection[str] = ()

    def watches(self, table: str) -> bool:
        return table in self.held

    def keeps(self, event: Event, table: str, key: RowKey | None) -> bool:
        if not self.held.holds(table, key):
            return False
        self.stay.append(event.ev_id)
        return True

    def refused(self, blame: Blame, key: RowKey | None, error: VedurError) -> bool:
        if not blames_event(error):
            return False
        self.held.hold(blame.table or "", None if self.whole_table else key)
        self.stay.append(blame.event.ev_id)
        self.error = self.error or error.message
        return True

    def emptied(self, table: str, event: Event) -> None:
        self.held.release(table)

    def skips(self, event: Event) -> bool:
        return False

    def move(self, staged: str, slices: str, after: int, before: int) -> None:
        """Nothing is held as a whole from the start."""

    def flush(self) -> None:
        """Nothing is written: what stays is there."""


@dataclass
class _Table:
    """One table's events; `ids` narrow them to the rows of these events, `until` to a tick.

    What is left after a tick goes on holding its rows, so these stay where the tick has them.
    """

    session: Session
    spark: SparkSession
    db: Database
    info: NodeInfo
    table: TableInfo
    ids: list[int] | None
    until: int | None
    replace: bool
    _keys: list[str] | None = None
    _whole: bool = False

    def run(self) -> Replayed:
        """All rounds: the first stages while the worker goes on, the others hold it."""
        from vedur.pipeline.replay import SparkReplay

        settings, queue = self.session.settings, self.session.queue
        self._choose()
        applier = SparkReplay(
            self.spark,
            f"{queue} quarantine",
            settings.db,
            settings.db,
            private=True,  # rows are chosen by their keys
            missing_columns=settings.missing_columns,
            replace=self.replace,
        )
        total, staying = 0, _Staying(self._whole)
        with connect(settings.db, name="stage", autocommit=True) as stage:
            applier.start(stage.without_timeouts())
            try:
                for turn in range(_ROUNDS):
                    try:
                        count, staying = self._round(applier, stage, hold=turn > 0)
                    except StaleStage:
                        if turn == _ROUNDS - 1:
                            raise
                        applier.forget()  # the table was altered meanwhile
                        continue
                    total += count
                    if staying.stay or not self._left().events:
                        break
            finally:
                applier.start(stage)
        left = self._left().events
        if staying.error:
            log.warning("%s: %d event(s) stay: %s", self.table.table_name, left, staying.error)
        log.info("%s: replayed %d event(s)", self.table.table_name, total)
        return Replayed(self.table.table_name, total, left, staying.error)

    def _choose(self) -> bool:
        """Rows are replayed whole; where a table is held, the table is. True if that is new.

        The rows of events that have left meanwhile stay chosen: others of theirs may have come.
        """
        before = (self._whole, self._keys)
        said = {
            "queue": self.session.queue,
            "table": self.table.table_name,
            "ids": self.ids or [],
        }
        found = self.db.one(query("quarantine", "choice_of"), said)
        self._whole = found.whole
        if self._whole:
            self.ids = self._keys = None
        elif self.ids is not None:
            self._keys = sorted({*found.keys, *(self._keys or ())})
        return before != (self._whole, self._keys)

    def _left(self) -> Row:
        said = {
            "queue": self.session.queue,
            "table": self.table.table_name,
            "keys": self._keys,
            "until": self.until,
        }
        return self.db.one(query("quarantine", "last_of"), said)

    def _round(self, applier: SparkReplay, stage: Database, hold: bool) -> tuple[int, _Staying]:
        queue, name = self.session.queue, self.table.table_name
        staged = None
        seen = self._left()
        if not hold:
            staged = applier.stage(stage, self._source(seen.last), [self.table.replica], 0)
        with self.db.transaction():
            lock_position(self.db, queue, self.info)
            other = self._table_moved()
            other |= self._choose()  # the worker may have put more aside until now
            replica = self.table.replica
            if staged is None or other or staged.events != self._count(seen.last):
                seen = self._left()
                staged = applier.stage(stage, self._source(seen.last), [replica], 0)
            staying = _Staying(self._whole)
            set_role(self.db, "replica")
            warn_missing(applier.apply(self.db, staged, [replica], _no_system, staying))
            count = end_staged(
                self.db, queue, name, seen.last, staying.stay, self._keys, "by quarantine replay"
            )
            reach("quarantine.applied")
        reach("quarantine.released")
        applier.done(stage, 0)
        return count, staying

    def _table_moved(self) -> bool:
        """Hold the table, if what was staged for it is still asked for. True where only the mark of
        its copy has gone meanwhile, which is the worker's doing."""
        before, now = self.table, hold_ready(self.db, self.session.queue, self.table)
        if now is None:
            raise StateError(
                f'table "{before.table_name}" was changed by another command meanwhile: '
                "what is in quarantine stays there, run quarantine replay again"
            )
        self.table = now
        return now.custom_snapshot != before.custom_snapshot

    def _count(self, last: int) -> int:
        text = f"select count(*) from vedur.quarantine_events where {self._where(last)}"
        return int(self.db.value(text))

    def _where(self, last: int | None) -> str:
        where = (
            f"queue_name = {_literal(self.session.queue)} "
            f"and table_name = {_literal(self.table.table_name)} and ev_id <= {last or 0}"
        )
        if self._keys is not None:
            where += f" and row_key in ({', '.join(map(_literal, self._keys))})"
        return where

    def _source(self, last: int | None) -> EventRange:
        return EventRange("vedur.quarantine_events", (self._where(last),), 0)


def _no_system(event: Event) -> None:
    raise StateError(f"BUG: event {event.ev_id} is not about a row")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
