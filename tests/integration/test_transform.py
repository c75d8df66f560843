"""A function of the operator's over rows: the same in copies and in changes, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.labs.first_copy import Lab
from tests.labs.handlers import set_handler
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, content
from vedur.db import Database, connect
from vedur.errors import StateError, UsageError
from vedur.ops.add_table import AddTable, add_table
from vedur.status.snapshot import read_node

__all__ = ["quick_leaf", "without_spark"]

DDL = "create table t (id int primary key, v text, private text)"
HERE = "create table t (id int primary key, v text, size int, note text default 'none')"
SHOUT = "tests.labs.transforms:shout"


def expected(root: Database) -> list[str]:
    rows = root.query("""
        select row(id, upper(v), length(v), 'none')::text from t
        where v is distinct from 'secret' order by 1""")
    return [row[0] for row in rows]


def test_it_holds_in_copies_and_changes(quick_lab: Lab) -> None:
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(HERE)
    lab.root.execute("""
        insert into t select n, case when n % 7 = 0 then 'secret' when n % 5 > 0 then 'v' || n end,
        'private' from generate_series(1, 300) n""")
    lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
    with lab.session() as session:
        with pytest.raises(UsageError, match="takes a DataFrame"):
            add_table(session, AddTable(tables=["t"], transform="tests.labs.transforms:frame"))
        add_table(session, AddTable(tables=["t"], transform=SHOUT))
    lab.start()
    lab.wait_ok()
    lab.settle()
    assert content(lab.leaf, "t") == expected(lab.root)
    lab.root.execute("update t set v = 'secret' where id % 3 = 0")
    lab.root.execute("update t set v = 'back' where id % 14 = 0")
    lab.root.execute("insert into t values (1001, 'new', 'x'), (1002, 'secret', 'x')")
    lab.root.execute("delete from t where id % 10 = 0")
    lab.settle()
    assert content(lab.leaf, "t") == expected(lab.root)


OPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "delete", "key", "truncate", "tick"]),
        st.integers(1, 4),
        st.sampled_from(["a", "secret", "bb"]),
    ),
    min_size=1,
    max_size=30,
)


def test_rows_come_and_go_with_the_filter(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL, dest_ddl=HERE)
    set_handler(leaf.leaf, "public.t", f"transform(function={SHOUT})")
    leaf.flush_bytes = 300  # several parts of a key in one batch
    texts = {
        "insert": "insert into t values ({0}, '{1}') on conflict do nothing",
        "update": "update t set v = '{1}' where id = {0}",
        "delete": "delete from t where id = {0}",
        "key": "update t set id = id + 10 where id = {0} "
        "and not exists (select 1 from t o where o.id = {0} + 10)",
        "truncate": "truncate t",
    }

    @settings(
        max_examples=examples(10), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(OPS)
    def histories(steps: list[tuple[str, int, str]]) -> None:
        for op, key, value in steps:
            if op == "tick":
                leaf.catch_up()
            else:
                leaf.root.execute(texts[op].format(key, value))
        leaf.catch_up()
        assert content(leaf.leaf, "t") == expected(leaf.root)

    histories()


def test_row_by_row_gives_the_same(quick_leaf: Callable[..., Leaf]) -> None:
    """A key that may repeat here is replayed event by event."""
    leaf = quick_leaf()
    here = HERE.replace("id int primary key", "id int not null")
    leaf.root.execute(DDL)
    leaf.leaf.execute(HERE)
    from tests.labs.pair import call

    call(leaf.root, "londiste.local_add_table", QUEUE, "public.t", ["expect_sync"])
    call(leaf.leaf, "londiste.global_add_table", QUEUE, "public.t")
    call(leaf.leaf, "londiste.local_add_table", QUEUE, "public.t", ["expect_sync"])
    leaf.leaf.execute("alter table t drop constraint t_pkey")
    assert "primary" not in here
    set_handler(leaf.leaf, "public.t", f"transform(function={SHOUT})")
    leaf.root.execute("insert into t values (1, 'a'), (2, 'secret'), (3, 'c')")
    leaf.root.execute("update t set v = 'secret' where id = 1; update t set v = 'b' where id = 2")
    leaf.root.execute("update t set v = 'a' where id = 1; delete from t where id = 3")
    leaf.catch_up()
    assert content(leaf.leaf, "t") == expected(leaf.root)


@pytest.mark.parametrize(
    "function, message",
    [
        ("fail", r'handler "transform\(.*" failed on table "public.t": ValueError in fail, line'),
        ("another_key", 'it changes column "id" of the key without saying so'),
    ],
)
def test_a_function_that_fails_stops(
    quick_leaf: Callable[..., Leaf],
    caplog: pytest.LogCaptureFixture,
    function: str,
    message: str,
) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL, dest_ddl=HERE)
    set_handler(leaf.leaf, "public.t", f"transform(function=tests.labs.transforms:{function})")
    leaf.root.execute("insert into t values (1, 'clear value')")
    leaf.pair.tick()
    with pytest.raises(StateError, match=message) as told:
        while leaf.worker.work():
            pass
    assert "clear" not in str(told.value) and "clear" not in caplog.text
    assert content(leaf.leaf, "t") == []


def test_a_copy_notices_another_key_too(quick_lab: Lab) -> None:
    """A delete would not find its row later."""
    lab = quick_lab
    lab.root.execute("create table t (id text primary key, v text)")
    lab.leaf.execute("create table t (id text primary key, v text)")
    lab.root.execute("insert into t values ('1', 'a')")
    lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
    with lab.session() as session:
        add_table(session, AddTable(tables=["t"], transform="tests.labs.transforms:another_key"))
    lab.start()
    words = 'changes column "id" of the key without saying so'

    def told() -> bool:
        with connect(lab.leaf.connstr) as db:
            return any(words in e.error for e in read_node(db, QUEUE, "leaf").copy_errors)

    lab.wait_until(told)
    assert lab.leaf.value("select count(*) from t") == 0


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "UTC"])
def test_moments_have_one_text(quick_lab: Lab, zone: str) -> None:
    lab = quick_lab
    ddl = "create table t (id int primary key, at timestamptz, day timestamp"
    lab.root.execute(f"{ddl})")
    lab.leaf.execute(f"{ddl}, at_text text, day_text text)")
    change = (
        "insert into t values (%s, '2024-02-03 04:05:06.78+03', '2024-02-03 04:05:06'),"
        " (%s, '0999-01-01 00:00:00+00', '2024-02-03 04:05:06.000001'),"
        " (%s, 'infinity', '-infinity'), (%s, null, null)"
    )
    lab.root.execute(change, [1, 2, 3, 4])
    lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
    with lab.session() as session:
        add_table(session, AddTable(tables=["t"], transform="tests.labs.transforms:tell_text"))
    lab.start()
    lab.wait_ok()
    lab.root.execute(f"set timezone = '{zone}'")
    lab.root.execute(change, [11, 12, 13, 14])
    lab.settle()
    text = "select at_text, day_text from t where id {} 10 order by id"
    assert lab.leaf.query(text.format("<")) == lab.leaf.query(text.format(">"))
    assert lab.leaf.one("select at_text, day_text from t where id = 11") == (
        "2024-02-03 01:05:06.78+00", "2024-02-03 04:05:06"
    )  # fmt: skip
