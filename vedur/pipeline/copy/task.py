"""What a Spark task does for a copy: claim a slice, stream it across, mark it, commit.

Runs on executors. The claim is a row lock in `vedur.copy_slice` of the target, taken in the
transaction that loads the slice: a task that dies gives its slice back, a task that is run again
finds its slice done. So it does not matter how often, where, or in which order tasks run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from vedur import db as vdb
from vedur.db import set_replication_role
from vedur.db.copy import Pumped, pump
from vedur.errors import StateError, VedurError
from vedur.names import QualifiedName
from vedur.pipeline.copy.handed import HandedRows
from vedur.pipeline.copy.plan import Slice, TableCopy
from vedur.pipeline.copy.shape import changed, unchanged
from vedur.sql import query

#: Notices would end up between the blocks of data.
_SESSION = "set client_min_messages = error"


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
        with vdb.connect(
            self.target, name="copy_target", application_name=self.table.task_name
        ) as target:
            target.without_timeouts().execute(_SESSION)
            target.commit()
            count = 0
            while self.slices == 0 or count < self.slices:
                loaded = self.load_one(target)
                if loaded is None:
                    return
                yield loaded
                count += 1

    def load_one(
        self, target: vdb.Database, open_source: Callable[[], vdb.Database] | None = None
    ) -> tuple[int, Pumped] | None:
        """Load one slice and commit; None where there is none. A given source stays open."""
        set_replication_role(target, "replica")
        row = target.one(query("copy", "claim_slice"), [self.table.queue, self.table.table])
        if row is None:
            target.rollback()
            return None
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

    def _pump(
        self, source: vdb.Database, target: vdb.Database, piece: Slice, *, keep: bool
    ) -> Pumped:
        """Bring the rows of a slice from one session to the other."""
        self._require_same_file(source, piece)
        out, into = self.table.copy_out(piece), self.table.copy_in
        if self.table.rows is None:
            return pump(source, out, target, into, keep=keep)
        handed = HandedRows(
            self.table.rows, self.table.columns, self.table.made, key=self.table.key
        )
        return handed.pass_on(source, out, target, into, keep=keep)

    def _require_same_file(self, source: vdb.Database, piece: Slice) -> None:
        """A rewrite writes rows that no older snapshot sees, or moves them to other pages.

        The lock comes first, so what is seen here holds until the slice is read.
        """
        source.execute(self.table.lock_out(piece))
        if not source.value(query("copy", "same_file"), [piece.leaf.schema, piece.leaf.name]):
            raise changed(self.table.table)

    def _require_same_shape(self) -> None:
        """What the driver does at the end of other loads: table and snapshot were there all along.

        A snapshot can be imported only while the session that exported it lives.
        """
        self.open_source().close()
        with vdb.connect(self.source, name="copy_source", autocommit=True) as now:
            if not unchanged(now, self.table):
                raise changed(self.table.table)

    def _still_wanted(self, target: vdb.Database) -> bool:
        words = {
            "queue": self.table.queue,
            "table": self.table.table,
            "snapshot": self.visible,
        }
        return bool(target.query(query("copy", "still_in_copy"), words))

    def open_source(self) -> vdb.Database:
        """A session on the provider that sees the snapshot."""
        source = vdb.connect(
            self.source,
            name="copy_source",
            application_name=self.table.task_name,
            autocommit=True,
        )
        try:
            source.without_timeouts().execute(_SESSION)
            source.execute("begin isolation level repeatable read, read only")
            source.execute(f"set transaction snapshot '{self.snapshot}'")
        except BaseException:
            source.close()
            raise
        return source


@dataclass(frozen=True, repr=False)
class LoadTogether:
    """The closure of a job for several small tables: each is loaded as by its own task, one after
    the other on the same connections. A table that fails is left to a job of its own."""

    tasks: tuple[LoadTask, ...]

    def __repr__(self) -> str:
        return f"LoadTogether({len(self.tasks)} tables)"

    def load(self) -> int:
        """Load what can be loaded; return how many tables that were, or raise the last error."""
        first = self.tasks[0]
        loaded, failure = 0, None
        try:
            with vdb.connect(first.target, name="copy_target") as target:
                target.without_timeouts().execute(_SESSION)
                target.commit()
                with _Source(first) as source:
                    for task in self.tasks:
                        try:
                            loaded += self._one(task, target, source)
                        except VedurError as error:
                            failure = error
                            if target.closed:
                                break
                            target.rollback()
        except VedurError as error:
            failure = error
        if failure is not None:
            raise failure
        return loaded

    @staticmethod
    def _one(task: LoadTask, target: vdb.Database, source: _Source) -> int:
        name = task.table.task_name
        target.execute(query("copy", "rename_task"), [name])
        return int(task.load_one(target, source.at_snapshot) is not None)


class _Source:
    """A session on the provider that reads table after table, each in a transaction of its own,
    so that no table stays locked for longer than it is read."""

    def __init__(self, task: LoadTask) -> None:
        self.task = task
        self._db: vdb.Database | None = None

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._db is not None:
            self._db.close()

    def at_snapshot(self) -> vdb.Database:
        """A new transaction at the snapshot."""
        if self._db is None or self._db.closed:
            self._db = self.task.open_source()
            return self._db
        text = query("copy", "next_at_snapshot").format(snapshot=self.task.snapshot)
        self._db.execute(text)
        return self._db


def load_share(task: LoadTask | LoadTogether) -> int:
    """Do the share of one Spark task: writes to the target and commits. Returns a count."""
    return task.load()
