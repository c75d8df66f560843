"""What the parts of a first copy share: settings, the state of one table's job, protocols."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from vedur import db as vdb
from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.attrs import decode_attrs, keeps_rows
from vedur.change.aside import Policy
from vedur.change.columns import Columns
from vedur.errors import VedurError
from vedur.failpoint import reach
from vedur.names import QualifiedName, parse_name
from vedur.sql import query
from vedur.worker.copying_steps import Step
from vedur.worker.protocol import Applier

log = logging.getLogger(__name__)

#: make_applier(name of its own staging area, provider's connect string)
MakeApplier = Callable[[str, str], Applier]


class GivenUp(Exception):
    """The table is no longer this copy's business: removed, set back, or the worker ends."""


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


class Loader(Protocol):
    """Moves the rows. `ops/run_worker.py` hands over the one that does it with Spark."""

    def plan(
        self,
        source: vdb.Database,
        target: vdb.Database,
        queue: str,
        table: str,
        source_name: QualifiedName,
        dest: QualifiedName,
        condition: str | None,
        whole: bool,
        columns: Columns | None,
    ) -> Any:
        """Columns, format and slices; `source` holds the snapshot. `whole`: in one transaction.

        `columns` is the table's column list, None for all.
        """

    def store(self, target: vdb.Database, plan: Any) -> None:
        """Write the slices where tasks find them, in the caller's transaction."""

    def load(
        self, source: str, target: vdb.Database, snapshot: str, visible: str, plan: Any
    ) -> int:
        """Load what is not loaded yet; the number of rows.

        `snapshot` is the name of the exported snapshot, `visible` what it sees.
        """


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
    meeting_wait: float = 60.0
    missing_columns: str = "warn"  # or stop: columns that the target lacks and no script brings
    on_error: Policy = Policy.STOP  # of tables that have no policy of their own
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
            raise GivenUp
        log.debug("%s: step %d, %s", job.name, step, step.title)
        with db.transaction():
            row = {
                "queue_name": self.queue,
                "table_name": job.name,
                "step": int(step),
                "step_name": step.title,
                "finished": step is Step.FOREIGN_KEYS,
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
            found = [t for t in get_table_list(db, self.queue) if t.table_name == name]
        if not found or not found[0].local:
            raise GivenUp
        return found[0]


@dataclass
class TableJob:
    """One table on its way, owned by one thread at a time."""

    table: TableInfo
    provider: str = field(repr=False)
    consumer: str
    started: bool = False
    nudge: threading.Event = field(default_factory=threading.Event)
    on_move: Callable[[], None] = lambda: None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """Its name in the set."""
        return self.table.table_name

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
        return keeps_rows(decode_attrs(self.table.table_attrs))

    def cancel(self) -> None:
        """Ask the owner to stop."""
        self._cancelled.set()
        self.nudge.set()

    @property
    def cancelled(self) -> bool:
        """Was it asked to?"""
        return self._cancelled.is_set()
