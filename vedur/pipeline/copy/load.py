"""The load of a planned table: the Spark job that the driver runs and watches, and its tasks.

One task per slice where Spark has no more slots than the node may have connections, so that
a replay job gets the next slot that falls free; otherwise as many tasks as the load's share of
the connections, each taking some slices, and the other slots stay free for replay. Then the share
is worked out anew, so that a load which begins later gets its part.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vedur.db import Database, Row, connect, set_replication_role
from vedur.db.copy import Pumped, pump
from vedur.errors import (
    ConnectError,
    CopyAbandoned,
    InternalError,
    StateError,
    VedurError,
)
from vedur.names import QualifiedName
from vedur.pipeline.copy.handed import HandedRows
from vedur.pipeline.copy.plan import (
    SLICE_BYTES,
    Slice,
    TableCopy,
    plan_table,
    plan_together,
)
from vedur.pipeline.copy.shape import changed, unchanged, unchanged_together
from vedur.pipeline.copy.together import SESSION, LoadTogether, together_title
from vedur.pipeline.spark.spark_pool import enter_pool, is_remote
from vedur.pipeline.spark.tasks import has_slot_kept, parallelism, try_tasks
from vedur.sql import query
from vedur.tables.mapping import TableMap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A slice whose connection broke is tried again as long as the snapshot lives.
_ATTEMPTS = 3
#: Jobs of the copy stand in a pool of their own beside those of replay (FAIR scheduling).
_POOL = "vedur.copy"
#: Slices per task where connections are divided: about half a gigabyte.
_SLICES_PER_TASK = 16
#: Tables of at most this part of a slice (2 MB) keep their indexes. To take them away and to build
#: them again costs 16 to 20 ms; measured, that was saved from 30,000 rows (2.5 MB) on with a key
#: alone, from 12,000 (1 MB) on with two more indexes.
_SMALL = 16
#: Tables of one slice are loaded together by so many tasks, or by so many for each slice's bytes.
_TOGETHER_TASKS = 2
_TOGETHER_SHARES = 4


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
        """Store slices, as `store_slices` does."""
        store_slices(target, plan)

    @property
    def small_bytes(self) -> int:
        """Up to this size a table is loaded with its indexes in place."""
        return self.slice_bytes // _SMALL

    @property
    def bundle_bytes(self) -> int:
        """Up to this size a table is loaded together with others."""
        return self.slice_bytes

    def plan_together(
        self, source: Database, target: Database, queue: str, tables: Sequence[TableMap]
    ) -> dict[str, TableCopy]:
        """Plan tables together, as `plan.plan_together` does."""
        return plan_together(source, target, queue, tables)

    def unchanged_together(self, source: Database, plans: Mapping[str, TableCopy]) -> set[str]:
        """Return which of the provider's tables are now what the snapshot saw; `source` sees the
        present."""
        return unchanged_together(source, plans)

    def store_together(self, target: Database, queue: str, plans: Mapping[str, TableCopy]) -> None:
        """Write the slices of plans of `plan_together`, in the caller's transaction."""
        target.execute(query("copies", "forget_slices"), [queue, list(plans)])
        leaves = [plan.slices[0].leaf for plan in plans.values()]
        words = {
            "queue": queue,
            "names": list(plans),
            "schemas": [leaf.schema for leaf in leaves],
            "tables": [leaf.name for leaf in leaves],
        }
        target.execute(query("copies", "add_slices"), words)

    def load_together(
        self,
        source: str,
        target: Database,
        snapshot: str,
        visible: str,
        plans: Sequence[TableCopy],
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Load tables of one slice in one job, the largest first; what it leaves is told by the
        slices."""
        largest = sorted(plans, key=lambda plan: -plan.bytes_estimated)
        tasks = tuple(LoadTask(source, target.connstr, snapshot, visible, p, 1) for p in largest)
        size = sum(plan.bytes_estimated for plan in plans)
        share = max(_TOGETHER_TASKS, size * _TOGETHER_SHARES // self.slice_bytes)
        wanted = min(share, parallelism(self.spark), len(tasks))
        assert self.budget is not None
        with self.budget.load(), self.budget.take(wanted, given_up) as count:
            self._enter_pool(together_title([plan.table for plan in plans]))
            for answer in try_tasks(self.spark, load_share, [LoadTogether(tasks)] * count):
                if answer.error is not None:
                    log.debug("of several tables, one failed: %s", answer.error.message)

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
        if parallelism(self.spark) + has_slot_kept(self.spark) <= self.max_connections:
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


# -- the connections that all loads of a node may have, divided over those that run ---------------

#: Seconds between two looks whether a load that waits is still wanted.
_LOOK = 0.5


class Budget:
    """Shared by the threads of the driver, who get it in the order in which they ask. `total` may
    be changed at any time.

    Where several queues copy in one process, each has its own, and takes out of a `common` one.
    """

    def __init__(self, total: int, common: Budget | None = None) -> None:
        self.total = total
        self.common = common
        self._used = 0
        self._loads = 0
        self._line: list[object] = []
        self._changed = threading.Condition()

    @contextmanager
    def load(self) -> Iterator[None]:
        """Count a load, which wants a share for as long as it runs."""
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
        """Take connections for one job of a load: its share, or what is free; waits for the first.

        Others may hold all for hours: raises `CopyAbandoned` when the load is given up meanwhile.
        """
        given = self._wait(wanted, given_up)
        try:
            with self.common.take(given, given_up) if self.common else nullcontext(given) as mine:
                yield mine
        finally:
            with self._changed:
                self._used -= given
                self._changed.notify_all()

    def _wait(self, wanted: int, given_up: Callable[[], bool]) -> int:
        me = object()
        with self._changed:
            self._line.append(me)
            try:
                free = lambda: self._line[0] is me and self._used < max(1, self.total)  # noqa: E731
                while not self._changed.wait_for(free, _LOOK):
                    if given_up():
                        raise CopyAbandoned
                total = max(1, self.total)
                share = max(1, total // max(1, self._loads))
                given = min(wanted, share, total - self._used)
                self._used += given
            finally:
                self._line.remove(me)
                self._changed.notify_all()
        return given


# -- what a task does: claim a slice, stream it across, mark it, commit ---------------------------

# Runs on executors. The claim is a row lock in `vedur.copy_slice` of the target, taken in the
# transaction that loads the slice: a task that dies gives its slice back, a task that is run again
# finds its slice done. So it does not matter how often, where, or in which order tasks run.


@dataclass(frozen=True, repr=False)
class LoadTask:
    """The closure of a load job. `slices` 0 means: until none is left."""

    source: str
    target: str
    snapshot: str
    visible: str
    table: TableCopy
    slices: int = 0

    def __repr__(self) -> str:
        # connect strings must not reach a log through an error message
        return f"LoadTask({self.table.table})"

    def load(self) -> int:
        """Load slices, as many as wanted; return how many those were."""
        return len(list(self.run()))

    def run(self) -> Iterator[tuple[int, Pumped]]:
        """Load slices until there is none, or as many as wanted."""
        with connect(
            self.target, name="copy_target", application_name=self.table.task_name
        ) as target:
            target.without_timeouts().execute(SESSION)
            target.commit()
            count = 0
            while self.slices == 0 or count < self.slices:
                loaded = self.load_one(target)
                if loaded is None:
                    return
                yield loaded
                count += 1

    def load_one(self, target: Database) -> tuple[int, Pumped] | None:
        """Load one slice and commit; None where there is none."""
        set_replication_role(target, "replica")
        row = target.one(query("copy", "claim_slice"), [self.table.queue, self.table.table])
        if row is None:
            target.rollback()
            return None
        return self.load_claimed(target, row)

    def load_claimed(
        self, target: Database, row: Row, open_source: Callable[[], Database] | None = None
    ) -> tuple[int, Pumped]:
        """Load a slice that the transaction of `target`, in replica role, has claimed, and commit.
        A given source stays open."""
        leaf = QualifiedName(row.source_schema, row.source_name)
        piece = Slice(row.slice_nr, leaf, row.page_from, row.page_to)
        with ExitStack() as own:
            if open_source is None:
                # closed here, whatever happens: its transaction would outlive an error that is kept
                source = own.enter_context(closing(self.open_source()))
            else:
                source = open_source()
            pumped = self._pump(source, target, piece, keep=open_source is not None)
        if self.table.partitions:
            words = [self.table.home, self.table.partitions]
            target.query(query("replay", "spread_rows"), words)
        if self.table.in_one:  # after a crash nobody looks at it again
            self._require_same_shape()
        names = [self.table.queue, self.table.table]
        if self.table.registered and not self._still_wanted(target):
            target.rollback()
            raise StateError(
                f'table "{self.table.table}" was removed during its copy, or is copied anew'
            )
        target.execute(
            query("copy", "finish_slice"),
            [pumped.rows, pumped.bytes, *names, piece.nr],
        )
        target.commit()
        return piece.nr, pumped

    def _pump(self, source: Database, target: Database, piece: Slice, *, keep: bool) -> Pumped:
        """Bring the rows of a slice from one session to the other."""
        self._require_same_file(source, piece)
        out, into = self.table.copy_out(piece), self.table.copy_in
        if self.table.rows is None:
            return pump(source, out, target, into, keep=keep)
        handed = HandedRows(
            self.table.rows, self.table.columns, self.table.made, key=self.table.key
        )
        return handed.pass_on(source, out, target, into, keep=keep)

    def _require_same_file(self, source: Database, piece: Slice) -> None:
        """Lock the table of a slice, and raise where it has another file: a rewrite writes rows
        that no older snapshot sees, or moves them to other pages.

        The lock comes first, so what is seen here holds until the slice is read.
        """
        source.execute(self.table.lock_out(piece))
        if not source.value(query("copy", "same_file"), [piece.leaf.schema, piece.leaf.name]):
            raise changed(self.table.table)

    def _require_same_shape(self) -> None:
        """Raise unless table and snapshot were there all along, which the driver checks at the end
        of other loads.

        A snapshot can be imported only while the session that exported it lives.
        """
        self.open_source().close()
        with connect(self.source, name="copy_source", autocommit=True) as now:
            if not unchanged(now, self.table):
                raise changed(self.table.table)

    def _still_wanted(self, target: Database) -> bool:
        words = {
            "queue": self.table.queue,
            "table": self.table.table,
            "snapshot": self.visible,
        }
        return bool(target.query(query("copy", "still_in_copy"), words))

    def open_source(self) -> Database:
        """Open a session on the provider that sees the snapshot."""
        source = connect(
            self.source,
            name="copy_source",
            application_name=self.table.task_name,
            autocommit=True,
        )
        try:
            source.without_timeouts().execute(SESSION)
            source.execute("begin isolation level repeatable read, read only")
            source.execute(f"set transaction snapshot '{self.snapshot}'")
        except BaseException:
            source.close()
            raise
        return source


def load_share(task: LoadTask | LoadTogether) -> int:
    """Do the share of one Spark task: writes to the target and commits. Returns a count."""
    return task.load()
