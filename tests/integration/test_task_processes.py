"""Processes of tasks come with everything loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_a_task_process_is_forked_with_what_tasks_need(spark: Any) -> None:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import sys
        from pathlib import Path

        import pyarrow as pa

        loaded = sys.modules.keys()
        for batch in batches:
            if not batch.num_rows:
                continue
            command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
            lacking = {"vedur.pipeline.stage.task", "vedur.pipeline.copy.task"} - loaded
            # a connection that two processes share would break both
            sockets = [
                name
                for fd in Path(f"/proc/{os.getppid()}/fd").iterdir()
                if (name := str(fd.readlink())).startswith("socket:")
            ]
            yield pa.RecordBatch.from_pydict(
                {
                    "parent": [command.replace("\0", " ")],
                    "lacking": [",".join(sorted(lacking))],
                    "sockets": [len(sockets)],
                }
            )

    frame = spark.range(0, 2, 1, 2).mapInArrow(look, "parent string, lacking string, sockets long")
    for row in frame.collect():
        assert "vedur.pipeline.daemon" in row.parent
        assert row.lacking == ""
        assert row.sockets == 1  # the one that Spark asks for processes on
