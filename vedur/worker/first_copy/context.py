"""What the parts of a first copy share: steps, settings, one table's job, and how far it is."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from vedur import db as vdb
from vedur.catalog import TableInfo, get_table_list
from vedur.change.quarantine import Policy
from vedur.clock import Clock
from vedur.errors import CopyAbandoned, VedurError
from vedur.failpoint import reach
from vedur.names import QualifiedName, parse_name
from vedur.sql import query
from vedur.tables.filter import written
from vedur.tables.mapping import PartColumn, TableMap
from vedur.threads import Thread
from vedur.worker.apply_range import Applier

log = logging.getLogger(__name__)

#: make_applier(name of its own staging area, provider's connect string)
MakeApplier = Callable[[str, str], Applier[Any]]


# -- steps, once: for the log, the progress table and the manual ----------------------------------


class Step(IntEnum):
    """Numbered in the order in which a table goes through them; each may be run again."""

    REGISTER = 1
    SNAPSHOT = 2
    IN_COPY = 3
    STRIP = 4
    TRUNCATE = 5
    LOAD = 6
    REBUILD = 7
    CATCH_UP = 8
    HAND_OVER = 9
    FOREIGN_KEYS = 10

    @property
    def title(self) -> str:
        """What an operator reads."""
        return TITLES[self]


TITLES: dict[Step, str] = {
    Step.REGISTER: "register a consumer that holds the queue",
    Step.SNAPSHOT: "take the snapshot",
    Step.IN_COPY: "begin the copy",
    Step.STRIP: "put foreign keys and indexes aside",
    Step.TRUNCATE: "empty the table",
    Step.LOAD: "load",
    Step.REBUILD: "build indexes",
    Step.CATCH_UP: "catch up",
    Step.HAND_OVER: "hand over to the worker",
    Step.FOREIGN_KEYS: "restore foreign keys",
}


# -- what moves the rows --------------------------------------------------------------------------


class Plan(Protocol):
    """What a loader worked out for a table; opaque but for this."""

    @property
    def task_name(self) -> str: ...
    @property
    def rows_estimated(self) -> int: ...
    @property
    def bytes_estimated(self) -> int: ...
    @property
    def only_source(self) -> tuple[str, ...]: ...


PlanT = TypeVar("PlanT", bound=Plan)


class Loader(Protocol[PlanT]):
    """Moves the rows. `ops/processes/worker.py` hands over the one that does it with Spark.

    Its plans are its own: what it made for a table, it is given back.
    """

    def plan(
        self, source: vdb.Database, target: vdb.Database, queue: str, table: TableMap
    ) -> PlanT:
        """Work out columns, format and slices; `source` holds the snapshot."""

    def unchanged(self, source: vdb.Database, plan: PlanT) -> bool:
        """Is the provider's table still what the snapshot saw? `source` sees the present."""

    def store(self, target: vdb.Database, plan: PlanT) -> None:
        """Write the slices where tasks find them, in the caller's transaction."""

    @property
    def small_bytes(self) -> int:
        """Up to this size a table is loaded with its indexes in place."""

    @property
    def bundle_bytes(self) -> int:
        """Up to this size a table is loaded together with others."""

    def plan_together(
        self, source: vdb.Database, target: vdb.Database, queue: str, tables: Sequence[TableMap]
    ) -> dict[str, PlanT]:
        """Work out the same for several tables, each in one slice; leaves out what must be looked
        at table by table."""

    def unchanged_together(self, source: vdb.Database, plans: Mapping[str, PlanT]) -> set[str]:
        """Read which of the provider's tables are still what the snapshot saw."""

    def store_together(self, target: vdb.Database, queue: str, plans: Mapping[str, PlanT]) -> None:
        """Write the slices of all where tasks find them, in the caller's transaction."""

    def load_together(
        self,
        source: str,
        target: vdb.Database,
        snapshot: str,
        visible: str,
        plans: Sequence[PlanT],
        given_up: Callable[[], bool],
    ) -> None:
        """Load as many of several tables as one job can; the slices say which it has loaded."""

    def load(
        self,
        source: str,
        target: vdb.Database,
        snapshot: str,
        visible: str,
        plan: PlanT,
        given_up: Callable[[], bool],
    ) -> int:
        """Load what is not loaded yet; the number of rows.

        `snapshot` is the name of the exported snapshot, `visible` what it sees; where it waits for
        its turn and is `given_up`, it raises `CopyAbandoned`.
        """


