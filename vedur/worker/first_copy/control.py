"""First copies of tables, run beside the worker's loop: which tables, when, and what comes next.

`Copying.advance` is called by the loop between batches and never blocks for long. Copies run in
threads of this process; all that they need to go on after a crash is in the two databases: the
state of the table, the snapshot, the dropped DDL, the position of the copy's consumer. So a
thread owns a table only in memory (`Schedule`), and a table without an owner is taken up by the
state that it is in (docs/design/first-copy.md).

A table goes through `group.py` (its turn), `table.py` (steps 1 to 7: loaded and indexed),
`catch_up.py` (steps 8 and 9: caught up, handed over) and `finish.py` (step 10). What can be done
for many tables at a time is done in `bundle.py` (steps 3 to 7) and `catch_up_together.py` (8, 9).
`ownership.py` says which of two workers does all this, `places.py` from which node, `parts.py`
what waits for other parts of a table; `hand_over.py` is the worker's side of 9.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from typing import Generic

from vedur.catalog import TableInfo
from vedur.catalog.copy_source import NEAREST
from vedur.catalog.tables import change_table_state, shared_tables
from vedur.clock import SYSTEM, Clock
from vedur.db import Database
from vedur.errors import CopyAbandoned, CopyMustWait, TableChanged, VedurError, first_line
from vedur.sql import query
from vedur.worker.first_copy.catch_up_together import CatchUps
from vedur.worker.first_copy.context import (
    CopySetup,
    CopySource,
    Loader,
    MakeApplier,
    PlanT,
    TableJob,
    Threads,
)
from vedur.worker.first_copy.finish import Settler
from vedur.worker.first_copy.group import Groups
from vedur.worker.first_copy.hand_over import HandOver
from vedur.worker.first_copy.ownership import Ownership
from vedur.worker.first_copy.parts import PartWaits, is_merged, read_kept_load
from vedur.worker.first_copy.places import Places, SourceSearch, clean_up
from vedur.worker.first_copy.states import MergeState, State

log = logging.getLogger(__name__)

#: How long `advance` lets a copy reach the agreed tick before it gives the loop back.
_HAND_OVER_PAUSE = 0.2
#: Seconds until a table is looked at again that could not begin with the others of its group.
_SOON = 1.0


class Schedule:
    """Which tables are on their way, and when each of the others is due.

    A table on its way has a job, which one thread owns. Of all tables it remembers what their state
    in the database does not say: when a copy that failed is tried again, which have left traces,
    which died before they ended their consumer. Asks no database; safe to use from several threads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # of the five that follow
        self._jobs: dict[str, TableJob] = {}
        self._retry_at: dict[str, float] = {}
        self._begun: set[str] | None = None  # tables with traces of a copy; None: not yet read
        self._unfinished: set[str] = set()  # tables whose copy died before it ended its consumer
        self._changed: set[str] = set()  # rewritten on the provider during their last copy

    # -- tables on their way --------------------------------------------------------------------

    def jobs(self) -> list[TableJob]:
        """Return the jobs of all tables on their way."""
        with self._lock:
            return list(self._jobs.values())

    def find(self, name: str) -> TableJob | None:
        """Return the job of a table, if it is on its way."""
        with self._lock:
            return self._jobs.get(name)

    def add(self, job: TableJob) -> None:
        """Have a table on its way; whoever calls has found that it is due."""
        with self._lock:
            self._jobs[job.name] = job

    def release(self, job: TableJob) -> None:
        """Have nobody own a table any more: it is taken up by its state."""
        with self._lock:
            self._jobs.pop(job.name, None)

    def retry(self, job: TableJob, pause: float, *, unfinished: bool = True) -> None:
        """Release a table that is due again after a pause."""
        with self._lock:
            self._retry_at[job.name] = self._clock.monotonic() + pause
            if unfinished:
                self._unfinished.add(job.name)
            self._jobs.pop(job.name, None)

    def retry_at_once(self) -> None:
        """Let no table wait any longer after a failure."""
        with self._lock:
            self._retry_at = dict.fromkeys(self._retry_at, 0.0)

    # -- what is remembered of tables -----------------------------------------------------------

    def due(self, tables: Iterable[TableInfo]) -> list[TableInfo]:
        """Return those of the tables for which there is anything to do that nobody does."""
        with self._lock:
            now, owned, retry_at = self._clock.monotonic(), self._jobs, self._retry_at
            free = [
                t for t in tables
                if t.table_name not in owned and retry_at.get(t.table_name, 0.0) <= now
            ]  # fmt: skip
            # one that is ok and unfinished: the copy died before it ended its consumer
            unfinished = set(self._unfinished)
        return [
            t for t in free
            if t.table_name in unfinished or MergeState.parse(t.merge_state).state is not State.OK
        ]  # fmt: skip

    def has_traces(self, here: Set[str]) -> bool:
        """Is any table on its way, or has a copy left something to clean up or to end? True also
        where that was not read yet. `here` are the tables of the node."""
        with self._lock:
            if self._jobs or self._begun is None or self._unfinished & here:
                return True
            return bool((self._begun | self._retry_at.keys()) - here)

    @property
    def knows_traces(self) -> bool:
        """Was it told which copies have left traces?"""
        with self._lock:
            return self._begun is not None

    def set_traces(self, begun: Iterable[str], unfinished: Iterable[str]) -> None:
        """Remember which tables have traces of a copy, and for which it was not ended."""
        with self._lock:
            self._begun = set(begun)
            self._unfinished |= set(unfinished)

    def add_trace(self, name: str) -> None:
        """Remember that a table, removed now, would leave something behind."""
        with self._lock:
            if self._begun is not None:
                self._begun.add(name)

    def take_gone(self, here: Set[str]) -> set[str]:
        """Forget tables with traces that are not here and that nobody owns; returns their names."""
        with self._lock:
            begun = (self._begun or set()) | self._retry_at.keys()
            gone = begun - self._jobs.keys() - here
            self._begun = begun - gone
            for name in gone:
                self._retry_at.pop(name, None)
            return gone

    def note_change(self, job: TableJob) -> bool:
        """Remember that a table was rewritten during its copy; True the first time since it was
        last loaded."""
        with self._lock:
            first = job.name not in self._changed
            self._changed.add(job.name)
            return first

    def note_load(self, job: TableJob) -> None:
        """Remember that the rows of a table are here."""
        with self._lock:
            self._changed.discard(job.name)

    def note_end(self, job: TableJob) -> None:
        """Remember that the copy of a table has ended its consumer."""
        with self._lock:
            self._unfinished.discard(job.name)


