"""Pools: queues that share a Spark session get its slots in turns, and can be interrupted alone.

Spark's scheduler is fair between pools, and in a pool the first job comes first. So replay, first
copies and comparisons have a pool each; where a process has several jobs (`vedur/threads.py`),
each of them has its own three. A tag tells whose a job of Spark is. Over Spark Connect the server
decides about pools; tags are there, too.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

from vedur.threads import current_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPLAY = "replay"
#: Of each thread: the session and the pool that it has entered. To ask Java costs a round trip.
_entered = threading.local()


def enter_pool(spark: SparkSession, kind: str | None = None) -> None:
    """Run what this thread submits from now on in the pool of its job for that kind of work.

    Without `kind`: in that of replay, unless the thread has entered another one.
    """
    job = current_job()
    if kind is None and not job:
        return  # replay of the only worker is in Spark's own pool
    known_session, known_job, known_kind = getattr(_entered, "place", (None, "", ""))
    here = known_session is spark and known_job == job
    if here and kind in (None, known_kind):
        return
    kind = kind or _REPLAY
    if is_remote(spark):
        if job and not here:
            spark.clearTags()  # a thread of a pool may have worked for another job
            spark.addTag(_tag(job))
    else:
        context = spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", f"{kind} {job}".strip())
        if job and not here:
            context.clearJobTags()
            context.addJobTag(_tag(job))
    _entered.place = spark, job, kind


def interrupt_pools(spark: SparkSession, job: str) -> None:
    """Cancel all that a job has running in the session."""
    interrupt_tag(spark, _tag(job))


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Mark what this thread submits from now on, for `interrupt_tag`."""
    if is_remote(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def interrupt_tag(spark: SparkSession, tag: str) -> None:
    """Cancel what runs under a tag."""
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)  # tags of a session are not those of jobs


def is_remote(spark: SparkSession) -> bool:
    """Is this Spark Connect? Then there is no Java here, or at least none that is ours to ask."""
    return not hasattr(spark, "_jsparkSession")


def _tag(job: str) -> str:
    """Return the tag of a job; names may hold characters that tags may not."""
    return f"vedur-{hashlib.blake2s(job.encode(), digest_size=8).hexdigest()}"
