"""repair: make local rows what the provider has, only those that differ; a plan unless --apply.

Two moments for each table. At the first, both sides are compared while everything runs on, and
the keys that differ are staged. At the second the worker is held at a tick, the provider's rows
of just these keys are fetched as of that tick, and one transaction of the target deletes, updates
and inserts; it also locks the worker's position, so the tick cannot pass under it. What a newer
event has put right meanwhile is found right at the second moment and left alone. Every row that
is written is in `vedur.repair_log`.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from vedur.catalog.tables import TableInfo, hold_at_tick
from vedur.catalog.watch import last_change, mend_changes
from vedur.db import Database, set_replication_role
from vedur.errors import StateError, VedurError
from vedur.failpoint import reach
from vedur.handlers.registry import require_handlers, stored_handler
from vedur.node.info import NodeInfo
from vedur.node.moment import Moment, Nodes, meet
from vedur.node.position import lock_position
from vedur.ops.combined import require_nobody_below
from vedur.ops.compare_tables import (
    Counterparts,
    local_tables,
    one_sided,
    pair_at,
    pair_at_one_moment,
    plan_pair,
    warn_below,
    warn_waiting,
)
from vedur.ops.session import Session
from vedur.pipeline.spark.command_session import end_spark, start_spark
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.compare import Differences, Pair, Sums
    from vedur.pipeline.repair import Repaired, RepairTable, Stage
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)

_VERBS = {"missing": "insert", "different": "update", "extra": "delete"}


@dataclass(frozen=True)
class RepairOptions:
    """The command line's share; `where` narrows both sides to rows for which it holds."""

    tables: tuple[str, ...] = ()
    apply: bool = False
    where: str | None = None
    force: bool = False
    limit: int = 10
    max_wait: float = 60.0
    node: str | None = (
        None  # whose rows are taken; None: the provider, or the nearest that has them
    )


@dataclass(frozen=True)
class TableRepair:
    """The plan for one table, or what was done."""

    table: str
    dest_table: str
    source_rows: int
    target_rows: int
    inserts: int
    updates: int
    deletes: int
    applied: bool
    tick: int
    sample: Differences | None = None
    quarantined: int = 0  # events of the table that wait in quarantine

    @property
    def total(self) -> int:
        """Rows that differ, or differed."""
        return self.inserts + self.updates + self.deletes

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
        return asdict(self)


def repair(
    session: Session, options: RepairOptions, spark: SparkSession | None = None
) -> list[TableRepair]:
    """Plan, or with `apply` do, the repair of local tables."""
    info, tables = local_tables(session, options.tables)
    if options.apply:
        require_nobody_below(session, info, [table.table_name for table in tables], "repair")
    require_handlers(tables)
    counterparts = Counterparts(session, info, options.node)
    tables = [table for table in tables if _is_ready(counterparts, table)]
    if not tables:
        return []
    if options.apply:
        warn_below(info, "are not repaired", "repair")
    own, spark = (spark is None), spark or start_spark(session.settings)
    try:
        return [_repair_table(session, spark, counterparts, table, options) for table in tables]
    finally:
        if own:
            end_spark(spark)


def _is_ready(counterparts: Counterparts, table: TableInfo) -> bool:
    """Read whether a table can be repaired; what cannot be, is said."""
    reason = counterparts.why_not(table)
    if reason:
        log.warning("%s", reason)
    return not reason


def _repair_table(
    session: Session,
    spark: SparkSession,
    counterparts: Counterparts,
    table: TableInfo,
    options: RepairOptions,
) -> TableRepair:
    """Repair one table with the rows of its counterpart."""
    info = counterparts.info
    nodes = counterparts.nodes_of(table, force=options.force, max_wait=options.max_wait)
    source = counterparts.node_of(table) or info.provider_node or ""
    mends = options.apply and options.where is None
    change = _last_change(session, info, table) if mends else None
    then = "; what is repaired now waits on: quarantine replay --replace frees it afterwards"
    waiting = warn_waiting(session, table, then)
    pair = plan_pair(session, nodes, table, options.where)
    if reason := one_sided(pair):
        log.warning("%s: %s", table.dest_table, reason)
    if not pair.keyed:
        raise StateError(
            f'table "{table.table_name}" has no key to find rows by: '
            "give it a primary key, or copy it again with resync"
        )
    with nodes.target.open("repair") as db:
        db.execute(query("compare", "pin_values"))
        if not db.value(query("compare", "repair_lock"), [pair.dest]):
            raise StateError(f'another repair of "{pair.dest}" is running: wait for it to end')
        done = Repairer(session, spark, nodes, table, pair, db, options).run()
    if change is not None:
        _mend(session, info, source, table, change)
    done = replace(done, quarantined=waiting)
    log.info(
        "finished %s: src: %d rows, dst: %d rows, missed: %d inserts, %d updates, %d deletes",
        pair.dest,
        done.source_rows,
        done.target_rows,
        done.inserts,
        done.updates,
        done.deletes,
    )
    return done


def _last_change(session: Session, info: NodeInfo, table: TableInfo) -> int | None:
    """Read the newest change by hand of the table that the root knows of before the repair; None
    where the root cannot be asked."""
    try:
        root, _ = session.root(info.provider_location or "")
        return last_change(root, session.queue, table.table_name)
    except VedurError as error:
        log.debug("the root cannot be asked for changes by hand: %s", error)
        return None


