"""The process that Spark's Python tasks are forked from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_libraries_are_loaded_before_the_fork_and_left_out_of_collections(spark: Any) -> None:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import gc
        import os
        import sys
        from pathlib import Path

        import pyarrow as pa

        said = {
            "frozen": gc.get_freeze_count(),
            "tracked": len(gc.get_objects()),
            "loaded": [n for n in ("psycopg", "vedur.pipeline.replay.task") if n in sys.modules],
            "parent": Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0"),
            "threads of parent": len(list(Path(f"/proc/{os.getppid()}/task").iterdir())),
        }
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"said": [json.dumps(said)]})

    rows = spark.range(0, 4, 1, 4).mapInArrow(look, "said string").collect()
    answers = [json.loads(row.said) for row in rows]
    for said in answers:
        assert said["loaded"] == ["psycopg", "vedur.pipeline.replay.task"]
        # What every collection after a task has to look at is the small part.
        assert said["frozen"] > 10 * said["tracked"], said
        assert "vedur.pipeline.spark.task_process" in said["parent"]
        # A child gets locks as they are, and not the thread that would release them.
        assert said["threads of parent"] == 1
