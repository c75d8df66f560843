"""First copies of tables, run beside the worker's loop: which tables, when, and what comes next.

`Copying.advance` is called by the loop between batches and never blocks for long. Copies run in
threads of this process; all that they need to go on after a crash is in the two databases: the
state of the table, the snapshot, the dropped DDL, the position of the copy's consumer. So a
thread owns a table only in memory, and a table without an owner is taken up by the state that
it is in (docs/design/first-copy.md).

A table goes through `group.py` (its turn), `table.py` (steps 1 to 7: loaded and indexed),
`catch_up.py` (steps 8 and 9: caught up, handed over) and `finish.py` (step 10). What can be done
for many tables at a time is done in `bundle.py` (steps 3 to 7) and `catch_up_together.py` (8, 9).
`ownership.py` says which of two workers does all this, `hand_over.py` is the worker's side of 9.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Generic

from vedur.catalog import TableInfo
from vedur.catalog.copy_source import NEAREST
from vedur.catalog.parts import read_parts
from vedur.catalog.tables import change_table_state, shared_tables
from vedur.clock import SYSTEM, Clock
from vedur.db import Database
from vedur.errors import CopyAbandoned, CopyMustWait, TableChanged, VedurError, first_line
from vedur.failpoint import reach
from vedur.sql import query
from vedur.worker.first_copy.catch_up import CatchUp
from vedur.worker.first_copy.catch_up_together import CatchUpTogether
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
from vedur.worker.first_copy.parts import (
    WAIT_COPY,
    awaited_parts,
    is_merged,
    must_wait_for_parts,
)
from vedur.worker.first_copy.places import Places
from vedur.worker.first_copy.seats import Seats
from vedur.worker.first_copy.states import MergeState, State
from vedur.worker.first_copy.table import clean_up

log = logging.getLogger(__name__)

#: How long `advance` lets a copy reach the agreed tick before it gives the loop back.
_HAND_OVER_PAUSE = 0.2
#: Seconds until a table is looked at again that could not begin with the others of its group.
_SOON = 1.0
#: Seconds between two lines about a part that waits for another.
_SAY_AGAIN = 300.0


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
        self._wake_worker = wake
        self._lock = threading.Lock()  # of the eight that follow
        self._jobs: dict[str, TableJob] = {}
        self._retry_at: dict[str, float] = {}
        self._begun: set[str] | None = None  # tables with traces of a copy; None: not yet read
        self._unfinished: set[str] = set()  # tables whose copy died before it ended its consumer
        self._changed: set[str] = set()  # rewritten on the provider during their last copy
        self._sought: set[str] = set()  # tables for which a node to copy from is looked for
        self._found: dict[str, CopySource] = {}  # and those that it was found for
        self._say_again: dict[str, float] = {}  # when to say anew for whom a part waits
        self._moved = threading.Event()
        self._stopping = threading.Event()
        self._threads = Threads()
        self._groups = Groups(
            setup, loader, clock, self._threads, self._after_load, self._start_catch_up_together
        )
        self._hand_over = HandOver(setup, clock, self._wake_copy)
        self._ownership = Ownership(setup)
        self._settler = Settler(setup, clock)
        self._seats = Seats(setup)

    def reconfigure(
        self, setup: CopySetup, loader: Loader[PlanT], make_applier: MakeApplier
    ) -> None:
        """Take new settings for what starts from now on; what failed with the old ones need not
        wait."""
        self.setup, self.loader, self.make_applier = setup, loader, make_applier
        with self._lock:
            self._retry_at = dict.fromkeys(self._retry_at, 0.0)
        self._groups.setup, self._groups.loader = setup, loader
        self._hand_over.setup = self._ownership.setup = self._settler.setup = setup
        # Tables on their way keep theirs and leave them with their last move.
        self._seats.close_idle()
        self._seats = Seats(setup)

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
            with self._lock:
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
        with self._lock:
            jobs = list(self._jobs.values())
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
        self._seats.close_idle()
        self._ownership.release()

    # -- which tables, when --------------------------------------------------------------------

    def _may_copy(self, target: Database, tables: Sequence[TableInfo]) -> bool:
        """Are copies this worker's business? If not, those that it has begun are cancelled."""
        if not self._has_work(tables):
            self._ownership.release()
            return True
        if self._ownership.acquire(target):
            return True
        with self._lock:
            for job in self._jobs.values():
                job.cancel()
        return False

    def _has_work(self, tables: Sequence[TableInfo]) -> bool:
        here = {t.table_name for t in tables}
        with self._lock:
            begun = None if self._begun is None else self._begun | self._retry_at.keys()
            if self._jobs or begun is None or begun - here or self._unfinished & here:
                return True
        return any(MergeState.parse(t.merge_state).state is not State.OK for t in tables)

    def _cancel_removed(self, target: Database, tables: Sequence[TableInfo]) -> None:
        """Cancel copies of tables that are here no longer."""
        here = {t.table_name for t in tables}
        for name, job in self._jobs.items():
            if name not in here and not job.cancelled:
                log.info("%s: removed, its copy is given up", name)
                job.cancel()
                self._take_back_slices(target, job)

    def _forget_gone(self, target: Database, tables: Sequence[TableInfo]) -> set[str]:
        """Forget tables that were removed while nobody copied them, as no worker ran, or it waited;
        returns their names. Reads once which copies have begun."""
        if self._begun is None:
            rows = target.query(query("copy", "begun_tables"), [self.setup.queue])
            self._begun = {row.table_name for row in rows}
            self._unfinished |= {row.table_name for row in rows if not row.finished}
        self._begun |= self._retry_at.keys()
        gone = self._begun - self._jobs.keys() - {t.table_name for t in tables}
        self._begun -= gone
        for name in gone:
            self._retry_at.pop(name, None)
        return gone

    def _start_copies(
        self, target: Database, tables: Sequence[TableInfo], provider: str
    ) -> list[tuple[TableJob, VedurError]]:
        """Start what each table that nobody copies needs by its state; returns those that cannot
        be started, with the reason."""
        waiting = [t for t in tables if self._needs_copy(t) and not self._is_left_alone(target, t)]
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
            if loads and table.table_name in merged and self._waits_for_parts(target, table):
                continue
            try:
                source = self._source(target, places, table, loads, merged)
            except VedurError as error:
                failed.append((self._new_job(table, places.provider, merged), error))
                continue
            if source is None:
                continue
            if loads:
                load.setdefault(source, []).append(table)
            else:
                loaded.setdefault(source, []).append(self._new_job(table, source, merged))
        for jobs in loaded.values():
            self._start_catch_up_together(jobs)
        for source, some in load.items():  # the tables of one node share a snapshot
            if self._groups.free > 0:
                for table in some:
                    self._found.pop(table.table_name, None)
                self._groups.start([self._new_job(t, source, merged) for t in some], source)
        return failed

    def _waits_for_parts(self, target: Database, table: TableInfo) -> bool:
        """Must its load wait for other parts of the table that it goes to? One that has not begun
        is announced first: the parts have roles only then."""
        if table.merge_state is None:
            state = State.IN_COPY.value
            announced = change_table_state(target, self.setup.queue, table, None, state)
            reach("copy.announced")
            if announced is not None:
                self._wake_worker()
            return True
        if must_wait_for_parts(table) and not self._is_loaded(target, table, merged=True):
            self._say_awaited(target, table)
            return True
        self._say_again.pop(table.table_name, None)
        return False

    def _say_awaited(self, target: Database, table: TableInfo) -> None:
        """Say for whom the load of a part waits, in the log now and then, and beside its progress:
        that one may be gone for long."""
        name, now = table.table_name, self.clock.monotonic()
        due = self._say_again.get(name)
        if due is not None and now < due:
            return
        self._say_again[name] = now + _SAY_AGAIN
        awaited = awaited_parts(read_parts(target, table.dest_table), self.setup.queue, table)
        if not awaited:
            return  # it has gone on meanwhile
        names = ", ".join(map(str, awaited))
        self.setup.wait(target, table, f"wait for {names}")
        if self._begun is not None:
            self._begun.add(name)  # removed now, it leaves that behind
        if table.copy_role != WAIT_COPY:
            log.info("%s: its copy waits for that of %s", name, names)
            return
        log.log(
            logging.INFO if due is None else logging.WARNING,
            "%s: its copy waits until %s, the first of the parts, has made %s ready; the worker of "
            "that queue must run, and reach its provider", name, names, table.dest_table,
        )  # fmt: skip

    def _is_left_alone(self, target: Database, table: TableInfo) -> bool:
        """Read whether its handler copies nothing; then it is in sync as it is, and marked so."""
        if table.mapping.copies:
            return False
        change_table_state(target, self.setup.queue, table, None, State.OK.value)
        return True

    def _needs_copy(self, table: TableInfo) -> bool:
        """Is there anything to do for it that nobody does?"""
        name, now = table.table_name, self.clock.monotonic()
        if name in self._jobs or name in self._sought or self._retry_at.get(name, 0.0) > now:
            return False
        state = MergeState.parse(table.merge_state).state
        # one that is ok and unfinished: the copy died before it ended its consumer
        return state is not State.OK or name in self._unfinished

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
        if not loads or self._is_loaded(target, table, merged=table.table_name in merged):
            return places.of_copy(target, table)
        wanted = table.copy_node
        if wanted is None:
            return places.provider
        if wanted != NEAREST:
            return places.named(wanted)
        found = self._found.get(table.table_name)
        if found is None:
            self._sought.add(table.table_name)
            self._threads.start(lambda: self._seek(places, table), "vedur-copy-node")
        return found

    def _is_loaded(self, target: Database, table: TableInfo, *, merged: bool) -> bool:
        """Read whether a crash has left a table whose rows are kept, and loaded."""
        if not (table.keeps_rows or merged) or table.merge_state != State.IN_COPY.value:
            return False
        asked = [self.setup.queue, table.table_name]
        return target.value(query("copy", "complete_snapshot"), asked) is not None

    def _seek(self, places: Places, table: TableInfo) -> None:
        """Look for the nearest node that has a table, without keeping the worker waiting."""
        name = table.table_name
        try:
            found = places.nearest(table)
        except Exception as error:  # whatever it is, the table must be looked for again
            self._retry_later(TableJob(table, places.provider, self.setup.consumer(name)), error)
            with self._lock:
                self._sought.discard(name)
            return
        if found.other:
            log.info('%s: copied from node "%s"', name, found.node)
        with self._lock:
            self._sought.discard(name)
            self._found[name] = found
        self._on_move()

    def _new_job(self, table: TableInfo, source: CopySource, merged: Collection[str]) -> TableJob:
        name = table.table_name
        job = TableJob(table, source, self.setup.consumer(name), merged=name in merged)
        self._jobs[table.table_name] = job
        return job

    def _take_back_slices(self, target: Database, job: TableJob) -> None:
        """Leave the tasks of a copy nothing more to claim, so that its Spark job ends soon."""
        target.execute(query("copy", "take_slices"), [self.setup.queue, job.name])

    def _wake_answered(self, tables: Sequence[TableInfo]) -> None:
        """Wake copies that wait in a state which their tables are in no longer."""
        with self._lock:
            for table in tables:
                job = self._jobs.get(table.table_name)
                if job is not None and job.asleep_in not in (None, table.merge_state):
                    job.nudge.set()
            if not self._jobs:
                self._seats.close_idle()

    def _wake_copy(self, name: str) -> None:
        with self._lock:
            job = self._jobs.get(name)
        if job is not None:
            job.nudge.set()

    # -- what comes next: called by the threads of the copies ----------------------------------

    def _after_load(self, job: TableJob, error: Exception | None) -> None:
        """Go on after a table is loaded, or not: catch up, clean up, or try again later."""
        if isinstance(error, CopyAbandoned):
            self._drop(job)
        elif isinstance(error, CopyMustWait):
            with self._lock:
                self._retry_at[job.name] = self.clock.monotonic() + _SOON
                self._jobs.pop(job.name, None)
        elif error is not None:
            self._retry_later(job, error)
        else:
            self._start_catch_up_together([job])

    def _start_catch_up_together(self, jobs: Sequence[TableJob]) -> None:
        """Start catching up tables of one provider that are loaded, all that can together."""
        for job in jobs:
            self._changed.discard(job.name)
        if len(jobs) > 1:
            self._threads.start(lambda: self._catch_up_together(jobs), "vedur-catch-up")
        elif jobs:
            self._start_catch_up(jobs[0])

    def _catch_up_together(self, jobs: Sequence[TableJob]) -> None:
        for job in jobs:
            job.started = True
        CatchUpTogether(
            self.setup, jobs, self.clock, self._seats, self._on_move,
            leave=self._go_on_alone, done=self._end_copy,
        ).run()  # fmt: skip

    def _go_on_alone(self, job: TableJob) -> None:
        if self._stopping.is_set():
            self._release(job)  # the next run takes it up
        else:
            self._start_catch_up(job)

    def _start_catch_up(self, job: TableJob) -> None:
        self._threads.start(lambda: self._catch_up(job), f"vedur-catch-up {job.name}")

    def _catch_up(self, job: TableJob) -> None:
        job.started = True
        job.on_move = self._on_move
        try:
            CatchUp(self.setup, self.make_applier, job, self.clock, self._seats).run()
        except CopyAbandoned:
            self._release(job)
        except Exception as error:
            self._retry_later(job, error)
        else:
            self._end_copy(job)
        self._on_move()

    def _end_copy(self, job: TableJob) -> None:
        """End the copy of a table that is in sync."""
        self._unfinished.discard(job.name)
        self._settler.look_again()
        self._release(job)

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
        pause = self._pause_after(job.name, error)
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
        with self._lock:
            self._retry_at[job.name] = self.clock.monotonic() + pause
            self._unfinished.add(job.name)
            self._jobs.pop(job.name, None)

    def _pause_after(self, name: str, error: Exception) -> float:
        """Return how long to wait: a table that was rewritten meanwhile is copied anew at once, but
        not again and again."""
        at_once = isinstance(error, TableChanged) and name not in self._changed
        if at_once:
            self._changed.add(name)
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
        self._release(job)

    def _release(self, job: TableJob) -> None:
        with self._lock:
            self._jobs.pop(job.name, None)