def _mend(session: Session, info: NodeInfo, source: str, table: TableInfo, change: int) -> None:
    """Tell the root that this node is mended: the repair itself is done, whatever it answers."""
    try:
        root, _ = session.root(info.provider_location or "")
        mend_changes(
            root,
            session.queue,
            table.table_name,
            node=info.node_name,
            provider=source,
            last=change,
        )
    except VedurError as error:
        log.warning("%s: the root still names this node as not repaired: %s", table, error)


@dataclass
class Repairer:
    """One table; `db` is a connection of its own that holds the lock of this repair."""

    session: Session
    spark: SparkSession
    nodes: Nodes
    info: TableInfo
    pair: Pair
    db: Database
    options: RepairOptions

    @property
    def _limit(self) -> int:
        return self.session.settings.max_connections_per_node

    def run(self) -> TableRepair:
        """Look; and if asked to, and if there is something, write."""
        from vedur.pipeline.repair import RepairTable, open_stage

        pair = self.pair
        log.info("Checking %s", pair.dest)
        table = RepairTable.read(self.db, pair)
        with open_stage(self.db, pair, table.target_columns) as stage:
            moment, sums, found = pair_at_one_moment(
                self.nodes, pair, lambda at, moment: (moment, *self.look(at, stage))
            )
            reach("repair.planned")
            if found is None or not self.options.apply:
                return self.planned(moment, sums, found)
            with meet(self.nodes, pair.source.name, pair.dest, keep_hold=True) as moment:
                done = self.write(pair_at(pair, moment), moment, table, stage)
        return self.repaired(moment, sums, found, done)

    def repaired(
        self, moment: Moment, sums: tuple[Sums, Sums], found: Differences | None, done: Repaired
    ) -> TableRepair:
        """Return what was done."""
        pair = self.pair
        return TableRepair(
            pair.name,
            pair.dest,
            sums[0].rows,
            sums[1].rows,
            done.inserts,
            done.updates,
            done.deletes,
            True,
            moment.tick,
            found,
        )

    def look(self, pair: Pair, stage: Stage) -> tuple[tuple[Sums, Sums], Differences | None]:
        """Compare both sides; the keys that differ are staged if something is to be written."""
        from vedur.pipeline.compare import stage_expected

        with stage_expected(self.spark, pair, limit=self._limit) as source:
            return self._look(source, stage)

    def _look(self, pair: Pair, stage: Stage) -> tuple[tuple[Sums, Sums], Differences | None]:
        from vedur.pipeline.compare import SparkComparer, describe, differing_keys
        from vedur.pipeline.repair import stage_keys

        buckets = SparkComparer(self.spark, self._limit).buckets(pair)
        sums = buckets.source, buckets.target
        if not buckets.bad:
            return sums, None
        keys = differing_keys(self.spark, pair, buckets, limit=self._limit).persist()
        try:
            found = describe(self.spark, pair, keys, shown=self.options.limit, keep=True)
            if self.options.apply:
                stage_keys(self.spark, keys, self.nodes.target.connstr, stage)
        finally:
            keys.unpersist()
        self._report(found)
        return sums, found

    def _report(self, found: Differences) -> None:
        for row in found.rows:
            key = ", ".join(f"{name}={value}" for name, value in row.key.items())
            columns = f" columns: {', '.join(row.columns)}" if row.columns else ""
            log.info("%s: %s %s%s", self.pair.dest, _VERBS[row.kind], key, columns)
        more = found.total - len(found.rows)
        if more > 0:
            log.info("%s: and %d more", self.pair.dest, more)

    def planned(
        self, moment: Moment, sums: tuple[Sums, Sums], found: Differences | None
    ) -> TableRepair:
        """Return what would be done."""
        counts = (found.missing, found.different, found.extra) if found else (0, 0, 0)
        pair = self.pair
        return TableRepair(
            pair.name, pair.dest, sums[0].rows, sums[1].rows, *counts, False, moment.tick, found
        )

    def require(self) -> None:
        """Raise unless rows may be written, in the transaction that writes them."""
        hold_at_tick(self.db, self.nodes.queue, self.info, "repair")

    def _require_repairable(self) -> None:
        if why := self.info.mapping.unrepairable:
            handler = stored_handler(self.info)
            raise StateError(
                f'table "{self.info.table_name}" has handler "{handler}" and cannot be repaired: '
                f"{why}"
            )

    def conclude(self, moment: Moment) -> None:
        """Do what else belongs in that transaction."""

    def write(self, pair: Pair, moment: Moment, table: RepairTable, stage: Stage) -> Repaired:
        """Fetch the provider's rows of the staged keys, and write them."""
        self._require_repairable()
        from vedur.pipeline.compare import stage_expected
        from vedur.pipeline.repair import RepairMoment, apply, stage_rows

        with stage_expected(self.spark, pair, limit=self._limit) as source:
            stage_rows(self.spark, source, table.source_columns, stage, tasks=self._limit)
        for name in (stage.keys, stage.rows):
            self.db.execute(query("compare", "stage_analyze").format(stage=name))
        reach("repair.fetched")
        queue, consumer = self.nodes.queue, self.nodes.consumer
        with self.db.transaction():
            position = lock_position(self.db, queue, consumer, row=True)
            if moment.lock_free and position != moment.tick:
                raise StateError(
                    f"the worker went on to tick {position} while rows of tick {moment.tick} "
                    "were being fetched: nothing is written, run repair again"
                )
            self.require()
            set_replication_role(self.db, "replica")
            at = RepairMoment(queue, moment.tick, self.nodes.lock_timeout)
            done = apply(self.db, pair, table, stage, at)
            reach("repair.applied")
            self.conclude(moment)
        reach("repair.committed")
        return done
