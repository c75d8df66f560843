"""quarantine replay: apply events that are in quarantine, after all.

The quarantine is read as if it were an event table, through the pipeline of the worker: the net
change of each row, merged in one transaction with its leaving the quarantine. Since all later
events of a row are in quarantine too, that is the provider's row. What the server refuses again
stays, and what follows it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.quarantine import ReplayedEvents, end_rows, end_staged
from vedur.catalog.tables import hold_ready
from vedur.change.event import Event, EventRange
from vedur.change.quarantine import FailedEvent, Quarantine, RowKey, is_about_event
from vedur.db import Database, set_replication_role
from vedur.errors import StaleStage, StateError, VedurError
from vedur.failpoint import reach
from vedur.handlers.registry import require_handlers
from vedur.names import quote_literal
from vedur.node.endpoint import Endpoint
from vedur.node.info import NodeInfo
from vedur.node.position import lock_position
from vedur.ops.quarantine.entries import Choice, list_events
from vedur.ops.quarantine.skip import require_quarantine
from vedur.ops.session import Session
from vedur.pipeline.spark.command_session import end_spark, start_spark
from vedur.sql import query
from vedur.tables.mapping import TableMap
from vedur.tables.stages import held_stage, quarantine_area, stage_prefix
from vedur.worker.apply_range import AppliedRange, apply_range
from vedur.worker.quarantine import QuarantinedRows
from vedur.worker.system_events import SystemEvents

if TYPE_CHECKING:
    from vedur.pipeline.replay.stage import SparkReplay
    from vedur.pipeline.replay.staged import Staged
    from vedur.pipeline.spark.session import SparkSession

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
    with Endpoint.of_local(session.settings).open("replay") as db:
        db.without_timeouts()
        if not db.value(query("quarantine", "lock_replay"), [session.queue]):
            raise StateError("another replay of the quarantine is running: wait for it to end")
        done = _replay_system(session, db, info, [r.id for r in chosen if r.table_name is None])
        names = sorted({r.table_name for r in chosen if r.table_name is not None})
        if not names:
            return done
        for name in names:
            _require(db, session.queue, name)
        own, spark = (spark is None), spark or start_spark(session.settings)
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
    table = get_table_list(db, queue).ready.find(name)
    if table is None:
        raise StateError(
            f'table "{name}" is not in sync here: a new copy ends its quarantine by itself, '
            "what waits since then can be replayed once the table is in sync"
        )
    require_handlers([table])
    return table


def _replay_system(
    session: Session, db: Database, info: NodeInfo, ids: Sequence[int]
) -> list[Replayed]:
    """Run scripts and the like, each in a transaction; the first that fails is the command's
    error."""
    said = {"queue": session.queue, "ids": list(ids)}
    rows = db.query(query("quarantine", "system_rows"), said) if ids else []
    for row in rows:
        event = Event(row.ev_id, *row[2:])
        with db.transaction():
            lock_position(db, session.queue, info.worker_name or "")
            set_replication_role(db, "replica")
            SystemEvents(db, session.queue).handle(event)
            end_rows(db, session.queue, [row.id], "replayed", "by quarantine replay")
        log.info("replayed event %s, %s", row.ev_id, row.ev_type)
    return [Replayed(None, len(rows), 0)] if rows else []


@dataclass
class _ReplayQuarantine:
    """The `Quarantine` of a replay: what is refused again stays, with what follows of its row."""

    whole_table: bool
    rows: QuarantinedRows = field(default_factory=QuarantinedRows)
    stay: list[int] = field(default_factory=list)
    error: str | None = None
    whole_tables: Collection[str] = ()

    def watches(self, table: str) -> bool:
        return table in self.rows

    def takes(self, event: Event, table: str, key: RowKey | None) -> bool:
        if not self.rows.covers(table, key):
            return False
        self.stay.append(event.ev_id)
        return True

    def takes_refused(self, failed: FailedEvent, key: RowKey | None, error: VedurError) -> bool:
        if not is_about_event(error):
            return False
        self.rows.add(failed.table or "", None if self.whole_table else key)
        self.stay.append(failed.event.ev_id)
        self.error = self.error or error.message
        return True

    def release_truncated(self, table: str, event: Event) -> None:
        self.rows.release(table)

    def takes_system_event(self, event: Event) -> bool:
        return False

    def take_staged(self, log: str, slices: str, after: int, before: int) -> None:
        """Do nothing: no table is in quarantine as a whole from the start."""

    def flush(self) -> None:
        """Write nothing: what stays is there."""


class _Left(NamedTuple):
    """The newest event of a choice, and how many there are."""

    last: int | None
    events: int


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
    keys: list[str] | None = None
    whole: bool = False

    def run(self) -> Replayed:
        """Run all rounds: the first stages while the worker goes on, the others hold it."""
        from vedur.pipeline.replay.stage import ReplayUse, make_replay

        settings, queue = self.session.settings, self.session.queue
        self.choose()
        applier = make_replay(
            self.spark,
            settings,
            quarantine_area(queue),
            settings.db,
            # rows are chosen by their keys
            ReplayUse(private=True, replace=self.replace),
        )
        total, staying = 0, _ReplayQuarantine(self.whole)
        with Endpoint.of_local(settings).open("stage") as stage:
            stage.without_timeouts()
            with held_stage(stage, stage_prefix(quarantine_area(queue))):
                applier.start(stage)
                try:
                    for turn in range(_ROUNDS):
                        this = _Round(self, self.db, applier, stage, hold=turn > 0)
                        try:
                            apply_range(this)
                        except StaleStage:
                            if turn == _ROUNDS - 1:
                                raise
                            continue  # the table was altered meanwhile
                        total, staying = total + this.count, this.staying
                        if staying.stay or not self.left().events:
                            break
                finally:
                    applier.start(stage)
        left = self.left().events
        if staying.error:
            log.warning("%s: %d event(s) stay: %s", self.table.table_name, left, staying.error)
        log.info("%s: replayed %d event(s)", self.table.table_name, total)
        return Replayed(self.table.table_name, total, left, staying.error)

    def choose(self) -> bool:
        """Choose rows, or the table where it is in quarantine as a whole. True if that is new.

        The rows of events that have left meanwhile stay chosen: others of theirs may have come.
        """
        before = (self.whole, self.keys)
        said = {
            "queue": self.session.queue,
            "table": self.table.table_name,
            "ids": self.ids or [],
        }
        found = self.db.one(query("quarantine", "choice_of"), said)
        self.whole = found.whole
        if self.whole:
            self.ids = self.keys = None
        elif self.ids is not None:
            self.keys = sorted({*found.keys, *(self.keys or ())})
        return before != (self.whole, self.keys)

    def left(self) -> _Left:
        said = {
            "queue": self.session.queue,
            "table": self.table.table_name,
            "keys": self.keys,
            "until": self.until,
        }
        return _Left(*self.db.one(query("quarantine", "last_of"), said))

    def hold_table(self) -> bool:
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

    def count(self, last: int) -> int:
        text = f"select count(*) from vedur.quarantine_events where {self._where(last)}"
        return int(self.db.value(text))

    def _where(self, last: int | None) -> str:
        where = (
            f"queue_name = {quote_literal(self.session.queue)} "
            f"and table_name = {quote_literal(self.table.table_name)} and ev_id <= {last or 0}"
        )
        if self.keys is not None:
            where += f" and row_key in ({', '.join(map(quote_literal, self.keys))})"
        return where

    def source(self, last: int | None) -> EventRange:
        return EventRange("vedur.quarantine_events", (self._where(last),), 0)


@dataclass
class _Round(AppliedRange["Staged"]):
    """All events of a table that wait now, on their way into the table.

    The first round stages while the worker goes on; with `hold` it waits meanwhile.
    """

    of: _Table
    db: Database
    applier: SparkReplay
    side: Database  # stages
    hold: bool
    tables: tuple[TableMap, ...] = ()
    staying: _ReplayQuarantine = field(default_factory=lambda: _ReplayQuarantine(False))
    count: int = 0
    _last: int = 0  # the last event that is taken

    @property
    def origin(self) -> str:
        """Where its events are from, for the log."""
        return f"quarantine: entries up to {self._last}"

    def plan(self) -> None:
        """Read which events wait."""
        self._last = self.of.left().last or 0
        self.tables = (self.of.table.mapping,)

    def stage(self) -> Staged | None:
        """Stage them, unless the worker is to wait for that."""
        return None if self.hold else self._stage()

    def _stage(self) -> Staged:
        return self.applier.stage(self.side, self.of.source(self._last), self.tables, 0)

    def lock(self, staged: Staged | None) -> Staged:
        """Lock the position; what the worker has quarantined until now is staged, too."""
        of = self.of
        lock_position(self.db, of.session.queue, of.info.worker_name or "")
        other = of.hold_table()
        other |= of.choose()
        self.tables = (of.table.mapping,)
        if staged is None or other or staged.events != of.count(self._last):
            self._last = of.left().last or 0
            staged = self._stage()
        return staged

    def open_quarantine(self) -> Quarantine:
        """Return a quarantine in which events that are refused again stay where they are."""
        self.staying = _ReplayQuarantine(self.of.whole)
        return self.staying

    def handle(self, event: Event) -> None:
        """Raise: system events are replayed by themselves."""
        raise StateError(f"BUG: event {event.ev_id} is not about a row")

    def set_position(self) -> None:
        """End the quarantine of what was applied; the node's position stays."""
        of = self.of
        done = ReplayedEvents(of.table.table_name, self._last, self.staying.stay, of.keys)
        self.count = end_staged(self.db, of.session.queue, done, "by quarantine replay")
        reach("quarantine.applied")

    def committed(self, staged: Staged | None) -> None:
        """Free the staging tables."""
        reach("quarantine.released")
        self.applier.done(self.side, 0)
