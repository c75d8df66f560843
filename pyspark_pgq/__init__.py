"""Spark looks for packages named `pyspark_*` and registers their `DefaultSource`.

So `spark.read.format("pgq")` works wherever Vedur is installed; see vedur.pipeline.source.
"""

from __future__ import annotations

from vedur.pipeline.source.reader import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
