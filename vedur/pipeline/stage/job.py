"""The Spark job of one batch: one task per slice, a small summary row from each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vedur.errors import error_from_json
from vedur.pipeline.stage.task import StageTask, stage_slice
from vedur.pipeline.taskd import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def run_job(spark: SparkSession, task: StageTask) -> list[dict[str, Any]]:
    """Stage all slices; returns their summaries. Errors of tasks are raised here as ours."""
    count = len(task.slices)

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        for batch in batches:
            parts = batch.column(0).to_pylist()
            if parts:
                summaries = [stage_slice(task, int(part)) for part in parts]
                yield pa.RecordBatch.from_pydict({"summary": summaries})

    frame = spark.range(0, count, 1, count).mapInArrow(stage, "summary string")
    summaries = [json.loads(row.summary) for row in frame.collect()]
    for said in summaries:
        if "error" in said:
            raise error_from_json(said)
    return sorted(summaries, key=lambda s: int(s["part"]))
