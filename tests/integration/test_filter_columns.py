"""Tables that take some columns, or columns under other names; columns that the target lacks."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call
from vedur.change.attrs import encode_attrs
from vedur.errors import StateError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MakeLeaf = Callable[..., Leaf]

DDL = "create table t (id int primary key, a text, b jsonb, secret text)"


def narrow(leaf: Leaf, dest_ddl: str, columns: str, condition: str | None = None) -> None:
    leaf.pair.table("public.t", DDL, dest_ddl=dest_ddl)
    attrs: dict[str, str | None] = {"columns": columns}
    if condition:
        attrs["copy_condition"] = condition
    call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, "public.t", encode_attrs(attrs))


def rows(leaf: Leaf) -> list[tuple[object, ...]]:
    return [tuple(r) for r in leaf.leaf.query("select * from t order by 1")]


@pytest.mark.draw(2)
@pytest.mark.parametrize("flags", [None, "AIUDJ", "AIUDQ"], ids=["urlenc", "json", "sql"])
@pytest.mark.parametrize("row_by_row", [False, True])
def test_other_columns_never_come(make_leaf: MakeLeaf, row_by_row: bool, flags: str | None) -> None:
    leaf = make_leaf()
    # the target has a column of that name, and one that is somebody else's
    dest = "create table t (key int primary key, doc jsonb, secret text default 'mine', a text)"
    leaf.pair.table("public.t", DDL, dest_ddl=dest, flags=flags)
    attrs = encode_attrs({"columns": "id=key,b=doc"})
    call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, "public.t", attrs)
    leaf.catch_up()
    if row_by_row:
        leaf.appliers[-1].log_tables.add("public.t")
    leaf.root.execute("""insert into t values (1, 'a', '{"x": [1]}', 's'), (2, 'b', null, 's')""")
    leaf.catch_up()
    assert rows(leaf) == [(1, {"x": [1]}, "mine", None), (2, None, "mine", None)]
    leaf.root.execute("update t set secret = 'still', a = 'x' where id = 1")
    leaf.root.execute("update t set id = 3, b = '[]' where id = 2")
    leaf.catch_up()
    assert rows(leaf) == [(1, {"x": [1]}, "mine", None), (3, [], "mine", None)]
    leaf.root.execute("delete from t where id = 1; alter table t add column later int")
    leaf.root.execute("update t set later = 5; insert into t (id, later) values (4, 4)")
    leaf.catch_up()
    assert rows(leaf) == [(3, [], "mine", None), (4, None, "mine", None)]
    leaf.root.execute("truncate t")
    leaf.catch_up()
    assert rows(leaf) == []


def test_an_update_of_other_columns_changes_nothing_here(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    narrow(leaf, "create table t (id int primary key, a text)", "id,a")
    leaf.root.execute("insert into t values (1, 'a', null, 's')")
    leaf.catch_up()
    before = rows(leaf)
    leaf.root.execute("update t set secret = 'z', b = '1'")
    leaf.catch_up()
    assert rows(leaf) == before == [(1, "a")]


def test_a_key_that_does_not_come_stops_the_worker_with_its_name(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    narrow(leaf, "create table t (a text primary key, b jsonb)", "a,b")
    leaf.root.execute("insert into t values (1, 'a'), (2, 'b')")
    leaf.catch_up()
    leaf.root.execute("delete from t where id = 1")
    with pytest.raises(StateError, match='column "id" is missing on the target'):
        leaf.catch_up()
    assert [r[0] for r in rows(leaf)] == ["a", "b"]


@pytest.mark.parametrize("row_by_row", [False, True])
def test_a_column_of_the_provider_alone_is_a_warning(
    make_leaf: MakeLeaf, row_by_row: bool, caplog: pytest.LogCaptureFixture
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", DDL, dest_ddl="create table t (id int primary key, a text)")
    leaf.catch_up()
    if row_by_row:
        leaf.appliers[-1].log_tables.add("public.t")
    caplog.set_level(logging.WARNING)
    leaf.root.execute("insert into t values (1, 'a', '1', 's')")
    leaf.catch_up()
    leaf.root.execute("update t set a = 'x'")
    leaf.catch_up()
    assert rows(leaf) == [(1, "x")]
    said = [r.getMessage() for r in caplog.records if "exists on the provider only" in r.message]
    assert [s.split(",")[0] for s in said] == [
        'public.t: column "b" exists on the provider only',
        'public.t: column "secret" exists on the provider only',
    ]
    assert all("repair public.t" in s for s in said)
    caplog.clear()
    # it comes, and is followed from then on
    leaf.leaf.execute("alter table t add column secret text")
    leaf.root.execute("update t set secret = 'now'; insert into t values (2, 'b', null, 'two')")
    leaf.catch_up()
    assert rows(leaf) == [(1, "x", "now"), (2, "b", "two")]
    leaf.root.execute("alter table t add column z int")
    leaf.root.execute("update t set z = 1 where id = 1")
    leaf.catch_up()
    said = [r.getMessage() for r in caplog.records if "exists on the provider only" in r.message]
    assert any('column "z"' in s for s in said)
    assert not any('column "secret"' in s for s in said)


def test_a_column_of_the_provider_alone_stops_where_that_is_asked_for(
    make_leaf: MakeLeaf,
) -> None:
    leaf = make_leaf(missing_columns="stop")
    leaf.pair.table("public.t", DDL, dest_ddl="create table t (id int primary key, a text)")
    leaf.root.execute("insert into t values (1, 'a', '1', 's')")
    with pytest.raises(StateError, match='column "b" is missing on the target'):
        leaf.catch_up()
    assert rows(leaf) == []
    leaf.leaf.execute("alter table t add column b jsonb, add column secret text")
    leaf.catch_up()
    assert rows(leaf) == [(1, "a", 1, "s")]


@pytest.mark.parametrize("flags", [None, "AIUDJ"], ids=["urlenc", "json"])
@pytest.mark.parametrize("row_by_row", [False, True])
def test_an_event_without_a_column_of_the_condition_stops_the_worker(
    make_leaf: MakeLeaf, row_by_row: bool, flags: str | None
) -> None:
    leaf = make_leaf()
    ddl = "create table t (id int primary key, a text, region text)"
    leaf.pair.table("public.t", ddl, flags=flags)
    attrs = encode_attrs({"copy_condition": "region = 'eu'\n and id < 9"})
    call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, "public.t", attrs)
    leaf.root.execute("insert into t values (1, 'a', 'eu'), (2, 'b', 'us'), (3, 'c', 'eu')")
    leaf.catch_up()
    before = rows(leaf)
    assert before == [(1, "a", "eu"), (3, "c", "eu")]
    if row_by_row:
        leaf.appliers[-1].log_tables.add("public.t")
    leaf.root.execute("alter table t drop column region; delete from t where id = 3")
    leaf.catch_up()
    assert rows(leaf) == [(1, "a", "eu")]  # a delete needs no condition
    leaf.root.execute("update t set a = 'x' where id = 1; insert into t values (4, 'd')")
    said = (
        r'^\[ev_id=\d+,ev_txid=\d+\] table "public.t": the event lacks column "region" '
        r"of the condition: \"region\" = 'eu' and \"id\" < 9$"
    )
    with pytest.raises(StateError, match=said):
        leaf.catch_up()
    assert rows(leaf) == [(1, "a", "eu")]
