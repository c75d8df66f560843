"""Checksums of both sides, slice by slice in parallel, each hashed inside its own server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vedur.pipeline.compare.jobs import (
    SOURCE,
    TARGET,
    Work,
    collect,
    moment,
    plan_work,
)
from vedur.pipeline.compare.model import Pair, Sums
from vedur.pipeline.compare.progress import tasks_a_side
from vedur.sql import query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def checksum(
    spark: SparkSession, pair: Pair, *, limit: int = 8, count_only: bool = False
) -> tuple[Sums, Sums]:
    """Rows and sums of the provider's table and of its copy; equal sums mean equal tables."""
    template = query("compare", "count" if count_only else "sums")
    work = plan_work(pair, template, tasks_a_side(spark, limit))
    totals = {SOURCE: Sums(), TARGET: Sums()}
    for side, sums in collect(spark, work, _sums, f"Counting {pair.dest}"):
        for values in sums:
            totals[side] += Sums(*values)
    return totals[SOURCE], totals[TARGET]


def _sums(work: Work) -> tuple[int, list[list[int | None]]]:
    with moment(work.connstr, work.begin) as db:
        return work.side, [list(db.one(text)) for text in work.statements]


def custom_checksum(
    spark: SparkSession, pair: Pair, source_sql: str, target_sql: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one row that an operator's own statement gives on each side."""
    work = [
        Work(SOURCE, pair.source.begin(), (source_sql,), pair.source.connstr),
        Work(TARGET, pair.target.begin(), (target_sql,), pair.target.connstr),
    ]
    answers = collect(spark, work, _first_row, f"Counting {pair.dest}")
    return answers[SOURCE], answers[TARGET]


def _first_row(work: Work) -> dict[str, Any]:
    with moment(work.connstr, work.begin) as db:
        # The statement may name things without a schema, as it could in psql.
        db.execute(query("compare", "own_search_path"))
        row = db.one(work.statements[0])
        return {} if row is None else dict(row._asdict())
