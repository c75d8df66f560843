"""compare: prove that tables hold the same rows as the provider's.

For each table: lock it on the provider (writers wait, readers do not), let the ticker write a
tick that includes everything before the lock, wait until the local worker has applied it, open a
snapshot on both sides, give the lock back, and only then count. The lock is held for the sync
alone, never longer than `lock_timeout`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vedur.catalog.structure import Structure, read_structure
from vedur.catalog.tables import TableInfo, get_table_list
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.names import parse_name, quote_ident
from vedur.node.info import NodeInfo, NodeType, get_node_info, get_worker_state
from vedur.node.state import set_consumer_paused
from vedur.ops.check import chosen_tables
from vedur.ops.session import Session, remote_connstr
from vedur.sql import query

log = logging.getLogger(__name__)

#: Seconds of lag from which a lock would be held for too long.
_MAX_LAG = 5.0
#: How long to wait for a consumer to come closer than that before giving up.
_PATIENCE = 60.0
_PERIOD = 0.1
#: Between two wishes for a tick; a ticker that was busy is asked again.
_FORCE_PERIOD = 1.0


@dataclass(frozen=True)
class Side:
    """What to count on one side: a snapshot to count in and the statement to run."""

    db: Database
    sql: str


@dataclass(frozen=True)
class Compared:
    """Both results of a table, as rows of `compare_sql`."""

    table: str
    local_table: str
    source: dict[str, Any]
    target: dict[str, Any]

    @property
    def equal(self) -> bool:
        """Whether everything that was counted agrees."""
        return self.source == self.target


#: Runs one side's statement and returns its only row.
Counter = Callable[[Side], dict[str, Any]]


def sql_counter(side: Side) -> dict[str, Any]:
    """Let the server count in the side's own snapshot."""
    row = side.db.one(side.sql)
    return dict(row._asdict())


@dataclass(frozen=True)
class CompareOptions:
    """What the operator asked for."""

    tables: Sequence[str] = ()
    force: bool = False
    count_only: bool = False


def compare(
    session: Session, options: CompareOptions, counter: Counter = sql_counter
) -> list[Compared]:
    """Compare local tables with the provider's, one after the other."""
    info = session.require_node()
    if info.is_root:
        raise StateError("compare needs a provider to compare with, and the root has none")
    provider = session.provider(info)
    tables = chosen_tables(session, options.tables)
    there = {t.table_name: t for t in get_table_list(provider, session.queue) if t.local}
    provider_info = get_node_info(provider, session.queue)
    if provider_info is None:
        raise StateError("provider node not found")
    results = []
    if not options.force:
        _wait_for_lag(session, info, provider)
    for table in tables:
        if not _comparable(table, there.get(table.table_name), options):
            continue
        run = _Run(session, info, provider_info, table, there[table.table_name])
        results.append(run.compare(options, counter))
    return results


def _comparable(table: TableInfo, remote: TableInfo | None, options: CompareOptions) -> bool:
    if remote is None:
        log.warning("Table not subscribed: %s", table.table_name)
        return False
    if not table.ready and not options.force:
        log.warning("Table %s not synced yet, no point", table.table_name)
        return False
    if not remote.ready and not options.force:
        log.warning("Table %s not ready yet on provider", table.table_name)
        return False
    return True


def _wait_for_lag(session: Session, info: NodeInfo, provider: Database) -> None:
    end = session.clock.monotonic() + _PATIENCE
    while True:
        lag = provider.value(query("admin", "consumer_lag"), [session.queue, info.worker_name])
        if lag is not None and lag <= _MAX_LAG:
            return
        if session.clock.monotonic() >= end:
            raise StateError("Consumer lagging too much, cannot proceed")
        provider.value(query("admin", "force_tick"), [session.queue])
        session.clock.sleep(1.0)


