"""Keys that looked different, then the provider's rows of these keys, in tables of the target.

Both are written by Spark tasks. A task that runs twice leaves rows twice: every statement that
reads the stage takes a key once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vedur.change.formats import line
from vedur.db import Database, connect
from vedur.names import quote_ident
from vedur.pipeline.compare.jobs import collect, job, moment
from vedur.pipeline.compare.model import Pair
from vedur.sql import query
from vedur.tables.stages import held_stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Keys of one lookup; the provider finds them through its index.
_LOOKUP = 1000
#: The stage is read by ranges of the key's hash, so that tasks need not know each other.
_HASHES = 1 << 31


@dataclass(frozen=True)
class Stage:
    """The staging tables of one repair; both names are quoted."""

    keys: str
    rows: str


@contextmanager
def open_stage(db: Database, pair: Pair, columns: tuple[str, ...]) -> Iterator[Stage]:
    """Make the stage of a table and remove it at the end, also what a dead repair left.

    `columns` are those of the target that a repair writes; staged as c1, c2, ...
    """
    mark = f"{zlib.crc32(pair.dest.encode()):08x}"
    stage = Stage(f"vedur_work.repair_keys_{mark}", f"vedur_work.repair_rows_{mark}")
    listed = ", ".join(f"t.{quote_ident(c)} as c{i}" for i, c in enumerate(columns, 1))
    rows = query("compare", "stage_rows").format(
        stage=stage.rows, columns=listed, dest=pair.target.table
    )
    with held_stage(db, stage.keys, stage.rows):
        _drop(db, stage)
        db.execute(query("compare", "stage_keys").format(stage=stage.keys))
        db.execute(rows)
        try:
            yield stage
        finally:
            if not db.closed:
                _drop(db, stage)


def _drop(db: Database, stage: Stage) -> None:
    for name in (stage.keys, stage.rows):
        db.execute(query("compare", "stage_drop").format(stage=name))


def stage_keys(spark: SparkSession, keys: DataFrame, target: str, stage: Stage) -> int:
    """Write the keys of a DataFrame (key, kind) to the target; how many there are."""
    text = query("compare", "stage_copy_keys").format(stage=stage.keys)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        db: Database | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if db is None:
                    db = connect(target, name="repair", application_name="vedur repair")
                block = "".join(line([key]) for key in batch.column(0).to_pylist())
                with db.copy_in(text) as copy:
                    copy.write(block.encode())
                count += batch.num_rows
            if db is not None:
                db.commit()
        finally:
            if db is not None:
                db.close()
        yield pa.RecordBatch.from_pydict({"n": [count]}, schema=pa.schema([("n", pa.int64())]))

    with job(spark, "Repair: keys"):
        counted = keys.select("key").mapInArrow(run, "n bigint").collect()
    return sum(int(row.n) for row in counted)


def stage_rows(
    spark: SparkSession, pair: Pair, columns: tuple[str, ...], stage: Stage, *, tasks: int
) -> int:
    """Fetch the provider's rows of all staged keys, as of the pair's moment."""
    borders = [_HASHES * i // tasks for i in range(tasks + 1)]
    source = pair.source
    read = query("compare", "read_rows").format(
        columns=", ".join(f"t.{quote_ident(c)}" for c in columns),
        table=f"{source.only} {source.table}",
        marks="\x00",
        names=", ".join(f"k{i + 1}" for i in range(len(source.key))),
        match=source.match(),
        condition=source.condition,
    )
    marks = ", ".join(["pg_catalog.unnest(%s::text[])"] * len(source.key))
    read = read.replace("%", "%%").replace("\x00", marks)

    def fetch(border: tuple[int, int]) -> int:
        return _fetch(pair, stage, read, *border)

    ranges = list(pairwise(borders))
    return sum(collect(spark, ranges, fetch, f"Repair: rows of {pair.dest}"))


def _fetch(pair: Pair, stage: Stage, read: str, low: int, high: int) -> int:
    wanted = query("compare", "stage_read_keys").format(stage=stage.keys, low=low, high=high)
    into = query("compare", "stage_copy_rows").format(stage=stage.rows)
    total = 0
    with connect(pair.target.connstr, name="repair", application_name="vedur repair") as target:
        target.execute(query("compare", "pin_values"))
        keys = [json.loads(row.key) for row in target.query(wanted)]
        if not keys:
            return 0
        with moment(pair.source.connstr, pair.source.begin()) as source:
            for at in range(0, len(keys), _LOOKUP):
                total += _pass_on(source, target, read, into, keys[at : at + _LOOKUP])
        target.commit()
    return total


def _pass_on(
    source: Database, target: Database, read: str, into: str, keys: list[list[Any]]
) -> int:
    params = [[key[i] for key in keys] for i in range(len(keys[0]))]
    rows = 0
    with source.copy_out(read, params) as out, target.copy_in(into) as copy:
        for block in out:
            copy.write(bytes(block))
            rows += 1
    return rows
