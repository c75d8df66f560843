"""The Spark job of one batch: one task per slice, a small summary row from each.

Most batches differ from the one before in their slices only. Those travel as a property of the
job, and Spark's plan of the job, with the function and all it holds, is kept and run again: half
of what a small batch costs Java, and most of what it costs the driver (45 ms for a job of one task
become 23). Properties may be written to logs of events and shown on pages, so nothing but slices
goes that way. Spark Connect has no such properties: there each batch is a plan of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vedur.errors import error_from_json
from vedur.pipeline.session import is_remote
from vedur.pipeline.stage.task import StageTask, stage_slice
from vedur.pipeline.taskd import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SLICES = "vedur.slices"

#: Jobs by slot and number of tasks: what they were made of, and the plan.
Plans = dict[tuple[int, int], "tuple[StageTask, DataFrame]"]


def run_job(spark: SparkSession, task: StageTask, plans: Plans) -> list[dict[str, Any]]:
    """Stage all slices; returns their summaries. Errors of tasks are raised here as ours."""
    if is_remote(spark):
        frame = _plan(spark, task, len(task.slices))
    else:
        frame = _kept(spark, task, plans)
        spark.sparkContext.setLocalProperty(_SLICES, json.dumps(task.slices))
    summaries = [json.loads(row.summary) for row in frame.collect()]
    for said in summaries:
        if "error" in said:
            raise error_from_json(said)
    return sorted(summaries, key=lambda s: int(s["part"]))


def _kept(spark: SparkSession, task: StageTask, plans: Plans) -> DataFrame:
    bare, count = replace(task, slices=()), len(task.slices)
    known = plans.get((task.slot, count))
    if known is not None and known[0] == bare:
        return known[1]
    frame = _plan(spark, bare, count)
    plans[task.slot, count] = bare, frame
    return frame


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
