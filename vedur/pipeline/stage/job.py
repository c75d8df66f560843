"""The Spark job of one batch: one task per slice, a small summary row from each.

Most batches differ from the one before in their slices only. Those travel as a property of the
job, and Spark's plan of the job, with the function and all it holds, is kept and run again: half
of what a small batch costs Java, and most of what it costs the driver (45 ms for a job of one task
become 23). Properties may be written to logs of events and shown on pages: slices that hold more
than numbers (`StageTask.private`) stay in the function. Spark Connect has no such properties, and
without pinned threads nobody knows whose they are: there each batch is a plan of its own. Every
task says what it has read, and the driver looks whether that is what it was told to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedur.errors import InternalError, error_from_json
from vedur.pipeline.session import is_remote
from vedur.pipeline.stage.task import StageTask, fingerprint, stage_slice
from vedur.pipeline.taskd import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SLICES = "vedur.slices"

#: Jobs by slot and number of tasks: what they were made of, and the plan.
Plans = dict[tuple[int, int], "tuple[StageTask, DataFrame]"]
#: Of a slot: small batches have one task, large ones as many as run at once.
_PLANS = 2


def run_job(spark: SparkSession, task: StageTask, plans: Plans) -> list[dict[str, Any]]:
    """Stage all slices; returns their summaries. Errors of tasks are raised here as ours."""
    if task.private or is_remote(spark) or not _pinned():
        frame = _plan(spark, task, len(task.slices))
    else:
        frame = _kept(spark, task, plans)
        spark.sparkContext.setLocalProperty(_SLICES, json.dumps(task.slices))
    summaries = [json.loads(row.summary) for row in frame.collect()]
    for said in summaries:
        if "error" in said:
            raise error_from_json(said)
    return checked(task, summaries)


def checked(task: StageTask, summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In order, if every slice was read, once, and was the one that was meant."""
    ordered = sorted(summaries, key=lambda s: int(s["part"]))
    if [s["read"] for s in ordered] != [fingerprint(text) for text in task.slices]:
        raise InternalError("BUG: tasks have read other events than they were told to")
    return ordered


def _pinned() -> bool:
    return os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"


def _kept(spark: SparkSession, task: StageTask, plans: Plans) -> DataFrame:
    bare, key = replace(task, slices=()), (task.slot, len(task.slices))
    known = plans.pop(key, None)
    if known is None or known[0] != bare:
        known = bare, _plan(spark, bare, len(task.slices))
    plans[key] = known  # as the last of them
    for old in [k for k in plans if k[0] == task.slot][:-_PLANS]:
        del plans[old]
    return known[1]


def _plan(spark: SparkSession, task: StageTask, count: int) -> DataFrame:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        whole = task if task.slices else replace(task, slices=_slices())
        for batch in batches:
            parts = batch.column(0).to_pylist()
            if parts:
                summaries = [stage_slice(whole, int(part)) for part in parts]
                yield pa.RecordBatch.from_pydict({"summary": summaries})

    return spark.range(0, count, 1, count).mapInArrow(stage, "summary string")


def _slices() -> tuple[str, ...]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return tuple(json.loads(context.getLocalProperty(_SLICES) or "[]"))
