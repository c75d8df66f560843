"""Checksums of both sides, slice by slice in parallel, each hashed inside its own server.

All that a comparison asks of Spark is a `Comparer`: in a session of this process here
(`SparkComparer`), in the shared session of a running worker in `shared_session.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vedur.db import Database
from vedur.pipeline.compare.differing_rows import Differences, describe, differing_keys
from vedur.pipeline.compare.expected import stage_expected
from vedur.pipeline.compare.jobs import (
    SOURCE,
    TARGET,
    Work,
    ask_each,
    collect,
    moment,
    plan_both,
    side_by_side,
)
from vedur.pipeline.compare.model import Buckets, Pair, Sums
from vedur.pipeline.compare.plan import Use, deal, slices
from vedur.pipeline.spark.tasks import parallelism
from vedur.sql import query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows that one bucket should have: a bad bucket costs as many hashes on the wire.
_BUCKET_ROWS = 1000
_MAX_BUCKETS = 1 << 14
#: Below this many rows buckets save nothing.
_SMALL = 20_000
#: Each task answers with all buckets: not too many of them.
_BUCKET_TASKS = 16
#: A statement that is not cut.
_WHOLE = (("", ""),)


def checksum(
    spark: SparkSession,
    pair: Pair,
    *,
    limit: int = 8,
    count_only: bool = False,
    use: Use = Use.ALL,
) -> tuple[Sums, Sums]:
    """Rows and sums of the provider's table and of its copy; equal sums mean equal tables."""
    template = query("compare", "count" if count_only else "sums")
    plan = deal(parallelism(spark), _cuts(pair), limit, use)
    work = plan_both(pair, template, plan.tasks, connections=plan.connections)
    totals = {SOURCE: Sums(), TARGET: Sums()}
    for both in collect(spark, work, side_by_side(_sums), f"Counting {pair.dest}", plan.lanes):
        for side, sums in both:
            for values in sums:
                totals[side] += Sums(*values)
    return totals[SOURCE], totals[TARGET]


def _sums(work: Work) -> tuple[int, list[list[int | None]]]:
    turns = ask_each(work, lambda db, texts: [list(db.one(text)) for text in texts])
    return work.side, [sums for turn in turns for sums in turn]


def bucket_sums(
    spark: SparkSession, pair: Pair, *, rows: int, limit: int = 8, use: Use = Use.ALL
) -> Buckets:
    """The same by bucket of the key, in one pass that costs hardly more; `rows` is a guess."""
    mask = bucket_mask(rows)
    plan = deal(parallelism(spark), _cuts(pair), limit, use)
    tasks = min(_BUCKET_TASKS, plan.tasks)
    text = query("compare", "bucket_sums")
    work = plan_both(pair, text, tasks, connections=plan.connections, mask=mask)
    sides: tuple[dict[int, Sums], dict[int, Sums]] = ({}, {})
    do, what = side_by_side(_bucket_sums), f"Counting {pair.dest}"
    for both in collect(spark, work, do, what, plan.lanes):
        for side, found in both:
            buckets = sides[side]
            for number, *values in found:
                buckets[number] = buckets.get(number, Sums()) + Sums(*values)
    return Buckets.from_sums(mask, *sides)


def rounded(pair: Pair) -> list[str]:
    """Columns of which the target's type cannot hold all values, as of the pair's moment.

    One statement and no tasks: hardly any table has such columns.
    """
    if not pair.rounding:
        return []
    side = pair.source
    counts = ", ".join(
        query("compare", "lost").format(lost=lost, number=at)
        for at, (_, lost) in enumerate(pair.rounding)
    )
    text = query("compare", "rounded").format(
        counts=counts, only=side.only, table=side.table, condition=side.selected
    )
    with moment(side.connstr, side.begin()) as db:
        found = db.one(text)
    named = zip(pair.rounding, found, strict=True)
    return [f"{name}: {count} row(s)" for (name, _), count in named if count]


def _cuts(pair: Pair) -> int:
    return max(len(slices(side)) for side in (pair.source, pair.target))


def bucket_mask(rows: int) -> int:
    """Buckets are counted in powers of two; small tables have one."""
    if rows < _SMALL:
        return 0
    return min(_MAX_BUCKETS, 1 << (rows // _BUCKET_ROWS).bit_length()) - 1


def _bucket_sums(work: Work) -> tuple[int, list[tuple[int, ...]]]:
    """Slices of a task are added up here as they come, so that each bucket travels once."""
    totals, *others = ask_each(work, _add_up)
    for more in others:
        for number, values in more.items():
            _add(totals, number, values)
    return work.side, [(number, *values) for number, values in totals.items()]


def _add_up(db: Database, texts: Iterator[str]) -> dict[int, list[int]]:
    totals: dict[int, list[int]] = {}
    for text in texts:
        for number, *values in db.query(text):
            _add(totals, number, values)
    return totals


def _add(totals: dict[int, list[int]], number: int, values: list[int]) -> None:
    before = totals.get(number)
    totals[number] = (
        values if before is None else [a + b for a, b in zip(before, values, strict=True)]
    )


def custom_checksum(
    spark: SparkSession, pair: Pair, source_sql: str, target_sql: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one row that an operator's own statement gives on each side."""
    work = [
        Work(SOURCE, pair.source.begin(), source_sql, _WHOLE, pair.source.connstr),
        Work(TARGET, pair.target.begin(), target_sql, _WHOLE, pair.target.connstr),
    ]
    answers = collect(spark, work, _first_row, f"Counting {pair.dest}")
    return answers[SOURCE], answers[TARGET]


def _first_row(work: Work) -> dict[str, Any]:
    with moment(work.connstr, work.begin) as db:
        # The statement may name things without a schema, as it could in psql.
        db.execute(query("compare", "own_search_path"))
        row = db.one(work.statements[0])
        return {} if row is None else dict(row._asdict())


# -- all questions as one thing -------------------------------------------------------------------

#: About as many rows are in a page of 8 kB; only to choose a number of buckets.
_PAGE_ROWS = 80


class Comparer(Protocol):
    """Questions about a pair at its snapshots, while these are open."""

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """Rows and sums of both sides; with `count_only` just rows."""
        ...

    def buckets(self, pair: Pair) -> Buckets:
        """Sums from which a difference can be narrowed."""
        ...

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        """What an operator's own statement says on each side."""
        ...

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        """How many rows differ, and the first of them."""
        ...

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        """The pair with what a handler makes of the provider's rows as its source."""
        ...


@dataclass(frozen=True)
class SparkComparer:
    """In a session of this process; `limit` is how many connections a node may see, `use` what
    of the session it may take."""

    spark: SparkSession
    limit: int
    use: Use = Use.ALL

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """See `Comparer`, as for all of them."""
        return checksum(self.spark, pair, limit=self.limit, count_only=count_only, use=self.use)

    def buckets(self, pair: Pair) -> Buckets:
        rows = estimated_rows(pair)
        return bucket_sums(self.spark, pair, rows=rows, limit=self.limit, use=self.use)

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        return custom_checksum(self.spark, pair, source_sql, target_sql)

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        keys = differing_keys(self.spark, pair, buckets, limit=self.limit)
        return describe(self.spark, pair, keys, shown=shown)

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        return stage_expected(self.spark, pair, limit=self.limit)


def estimated_rows(pair: Pair) -> int:
    """A guess from pages."""
    sides = (pair.source, pair.target)
    return max(sum((p.pages or 0) for p in side.pieces) * _PAGE_ROWS for side in sides)
