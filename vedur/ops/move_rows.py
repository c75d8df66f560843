"""Other rows of a table, without a new copy, while changes go on: what `change-filter` and
`change-handler` do where only the condition of a table changes.

Where the worker stands at a tick, the local table is what the provider had at that tick, as far as
the old condition holds. So just two sets of rows have to move: local ones for which the new
condition does not hold go, and the provider's for which the new one holds and the old one does not
come, read at the tick's own snapshot. First both sets are counted at one moment, while everything
runs on: the plan. Then the worker is held at a second moment, Spark tasks bring the rows to a
table aside, and one transaction deletes, inserts and stores what makes the new condition; it locks
the worker's position, which must be the tick. Until that commit the old condition holds for
everybody, after it the new one. Whatever dies before leaves a table aside that the next run drops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vedur.catalog.tables import TableInfo, hold_at_tick, missing_part, sharing
from vedur.db import Database, set_replication_role
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.node.info import NodeInfo
from vedur.node.moment import Moment, Nodes, meet
from vedur.node.position import lock_position
from vedur.ops.compare_tables import make_nodes, pair_at, warn_below
from vedur.ops.copy_node import CopyNodes
from vedur.ops.session import Session
from vedur.pipeline.spark.command_session import end_spark, start_spark
from vedur.sql import query
from vedur.tables.filter import source_names, written

if TYPE_CHECKING:
    from vedur.pipeline.compare import Pair
    from vedur.pipeline.repair import RepairTable
    from vedur.pipeline.repair.refilter import Entering, Switched
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RowMove:
    """What is to be done, for which command. Conditions are in names of this node; None: all rows.

    `store` writes what makes the new condition, in the transaction in which the rows change; `said`
    is what the log says of it.
    """

    command: str
    table: TableInfo
    old: str | None
    new: str | None
    store: Callable[[Database], None]
    said: str
    dry_run: bool = False
    force: bool = False
    max_wait: float = 60.0


@dataclass(frozen=True)
class Moved:
    """Rows that came and went, or would."""

    inserts: int
    deletes: int
    applied: bool
    tick: int


def find_source(session: Session, info: NodeInfo, table: TableInfo, new: str | None) -> str:
    """Return the provider's own name of a table; raises where the provider has not all rows of it
    that the new condition asks for."""
    node = CopyNodes(session, info).of(table.mapping)
    there = node.tables.by_name[table.table_name]
    wanted = replace(table.mapping, condition=new)
    if node.info.is_branch and (part := missing_part(there, wanted)):
        raise StateError(
            f'table "{table.table_name}" is on the provider, node "{node.name}", in part only '
            f"({part}): nothing is changed; add the table anew with this condition and "
            "--find-copy-node, or give this node another provider (change-provider)"
        )
    return there.dest_table


def move_rows(
    session: Session,
    info: NodeInfo,
    source: str,
    move: RowMove,
    spark: SparkSession | None = None,
) -> Moved:
    """Bring the rows of the new condition here and take the others away, unless it is a dry run;
    `source` is the provider's name of the table."""
    table = move.table
    if sharing(session.db, session.queue, table) and not table.copy_condition:
        raise StateError(
            f'several tables come together in "{table.dest_table}", and "{table.table_name}" has '
            f"no condition that tells its rows from the others': {move.command} cannot be used"
        )
    warn_below(info, "do not change", move.command)
    own, spark = (spark is None), spark or start_spark(session.settings)
    try:
        nodes = make_nodes(session, info, force=move.force, max_wait=move.max_wait)
        with nodes.target.open("filter") as db:
            db.without_timeouts()
            if not db.value(query("compare", "repair_lock"), [table.dest_table]):
                raise StateError(
                    f'a repair, change-filter or change-handler of "{table.dest_table}" is '
                    "running: wait for it to end"
                )
            return _Run(session, spark, nodes, source, db, move).run()
    finally:
        if own:
            end_spark(spark)


