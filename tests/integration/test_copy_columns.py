"""The first copy of tables with column lists and conditions, while writers write."""

from __future__ import annotations

import threading

import pytest

from tests.integration.test_copy import lab  # noqa: F401
from tests.labs.first_copy import Lab
from vedur import db as vdb
from vedur.change.attrs import encode_attrs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.draw("copies")
def test_some_columns_under_other_names_among_writers(lab: Lab) -> None:  # noqa: F811
    lab.root.execute("create table t (secret text, id int primary key, a text, n int, w text)")
    lab.leaf.execute(
        "create schema other; create table other.t1"
        " (label text, secret text default 'mine', key int primary key, n int)"
    )
    lab.root.execute(
        "insert into t select 's', g, 'x' || g, g % 10, repeat('w', 50)"
        " from generate_series(1, 5000) g"
    )
    attrs = encode_attrs(
        {"columns": "id=key,a=label,n", "copy_condition": "t1.n < 5 and label like 'x%'"}
    )
    done = threading.Event()

    def write() -> None:
        with vdb.connect(lab.root.connstr, autocommit=True) as db:
            while not done.wait(0.005):
                db.execute(
                    "update t set n = (random() * 9)::int, secret = 'new'"
                    " where id = (select 1 + (random() * 4000)::int)"
                )

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        lab.add("public.t", dest="other.t1", attrs=attrs)
        lab.start()
        lab.wait_ok()
    finally:
        done.set()
        thread.join(120)
    lab.settle()
    want = "select a, 'mine'::text, id, n from t where n < 5 and a like 'x%' order by id"
    assert lab.leaf.query("select * from other.t1 order by key") == lab.root.query(want)
    assert lab.leaf.value("select count(*) from other.t1") > 1000
    assert lab.debris() == []


def test_a_column_that_went_away_is_named(lab: Lab) -> None:  # noqa: F811
    lab.root.execute("create table t (id int primary key, a text)")
    lab.leaf.execute("create table t (id int primary key)")
    lab.add("public.t", attrs=encode_attrs({"columns": "id,a=b"}))
    lab.start()
    text = "select error from vedur.copy_progress"
    lab.wait_until(
        lambda: "the column list names b, which the subscriber" in str(lab.leaf.query(text))
    )
    lab.leaf.execute("alter table t add b text")
    lab.root.execute("insert into t values (1, 'one')")
    lab.wait_ok()
    lab.settle()
    assert [tuple(r) for r in lab.leaf.query("select * from t")] == [(1, "one")]
