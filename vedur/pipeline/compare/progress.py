"""How many tasks a job gets, and how far it is: on a terminal as it goes, else a log line at times.

Work that takes a moment says nothing: then the output is what Londiste printed and no more.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedur.clock import SYSTEM
from vedur.pipeline.session import parallelism

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A task costs some 20 ms besides its slices; more than this only adds to that.
_MANY_TASKS = 64
#: Nobody wonders before.
_SAY_EVERY = 30.0
_SHOW_EVERY = 1.0
_groups = itertools.count(1)


def tasks_a_side(spark: SparkSession, connections: int) -> int:
    """How many tasks may be made for a side, so that `connections` are never exceeded.

    Where fewer tasks run at once than that, there may be many: each one done is progress.
    """
    return _MANY_TASKS if parallelism(spark) <= connections else connections


@contextmanager
def progress(spark: SparkSession, what: str) -> Iterator[None]:
    """Name the jobs inside and say how far they are.

    Over Spark Connect there is no tracker to ask, and nothing is said.
    """
    context = spark.sparkContext if getattr(spark, "_jsc", None) else None
    if context is None:
        yield
        return
    group = f"{what} {next(_groups)}"
    context.setJobGroup(group, what)
    done = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(context, group, what, done), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", "")


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


def _watch(context: SparkContext, group: str, what: str, done: threading.Event) -> None:
    shown = sys.stderr.isatty() and log.isEnabledFor(logging.INFO)
    begun = SYSTEM.monotonic()
    drawn = False
    while not SYSTEM.wait(done, _SHOW_EVERY if shown else _SAY_EVERY):
        parts = _ask(context, group, what, SYSTEM.monotonic() - begun)
        if parts.total and shown:
            sys.stderr.write(f"\r{parts.text()}\x1b[K")
            sys.stderr.flush()
            drawn = True
        elif parts.total:
            log.info("%s", parts.text())
    if drawn:  # the line was for watching only
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _ask(context: SparkContext, group: str, what: str, seconds: float) -> Parts:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [
        tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
    ]
    known = [s for s in stages if s is not None]
    return Parts(
        what,
        sum(s.numCompletedTasks for s in known),
        sum(s.numTasks for s in known),
        seconds,
    )
