"""The driver's side of a load: plan a table, run its Spark job, watch it.

One task per slice where Spark has no more slots than the node may have connections, so that
a replay job gets the next slot that falls free; otherwise as many tasks as the load's share of
the connections, each taking some slices, and the other slots stay free for replay. Then the share
is worked out anew, so that a load which begins later gets its part.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vedur.db import Database, Row
from vedur.errors import (
    ConnectError,
    CopyAbandoned,
    InternalError,
    StateError,
    VedurError,
)
from vedur.names import QualifiedName, quote_ident, quote_literal
from vedur.pipeline.copy.plan import (
    SLICE_BYTES,
    Slice,
    StoredTable,
    TableCopy,
    columns_to_copy,
    columns_to_make,
    make_slices,
)
from vedur.pipeline.copy.shape import read_shape, unchanged
from vedur.pipeline.copy.task import LoadTask, LoadTogether, load_share
from vedur.pipeline.spark.spark_pool import enter_pool, is_remote
from vedur.pipeline.spark.tasks import parallelism, try_tasks
from vedur.sql import query
from vedur.tables.filter import written
from vedur.tables.mapping import TableMap
from vedur.tables.match import read_columns, read_keys, read_unique_keys
from vedur.tables.row_function import TableFacts
from vedur.tables.target import require_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A slice whose connection broke is tried again as long as the snapshot lives.
_ATTEMPTS = 3
#: Jobs of the copy stand in a pool of their own beside those of replay (FAIR scheduling).
_POOL = "vedur.copy"
#: Slices per task where connections are divided: about half a gigabyte.
_SLICES_PER_TASK = 16
#: Tables of at most this part of a slice (1 MB) are loaded together, by so many tasks.
_SMALL = 32
_TOGETHER_TASKS = 2
#: Tables that the title of such a job names.
_TITLE_NAMES = 10


@dataclass(frozen=True)
class Relation:
    """A table as the catalog of one side knows it."""

    oid: int
    kind: str
    owned: bool


def find_relation(db: Database, name: QualifiedName, side: str) -> Relation:
    """Read what the catalog has of a table; raises an error that names the side that lacks it."""
    row = db.one(query("copy", "relation"), [name.schema, name.name])
    if row is None:
        raise StateError(f'table "{name}" does not exist on the {side}')
    return Relation(row.oid, row.kind, row.owned)


def read_leaves(db: Database, oid: int) -> list[StoredTable]:
    """Read the tables that hold the rows of a table, with their sizes of now."""
    return [
        StoredTable(
            QualifiedName(r.schema, r.name),
            r.heap_bytes,
            r.all_bytes,
            r.block_size,
            r.rows_estimated,
            sliceable=r.kind in ("r", "m"),
        )
        for r in db.query(query("copy", "leaves"), {"oid": oid})
    ]


def plan_table(
    source: Database,
    target: Database,
    queue: str,
    table: TableMap,
    slice_bytes: int = SLICE_BYTES,
) -> TableCopy:
    """Read both catalogs and work out columns, format and slices of a copy.

    `source` is the transaction that holds the snapshot. What to do about columns that only the
    provider has is the caller's business. Rows that are to stay beside those of the copy
    (`keeps_rows`) make it one slice, so one transaction.
    """
    there = find_relation(source, table.source_name, "provider")
    find_relation(target, table.local_name, "subscriber")
    both = read_columns(source, table.source_name), read_columns(target, table.local_name)
    made: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    if table.rows is None:
        matched = columns_to_copy(table.name, *both, table.columns)
    else:
        types = {column.name: column.type for column in both[0]}
        keys = read_unique_keys(target, table.local_name)
        table.rows.check(TableFacts(keys, types, dict(table.columns or ())))
        matched, made = columns_to_make(table.name, *both, table.columns, table.rows)
        key = next(iter(read_keys(source, table.source_name)), ())
    if matched.only_target:
        log.warning('%s: columns only on the subscriber, left to their defaults: %s', table.name,
                    ", ".join(matched.only_target))  # fmt: skip
    how, moments = _plan_partitions(source, target, table)
    shape = read_shape(source, table.source_name, matched.columns)
    leaves = read_leaves(source, there.oid)
    one = (Slice(0, table.source_name, 0, None),)
    return TableCopy(
        queue,
        table.name,
        table.local_name,
        matched.columns,
        matched.format,
        written(table.condition, table.source_columns, "t"),
        one if table.keeps_rows else make_slices(leaves, slice_bytes),
        sum(leaf.rows_estimated for leaf in leaves),
        sum(max(leaf.all_bytes, leaf.heap_bytes) for leaf in leaves),
        whole_tree=table.keeps_rows and there.kind == "p",
        dest_columns=matched.dest_columns,
        only_source=matched.only_source,
        source=table.source_name,
        in_one=table.keeps_rows,
        shape=shape,
        rows=table.rows,
        made=made,
        key=key,
        home=table.dest,
        partitions=how,
        moments=moments,
    )


def _plan_partitions(
    source: Database, target: Database, table: TableMap
) -> tuple[str, tuple[str | None, ...]]:
    """Read how partitions are made, and for a table with declared ones the periods that rows of
    the snapshot are in; nothing for a table whose copy goes into the table itself."""
    found = table.partitions
    if found is None:
        return "", ()
    columns = read_columns(target, table.local_name)
    keys = read_unique_keys(target, table.local_name)
    declared = find_relation(target, table.local_name, "subscriber").kind == "p"
    types = {column.name: column.type for column in columns}
    require_partitions(table.dest, found, types, declared, bool(keys))
    if found.field is None:
        return "", ()
    # Rows of all slices have their place until the end: old partitions go when the next is made.
    how = found.as_json(keys, list(types), drop=False)
    if not declared:
        return how, ()
    there = (table.source_columns or {}).get(found.field, found.field)
    place = f"t.{quote_ident(there)}"
    words = {
        "moment": target.value(query("replay", "part_moment"), [table.dest, found.field, place]),
        "period": quote_literal(found.period),
        "source": table.source_name.quoted,
        "condition": written(table.condition, table.source_columns, "t") or "true",
    }
    rows = source.query(query("copy", "moments").format(**words))
    return how, tuple(row.moment for row in rows)


def store_slices(target: Database, table: TableCopy) -> None:
    """Write the plan where the tasks find it, in the caller's transaction."""
    for moment in table.moments:
        target.query(query("replay", "make_partition"), [table.home, table.partitions, moment])
    target.execute(query("copy", "forget_slices"), [table.queue, table.table])
    target.executemany(
        query("copy", "add_slice"),
        [
            (table.queue, table.table, s.nr, s.leaf.schema, s.leaf.name, s.first, s.end)
            for s in table.slices
        ],
    )


