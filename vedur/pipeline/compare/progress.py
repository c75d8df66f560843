"""How many tasks a job gets, and a line now and then about how far it is."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vedur.clock import SYSTEM
from vedur.pipeline.session import parallelism

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A task costs some 20 ms besides its slices; more than this only adds to that.
_MANY_TASKS = 64
#: Nobody wonders before, and short work prints what Londiste printed and nothing else.
_SAY_EVERY = 30.0
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


def _watch(context: SparkContext, group: str, what: str, done: threading.Event) -> None:
    tracker = context.statusTracker()
    while not SYSTEM.wait(done, _SAY_EVERY):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [
            tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
        ]
        known = [s for s in stages if s is not None]
        total = sum(s.numTasks for s in known)
        if total:
            log.info("%s: %d of %d parts", what, sum(s.numCompletedTasks for s in known), total)