class Slots(Protocol):
    """Gives out places for tasks; `pipeline/copy/load.py`: `Budget` is what the worker has."""

    def load(self) -> AbstractContextManager[None]:
        """Count somebody who wants a share for as long as the work takes."""

    def take(self, wanted: int, given_up: Callable[[], bool]) -> AbstractContextManager[int]:
        """Take as many of the places as are free; waits for the first."""


# -- settings, and one table on its way -----------------------------------------------------------


class Threads:
    """Threads that are running, so that somebody can wait for them; safe to use from several."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[threading.Thread] = set()

    def start(self, work: Callable[[], None], name: str) -> None:
        """Run `work` in a thread of its own."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._running.discard(threading.current_thread())

        thread = Thread(target=run, name=name, daemon=True)
        with self._lock:
            self._running.add(thread)
        thread.start()

    def running(self) -> list[threading.Thread]:
        """Return the threads that have not ended."""
        with self._lock:
            return list(self._running)


def _no_hook(table: str, step: Step) -> None:
    return


@dataclass(frozen=True)
class CopySetup:
    """Settings of all copies of a node; connect strings are kept out of its repr."""

    queue: str
    job_name: str
    target: str = field(repr=False)
    parallel_copies: int = 1
    retry_sleep: float = 20.0
    lock_timeout: float = 10.0
    build_connections: int = 2
    maintenance_work_mem: str = "256MB"
    max_batch_events: int = 100_000
    tick_wait: float = 3.0
    connections: int = 8
    hand_over_wait: float = 60.0  # seconds that the worker waits for one copy
    missing_columns: str = "warn"  # or stop: columns that the target lacks and no script brings
    on_error: Policy = Policy.STOP  # of tables that have no policy of their own
    #: Tasks that loads and tables that catch up may run at a time, all together; None for any.
    slots: Slots | None = field(default=None, repr=False)
    #: The same for tables that the worker waits for: those of its own tasks.
    worker_slots: Slots | None = field(default=None, repr=False)
    #: From the location of a node to the connect string by which this one reaches it.
    reach_node: Callable[[str], str] = field(default=str, repr=False)
    on_step: Callable[[str, Step], None] = _no_hook

    @contextmanager
    def places(
        self, wanted: int, given_up: Callable[[], bool], *, worker_waits: bool = False
    ) -> Iterator[int]:
        """Take places for tasks, or so many as are free; waits for the first. Whom the worker waits
        for waits for no load."""
        slots = self.worker_slots if worker_waits else self.slots
        if slots is None:
            yield wanted
            return
        with slots.load(), slots.take(wanted, given_up) as given:
            yield given

    def consumer(self, table: str) -> str:
        """Return the name of the consumer that holds the queue for a table's copy."""
        return f"{self.job_name}.copy.{table}"

    def staging(self, table: str) -> str:
        """Return the name by which an applier finds the staging tables of a table's copy."""
        return f"{self.queue} copy {table}"

    def connect(self) -> vdb.Database:
        """Open a connection to the target, each statement its own transaction."""
        db = vdb.connect(self.target, name="db", autocommit=True, application_name="vedur copy")
        db.without_timeouts()
        db.execute(f"set lock_timeout = '{round(self.lock_timeout * 1000)}ms'")
        return db

    def enter(self, db: vdb.Database, job: TableJob, step: Step) -> None:
        """Write that a step begins, for all to see; gives up if nobody wants it any more."""
        if job.cancelled:
            raise CopyAbandoned
        log.debug("%s: step %d, %s", job.name, step, step.title)
        row = {
            "queue_name": self.queue,
            "table_name": job.name,
            "step": int(step),
            "step_name": step.title,
            "finished": step is Step.FOREIGN_KEYS,
            "alone": step not in (Step.TRUNCATE, Step.FOREIGN_KEYS),
        }
        db.execute(query("copy", "set_step"), row)
        self._begin(job.name, step)

    def start_together(self, db: vdb.Database, jobs: Sequence[TableJob]) -> None:
        """Write down that the copies of several tables begin anew."""
        row = {
            "queue": self.queue,
            "names": [job.name for job in jobs],
            "dests": [str(job.dest) for job in jobs],
            "step": int(Step.REGISTER),
            "step_name": Step.REGISTER.title,
        }
        db.execute(query("copies", "start_progress"), row)

    def enter_together(self, db: vdb.Database, jobs: Sequence[TableJob], step: Step) -> None:
        """Write that a step of several tables begins; those that nobody wants any more are left
        out."""
        names = [job.name for job in jobs if not job.cancelled]
        log.debug("%d tables: step %d, %s", len(names), step, step.title)
        row = {
            "queue": self.queue,
            "names": names,
            "step": int(step),
            "step_name": step.title,
            "finished": step is Step.FOREIGN_KEYS,
            "alone": step not in (Step.TRUNCATE, Step.FOREIGN_KEYS),
        }
        db.execute(query("copies", "set_step"), row)
        for name in names:
            self._begin(name, step)

    def _begin(self, table: str, step: Step) -> None:
        reach(f"copy.{step.name.lower()}")
        self.on_step(table, step)

    def wait(self, db: vdb.Database, table: TableInfo, what: str) -> None:
        """Show beside its progress what a table waits for."""
        row = {"queue": self.queue, "table": table.table_name, "dest": table.dest_table}
        db.execute(query("copy", "wait_progress"), {**row, "waits": what})

    def note_error(self, table: str, message: str) -> None:
        """Show an error beside the progress of the table, if the target can be reached."""
        try:
            with self.connect() as db:
                text = query("copy", "set_progress_error")
                db.execute(text, [message, self.queue, table])
        except VedurError as second:
            log.debug("%s: cannot note the error: %s", table, second)

    def table(self, db: vdb.Database, name: str) -> TableInfo:
        """Read the table as it is now; gives up where it has been removed."""
        with db.transaction():
            table = get_table_list(db, self.queue).local.find(name)
        if table is None:
            raise CopyAbandoned
        return table


