"""First copies of tables, run beside the worker's loop: which tables, when, and the meeting.

`Copying.advance` is called by the loop between batches and never blocks for long. Copies run in
threads of this process; all that they need to go on after a crash is in the two databases: the
state of the table, the snapshot, the dropped DDL, the position of the copy's consumer. So a
thread owns a table only in memory, and a table without an owner is taken up by the state that
it is in (docs/design/first-copy.md).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from vedur.catalog import TableInfo
from vedur.catalog.tables import change_table_state
from vedur.clock import SYSTEM, Clock
from vedur.db import Database
from vedur.errors import DatabaseError, TableChanged, VedurError
from vedur.sql import query
from vedur.worker.copying_catch_up import CatchUp
from vedur.worker.copying_context import CopySetup, GivenUp, Loader, MakeApplier, TableJob
from vedur.worker.copying_seats import Seats
from vedur.worker.copying_settle import Settler
from vedur.worker.copying_table import GroupCopy, NotAlone, clean_up
from vedur.worker.states import MergeState, State, meeting, must_wait

log = logging.getLogger(__name__)

#: How long `advance` lets a copy answer before it gives the loop back.
_MEETING_WAIT = 0.2
_LOCK_TIMEOUT = "55P03"
#: So many small tables are loaded by one job.
_TOGETHER = 32


@dataclass(eq=False)
class _Group:
    """Tables of one snapshot. Lanes take those that have not begun, one after the other; the last
    lane leaves none, so the group is done when it ends."""

    waiting: deque[TableJob]
    lanes: int
    copy: GroupCopy | None = None
    done: threading.Event = field(default_factory=threading.Event)
    crash: BaseException | None = None


class Copying:
    """All first copies of one node; satisfies `CopyControl`."""

    def __init__(
        self,
        setup: CopySetup,
        loader: Loader,
        make_applier: MakeApplier,
        clock: Clock = SYSTEM,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.setup = setup
        self.loader = loader
        self.make_applier = make_applier
        self.clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._jobs: dict[str, TableJob] = {}
        self._retry_at: dict[str, float] = {}
        self._met_at: dict[str, tuple[MergeState, float]] = {}
        self._threads: set[threading.Thread] = set()
        self._begun: set[str] | None = None
        self._unfinished: set[str] = set()
        self._changed: set[str] = set()  # rewritten on the provider during their last copy
        self._loading = 0  # lanes of all groups
        self._groups: set[_Group] = set()
        self._moved = threading.Event()
        self._stopping = threading.Event()
        self._owner: Database | None = None  # its session holds the lock of this node's copies
        self._left_to_others = False
        self._settler = Settler(setup, clock)
        self._seats = Seats(setup)

    def reconfigure(self, setup: CopySetup, loader: Loader, make_applier: MakeApplier) -> None:
        """New settings for what starts from now on; what failed with the old ones need not wait."""
        self.setup, self.loader, self.make_applier = setup, loader, make_applier
        with self._lock:
            self._retry_at = dict.fromkeys(self._retry_at, 0.0)
        self._settler.setup = setup
        # Tables on their way keep theirs and leave them with their last move.
        self._seats.close_idle()
        self._seats = Seats(setup)

    # -- the worker's side ----------------------------------------------------------------------

    def advance(
        self, target: Database, provider: str, tables: Sequence[TableInfo], position: int
    ) -> bool:
        """Start copies, answer those that ask to meet; True if the worker must wait."""
        if self._stopping.is_set():
            return False
        local = [t for t in tables if t.local]
        self._moved.clear()
        wait = self._answer(target, local, position)
        self._rouse(local)
        if self._mine(target, local):
            with self._lock:
                self._give_up_removed(target, local)
                gone = self._gone(target, local)
                self._take_up(local, provider)
            for name in gone:
                clean_up(self.setup, self.make_applier, provider, name)
        self._settler.settle(provider, local, position)
        if wait:
            self.clock.wait(self._moved, _MEETING_WAIT)
        return wait

    def stop(self) -> None:
        """End all copies where they are; they are taken up again by the next run."""
        self._stopping.set()
        with self._lock:
            jobs, threads = list(self._jobs.values()), list(self._threads)
        for job in jobs:
            job.cancel()
        try:
            if jobs:
                with self.setup.connect() as target:
                    for job in jobs:
                        self._take_slices(target, job)
        except VedurError as error:
            log.debug("cannot take slices back: %s", error)
        for thread in threads:
            thread.join(timeout=30)
        self._settler.stop()
        self._seats.close_idle()
        self._disown()

    @property
    def busy(self) -> bool:
        """Is any copy under way?"""
        with self._lock:
            return bool(self._jobs)

    # -- another worker of this node ------------------------------------------------------------

    def _mine(self, target: Database, tables: Sequence[TableInfo]) -> bool:
        """Are copies this worker's business? Of two workers the second leaves them to the first.

        The lock is for good manners: two that copy one table would end each other's tasks for
        ever. What keeps the data right without it are the looks at state, snapshot and position
        in each step's transaction.
        """
        if not self._has_work(tables):
            self._disown()
            return True
        if self._owner is not None and self._still_owns():
            return True
        if self._own(target):
            if self._left_to_others:
                log.info("first copies are this worker's again")
            self._left_to_others = False
            return True
        if not self._left_to_others:
            log.warning(
                "another worker of this node has its first copies in hand: stop one of them"
            )
        self._left_to_others = True
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

    def _own(self, target: Database) -> bool:
        if not target.value(query("copy", "copies_free"), [self.setup.queue]):
            return False
        owner = self.setup.connect()
        owner.execute(query("copy", "notice_dead_peer"))
        if not owner.value(query("copy", "own_copies"), [self.setup.queue]):
            owner.close()
            return False
        self._owner = owner
        return True

    def _still_owns(self) -> bool:
        try:
            assert self._owner is not None
            self._owner.execute("select 1")
        except DatabaseError:
            self._disown()
            return False
        return True

    def _disown(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    def _answer(self, target: Database, tables: Sequence[TableInfo], position: int) -> bool:
        wait = False
        for table in tables:
            state = MergeState.parse(table.merge_state)
            answer = meeting(state, position)
            if answer != state:
                if not self._agree(target, table, answer, position):
                    continue
                log.debug("%s: %s", table.table_name, answer)
                self._nudge(table.table_name)
            if must_wait(answer, position) and not self._set_back(target, table, answer):
                wait = True
        return wait

    def _agree(self, target: Database, table: TableInfo, answer: MergeState, position: int) -> bool:
        """Write the answer, if the node still stands where this worker saw it.

        The lock is that of a batch's commit: another worker may be about to pass the tick.
        """
        queue = self.setup.queue
        with target.transaction():
            target.execute(query("copy", "lock_worker_position"), [queue])
            if target.value(query("copy", "worker_position"), [queue]) != position:
                return False
            snapshot = table.custom_snapshot
            return change_table_state(target, queue, table, snapshot, str(answer)) is not None

    def _set_back(self, target: Database, table: TableInfo, state: MergeState) -> bool:
        """Go on without a copy that does not come to the meeting; it asks again when it can."""
        now, name = self.clock.monotonic(), table.table_name
        met, since = self._met_at.get(name, (None, now))
        if met != state or table.merge_state != str(state):  # agreed on just now
            since = now
        self._met_at[name] = (state, since)
        if now - since < max(self.setup.meeting_wait, 0.001):
            return False
        back, queue = State.CATCHING_UP.value, self.setup.queue
        try:
            with target.transaction():
                target.execute(query("copy", "short_lock"))
                if change_table_state(target, queue, table, table.custom_snapshot, back) is None:
                    return False
        except DatabaseError as error:
            if error.sqlstate != _LOCK_TIMEOUT:
                raise
            return False  # it is merging
        log.warning("%s: did not come to tick %s in %g s, other tables go on without it", name,
                    state.tick, self.setup.meeting_wait)  # fmt: skip
        self._nudge(name)
        return True

    def _rouse(self, tables: Sequence[TableInfo]) -> None:
        """Wake copies that wait in a state which their tables are in no longer."""
        with self._lock:
            for table in tables:
                job = self._jobs.get(table.table_name)
                if job is not None and job.asleep_in not in (None, table.merge_state):
                    job.nudge.set()
            if not self._jobs:
                self._seats.close_idle()

    def _nudge(self, name: str) -> None:
        with self._lock:
            job = self._jobs.get(name)
        if job is not None:
            job.nudge.set()

    def _take_slices(self, target: Database, job: TableJob) -> None:
        """Leave the tasks of a copy nothing more to claim, so that its job ends soon."""
        target.execute(query("copy", "take_slices"), [self.setup.queue, job.name])

    def _give_up_removed(self, target: Database, tables: Sequence[TableInfo]) -> None:
        here = {t.table_name for t in tables}
        for name, job in self._jobs.items():
            if name not in here and not job.cancelled:
                log.info("%s: removed, its copy is given up", name)
                job.cancel()
                self._take_slices(target, job)

    def _gone(self, target: Database, tables: Sequence[TableInfo]) -> set[str]:
        """Tables that were removed while nobody copied them: no worker ran, or it waited."""
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

    def _take_up(self, tables: Sequence[TableInfo], provider: str) -> None:
        now = self.clock.monotonic()
        load: list[TableInfo] = []
        for table in tables:
            name = table.table_name
            state = MergeState.parse(table.merge_state).state
            if name in self._jobs or self._retry_at.get(name, 0.0) > now:
                continue
            if state is State.OK and name not in self._unfinished:
                continue  # one that is: the copy died before it gave its consumer up
            if state in (State.NONE, State.IN_COPY):
                load.append(table)
            else:
                self._start_catch_up(table, provider)
        self._add_lanes()
        free = self.setup.parallel_copies - self._loading
        if load and free > 0:
            self._start_group(load, provider, free)

    # -- threads --------------------------------------------------------------------------------

    def _start(self, work: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _new_job(self, table: TableInfo, provider: str) -> TableJob:
        job = TableJob(table, provider, self.setup.consumer(table.table_name))
        self._jobs[table.table_name] = job
        return job

    def _start_group(self, tables: Sequence[TableInfo], provider: str, free: int) -> None:
        jobs = [self._new_job(t, provider) for t in tables]
        group = _Group(deque(jobs), min(free, len(jobs)))
        self._loading += group.lanes
        self._start(lambda: self._run_group(group, jobs, provider), "vedur-copy")

    def _run_group(self, group: _Group, jobs: list[TableJob], provider: str) -> None:
        """Load tables from one snapshot, some at a time; each goes on by itself after that."""
        try:
            with GroupCopy(self.setup, self.loader, provider, self.clock) as group.copy:
                group.copy.open(jobs)
                with self._lock:
                    self._groups.add(group)
                    for _ in range(group.lanes):
                        self._start(partial(self._run_lane, group), "vedur-load")
                group.done.wait()
                if group.crash is not None:
                    raise group.crash
        except GivenUp:
            for job in jobs:
                if not job.started:
                    self._clean_up(job)
                    self._release(job)
        except Exception as error:
            for job in jobs:
                if not job.started:
                    self._failed(job, error)
        finally:
            with self._lock:
                self._groups.discard(group)
                self._loading -= group.lanes  # those that never started

    def _add_lanes(self) -> None:
        """`parallel_copies` was raised, or another group has ended: more tables at a time."""
        for group in self._groups:
            free = self.setup.parallel_copies - self._loading
            for _ in range(min(free, len(group.waiting))):
                group.lanes += 1
                self._loading += 1
                self._start(partial(self._run_lane, group), "vedur-load")

    def _run_lane(self, group: _Group) -> None:
        try:
            while jobs := self._next(group):
                assert group.copy is not None
                if len(jobs) > 1:
                    self._load_together(group.copy, jobs)
                else:
                    self._load_one(group.copy, jobs[0])
        except BaseException as error:  # the group's thread raises it
            group.crash = error
            with self._lock:
                group.waiting.clear()
                self._end_lane(group)

    def _next(self, group: _Group) -> list[TableJob]:
        """The next table, or the next small ones together.

        None where there is none, or where there are more lanes than allowed.
        """
        with self._lock:
            too_many = self._loading > self.setup.parallel_copies and group.lanes > 1
            if not group.waiting or too_many:
                self._end_lane(group)
                return []
            jobs = [group.waiting.popleft()]
            if jobs[0].small:
                more = [j for j in group.waiting if j.small][: _TOGETHER - 1]
                for job in more:
                    group.waiting.remove(job)
                jobs += more
            return jobs

    def _end_lane(self, group: _Group) -> None:
        group.lanes -= 1
        self._loading -= 1
        if not group.lanes:
            group.done.set()

    def _load_one(self, group: GroupCopy, job: TableJob) -> None:
        job.started = True
        if job.cancelled:
            self._clean_up(job)
            self._release(job)
            return
        job.small = False  # with none to be loaded with
        try:
            group.load(job)
        except Exception as error:  # Spark may fail in ways of its own
            self._loaded(job, error)
        else:
            self._loaded(job, None)

    def _load_together(self, group: GroupCopy, jobs: list[TableJob]) -> None:
        wanted = []
        for job in jobs:
            job.started = True
            if job.cancelled:
                self._loaded(job, GivenUp())
            else:
                wanted.append(job)
        alone: list[TableJob] = []
        heard: set[str] = set()

        def done(job: TableJob, error: Exception | None) -> None:
            heard.add(job.name)
            if isinstance(error, NotAlone):
                alone.append(job)
            else:
                self._loaded(job, error)

        try:
            group.load_together(wanted, done)
        except Exception as error:  # Spark may fail in ways of its own
            for job in wanted:
                if job.name not in heard:
                    self._loaded(job, error)
        for job in alone:
            self._load_one(group, job)

    def _loaded(self, job: TableJob, error: Exception | None) -> None:
        """A table is loaded, or not: what comes next."""
        if isinstance(error, GivenUp):
            self._clean_up(job)
            self._release(job)
        elif error is not None:
            self._failed(job, error)
        else:
            with self._lock:
                self._changed.discard(job.name)
                self._start(lambda: self._catch_up(job), f"vedur-catch-up {job.name}")

    def _start_catch_up(self, table: TableInfo, provider: str) -> None:
        job = self._new_job(table, provider)
        self._start(lambda: self._catch_up(job), f"vedur-catch-up {job.name}")

    def _catch_up(self, job: TableJob) -> None:
        job.started = True
        job.on_move = self._on_move
        try:
            CatchUp(self.setup, self.make_applier, job, self.clock, self._seats).run()
        except GivenUp:
            self._release(job)
        except Exception as error:
            self._failed(job, error)
        else:
            self._unfinished.discard(job.name)
            self._settler.look_again()
            self._release(job)
        self._on_move()

    def _on_move(self) -> None:
        self._moved.set()
        self._wake()

    def _removed(self, job: TableJob) -> bool:
        """Did a step fail because the table was removed under it?"""
        try:
            with self.setup.connect() as target:
                self.setup.table(target, job.name)
        except GivenUp:
            return True
        except VedurError:
            return False
        return False

    def _clean_up(self, job: TableJob) -> None:
        """A removed table leaves nothing behind; one that the next run takes up keeps its all."""
        if not self._stopping.is_set() and not self._left_to_others:
            clean_up(self.setup, self.make_applier, job.provider, job.name)

    def _release(self, job: TableJob) -> None:
        with self._lock:
            self._jobs.pop(job.name, None)

    def _pause_after(self, name: str, error: Exception) -> float:
        """A table that was rewritten meanwhile is copied anew at once, but not again and again."""
        at_once = isinstance(error, TableChanged) and name not in self._changed
        if at_once:
            self._changed.add(name)
        return 0.0 if at_once else self.setup.retry_sleep

    def _failed(self, job: TableJob, error: Exception) -> None:
        if job.cancelled or self._removed(job):
            self._clean_up(job)
            self._release(job)
            return
        lines = str(error).strip().splitlines() or [type(error).__name__]
        self.setup.note_error(job.name, lines[0])
        pause = self._pause_after(job.name, error)
        if pause:
            log.error(
                "%s: copy failed, next try in %g s: %s",
                job.name,
                pause,
                lines[0],
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        else:
            log.warning("%s: %s", job.name, lines[0])
        with self._lock:
            self._retry_at[job.name] = self.clock.monotonic() + pause
            self._unfinished.add(job.name)
            self._jobs.pop(job.name, None)
