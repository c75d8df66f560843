"""From "not equal" to the rows: buckets of the key's hash, then keys, then columns.

1. Sums by bucket on both sides (`bucket_sums`) say which buckets differ.
2. Key and hash of every row in those buckets; Spark keeps what has no twin on the other side.
3. For the keys that are shown: the rows of both sides, compared column by column.

Only step 3 touches values, and only as many as the operator asked to see.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vedur.db import Database
from vedur.pipeline.compare.jobs import (
    SOURCE,
    TARGET,
    collect,
    job,
    moment,
    plan_work,
    stream,
    tasks_a_side,
)
from vedur.pipeline.compare.model import Buckets, Pair, Side
from vedur.sql import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """Keys that differ, as a DataFrame (key, kind); `buckets` are those of the same moment.

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
    """Rows with these keys as texts of their columns, exactly as the row hash sees them."""
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