@dataclass(frozen=True)
class CopySource:
    """The node from which tables are copied; `other`: it is not the worker's provider."""

    node: str
    connstr: str = field(repr=False)
    other: bool = False

    def __str__(self) -> str:
        return f'node "{self.node}"' if self.other else "the provider"


@dataclass
class TableJob:
    """One table on its way, owned by one thread at a time."""

    table: TableInfo
    source: CopySource
    consumer: str
    started: bool = False
    small: bool = False  # loaded with its indexes in place
    size: int = 0  # on the provider, of those that may be loaded together with others
    bundled: bool = False  # such a one, until something keeps it from that
    begun: bool = False  # and then others have begun its copy
    merged: bool = False  # one of several parts that are loaded into one table (parts.py)
    nudge: threading.Event = field(default_factory=threading.Event)
    on_move: Callable[[], None] = lambda: None
    asleep_in: str | None = None  # the state in which it waits for the worker
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """Its name in the set."""
        return self.table.table_name

    @property
    def provider(self) -> str:
        """The connect string of the node that it is copied from."""
        return self.source.connstr

    @property
    def dest(self) -> QualifiedName:
        """Its name here."""
        return parse_name(self.table.dest_table)

    @property
    def own(self) -> str | None:
        """What tells its rows, of a table that is called t, from those of other parts; None where
        nothing does."""
        part = PartColumn.read(self.table.attrs, self.table.queue)
        if part is not None:
            return part.condition("t")
        return written(self.table.copy_condition, alias="t")

    @property
    def keeps_rows(self) -> bool:
        """`--skip-truncate`: what is in the table stays."""
        return self.table.keeps_rows

    @property
    def in_one(self) -> bool:
        """Is its load one transaction, because rows are in the table that it must leave alone?"""
        return self.keeps_rows or self.merged

    def cancel(self) -> None:
        """Ask the owner to stop."""
        self._cancelled.set()
        self.nudge.set()

    @property
    def cancelled(self) -> bool:
        """Was it asked to?"""
        return self._cancelled.is_set()


