"""What the target should hold of a table whose handler changes rows, as a table of the target.

Servers hash their rows themselves, and none of them has the handler. So tasks read the provider's
rows at the moment's snapshot, give them to the handler, as a first copy does, and write them into
an unlogged table of the target with the columns of the target's own. From there on both sides are
tables of one server, and everything else goes as for other tables. Clear values pass through a task
and are written nowhere.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from vedur.db import Database, connect
from vedur.errors import StateError
from vedur.names import quote_ident
from vedur.pipeline.compare.jobs import collect, moment, tasks_a_side
from vedur.pipeline.compare.model import Expected, Pair, Side
from vedur.pipeline.compare.plan import make_side, slices
from vedur.pipeline.copy.handed import HandedRows
from vedur.pipeline.copy.plan import columns_to_make
from vedur.sql import query
from vedur.tables.filter import written
from vedur.tables.mapping import TableMap
from vedur.tables.match import read_columns, read_keys
from vedur.tables.stages import held_stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_expected_pair(
    source_db: Database,
    target_db: Database,
    table: TableMap,
    *,
    shared: bool = False,
    where: str | None = None,
) -> Pair:
    """Read both catalogs and say what to compare, as `make_pair` does; the source is a table that
    `stage_expected` makes."""
    assert table.rows is not None
    left = read_columns(source_db, table.source_name)
    right = read_columns(target_db, table.local_name)
    for columns, name, side in (
        (left, table.source_name, "provider"),
        (right, table.local_name, "target"),
    ):
        if not columns:
            raise StateError(f'table "{name}" does not exist on the {side}: nothing to compare')
    matched, made = columns_to_make(table.name, left, right, table.columns, table.rows)
    names = matched.dest_columns
    keys = [key for key in read_keys(target_db, table.local_name) if set(key) <= set(names)]
    key = keys[0] if keys else names
    condition = written(table.condition, table.source_columns, "t")
    provider = make_side(source_db, table.source_name, condition, None, ())
    mine = table.own("t") if shared else None
    target = make_side(target_db, table.local_name, mine, written(where, alias="t"), _plain(names))
    types = {column.name: column.type for column in right}
    target = replace(
        target, key=_plain(key), key_names=key, key_types=tuple(types[name] for name in key)
    )
    stage = f"vedur_work.expected_{zlib.crc32(table.dest.encode()):08x}"
    source = replace(
        target, name=provider.name, table=stage, pieces=(), condition="true", partitioned=False
    )
    return Pair(
        table.name,
        table.dest,
        names,
        key,
        source,
        target,
        bool(keys),
        names,
        matched.only_source,
        True,
        expected=Expected(
            provider,
            table.rows,
            matched.columns,
            made,
            next(iter(read_keys(source_db, table.source_name)), ()),
        ),
    )


def _plain(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"t.{quote_ident(name)}" for name in names)


@contextmanager
def stage_expected(spark: SparkSession, pair: Pair, *, limit: int) -> Iterator[Pair]:
    """Write what the target should hold, and yield the pair with that as its source; removes it at
    the end. A pair whose rows no handler changes is yielded as it is.

    Works at the pair's snapshots: use it while they are open.
    """
    expected = pair.expected
    if expected is None:
        yield pair
        return
    with connect(pair.target.connstr, name="expected", autocommit=True) as db:
        db.without_timeouts()
        stage = pair.source.table
        if not db.value(query("compare", "expected_lock"), [stage]):
            raise StateError(
                f'another comparison or repair of "{pair.dest}" is running, which has a handler '
                "that changes rows: wait for it to end"
            )
        words = {
            "stage": stage,
            "columns": ", ".join(f"t.{quote_ident(name)}" for name in pair.column_names),
            "dest": pair.target.table,
            "key": ", ".join(quote_ident(name) for name in pair.key_names),
            "number": _number(pair),
        }
        with held_stage(db, stage):
            db.execute(query("filter", "drop_stage").format(**words))
            db.execute(query("compare", "expected_stage").format(**words))
            try:
                attempts = _write(spark, pair, expected, stage, limit)
                if pair.keyed:
                    db.execute(query("compare", "expected_key").format(**words))
                db.execute(query("filter", "analyze").format(**words))
                yield _at(db, pair, attempts)
                db.execute("commit")
            finally:
                if not db.closed:
                    db.execute("rollback")
                    db.execute(query("filter", "drop_stage").format(**words))


def _number(pair: Pair) -> str:
    """Return the column of the stage that has the number of an attempt: none of the table's own
    names."""
    name = "attempt"
    while name in pair.column_names:
        name += "_"
    return name


def _at(db: Database, pair: Pair, attempts: list[int]) -> Pair:
    """Begin a transaction and export its snapshot; returns the pair with a source that shows what
    is staged now, while this session lives."""
    db.execute("begin isolation level repeatable read, read only")
    snapshot = str(db.one(query("compare", "export")).name)
    counted = ", ".join(map(str, attempts)) or "null"
    stored = make_side(db, None, f"t.{_number(pair)} in ({counted})", None, (), pair.source.table)
    source = replace(
        pair.source, pieces=stored.pieces, condition=stored.condition, snapshot=snapshot
    )
    return replace(pair, source=source)


def _write(
    spark: SparkSession, pair: Pair, expected: Expected, stage: str, limit: int
) -> list[int]:
    """Give the provider's rows to the handler and write them; returns the attempts that count."""
    provider = expected.provider
    columns = ", ".join(f"t.{quote_ident(name)}" for name in expected.columns)
    texts = [
        query("compare", "expected_out").format(
            columns=columns, table=piece.name, condition=f"{provider.selected} and {pages}"
        )
        for piece, pages in slices(provider)
    ]
    listed = ", ".join(quote_ident(name) for name in pair.column_names)
    into = query("compare", "expected_in").format(stage=stage, columns=listed, number=_number(pair))
    tasks = max(1, min(len(texts), tasks_a_side(spark, limit)))

    def pass_on(part: list[str]) -> int:
        return _pass_on(provider, pair.target.connstr, expected, part, into)

    work = [texts[at::tasks] for at in range(tasks)]
    return collect(spark, work, pass_on, f"Rows that {pair.dest} should have")


def _pass_on(provider: Side, connstr: str, expected: Expected, texts: list[str], into: str) -> int:
    attempt = secrets.randbits(62)
    with connect(connstr, name="expected", application_name="vedur compare") as target:
        target.execute(query("compare", "pin_values"))
        for text in texts:
            handed = HandedRows(
                expected.rows,
                expected.columns,
                expected.made,
                prefix=f"{attempt}\t",
                key=expected.key,
            )
            with moment(provider.connstr, provider.begin()) as source:
                handed.pass_on(source, text, target, into, keep=True)
        target.commit()
    return attempt
