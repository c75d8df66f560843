"""What a comparison asks of Spark: are both sides equal, and if not, which rows differ.

Checksums are made slice by slice in parallel, each inside its own server. All questions together
are a `Comparer`: in a session of this process here (`SparkComparer`), in the shared session of a
running worker in `shared_session.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from vedur.db import Database
from vedur.pipeline.compare.expected import stage_expected
from vedur.pipeline.compare.jobs import (
    SOURCE,
    TARGET,
    Work,
    ask_each,
    collect,
    job,
    moment,
    plan_both,
    plan_work,
    side_by_side,
    stream,
    tasks_a_side,
)
from vedur.pipeline.compare.model import Buckets, Pair, Side, Sums, plus
from vedur.pipeline.compare.plan import Use, deal, slices
from vedur.pipeline.spark.tasks import parallelism
from vedur.sql import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """Read the rows and sums of the provider's table and of its copy; equal sums mean equal
    tables."""
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
    """Read the same by bucket of the key, in one pass that costs hardly more; `rows` is a guess."""
    mask = bucket_mask(rows)
    plan = deal(parallelism(spark), _cuts(pair), limit, use)
    tasks = min(_BUCKET_TASKS, plan.tasks)
    text = query("compare", "bucket_sums")
    work = plan_both(pair, text, tasks, connections=plan.connections, mask=mask)
    sides: tuple[dict[int | None, Sums], dict[int | None, Sums]] = ({}, {})
    do, what = side_by_side(_bucket_sums), f"Counting {pair.dest}"
    for both in collect(spark, work, do, what, plan.lanes):
        for side, found in both:
            buckets = sides[side]
            for number, *values in found:
                buckets[number] = buckets.get(number, Sums()) + Sums(*values)
    return Buckets.from_sums(mask, *sides)


def rounded(pair: Pair) -> list[str]:
    """Read columns of which the target's type cannot hold all values, as of the pair's moment.

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
    """Return the mask that numbers buckets, which are counted in powers of two; small tables have
    one."""
    if rows < _SMALL:
        return 0
    return min(_MAX_BUCKETS, 1 << (rows // _BUCKET_ROWS).bit_length()) - 1


def _bucket_sums(work: Work) -> tuple[int, list[tuple[int | None, ...]]]:
    """Read the sums of a task's slices; they are added up here as they come, so that each bucket
    travels once."""
    totals, *others = ask_each(work, _add_up)
    for more in others:
        for number, values in more.items():
            _add(totals, number, values)
    return work.side, [(number, *values) for number, values in totals.items()]


#: Of each bucket the numbers of `Sums`; those of rows left out have no bucket, and no sums.
_Totals = dict[int | None, list[int | None]]


def _add_up(db: Database, texts: Iterator[str]) -> _Totals:
    totals: _Totals = {}
    for text in texts:
        for number, *values in db.query(text):
            _add(totals, number, values)
    return totals


def _add(totals: _Totals, number: int | None, values: list[int | None]) -> None:
    before = totals.get(number)
    totals[number] = (
        values if before is None else [plus(a, b) for a, b in zip(before, values, strict=True)]
    )


def custom_checksum(
    spark: SparkSession, pair: Pair, source_sql: str, target_sql: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the one row that an operator's own statement gives on each side."""
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


# -- from 'not equal' to the rows -----------------------------------------------------------------

# 1. Sums by bucket on both sides (`bucket_sums`) say which buckets differ.
# 2. Key and hash of every row in those buckets; Spark keeps what has no twin on the other side.
# 3. For the keys that are shown: the rows of both sides, compared column by column.
#
# Only step 3 touches values, and only as many as the operator asked to see.

#: Keys of one lookup statement.
_LOOKUP = 500

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not as it should be; `key` has a text for each key column."""

    kind: str
    key: dict[str, str | None]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Differences:
    """How many rows differ and how, and the first of them."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    rows: tuple[Difference, ...] = field(default=())

    @property
    def total(self) -> int:
        """All of them."""
        return self.missing + self.extra + self.different


def differing_keys(
    spark: SparkSession, pair: Pair, buckets: Buckets, *, limit: int = 8
) -> DataFrame:
    """Return keys that differ, as a DataFrame (key, kind); `buckets` are those of the same moment.

    Works at the pair's snapshots: use it while they are open.
    """
    from pyspark.sql import functions as f

    chosen = buckets.bad if buckets.worth_choosing else None
    work = plan_work(
        pair,
        query("compare", "key_hashes"),
        tasks_a_side(spark, limit),
        mask=buckets.mask,
        buckets=chosen,
    )
    # All of a key comes to one place at once, and both steps below work there.
    hashes = stream(spark, work, ("key", "h0", "h1")).repartition("key")
    # A version of a row that both sides have equally often is no difference; what is left says by
    # its own side what is wrong with the key. Counting makes this right for repeated rows too.
    balance = f.sum(f.when(f.col("side") == SOURCE, 1).otherwise(-1))
    left = hashes.groupBy("key", "h0", "h1").agg(balance.alias("n")).where("n <> 0")
    kinds = left.groupBy("key").agg(
        f.max((f.col("n") > 0).cast("int")).alias("here"),
        f.max((f.col("n") < 0).cast("int")).alias("there"),
    )
    kind = (
        f.when((f.col("here") == 1) & (f.col("there") == 1), DIFFERENT)
        .when(f.col("here") == 1, MISSING)
        .otherwise(EXTRA)
    )
    return kinds.select("key", kind.alias("kind"))


def describe(
    spark: SparkSession, pair: Pair, keys: DataFrame, *, shown: int = 100, keep: bool = False
) -> Differences:
    """Count the keys by kind and look at the first `shown` of them, in order of their text.

    With `keep` the caller has persisted the keys and goes on using them.
    """
    kept = keys if keep else keys.persist()
    try:
        with job(spark, f"Rows of {pair.dest}"):
            counts = {r["kind"]: int(r["count"]) for r in kept.groupBy("kind").count().collect()}
            first = [(r.key, r.kind) for r in kept.orderBy("key").limit(shown).collect()]
    finally:
        if not keep:
            kept.unpersist()
    rows = [Difference(kind, _named(pair, key)) for key, kind in first]
    changed = [key for key, kind in first if kind == DIFFERENT]
    if changed and pair.keyed:
        columns = _differing_columns(spark, pair, changed)
        rows = [
            replace(row, columns=tuple(columns.get(key, ())))
            for row, (key, _) in zip(rows, first, strict=True)
        ]
    return Differences(
        counts.get(MISSING, 0), counts.get(EXTRA, 0), counts.get(DIFFERENT, 0), tuple(rows)
    )


def _named(pair: Pair, key: str) -> dict[str, str | None]:
    return dict(zip(pair.key_names, json.loads(key), strict=True))


def _differing_columns(
    spark: SparkSession, pair: Pair, keys: Sequence[str]
) -> dict[str, list[str]]:
    def look(chunk: list[str]) -> dict[str, list[str]]:
        here = _fetch(pair.source, chunk)
        there = _fetch(pair.target, chunk)
        return {
            key: [
                name
                for name, left, right in zip(pair.column_names, here[key], there[key], strict=True)
                if left != right
            ]
            for key in chunk
            if key in here and key in there
        }

    chunks = [list(keys[i : i + _LOOKUP]) for i in range(0, len(keys), _LOOKUP)]
    result: dict[str, list[str]] = {}
    for found in collect(spark, chunks, look, f"Columns of {pair.dest}"):
        result.update(found)
    return result


def _fetch(side: Side, keys: list[str]) -> dict[str, list[str | None]]:
    with moment(side.connstr, side.begin()) as db:
        return fetch_rows(db, side, keys)


def fetch_rows(db: Database, side: Side, keys: Sequence[str]) -> dict[str, list[str | None]]:
    """Read rows with these keys as texts of their columns, exactly as the row hash sees them."""
    decoded = [json.loads(key) for key in keys]
    # A row of one column prints a value as the type itself does; a cast to text would drop the
    # blanks of char(n).
    cells = ", ".join(f"cast(row({c}) as text)" for c in side.columns)
    text = query("compare", "rows_by_key").format(
        key=side.key_json(),
        columns=cells,
        table=f"{side.only} {side.table}",
        marks="\x00",
        names=", ".join(f"k{i + 1}" for i in range(len(side.key))),
        match=side.match(),
        condition=side.condition,
    )
    marks = ", ".join(["pg_catalog.unnest(%s::text[])"] * len(side.key))
    text = text.replace("%", "%%").replace("\x00", marks)
    params: list[Any] = [[key[i] for key in decoded] for i in range(len(side.key))]
    return {row.key: list(row.cells) for row in db.query(text, params)}


__all__ = [
    "DIFFERENT",
    "EXTRA",
    "MISSING",
    "TARGET",
    "Difference",
    "Differences",
    "describe",
    "differing_keys",
    "fetch_rows",
]


# -- all questions as one thing -------------------------------------------------------------------

#: About as many rows are in a page of 8 kB; only to choose a number of buckets.
_PAGE_ROWS = 80


class Comparer(Protocol):
    """Questions about a pair at its snapshots, while these are open."""

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """Read the rows and sums of both sides; with `count_only` just rows."""
        ...

    def buckets(self, pair: Pair) -> Buckets:
        """Read sums from which a difference can be narrowed."""
        ...

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        """Read what an operator's own statement says on each side."""
        ...

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        """Read how many rows differ, and the first of them."""
        ...

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        """Open the pair with what a handler makes of the provider's rows as its source."""
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
    """Return a guess at the number of rows, from pages."""
    sides = (pair.source, pair.target)
    return max(sum((p.pages or 0) for p in side.pieces) * _PAGE_ROWS for side in sides)
