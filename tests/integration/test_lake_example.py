"""examples/lake/feed.py keeps a Parquet table equal to its source, whatever goes wrong between."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.fixtures.pg import TestServer
from vedur import db as vdb

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "lake" / "feed.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lake_feed", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def db(newest: TestServer, make_db_on: Callable[..., vdb.Database]) -> vdb.Database:
    found = make_db_on(newest, autocommit=True)
    found.call("pgq.create_queue", "shop")
    found.execute("update pgq.queue set queue_ticker_max_count = 1, queue_rotation_period = '0'")
    found.execute(
        'create table orders (id int, "part no" int, note text, price numeric(9,2), at timestamptz,'
        ' primary key (id, "part no"))'
    )
    found.execute(
        "create trigger c after insert or update or delete on orders"
        " for each row execute function pgq.jsontriga('shop')"
    )
    found.execute(
        "create trigger t after truncate on orders"
        " for each statement execute function pgq.jsontriga('shop')"
    )
    return found


@pytest.mark.draw("programs")
def test_the_lake_follows(
    spark: Any, db: vdb.Database, example: ModuleType, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    words = f"--queue shop --table orders --key id --lake {lake}".split()
    args = example.arguments([*words, f"--url={db.connstr}", "--key=part no"])

    def ticked(*statements: str) -> None:
        for statement in statements:
            db.execute(statement)
            db.query("select pgq.ticker('shop')")

    def run() -> None:
        query = example.feed(spark, args)
        assert query.awaitTermination(240)

    def both() -> tuple[list[Any], list[Any]]:
        frame = spark.read.parquet(str(next(lake.glob(f"tick-*{table.tick}"))))
        shown = frame.selectExpr(
            "id", "`part no`", "note", "cast(price as string)", "unix_micros(at)"
        )
        want = db.query(
            'select id, "part no", note, price::text, (extract(epoch from at) * 1000000)::int8'
            " from orders order by 1, 2"
        )
        return sorted(tuple(r) for r in shown.collect()), [tuple(r) for r in want]

    table = example.LakeTable(spark, lake)
    assert table.read() is None
    ticked(
        "insert into orders select g, 1, 'n' || g, g, '2024-01-01Z' from generate_series(1, 20) g",
        "update orders set note = null, price = 0.01 where id between 5 and 8",
        "delete from orders where id > 15",
        "update orders set id = 100 where id = 1",
    )
    run()
    got, want = both()
    assert got == want and len(got) == 15

    # The checkpoint is lost: the consumer and the tick of the table know what is done.
    shutil.rmtree(lake / "checkpoint")
    ticked(
        "insert into orders values (500, 2, 'é ☃', null, null), (500, 3, '', 1, 'epoch')",
        'delete from orders where id = 500 and "part no" = 3',
        "insert into orders values (500, 3, 'again', 2, now())",
    )
    run()
    got, want = both()
    assert got == want and len(got) == 17

    ticked("update orders set note = 'x'", "truncate orders", "insert into orders values (1, 1)")
    run()
    got, want = both()
    assert got == want == [(1, 1, None, None, None)]
    assert len(list(lake.glob("tick-*"))) == 2
