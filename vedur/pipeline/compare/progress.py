"""How many tasks a job gets, and how far it is: on a terminal as it goes, else a log line at times.

Work that takes a moment says nothing: then the output is what Londiste printed and no more.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vedur.clock import SYSTEM
from vedur.pipeline.spark.tasks import parallelism
from vedur.threads import Thread

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: As many as there are slices.
_ALL_TASKS = 1 << 20
#: Nobody wonders before.
_SAY_EVERY = 30.0
_SHOW_EVERY = 1.0
#: How many parts are done, and how many there are.
Count = Callable[[], tuple[int, int]]
_groups = itertools.count(1)
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def tasks_a_side(spark: SparkSession, connections: int) -> int:
    """How many tasks may be made for a side, so that `connections` are never exceeded.

    Where fewer tasks run at once than that, there may be many: each one done is progress.
    """
    return _ALL_TASKS if parallelism(spark) <= connections else connections


@contextmanager
def progress(spark: SparkSession, what: str, count: Count | None = None) -> Iterator[None]:
    """Name the jobs inside and say how far they are: as `count` says, or as Spark does.

    Over Spark Connect there is no tracker to ask, and nothing is said.
    """
    context = spark.sparkContext if getattr(spark, "_jsc", None) else None
    if context is None:
        yield
        return
    group = f"{what} {next(_groups)}"
    context.setJobGroup(group, what)
    done = threading.Event()
    watcher = _watcher.get() or Terminal()
    thread = Thread(
        target=_watch,
        args=(context, group, what, count, watcher, done),
        name="progress",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", "")


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Progress of jobs in this thread goes to `watcher`, not to the terminal."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@dataclass(frozen=True)
class Parts:
    """How many parts of some work there are, how many are done, and for how long it goes on."""

    what: str
    done: int
    total: int
    seconds: float

    def text(self) -> str:
        """For people; the rest is guessed from the parts done so far."""
        said = f"{self.what}: {self.done} of {self.total} parts"
        if not self.done or self.done == self.total:
            return said
        left = self.seconds * (self.total - self.done) / self.done
        return f"{said}, about {left:.0f} s left"


class Watcher(Protocol):
    """Whom progress is told, every so many seconds; if he has `gone`, jobs are given up."""

    every: float

    def show(self, parts: Parts) -> None: ...
    def gone(self) -> bool: ...
    def close(self) -> None: ...


class Terminal:
    """A line that is drawn again and again; where nobody looks, a line of the log at times."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty() and log.isEnabledFor(logging.INFO)
        self.every = _SHOW_EVERY if self._shown else _SAY_EVERY
        self._last = SYSTEM.monotonic()
        self._drawn = False

    def show(self, parts: Parts) -> None:
        """Not more often than is good for the log, however often it is told."""
        now = SYSTEM.monotonic()
        if not parts.total or now - self._last < self.every * 0.9:
            return
        self._last = now
        if self._shown:
            sys.stderr.write(f"\r{parts.text()}\x1b[K")
            sys.stderr.flush()
            self._drawn = True
        else:
            log.info("%s", parts.text())

    def gone(self) -> bool:
        """He who waits at a terminal is there."""
        return False

    def close(self) -> None:
        """The line was for watching only."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _watch(
    context: SparkContext,
    group: str,
    what: str,
    count: Count | None,
    watcher: Watcher,
    done: threading.Event,
) -> None:
    begun = SYSTEM.monotonic()
    while not SYSTEM.wait(done, watcher.every):
        if watcher.gone():
            context.cancelJobGroup(group)
        else:
            done_of = count() if count is not None else _ask(context, group)
            watcher.show(Parts(what, *done_of, SYSTEM.monotonic() - begun))
    watcher.close()


def _ask(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [
        tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
    ]
    known = [s for s in stages if s is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
