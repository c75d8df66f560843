"""Groups of tables that are loaded from one snapshot, a few tables at a time.

A group has a thread that keeps its snapshot, and lanes: threads that load its tables one after the
other. Over all groups there are at most `parallel_copies` lanes. What the loads are made of is in
`table.py`; what comes after a load is decided by `control.py`, which hears of each table once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

from vedur.clock import Clock
from vedur.errors import CopyAbandoned
from vedur.worker.first_copy.bundle import Bundle
from vedur.worker.first_copy.context import (
    CopySetup,
    CopySource,
    Loader,
    PlanT,
    TableJob,
    Threads,
)
from vedur.worker.first_copy.table import SnapshotLoad

#: So many tables are loaded together, of so many slices' bytes in all: a table that is being copied
#: is incomplete, and all of them are at the same time.
_TOGETHER = 64
_TOGETHER_SLICES = 3

#: Hears that a table is loaded, or why not; `CopyAbandoned` where nobody wants it any more.
Loaded = Callable[[TableJob, Exception | None], None]
#: Hears of several that are loaded.
LoadedTogether = Callable[[Sequence[TableJob]], None]


@dataclass(eq=False)
class _Group(Generic[PlanT]):
    """Tables of one snapshot. Lanes take those that have not begun, one after the other; the last
    lane leaves none, so the group is done when it ends."""

    jobs: Sequence[TableJob]
    waiting: deque[TableJob]
    lanes: int
    load: SnapshotLoad[PlanT] | None = None
    done: threading.Event = field(default_factory=threading.Event)
    crash: BaseException | None = None


class Groups(Generic[PlanT]):
    """All groups of a node; safe to use from several threads."""

    def __init__(
        self,
        setup: CopySetup,
        loader: Loader[PlanT],
        clock: Clock,
        threads: Threads,
        loaded: Loaded,
        loaded_together: LoadedTogether,
    ) -> None:
        self.setup = setup
        self.loader = loader
        self.clock = clock
        self._threads = threads
        self._loaded = loaded
        self._loaded_together = loaded_together
        self._lock = threading.Lock()
        self._groups: set[_Group[PlanT]] = set()
        self._lanes = 0  # of all groups

    @property
    def lanes(self) -> int:
        """Tables, or bundles of them, that are being loaded."""
        with self._lock:
            return self._lanes

    @property
    def free(self) -> int:
        """How many more may be loaded at a time."""
        return self.setup.parallel_copies - self.lanes

    def start(self, jobs: Sequence[TableJob], source: CopySource) -> None:
        """Start a group in a thread of its own; there must be a free lane."""
        with self._lock:
            lanes = min(self.setup.parallel_copies - self._lanes, len(jobs))
            group: _Group[PlanT] = _Group(jobs, deque(jobs), lanes)
            self._lanes += lanes
        self._threads.start(lambda: self._run(group, source), "vedur-copy")

    def add_lanes(self) -> None:
        """Load more tables at a time where `parallel_copies` was raised or another group ended."""
        with self._lock:
            for group in self._groups:
                free = self.setup.parallel_copies - self._lanes
                for _ in range(min(free, len(group.waiting))):
                    group.lanes += 1
                    self._lanes += 1
                    self._threads.start(partial(self._run_lane, group), "vedur-load")

    def _run(self, group: _Group[PlanT], source: CopySource) -> None:
        """Take the snapshot and keep it until the lanes have loaded all tables."""
        try:
            with SnapshotLoad(self.setup, self.loader, source, self.clock) as group.load:
                for job, reason in group.load.open(group.jobs):
                    job.started = True
                    group.waiting.remove(job)
                    self._loaded(job, reason)
                if not group.waiting:
                    return
                with self._lock:
                    self._groups.add(group)
                    for _ in range(group.lanes):
                        self._threads.start(partial(self._run_lane, group), "vedur-load")
                group.done.wait()
                if group.crash is not None:
                    raise group.crash
        except Exception as error:
            for job in group.jobs:
                if not job.started:
                    self._loaded(job, error)
        finally:
            with self._lock:
                self._groups.discard(group)
                self._lanes -= group.lanes  # those that never started

    def _run_lane(self, group: _Group[PlanT]) -> None:
        try:
            while jobs := self._next_jobs(group):
                assert group.load is not None
                if len(jobs) > 1:
                    self._load_together(group, group.load, jobs)
                else:
                    self._load_one(group.load, jobs[0])
        except BaseException as error:  # the group's thread raises it
            group.crash = error
            with self._lock:
                group.waiting.clear()
                self._end_lane(group)

    def _next_jobs(self, group: _Group[PlanT]) -> list[TableJob]:
        """Take the next table, or the next ones that can be loaded together.

        Returns none, and the lane ends, where no table waits or there are more lanes than allowed.
        """
        with self._lock:
            too_many = self._lanes > self.setup.parallel_copies and group.lanes > 1
            if not group.waiting or too_many:
                self._end_lane(group)
                return []
            jobs = [group.waiting.popleft()]
            if jobs[0].bundled:
                room = _TOGETHER_SLICES * self.loader.bundle_bytes - jobs[0].size
                for job in [j for j in group.waiting if j.bundled]:
                    if job.size <= room and len(jobs) < _TOGETHER:
                        group.waiting.remove(job)
                        jobs.append(job)
                        room -= job.size
            return jobs

    def _end_lane(self, group: _Group[PlanT]) -> None:
        group.lanes -= 1
        self._lanes -= 1
        if not group.lanes:
            group.done.set()

    def _load_one(self, load: SnapshotLoad[PlanT], job: TableJob) -> None:
        job.started = True
        if job.cancelled:
            self._loaded(job, CopyAbandoned())
            return
        job.small = False
        try:
            load.load(job, begun=job.begun)
        except Exception as error:  # Spark may fail in ways of its own
            self._loaded(job, error)
        else:
            self._loaded(job, None)

    def _load_together(
        self, group: _Group[PlanT], load: SnapshotLoad[PlanT], jobs: list[TableJob]
    ) -> None:
        for job in jobs:
            job.started = True
        try:
            loaded = Bundle(load, load.view.snapshot).run(
                [job for job in jobs if not job.cancelled]
            )
        except Exception as error:  # Spark may fail in ways of its own
            for job in jobs:
                self._loaded(job, error)
            return
        self._loaded_together(loaded)
        done = {job.name for job in loaded}
        with self._lock:  # what is left may have to wait: first come those that need not
            for job in jobs:
                if job.name not in done:
                    job.bundled, job.begun, job.started = False, True, False
                    group.waiting.append(job)