class _Run:
    """One table."""

    def __init__(
        self,
        session: Session,
        info: NodeInfo,
        provider_info: NodeInfo,
        table: TableInfo,
        remote: TableInfo,
    ) -> None:
        self.session = session
        self.info = info
        self.provider_info = provider_info
        self.table = table
        self.remote = remote

    def compare(self, options: CompareOptions, counter: Counter) -> Compared:
        session = self.session
        location = remote_connstr(session.settings, self.info.provider_location or "")
        source = session.connect(location, "srcdb")
        target = session.connect(session.settings.db, "dstdb")
        self._synchronise(session.connect(location, "lock_db"), source, target)
        name = self.table.dest_table
        log.info("Counting %s", name)
        try:
            sides = compare_sides(
                session.settings,
                self.table,
                read_structure(source, parse_name(self.remote.dest_table)),
                read_structure(target, parse_name(name)),
                count_only=options.count_only,
            )
            results = []
            for label, db, sql in (("srcdb", source, sides[0]), ("dstdb", target, sides[1])):
                result = counter(Side(db, sql))
                log.info("%s: %s", label, shown(session.settings, result, options.count_only))
                results.append(result)
        finally:
            source.rollback()
            target.rollback()
        compared = Compared(self.table.table_name, name, results[0], results[1])
        if not compared.equal:
            log.warning("%s: Results do not match!", name)
        return compared

    def _synchronise(self, lock: Database, source: Database, target: Database) -> None:
        """Leave with a snapshot open on both sides that shows the same moment of the table."""
        log.info("Locking %s", self.table.table_name)
        lock.autocommit = False
        try:
            if self.provider_info.node_type is NodeType.BRANCH:
                self._sync_with_branch(lock, source, target)
            else:
                self._sync_with_root(lock, source, target)
        finally:
            lock.rollback()

    def _sync_with_root(self, lock: Database, source: Database, target: Database) -> None:
        milliseconds = str(int(self.session.settings.lock_timeout * 1000))
        lock.value(query("admin", "set_local_lock_timeout"), [milliseconds])
        try:
            lock.execute(f"lock table {parse_name(self.remote.dest_table).quoted} in share mode")
        except DatabaseError as error:
            if error.sqlstate == "55P03":
                raise StateError(
                    f'table "{self.table.table_name}" could not be locked within '
                    f"{self.session.settings.lock_timeout:g} s: a writer holds it, try again"
                ) from error
            raise
        moment = lock.value(query("admin", "now"))
        log.info("Syncing %s", self.table.dest_table)
        self._wait_for_tick_after(moment)
        open_snapshot(source)
        open_snapshot(target)

    def _sync_with_branch(self, lock: Database, source: Database, target: Database) -> None:
        """A branch changes only through its worker: pause that, and let ours reach its tick."""
        session = self.session
        worker = self.provider_info.worker_name or ""
        log.info("Syncing %s", self.table.dest_table)
        provider = session.provider(self.info)
        self._pause(provider, worker, True)
        try:
            state = get_worker_state(provider, session.queue)
            if state is None:
                raise StateError("provider node not found")
            self._wait_for_tick(lambda: state.completed_tick)
            open_snapshot(source)
            open_snapshot(target)
        finally:
            set_consumer_paused(provider, session.queue, worker, False)

    def _pause(self, provider: Database, worker: str, paused: bool) -> None:
        set_consumer_paused(provider, self.session.queue, worker, paused)
        end = self.session.clock.monotonic() + self.session.settings.lock_timeout
        while True:
            state = get_worker_state(provider, self.session.queue)
            if state is None or state.uptodate:
                return
            if self.session.clock.monotonic() >= end:
                raise StateError(
                    f'worker "{worker}" of the provider does not answer: is it running?'
                )
            self.session.clock.sleep(_PERIOD)

    def _wait_for_tick_after(self, moment: object) -> None:
        provider = self.session.provider(self.info)
        queue = self.session.queue
        forced = -_FORCE_PERIOD

        def goal() -> int | None:
            nonlocal forced
            tick: int | None = provider.value(query("admin", "tick_after"), [queue, moment])
            if tick is None and self.session.clock.monotonic() - forced >= _FORCE_PERIOD:
                forced = self.session.clock.monotonic()
                provider.value(query("admin", "force_tick"), [queue])
            return tick

        self._wait_for_tick(goal)

    def _wait_for_tick(self, goal: Callable[[], int | None]) -> None:
        session = self.session
        end = session.clock.monotonic() + session.settings.lock_timeout
        while True:
            tick = goal()
            state = get_worker_state(session.db, session.queue)
            if state is None:
                raise StateError(f'node of queue "{session.queue}" is gone')
            if tick is not None and state.completed_tick >= tick:
                return
            if session.clock.monotonic() >= end:
                raise StateError("Consumer lagging too much, exiting")
            session.clock.sleep(_PERIOD)


def open_snapshot(db: Database) -> None:
    """Begin a transaction that reads from this moment."""
    db.autocommit = True
    db.execute("begin isolation level repeatable read read only")
    db.value(query("admin", "snapshot"))


def compare_sides(
    settings: LondisteSettings,
    table: TableInfo,
    source: Structure | None,
    target: Structure | None,
    *,
    count_only: bool = False,
) -> tuple[str, str]:
    """The statements for both sides; pure.

    The condition of a partial copy holds on the provider's side only: here it is all there is.
    Where columns differ in number or order, both sides read the common ones in one order.
    """
    if source is None or target is None:
        side = "on the provider" if source is None else "here"
        raise StateError(f'table "{table.dest_table}" does not exist {side}')
    names = [column.name for column in source.columns]
    common = [name for name in names if target.column(name)]
    if len(common) < max(len(names), len(target.columns)):
        log.warning("%s: Ignoring some columns", table.dest_table)
    same = names == [column.name for column in target.columns]
    columns = None if same else common
    text = _COUNT_ONLY if count_only else settings.compare_sql
    return (
        fill_sql(text, source, columns, common, table.copy_condition),
        fill_sql(text, target, columns, common, None),
    )


_COUNT_ONLY = "select count(1) as cnt from only _TABLE_ t"
_ONLY_TABLE = re.compile(r"\b(?:only\s+)?_TABLE_", re.IGNORECASE)


def fill_sql(
    text: str,
    structure: Structure,
    columns: Sequence[str] | None,
    common: Sequence[str],
    condition: str | None,
) -> str:
    """`compare_sql` with `_TABLE_` and `_COLS_` filled in; pure.

    A partitioned table has no rows of its own, so `only` goes away for it.
    """
    only = "" if structure.kind == "p" else "only "
    relation = f"{only}{structure.table.quoted}"
    if columns is not None or condition:
        listed = ", ".join(quote_ident(name) for name in columns) if columns is not None else "*"
        where = f" where ({condition})" if condition else ""
        relation = f"(select {listed} from {relation}{where})"
    filled = _ONLY_TABLE.sub(lambda _: relation, text)
    return filled.replace("_COLS_", ", ".join(quote_ident(name) for name in common))


def shown(settings: LondisteSettings, result: dict[str, Any], count_only: bool) -> str:
    """A result as `compare_fmt` writes it."""
    if count_only:
        return f"{result['cnt']} rows"
    try:
        return settings.compare_fmt % result
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"compare_fmt {settings.compare_fmt!r} does not fit the columns of compare_sql "
            f"({', '.join(result)}): {error}"
        ) from error