@dataclass
class _Run:
    """One table; `db` is a connection of its own that holds the lock of this command."""

    session: Session
    spark: SparkSession
    nodes: Nodes
    source: str
    db: Database
    move: RowMove

    @property
    def _limit(self) -> int:
        return self.session.settings.max_connections_per_node

    def run(self) -> Moved:
        """Count; and unless it is a dry run, do it."""
        from vedur.pipeline.compare import checksum
        from vedur.pipeline.repair import RepairTable
        from vedur.pipeline.repair.refilter import open_stage

        dest, pair = self.move.table.dest_table, self._pair()
        log.info("Checking %s", dest)
        with meet(self.nodes, self.source, dest) as moment:
            sums = checksum(self.spark, pair_at(pair, moment), limit=self._limit, count_only=True)
        come, go = sums[0].rows, sums[1].rows
        log.info("%s: %d rows to insert, %d to delete", dest, come, go)
        reach("filter.planned")
        if self.move.dry_run:
            return Moved(come, go, applied=False, tick=moment.tick)
        columns = RepairTable.read(self.db, pair)
        with (
            open_stage(self.db, pair, columns) as stage,
            meet(self.nodes, self.source, dest, keep_hold=True) as moment,
        ):
            done = self._do(pair_at(pair, moment), columns, stage, moment)
        log.info(
            "%s: %d rows inserted, %d deleted, %s",
            dest, done.inserted, done.deleted, self.move.said,
        )  # fmt: skip
        if done.replaced:
            log.warning(
                "%s: %d rows were here although the old condition did not hold for them",
                dest,
                done.replaced,
            )
        return Moved(done.inserted, done.deleted, applied=True, tick=moment.tick)

    def _pair(self) -> Pair:
        """Read both sides of the comparison: the source has the rows that come in, the target those
        that go."""
        from vedur.pipeline.compare import make_pair

        table = self.move.table
        provider = self.session.open(self.nodes.provider, "provider_db")
        # without a condition: which rows are looked at is said below
        mapping = replace(table.mapping, source=self.source, condition=None)
        pair = make_pair(provider, self.session.db, mapping)
        if not pair.keyed:
            raise StateError(f'table "{table.table_name}" has no key to find rows by')
        names = source_names(table.columns)
        old, new = self.move.old, self.move.new
        come = _and(written(new, names, "t"), _not(written(old, names, "t")))
        shared = sharing(self.db, self.session.queue, table)
        mine = written(old, alias="t") if shared else None
        go = _and(mine, _not(written(new, alias="t")))
        return replace(
            pair,
            source=replace(pair.source, condition=come),
            target=replace(pair.target, condition=go),
        )

    def _do(self, pair: Pair, columns: RepairTable, stage: str, moment: Moment) -> Switched:
        from vedur.pipeline.repair.refilter import stage_entering

        entering = stage_entering(self.spark, pair, columns, stage, limit=self._limit)
        self.db.execute(query("filter", "analyze").format(stage=stage))
        reach("filter.staged")
        with self.db.transaction():
            done = self._switch(pair, columns, stage, entering, moment)
            reach("filter.switched")
        reach("filter.committed")
        return done

    def _switch(
        self, pair: Pair, columns: RepairTable, stage: str, entering: Entering, moment: Moment
    ) -> Switched:
        from vedur.pipeline.repair.refilter import switch

        queue, consumer, move = self.nodes.queue, self.nodes.consumer, self.move
        position = lock_position(self.db, queue, consumer, row=True)
        if moment.lock_free and position != moment.tick:
            raise StateError(
                f"the worker went on to tick {position} while rows of tick {moment.tick} "
                f"were being fetched: nothing is changed, run {move.command} again"
            )
        hold_at_tick(self.db, queue, move.table, move.command)
        move.store(self.db)
        set_replication_role(self.db, "replica")
        return switch(self.db, pair, columns, stage, entering)


def _not(condition: str | None) -> str:
    """Return a condition for the rows for which this one does not hold; for none where there is no
    condition."""
    return "false" if condition is None else f"(({condition}\n) is not true)"


def _and(first: str | None, second: str) -> str:
    return second if first is None else f"({first}\n) and {second}"
