"""Runs statements of a comparison as Spark tasks, one connection for each, at the side's moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import vedur.errors
from vedur.db import Database, connect
from vedur.errors import VedurError
from vedur.pipeline.compare.model import Pair, Side
from vedur.pipeline.compare.plan import slices
from vedur.pipeline.compare.progress import progress
from vedur.sql import query

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

SOURCE, TARGET = 0, 1


@dataclass(frozen=True)
class Work:
    """Statements of one task, all on one side."""

    side: int
    begin: str
    statements: tuple[str, ...]
    connstr: str = field(repr=False)


@contextmanager
def moment(connstr: str, begin: str) -> Iterator[Database]:
    """A connection inside a transaction at an exported snapshot; closed at the end."""
    db = connect(connstr, name="compare", autocommit=True, application_name="vedur compare")
    try:
        db.execute(query("compare", "pin"))
        db.execute(begin)
        yield db
    finally:
        db.close()


def plan_work(pair: Pair, template: str, limit: int, **extra: str) -> list[Work]:
    """One statement for each slice of both sides, dealt out to at most `limit` tasks a side.

    Tasks of both sides alternate, so that both servers work from the first moment on.
    """
    sides = []
    for number, side in ((SOURCE, pair.source), (TARGET, pair.target)):
        bucket = {"bucket": extra_bucket(side, extra["mask"])} if "mask" in extra else {}
        texts = [
            template.format(**_filled(side, piece_args, extra, bucket))
            for piece_args in (side.slice_args(piece, pages) for piece, pages in slices(side))
        ]
        tasks = min(limit, len(texts))
        sides.append(
            [Work(number, side.begin(), tuple(texts[i::tasks]), side.connstr) for i in range(tasks)]
        )
    return [w for both in zip_longest(*sides) for w in both if w is not None]


def _filled(
    side: Side, args: dict[str, object], extra: dict[str, str], bucket: dict[str, str]
) -> dict[str, object]:
    filled = {**args, **bucket, "key": side.key_json()}
    chosen = extra.get("buckets")
    if chosen is not None:
        filled["condition"] = (
            f"{args['condition']} and {bucket['bucket']} = any ('{{{chosen}}}'::bigint[])"
        )
    return filled


def extra_bucket(side: Side, mask: str) -> str:
    """The bucket of a row as an expression."""
    return query("compare", "bucket").format(text=side.text_of(side.key), mask=mask)


def collect(spark: SparkSession, work: Sequence[T], do: Callable[[T], Any], what: str) -> list[Any]:
    """`do` for each piece of work in a task of its own; small answers only, in order.

    Errors of ours cross from the task as values and are raised here as what they were.
    """
    if not work:
        return []
    items = list(work)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = _attempt(do, items[number], number)
                yield pa.RecordBatch.from_pydict({"answer": [answer]})

    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(run, "answer string")
    with progress(spark, what):
        answers = [json.loads(row.answer) for row in frame.collect()]
    for said in answers:
        if "error" in said:
            cls = getattr(vedur.errors, said["error"], VedurError)
            raise cls(said["message"], **said["values"])
    return [said["value"] for said in sorted(answers, key=lambda a: int(a["number"]))]


def _attempt(do: Callable[[T], Any], item: T, number: int) -> str:
    try:
        answer = {"number": number, "value": do(item)}
    except VedurError as error:
        values = {k: v for k, v in error.values.items() if isinstance(v, str | int | None)}
        name = type(error).__name__
        answer = {"number": number, "error": name, "message": error.message, "values": values}
    return json.dumps(answer, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return str(value)


def stream(
    spark: SparkSession, work: Sequence[Work], schema: str, block: int = 20_000
) -> DataFrame:
    """Rows of all statements as a DataFrame; column `side` comes first, then the query's."""
    items = list(work)
    names = [part.split()[0] for part in schema.split(",")]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(items[number], names, block)

    return spark.range(0, len(items), 1, max(1, len(items))).mapInArrow(run, schema)


def _read(work: Work, names: list[str], block: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    types = {"side": pa.int32(), "key": pa.string()}
    with moment(work.connstr, work.begin) as db:
        for text in work.statements:
            rows: list[tuple[Any, ...]] = []
            for row in db.stream(text, size=block):
                rows.append((work.side, *row))
                if len(rows) == block:
                    yield _batch(rows, names, types)
                    rows.clear()
            if rows:
                yield _batch(rows, names, types)


def _batch(rows: list[tuple[Any, ...]], names: list[str], types: dict[str, Any]) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [
        pa.array(list(values), type=types.get(name, pa.int64()))
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)
