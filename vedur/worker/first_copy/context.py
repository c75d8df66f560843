"""What the parts of a first copy share: settings, the state of one table's job, protocols."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from vedur import db as vdb
from vedur.catalog import TableInfo, get_table_list
from vedur.change.quarantine import Policy
from vedur.errors import CopyAbandoned, VedurError
from vedur.failpoint import reach
from vedur.names import QualifiedName, parse_name
from vedur.sql import query
from vedur.tables.mapping import TableMap
from vedur.threads import Thread
from vedur.worker.apply_range import Applier
from vedur.worker.first_copy.steps import Step

log = logging.getLogger(__name__)

#: make_applier(name of its own staging area, provider's connect string)
MakeApplier = Callable[[str, str], Applier[Any]]


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
        """Up to this size a table is loaded together with others, its indexes in place."""

    def load_together(
        self,
        source: str,
        target: vdb.Database,
        snapshot: str,
        visible: str,
        plans: Sequence[PlanT],
        given_up: Callable[[], bool],
    ) -> None:
        """Load as many of several small tables as one job can; `load` sees to the rest."""

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
        """Those that have not ended."""
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
    #: From the location of a node to the connect string by which this one reaches it.
    reach_node: Callable[[str], str] = field(default=str, repr=False)
    on_step: Callable[[str, Step], None] = _no_hook

    def consumer(self, table: str) -> str:
        """The consumer that holds the queue for a table's copy."""
        return f"{self.job_name}.copy.{table}"

    def staging(self, table: str) -> str:
        """The name by which an applier finds the staging tables of a table's copy."""
        return f"{self.queue} copy {table}"

    def connect(self) -> vdb.Database:
        """A connection to the target, each statement its own transaction."""
        db = vdb.connect(self.target, name="db", autocommit=True, application_name="vedur copy")
        db.without_timeouts()
        db.execute(f"set lock_timeout = '{round(self.lock_timeout * 1000)}ms'")
        return db

    def enter(self, db: vdb.Database, job: TableJob, step: Step) -> None:
        """A step begins: show it, and give up if nobody wants it any more."""
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
        reach(f"copy.{step.name.lower()}")
        self.on_step(job.name, step)

    def note_error(self, table: str, message: str) -> None:
        """Show an error beside the progress of the table, if the target can be reached."""
        try:
            with self.connect() as db:
                text = query("copy", "set_progress_error")
                db.execute(text, [message, self.queue, table])
        except VedurError as second:
            log.debug("%s: cannot note the error: %s", table, second)

    def table(self, db: vdb.Database, name: str) -> TableInfo:
        """The table as it is now; gives up where it has been removed."""
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
    small: bool = False  # loaded together with others, its indexes in place
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
    def condition(self) -> str | None:
        """The rows wanted; None for all."""
        return self.table.copy_condition

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
