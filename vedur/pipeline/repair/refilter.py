"""The rows of a table that come in when its condition changes: staged by tasks, then switched.

Tasks read slices of the provider's table at the moment's snapshot and pass the rows on to an
unlogged table of the target. Each attempt of a task writes under a number of its own in one
transaction; a number that the driver never hears of is never used.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedur.db import Database, connect
from vedur.db.copy import pump
from vedur.names import quote_ident
from vedur.pipeline.compare.jobs import collect, moment, tasks_a_side
from vedur.pipeline.compare.model import Pair
from vedur.pipeline.compare.plan import slices
from vedur.pipeline.repair import RepairTable
from vedur.sql import query
from vedur.tables.stages import held_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Entering:
    """What is staged: rows, and the attempts that count."""

    rows: int
    attempts: tuple[int, ...]


@contextmanager
def open_stage(db: Database, pair: Pair, table: RepairTable) -> Iterator[str]:
    """Make the stage of a table and remove it at the end; its name, quoted."""
    stage = f"vedur_work.filter_rows_{zlib.crc32(pair.dest.encode()):08x}"
    columns = ", ".join(f"t.{quote_ident(c)} as c{i}" for i, c in enumerate(table.target_columns))
    words = {"stage": stage, "columns": columns, "dest": pair.target.table}
    with held_stage(db, stage):
        db.execute(query("filter", "drop_stage").format(**words))
        db.execute(query("filter", "stage").format(**words))
        try:
            yield stage
        finally:
            if not db.closed:
                db.execute(query("filter", "drop_stage").format(**words))


def stage_entering(
    spark: SparkSession, pair: Pair, table: RepairTable, stage: str, *, limit: int
) -> Entering:
    """Bring the rows that the pair's source selects to the stage."""
    columns = ", ".join(f"t.{quote_ident(c)}" for c in table.source_columns)
    texts = [
        query("filter", "copy_out").format(
            attempt="\x00",
            columns=columns,
            table=piece.name,
            condition=f"{pair.source.selected} and {pages}",
        )
        for piece, pages in slices(pair.source)
    ]
    tasks = min(len(texts), tasks_a_side(spark, limit))
    into = query("filter", "copy_in").format(stage=stage)

    def fetch(part: list[str]) -> tuple[int, int]:
        return _fetch(pair, part, into)

    work = [texts[i::tasks] for i in range(tasks)]
    done = collect(spark, work, fetch, f"Filter: rows of {pair.dest}")
    return Entering(sum(rows for _, rows in done), tuple(attempt for attempt, _ in done))


def _fetch(pair: Pair, texts: list[str], into: str) -> tuple[int, int]:
    attempt = secrets.randbits(62)
    rows = 0
    name = "vedur change-filter"
    with connect(pair.target.connstr, name="filter", application_name=name) as target:
        target.execute(query("compare", "pin"))
        for text in texts:
            # a pump uses its source up
            with moment(pair.source.connstr, pair.source.begin()) as source:
                rows += pump(source, text.replace("\x00", str(attempt)), target, into).rows
        target.commit()
    return attempt, rows


@dataclass(frozen=True)
class Switched:
    """Rows that went, that came, and that were there although they should not have been."""

    deleted: int
    inserted: int
    replaced: int


def switch(
    db: Database, pair: Pair, table: RepairTable, stage: str, entering: Entering
) -> Switched:
    """Delete what the pair's target selects, insert what is staged; in the caller's transaction,
    whose role is replica."""
    quoted = [quote_ident(c) for c in table.target_columns]
    words = {
        "dest": pair.target.table,
        "only": pair.target.only,
        "stage": stage,
        "attempts": ", ".join(map(str, entering.attempts)) or "null",
        "condition": pair.target.selected,
        "columns": ", ".join(quoted),
        "values": ", ".join(f"r.c{i}" for i in range(len(quoted))),
        "match": " and ".join(f"t.{quoted[i]} = r.c{i}" for i in table.key),
    }
    done = [
        db.execute(query("filter", step).format(**words)) for step in ("leave", "replace", "enter")
    ]
    return Switched(done[0], done[2], done[1])