@dataclass
class SparkLoader:
    """Loads planned tables with Spark; safe to call from several threads."""

    spark: SparkSession
    max_connections: int = 8
    slice_bytes: int = SLICE_BYTES
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if self.budget is None:
            self.budget = Budget(self.max_connections)

    def plan(self, source: Database, target: Database, queue: str, table: TableMap) -> TableCopy:
        """Read what a copy of the table amounts to, as `plan_table`."""
        return plan_table(source, target, queue, table, self.slice_bytes)

    def unchanged(self, source: Database, plan: TableCopy) -> bool:
        """Is the provider's table now what the snapshot saw? `source` sees the present."""
        return unchanged(source, plan)

    def store(self, target: Database, plan: TableCopy) -> None:
        """As `store_slices`."""
        store_slices(target, plan)

    @property
    def small_bytes(self) -> int:
        """Up to this size a table is loaded together with others, its indexes in place."""
        return self.slice_bytes // _SMALL

    def load_together(
        self,
        source: str,
        target: Database,
        snapshot: str,
        visible: str,
        plans: Sequence[TableCopy],
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Load small tables in one job; what it leaves, `load` finds with its reason."""
        tasks = tuple(LoadTask(source, target.connstr, snapshot, visible, p, 1) for p in plans)
        wanted = min(_TOGETHER_TASKS, parallelism(self.spark))
        assert self.budget is not None
        with self.budget.load(), self.budget.take(wanted, given_up) as count:
            self._enter_pool(together_title([plan.table for plan in plans]))
            for answer in try_tasks(self.spark, load_share, [LoadTogether(tasks)] * count):
                if answer.error is not None:
                    log.debug("small tables, loaded one by one: %s", answer.error.message)

    def load(
        self,
        source: str,
        target: Database,
        snapshot: str,
        visible: str,
        plan: TableCopy,
        given_up: Callable[[], bool] = lambda: False,
    ) -> int:
        """Load what is not loaded yet; rows that the table then has from this copy.

        `source` is a connect string, `target` a connection of the driver to look at the slices.
        """
        task = LoadTask(source, target.connstr, snapshot, visible, plan)
        assert self.budget is not None
        failed = 0
        left = self._left(target, plan)
        with self.budget.load():
            while left > 0:
                error = self._run_job(task, left, self.budget, given_up)
                if error is not None and not isinstance(error, ConnectError):
                    raise error
                before, left = left, self._left(target, plan)
                if error is not None or left >= before:
                    failed += 1
                if failed == _ATTEMPTS and left > 0:
                    raise error or InternalError(
                        f'BUG: {left} slices of "{plan.table}" were not loaded'
                    )
        return self._rows(target, plan)

    def _left(self, target: Database, plan: TableCopy) -> int:
        totals = self._totals(target, plan)
        if totals.slices != len(plan.slices):
            raise StateError(f'the copy of table "{plan.table}" was given up by another session')
        return int(totals.slices - totals.slices_done)

    def _rows(self, target: Database, plan: TableCopy) -> int:
        return int(self._totals(target, plan).rows_done)

    @staticmethod
    def _totals(target: Database, plan: TableCopy) -> Row:
        with target.transaction():
            return target.one(query("copy", "slice_totals"), [plan.queue, plan.table])

    def _run_job(
        self, task: LoadTask, left: int, budget: Budget, given_up: Callable[[], bool]
    ) -> VedurError | None:
        self._enter_pool(f"copy {task.table.table}")
        if parallelism(self.spark) <= self.max_connections:
            answers = try_tasks(self.spark, load_share, [replace(task, slices=1)] * left)
        else:
            with budget.take(left, given_up) as count:
                share = replace(task, slices=_SLICES_PER_TASK)
                answers = try_tasks(self.spark, load_share, [share] * count)
        errors = [answer.error for answer in answers if answer.error is not None]
        if not errors:
            return None
        # of several, the one that a retry cannot cure
        worst = max(errors, key=lambda error: not isinstance(error, ConnectError))
        return worst.with_values(table=task.table.table)

    def _enter_pool(self, title: str) -> None:
        enter_pool(self.spark, _POOL)
        if not is_remote(self.spark):  # Spark Connect has no titles
            self.spark.sparkContext.setLocalProperty("spark.job.description", title)


def together_title(tables: Sequence[str]) -> str:
    """What Spark's pages call a load of several tables: a page is to say whose job it shows."""
    more = len(tables) - _TITLE_NAMES
    named = ", ".join(tables[:_TITLE_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"copy of {len(tables)} small tables: {named}"


# -- the connections that all loads of a node may have, divided over those that run ---------------

#: Seconds between two looks whether a load that waits is still wanted.
_LOOK = 0.5


class Budget:
    """Shared by the threads of the driver. `total` may be changed at any time.

    Where several queues copy in one process, each has its own, and takes out of a `common` one.
    """

    def __init__(self, total: int, common: Budget | None = None) -> None:
        self.total = total
        self.common = common
        self._used = 0
        self._loads = 0
        self._changed = threading.Condition()

    @contextmanager
    def load(self) -> Iterator[None]:
        """A load that wants a share for as long as it runs."""
        with self._changed:
            self._loads += 1
        try:
            with self.common.load() if self.common else nullcontext():
                yield
        finally:
            with self._changed:
                self._loads -= 1
                self._changed.notify_all()

    @contextmanager
    def take(self, wanted: int, given_up: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Connections for one job of a load: its share, or what is free; waits for the first.

        Others may hold all for hours: raises `CopyAbandoned` when the load is given up meanwhile.
        """
        with self._changed:
            while not self._changed.wait_for(lambda: self._used < max(1, self.total), _LOOK):
                if given_up():
                    raise CopyAbandoned
            total = max(1, self.total)
            share = max(1, total // max(1, self._loads))
            given = min(wanted, share, total - self._used)
            self._used += given
        try:
            with self.common.take(given, given_up) if self.common else nullcontext(given) as mine:
                yield mine
        finally:
            with self._changed:
                self._used -= given
                self._changed.notify_all()
