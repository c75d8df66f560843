"""What a table should hold is staged beside it: by the handler, at the snapshot, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.fixtures.pg import TestServer
from tests.labs.handlers import use_handlers
from vedur import db as vdb
from vedur.db.install import install
from vedur.errors import StateError
from vedur.handlers.testing import make_function
from vedur.handlers.transform import Transform
from vedur.pipeline.compare import expected
from vedur.pipeline.compare.jobs import moment
from vedur.tables.mapping import TableMap

__all__ = ["use_handlers"]

DDL = "create table t (id int primary key, v text, attempt int)"
STAGES = "select relname from pg_class where relname like 'expected\\_%%'"


def test_rows_are_staged_as_the_handler_leaves_them(
    newest: TestServer, make_db_on: Callable[..., vdb.Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(_spark: object, work: Sequence[Any], do: Callable[[Any], Any], _what: str) -> Any:
        return [do(item) for item in work]

    monkeypatch.setattr(expected, "collect", here)
    monkeypatch.setattr(expected, "tasks_a_side", lambda _spark, _limit: 2)
    root, leaf = (make_db_on(newest, autocommit=True) for _ in range(2))
    for db in (root, leaf):
        install(db)
    root.execute(f"{DDL}; insert into t values (1, 'a', 7), (2, 'secret', 8), (3, null, 9)")
    leaf.execute("create table t (id int primary key, v varchar(9), attempt int, size int)")
    function = make_function(Transform, "public.t", {"function": "tests.labs.transforms:shout"})
    table = TableMap("public.t", "public.t", rows=function)
    pair = expected.make_expected_pair(root, leaf, table)
    assert pair.keyed and pair.key_names == ("id",)
    with vdb.connect(root.connstr) as holder, vdb.connect(leaf.connstr) as other:
        names = []
        for db in (holder, other):
            db.execute("set transaction isolation level repeatable read")
            names.append(db.value("select pg_export_snapshot()"))
        root.execute("insert into t values (4, 'later', 0)")
        at = pair.at(*names, "vedur compare")
        with expected.stage_expected(None, at, limit=2) as staged:  # type: ignore[arg-type]
            side = staged.source
            with moment(side.connstr, side.begin()) as db:
                columns = ", ".join(side.columns)
                text = f"select row({columns})::text from {side.table} t where {side.selected}"
                rows = sorted(row[0] for row in db.query(text))
            assert rows == ["(1,7,A,1)", "(3,9,,)"]
            with (
                pytest.raises(StateError, match="another comparison or repair"),
                expected.stage_expected(None, at, limit=2),  # type: ignore[arg-type]
            ):
                pass
        assert leaf.query(STAGES) == []
        with (
            pytest.raises(ZeroDivisionError),
            expected.stage_expected(None, at, limit=2),  # type: ignore[arg-type]
        ):
            raise ZeroDivisionError
        assert leaf.query(STAGES) == []
