"""First copy of tables: sliced, from one exported snapshot, by Spark tasks."""

from __future__ import annotations

from vedur.pipeline.copy.load import Budget, SparkLoader
from vedur.pipeline.copy.plan import Slice, TableCopy, plan_table

__all__ = ["Budget", "Slice", "SparkLoader", "TableCopy", "plan_table"]
