"""First copy end to end: two servers, Spark, a running worker; contents compared in full."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.copy_lab import Lab
from vedur import db as vdb

pytestmark = [pytest.mark.spark]


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    yield made
    made.close()


def both(lab: Lab, ddl: str) -> None:
    """Run a script on both sides."""
    lab.root.execute(ddl)
    lab.leaf.execute(ddl)


def test_a_table_in_many_slices_is_copied_under_concurrent_writes(lab: Lab) -> None:
    both(lab, "create table t (id int primary key, a text, n numeric, at timestamptz)")
    lab.root.execute(
        "insert into t select g, repeat('x', 40) || g, g / 7.0, now() from "
        "generate_series(1, 60000) g"
    )
    lab.add("public.t")
    stop = threading.Event()

    def write() -> None:
        with vdb.connect(lab.root.connstr, autocommit=True) as db:
            n = 100000
            while not stop.wait(0.002):
                n += 1
                db.execute("insert into t values (%s, 'new', 1, now())", [n])
                db.execute("update t set a = a || '+', n = n + 1 where id = %s", [n % 60000])
                db.execute("delete from t where id = %s", [(n * 7) % 60000])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        lab.start()
        lab.wait_ok()
    finally:
        stop.set()
        writer.join()
    lab.settle()
    lab.same("t")
    assert lab.root.value("select count(*) from t") > 50000
    progress = lab.leaf.one("select * from vedur.copy_progress where table_name = 'public.t'")
    assert progress.slices > 3
    assert progress.slices_done == progress.slices
    assert progress.step == 10
    assert lab.debris() == []