# -- progress of a load: a row on the target every second, a line in the log every few ------------

PERIOD = 1.0
#: A line in the log for so many rows on the target.
_LOG_EVERY = 3


class Progress:
    """Watches a load in a thread of its own; an error here never disturbs the load."""

    def __init__(self, setup: CopySetup, table: str, plan: Plan, clock: Clock) -> None:
        self.setup = setup
        self.table = table
        self.plan = plan
        self.clock = clock
        self._end = threading.Event()
        self._thread = Thread(target=self._watch, name="vedur-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._started = self.clock.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(timeout=10)

    def finish(self, db: vdb.Database) -> None:
        """Store the final numbers."""
        self._store(db)

    def _watch(self) -> None:
        if self.clock.wait(self._end, PERIOD):
            return
        try:
            with self.setup.connect() as db:
                for number in itertools.count(1):
                    if number % _LOG_EVERY:
                        self._store(db)
                    else:
                        self._show(db)
                    if self.clock.wait(self._end, PERIOD):
                        return
        except VedurError as error:
            log.debug("%s: cannot follow the copy: %s", self.table, error)

    def _store(self, db: vdb.Database) -> tuple[Any, int, int]:
        totals = db.one(query("copy", "slice_totals"), [self.setup.queue, self.table])
        running = db.one(query("copy", "running_totals"), [self.plan.task_name])
        rows = totals.rows_done + running.rows_done
        size = totals.bytes_done + running.bytes_done
        row = {
            "queue_name": self.setup.queue,
            "table_name": self.table,
            "slices": totals.slices,
            "slices_done": totals.slices_done,
            "rows_estimated": self.plan.rows_estimated,
            "rows_done": rows,
            "bytes_estimated": self.plan.bytes_estimated,
            "bytes_done": size,
        }
        db.execute(query("copy", "set_progress"), row)
        return totals, rows, size

    def _show(self, db: vdb.Database) -> None:
        totals, rows, size = self._store(db)
        seconds = max(self.clock.monotonic() - self._started, 0.001)
        rate = rows / seconds
        left = self.plan.rows_estimated - rows
        ending = f", about {left / rate:.0f} s left" if rate and left > 0 else ""
        log.info(
            "%s: %d rows, %.1f MB, %.0f rows/s, slice %d of %d%s",
            self.table,
            rows,
            size / 1e6,
            rate,
            totals.slices_done,
            totals.slices,
            ending,
        )


class ProgressTogether:
    """Watches the load of several tables, whose slices alone tell how far it is."""

    def __init__(self, setup: CopySetup, plans: Mapping[str, Plan], clock: Clock) -> None:
        self.setup = setup
        self.clock = clock
        self._row = {
            "queue": setup.queue,
            "names": list(plans),
            "rows": [plan.rows_estimated for plan in plans.values()],
            "bytes": [plan.bytes_estimated for plan in plans.values()],
        }
        self._end = threading.Event()
        self._thread = Thread(target=self._watch, name="vedur-progress", daemon=True)

    def __enter__(self) -> ProgressTogether:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(timeout=10)

    def finish(self, db: vdb.Database) -> None:
        """Store what there is now."""
        db.execute(query("copies", "set_progress"), self._row)

    def _watch(self) -> None:
        if self.clock.wait(self._end, PERIOD):
            return
        try:
            with self.setup.connect() as db:
                while True:
                    self.finish(db)
                    if self.clock.wait(self._end, PERIOD):
                        return
        except VedurError as error:
            log.debug("cannot follow the copy of several tables: %s", error)
