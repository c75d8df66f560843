"""change-filter: other rows of a table, without a new copy, while changes go on.

Where the worker stands at a tick, the local table is what the provider had at that tick, as far as
the old condition holds. So just two sets of rows have to move: local ones for which the new
condition does not hold go, and the provider's for which the new one holds and the old one does not
come, read at the tick's own snapshot. First both sets are counted at one moment, while everything
runs on: the plan. Then the worker is held at a second moment, Spark tasks bring the rows to a
table aside, and one transaction deletes, inserts and stores the new condition; it locks the
worker's position, which must be the tick. Until that commit the old condition holds for
everybody, after it the new one. Whatever dies before leaves a table aside that the next run drops.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from vedur.catalog.tables import TableInfo, change_table_attr, hold_at_tick, missing_part, sharing
from vedur.change.attrs import COPY_CONDITION
from vedur.db import Database, set_replication_role
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.handlers.registry import resolve
from vedur.names import parse_name
from vedur.node.info import NodeInfo, NodeType
from vedur.node.moment import Moment, Nodes, meet
from vedur.node.position import lock_position
from vedur.ops.compare_tables import chosen_tables, make_nodes, pair_at, warn_below
from vedur.ops.copy_node import CopyNodes
from vedur.ops.parts import require_all_changes
from vedur.ops.session import Session
from vedur.pipeline.spark.command_session import end_spark, start_spark
from vedur.sql import query
from vedur.tables.checks import TableAt, require_condition
from vedur.tables.filter import source_names, written
from vedur.tables.structure import read_structure

if TYPE_CHECKING:
    from vedur.pipeline.compare import Pair
    from vedur.pipeline.repair import RepairTable
    from vedur.pipeline.repair.refilter import Entering, Switched
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChangeFilter:
    """What the operator asked for: a condition, or all rows."""

    table: str
    where: str | None = None
    all_rows: bool = False
    dry_run: bool = False
    force: bool = False
    max_wait: float = 60.0

    def check(self) -> None:
        """One of the two, and one table."""
        if self.all_rows == (self.where is not None):
            raise UsageError("change-filter needs --where CONDITION or --all-rows")
        if self.where is not None and not self.where.strip():
            raise UsageError("the condition is empty: use --all-rows to have all rows")
        if self.max_wait < 0:
            raise UsageError(f"--max-wait is a number from 0 up, got {self.max_wait:g}")


@dataclass(frozen=True)
class FilterChange:
    """The plan, or what was done."""

    table: str
    dest_table: str
    old: str | None
    new: str | None
    inserts: int
    deletes: int
    applied: bool
    tick: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def change_filter(
    session: Session, options: ChangeFilter, spark: SparkSession | None = None
) -> FilterChange | None:
    """Change the condition of a local table; None where it is that already."""
    options.check()
    info, tables = chosen_tables(session, (options.table,))
    if len(tables) != 1:
        raise UsageError(f'change-filter takes one table that is in sync, got "{options.table}"')
    require_all_changes(info)
    table = tables[0]
    handled = resolve(table)
    if handled is not None and not handled.plain:
        raise StateError(
            f'table "{table.table_name}" has handler "{handled.stored}", which decides which rows '
            "come: change-filter does not know what it would do; use change-handler"
        )
    if (table.copy_condition or None) == options.where:
        log.info("%s: has this condition already", table.dest_table)
        return None
    source = _source(session, info, table, options)
    _require(session, info, table, source, options)
    warn_below(info, "do not change", "change-filter")
    own, spark = (spark is None), spark or start_spark(session.settings)
    try:
        nodes = make_nodes(session, info, force=options.force, max_wait=options.max_wait)
        with nodes.target.open("filter") as db:
            db.without_timeouts()
            if not db.value(query("compare", "repair_lock"), [table.dest_table]):
                raise StateError(
                    f'a repair or change-filter of "{table.dest_table}" is running: '
                    "wait for it to end"
                )
            return _Change(session, spark, nodes, table, source, db, options).run()
    finally:
        if own:
            end_spark(spark)


def _source(session: Session, info: NodeInfo, table: TableInfo, options: ChangeFilter) -> str:
    """The provider's own name of the table; raises where the provider has not all rows of it that
    are asked for."""
    node = CopyNodes(session, info).of(table.mapping)
    there = node.tables.by_name[table.table_name]
    wanted = replace(table.mapping, condition=options.where)
    if node.info.node_type is NodeType.BRANCH and (part := missing_part(there, wanted)):
        raise StateError(
            f'table "{table.table_name}" is on the provider, node "{node.name}", in part only '
            f"({part}): nothing is changed; add the table anew with this condition and "
            "--find-copy-node, or give this node another provider (change-provider)"
        )
    return there.dest_table


def _require(
    session: Session, info: NodeInfo, table: TableInfo, source: str, options: ChangeFilter
) -> None:
    if sharing(session.db, session.queue, table) and not table.copy_condition:
        raise StateError(
            f'several tables come together in "{table.dest_table}", and "{table.table_name}" has '
            "no condition that tells its rows from the others': change-filter cannot be used"
        )
    provider = session.provider(info)
    local = read_structure(session.db, parse_name(table.dest_table))
    remote = read_structure(provider, parse_name(source))
    if local is None or remote is None:
        side = "here" if local is None else "on the provider"
        raise StateError(f'table "{table.table_name}" does not exist {side}')
    if options.where is not None:
        require_condition(
            replace(table.mapping, condition=options.where),
            TableAt(session.db, local),
            TableAt(provider, remote),
            force=options.force,
        )


@dataclass
class _Change:
    """One table; `db` is a connection of its own that holds the lock of this command."""

    session: Session
    spark: SparkSession
    nodes: Nodes
    table: TableInfo
    source: str
    db: Database
    options: ChangeFilter

    @property
    def _limit(self) -> int:
        return self.session.settings.max_connections_per_node

    def run(self) -> FilterChange:
        """Count; and unless it is a dry run, do it."""
        from vedur.pipeline.compare import checksum
        from vedur.pipeline.repair import RepairTable
        from vedur.pipeline.repair.refilter import open_stage

        table, pair = self.table, self._pair()
        log.info("Checking %s", table.dest_table)
        with meet(self.nodes, self.source, table.dest_table) as moment:
            sums = checksum(self.spark, pair_at(pair, moment), limit=self._limit, count_only=True)
        come, go = sums[0].rows, sums[1].rows
        log.info("%s: %d rows to insert, %d to delete", table.dest_table, come, go)
        reach("filter.planned")
        if self.options.dry_run:
            return self._result(come, go, moment, applied=False)
        columns = RepairTable.read(self.db, pair)
        with (
            open_stage(self.db, pair, columns) as stage,
            meet(self.nodes, self.source, table.dest_table, keep_hold=True) as moment,
        ):
            done = self._do(pair_at(pair, moment), columns, stage, moment)
        log.info(
            "%s: %d rows inserted, %d deleted, condition is now: %s",
            table.dest_table,
            done.inserted,
            done.deleted,
            self.options.where or "none",
        )
        if done.replaced:
            log.warning(
                "%s: %d rows were here although the old condition did not hold for them",
                table.dest_table,
                done.replaced,
            )
        return self._result(done.inserted, done.deleted, moment, applied=True)

    def _pair(self) -> Pair:
        """Source: the rows that come in. Target: the rows that go."""
        from vedur.pipeline.compare import make_pair

        table, options = self.table, self.options
        provider = self.session.open(self.nodes.provider, "provider_db")
        # without a condition: which rows are looked at is said below
        mapping = replace(table.mapping, source=self.source, condition=None)
        pair = make_pair(provider, self.session.db, mapping)
        if not pair.keyed:
            raise StateError(f'table "{table.table_name}" has no key to find rows by')
        names = source_names(table.columns)
        old, new = table.copy_condition, options.where
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

        queue, consumer, table = self.nodes.queue, self.nodes.consumer, self.table
        position = lock_position(self.db, queue, consumer, row=True)
        if moment.lock_free and position != moment.tick:
            raise StateError(
                f"the worker went on to tick {position} while rows of tick {moment.tick} "
                "were being fetched: nothing is changed, run change-filter again"
            )
        hold_at_tick(self.db, queue, table, "change-filter")
        change_table_attr(self.db, queue, table.table_name, COPY_CONDITION, self.options.where)
        set_replication_role(self.db, "replica")
        return switch(self.db, pair, columns, stage, entering)

    def _result(self, inserts: int, deletes: int, moment: Moment, *, applied: bool) -> FilterChange:
        table = self.table
        return FilterChange(
            table.table_name,
            table.dest_table,
            table.copy_condition or None,
            self.options.where,
            inserts,
            deletes,
            applied,
            moment.tick,
        )


def _not(condition: str | None) -> str:
    """Rows for which it does not hold; none at all where there is no condition."""
    return "false" if condition is None else f"(({condition}\n) is not true)"


def _and(first: str | None, second: str) -> str:
    return second if first is None else f"({first}\n) and {second}"