class Copying(Generic[PlanT]):
    """All first copies of one node, as its worker sees them: `WorkerContext.copies`."""

    def __init__(
        self,
        setup: CopySetup,
        loader: Loader[PlanT],
        make_applier: MakeApplier,
        clock: Clock = SYSTEM,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.setup = setup
        self.loader = loader
        self.make_applier = make_applier
        self.clock = clock
        self.schedule = Schedule(clock)
        self._wake_worker = wake
        self._starting = threading.Lock()  # while copies are started: `stop` ends all of them
        self._moved = threading.Event()
        self._stopping = threading.Event()
        threads = self._threads = Threads()
        self._catch_ups = CatchUps(
            setup, make_applier, clock, threads, self._on_move, self._after_catch_up
        )
        self._groups = Groups(setup, loader, clock, threads, self._after_load, self._start_catch_up)
        self._hand_over = HandOver(setup, clock, self._wake_copy)
        self._ownership = Ownership(setup)
        self._settler = Settler(setup, clock)
        self._search = SourceSearch(threads, self._on_move, self._after_search)
        self._waits = PartWaits(setup, clock, wake, self.schedule.add_trace)

    def reconfigure(
        self, setup: CopySetup, loader: Loader[PlanT], make_applier: MakeApplier
    ) -> None:
        """Take new settings for what starts from now on; what failed with the old ones need not
        wait."""
        self.setup, self.loader, self.make_applier = setup, loader, make_applier
        self.schedule.retry_at_once()
        self._groups.setup, self._groups.loader = setup, loader
        self._hand_over.setup = self._ownership.setup = self._settler.setup = setup
        self._waits.setup = setup
        self._catch_ups.reconfigure(setup, make_applier)

    # -- called by the worker ------------------------------------------------------------------

    def advance(
        self, target: Database, provider: str, tables: Sequence[TableInfo], position: int
    ) -> bool:
        """Start copies and answer those that ask for the hand-over; True if the worker must wait.

        Waits a moment itself where it must.
        """
        if self._stopping.is_set():
            return False
        local = [t for t in tables if t.local]
        self._moved.clear()
        wait = self._hand_over.answer(target, local, position)
        self._wake_answered(local)
        if self._may_copy(target, local):
            with self._starting:
                self._cancel_removed(target, local)
                gone = self._forget_gone(target, local)
                failed = self._start_copies(target, local, provider)
            for name in gone:
                clean_up(self.setup, self.make_applier, provider, name)
            for job, error in failed:
                self._retry_later(job, error)
        self._settler.settle(target, provider, local, position)
        if wait:
            self.clock.wait(self._moved, _HAND_OVER_PAUSE)
        return wait

    def stop(self) -> None:
        """End all copies where they are and wait for their threads; the next run takes them up."""
        self._stopping.set()
        self._catch_ups.stop()
        with self._starting:
            jobs = self.schedule.jobs()
        threads = self._threads.running()
        for job in jobs:
            job.cancel()
        try:
            if jobs:
                with self.setup.connect() as target:
                    for job in jobs:
                        self._take_back_slices(target, job)
        except VedurError as error:
            log.debug("cannot take slices back: %s", error)
        for thread in threads:
            thread.join(timeout=30)
        self._settler.stop()
        self._catch_ups.close_idle()
        self._ownership.release()

    # -- which tables, when --------------------------------------------------------------------

    def _may_copy(self, target: Database, tables: Sequence[TableInfo]) -> bool:
        """Are copies this worker's business? If not, those that it has begun are cancelled."""
        if not self._has_work(tables):
            self._ownership.release()
            return True
        if self._ownership.acquire(target):
            return True
        for job in self.schedule.jobs():
            job.cancel()
        return False

    def _has_work(self, tables: Sequence[TableInfo]) -> bool:
        if self.schedule.has_traces({t.table_name for t in tables}):
            return True
        return any(MergeState.parse(t.merge_state).state is not State.OK for t in tables)

    def _cancel_removed(self, target: Database, tables: Sequence[TableInfo]) -> None:
        """Cancel copies of tables that are here no longer."""
        here = {t.table_name for t in tables}
        for job in self.schedule.jobs():
            if job.name not in here and not job.cancelled:
                log.info("%s: removed, its copy is given up", job.name)
                job.cancel()
                self._take_back_slices(target, job)

    def _forget_gone(self, target: Database, tables: Sequence[TableInfo]) -> set[str]:
        """Forget tables that were removed while nobody copied them, as no worker ran, or it waited;
        returns their names. Reads once which copies have begun."""
        if not self.schedule.knows_traces:
            rows = target.query(query("copy", "begun_tables"), [self.setup.queue])
            self.schedule.set_traces(
                (row.table_name for row in rows),
                (row.table_name for row in rows if not row.finished),
            )
        return self.schedule.take_gone({t.table_name for t in tables})

    def _start_copies(
        self, target: Database, tables: Sequence[TableInfo], provider: str
    ) -> list[tuple[TableJob, VedurError]]:
        """Start what each table that nobody copies needs by its state; returns those that cannot
        be started, with the reason."""
        # in this order: a search that has failed leaves the table with a pause, and then ends
        sought = self._search.sought()
        due = self.schedule.due(t for t in tables if t.table_name not in sought)
        waiting = [t for t in due if not self._is_left_alone(target, t)]
        self._groups.add_lanes()
        if not waiting:
            return []
        places = Places.read(target, self.setup, provider)
        load: dict[CopySource, list[TableInfo]] = {}
        loaded: dict[CopySource, list[TableJob]] = {}
        failed: list[tuple[TableJob, VedurError]] = []
        shared = shared_tables(target, self.setup.queue)
        merged = {t.table_name for t in waiting if is_merged(t, shared)}
        for table in waiting:
            loads = MergeState.parse(table.merge_state).state in (State.NONE, State.IN_COPY)
            if loads and table.table_name in merged and self._waits.must_wait(target, table):
                continue
            try:
                source = self._source(target, places, table, loads, merged)
            except VedurError as error:
                failed.append((self._job(table, places.provider, merged), error))
                continue
            if source is None:
                continue
            if loads:
                load.setdefault(source, []).append(table)
            else:
                loaded.setdefault(source, []).append(self._job(table, source, merged))
        # Nothing is asked of the target from here on: a table on its way that no thread owns would
        # never be taken up again.
        for jobs in loaded.values():
            self._own(jobs)
            self._start_catch_up(jobs)
        for source, some in load.items():  # the tables of one node share a snapshot
            if self._groups.free > 0:
                for table in some:
                    self._search.forget(table)
                group = [self._job(t, source, merged) for t in some]
                self._own(group)
                self._groups.start(group, source)
        return failed

    def _is_left_alone(self, target: Database, table: TableInfo) -> bool:
        """Read whether its handler copies nothing; then it is in sync as it is, and marked so."""
        if table.mapping.copies:
            return False
        change_table_state(target, self.setup.queue, table, None, State.OK.value)
        return True

    def _source(
        self,
        target: Database,
        places: Places,
        table: TableInfo,
        loads: bool,
        merged: Collection[str],
    ) -> CopySource | None:
        """Find the node that a table is copied from; None while it is looked for.

        A copy that has begun to catch up stays where it is, and so does one whose rows are loaded
        and cannot be loaded twice.
        """
        queue, is_part = self.setup.queue, table.table_name in merged
        if not loads or read_kept_load(target, queue, table, merged=is_part) is not None:
            return places.of_copy(target, table)
        wanted = table.copy_node
        if wanted is None:
            return places.provider
        if wanted != NEAREST:
            return places.named(wanted)
        return self._search.find(places, table)

    def _job(self, table: TableInfo, source: CopySource, merged: Collection[str]) -> TableJob:
        name = table.table_name
        return TableJob(table, source, self.setup.consumer(name), merged=name in merged)

    def _own(self, jobs: Iterable[TableJob]) -> None:
        for job in jobs:
            self.schedule.add(job)

    def _take_back_slices(self, target: Database, job: TableJob) -> None:
        """Leave the tasks of a copy nothing more to claim, so that its Spark job ends soon."""
        target.execute(query("copy", "take_slices"), [self.setup.queue, job.name])

    def _wake_answered(self, tables: Sequence[TableInfo]) -> None:
        """Wake copies that wait in a state which their tables are in no longer."""
        jobs = self.schedule.jobs()
        if not jobs:
            self._catch_ups.close_idle()
            return
        states = {t.table_name: t.merge_state for t in tables}
        for job in jobs:
            name = job.name
            if name in states and job.asleep_in not in (None, states[name]):
                job.nudge.set()

    def _wake_copy(self, name: str) -> None:
        job = self.schedule.find(name)
        if job is not None:
            job.nudge.set()

    # -- what comes next: called by the threads of the copies ----------------------------------

    def _after_search(self, table: TableInfo, source: CopySource, error: Exception) -> None:
        """Look for a node to copy from again later; `source` is the provider."""
        self._retry_later(TableJob(table, source, self.setup.consumer(table.table_name)), error)

    def _after_load(self, job: TableJob, error: Exception | None) -> None:
        """Go on after a table is loaded, or not: catch up, clean up, or try again later."""
        if isinstance(error, CopyAbandoned):
            self._drop(job)
        elif isinstance(error, CopyMustWait):
            self.schedule.retry(job, _SOON, unfinished=False)
        elif error is not None:
            self._retry_later(job, error)
        else:
            self._start_catch_up([job])

    def _start_catch_up(self, jobs: Sequence[TableJob]) -> None:
        """Start catching up tables of one provider that are loaded."""
        for job in jobs:
            self.schedule.note_load(job)
        self._catch_ups.start(jobs)

    def _after_catch_up(self, job: TableJob, error: Exception | None) -> None:
        """End the copy of a table that is in sync, or leave it to another run or a later try."""
        if error is None:
            self.schedule.note_end(job)
            self._settler.look_again()
            self.schedule.release(job)
        elif isinstance(error, CopyAbandoned):
            self.schedule.release(job)
        else:
            self._retry_later(job, error)

    def _on_move(self) -> None:
        self._moved.set()
        self._wake_worker()

    def _retry_later(self, job: TableJob, error: Exception) -> None:
        """Record the error and let the next round after a pause take the table up again."""
        if job.cancelled or self._is_removed(job):
            self._drop(job)
            return
        message = first_line(error)
        self.setup.note_error(job.name, message)
        pause = self._pause_after(job, error)
        if pause:
            log.error(
                "%s: copy failed, next try in %g s: %s",
                job.name,
                pause,
                message,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        else:
            log.warning("%s: %s", job.name, message)
        self.schedule.retry(job, pause)

    def _pause_after(self, job: TableJob, error: Exception) -> float:
        """Return how long to wait: a table that was rewritten meanwhile is copied anew at once, but
        not again and again."""
        at_once = isinstance(error, TableChanged) and self.schedule.note_change(job)
        return 0.0 if at_once else self.setup.retry_sleep

    def _is_removed(self, job: TableJob) -> bool:
        """Read whether a step may have failed because the table was removed under it."""
        try:
            with self.setup.connect() as target:
                self.setup.table(target, job.name)
        except CopyAbandoned:
            return True
        except VedurError:
            return False
        return False

    def _drop(self, job: TableJob) -> None:
        """End a copy that nobody wants. A removed table leaves nothing behind; one that the next
        run, or another worker, takes up keeps its all."""
        if not self._stopping.is_set() and not self._ownership.left_to_other:
            clean_up(self.setup, self.make_applier, job.provider, job.name)
        self.schedule.release(job)
