"""A change by key that would touch several rows of the target stops, and is told like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import call
from vedur.errors import StateError

__all__ = ["quick_leaf"]

MakeLeaf = Callable[..., Leaf]
PLANT = "set session_replication_role = replica; {}; reset session_replication_role"
KEYS = {
    "no key": "alter table several drop constraint several_pkey",
    "deferrable": "alter table several drop constraint several_pkey,"
    " add primary key (id) deferrable",
}


def test_shifted_keys_arrive(quick_leaf: MakeLeaf) -> None:
    """By the commands' own functions: whatever key the leaf has, and with events of each format."""
    leaf = quick_leaf()
    root_ddl = "create table {t} (id int primary key deferrable, v text)"
    names = []
    for number, dest in enumerate((root_ddl, "create table {t} (id int primary key, v text)")):
        for flags in ("J", "L", "Q"):
            t = f"shift_{number}_{flags}".lower()
            names.append(t)
            leaf.pair.table(
                f"public.{t}", root_ddl.format(t=t), dest_ddl=dest.format(t=t), flags=flags
            )
            leaf.root.execute(f"insert into {t} values (1, 'one'), (2, 'two'), (3, 'three')")
    leaf.catch_up()
    for text in ("set id = id + 1", "set id = 5 - id where id < 4", "set id = id + 1, v = 'x'"):
        for t in names:
            leaf.root.execute(f"update {t} {text}")
        leaf.catch_up()
        for t in names:
            assert len(leaf.same(f"public.{t}")) == 3


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "change", ["update {t} set v = 'new' where id = 2", "delete from {t} where id = 2"]
)
def test_a_key_with_several_rows_stops_the_batch(
    quick_leaf: MakeLeaf, key: str, change: str
) -> None:
    leaf = quick_leaf()
    t = "several"
    ddl = f"create table {t} (id int primary key, v text)"
    leaf.pair.table(f"public.{t}", ddl)
    leaf.leaf.execute(KEYS[key])
    leaf.root.execute(f"insert into {t} select g, 'x' from generate_series(1, 5) g")
    leaf.catch_up()
    leaf.leaf.execute(PLANT.format(f"insert into {t} values (2, 'second')"))
    before = leaf.leaf.query(f"table {t}")
    leaf.root.execute(change.format(t=t))
    leaf.root.execute(f"insert into {t} values (9, 'after')")
    with pytest.raises(StateError, match=r'table "public.several": key .*2.* names several rows'):
        leaf.catch_up()
    assert leaf.leaf.query(f"table {t}") == before
    leaf.leaf.execute(PLANT.format(f"delete from {t} where v = 'second'"))
    leaf.catch_up()
    leaf.same(f"public.{t}")


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_goes_while_the_worker_runs_is_noticed(quick_leaf: MakeLeaf, key: str) -> None:
    """Nothing tells the worker, and no column changes."""
    leaf = quick_leaf()
    leaf.pair.table("public.several", "create table several (id int primary key, v text)")
    leaf.root.execute("insert into several values (1, 'x'), (2, 'x')")
    leaf.catch_up()
    leaf.root.execute("update several set v = 'y'")
    leaf.catch_up()
    leaf.leaf.execute(KEYS[key])
    leaf.leaf.execute(PLANT.format("insert into several values (2, 'second')"))
    leaf.root.execute("update several set v = 'z' where id = 2")
    with pytest.raises(StateError, match=r'table "public.several": key .*2.* names several rows'):
        leaf.catch_up()
    leaf.leaf.execute(PLANT.format("delete from several where v = 'second'"))
    leaf.catch_up()
    leaf.same("public.several")


def test_a_new_row_whose_deferrable_key_is_there_stops_the_batch(quick_leaf: MakeLeaf) -> None:
    """In the role of a replica the server would take it."""
    leaf = quick_leaf()
    ddl = "create table doubled (id int primary key deferrable, v text)"
    leaf.pair.table("public.doubled", ddl.replace(" deferrable", ""), dest_ddl=ddl)
    leaf.leaf.execute(PLANT.format("insert into doubled values (1, 'mine')"))
    leaf.root.execute("insert into doubled values (1, 'theirs'), (2, 'x')")
    with pytest.raises(StateError, match="is there already"):
        leaf.catch_up()
    assert leaf.leaf.query("select v from doubled") == [("mine",)]
    leaf.leaf.execute(PLANT.format("delete from doubled"))
    leaf.catch_up()
    leaf.same("public.doubled")


def test_the_policy_of_the_table_holds(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    ddl = "create table several (id int primary key, v text)"
    leaf.pair.table("public.several", ddl)
    leaf.leaf.execute(KEYS["no key"])
    leaf.root.execute("insert into several select g, 'x' from generate_series(1, 5) g")
    leaf.catch_up()
    leaf.leaf.execute(PLANT.format("insert into several values (2, 'second')"))
    leaf.root.execute("update several set v = 'new' where id = 2; delete from several where id = 3")
    leaf.catch_up()
    kept: Any = leaf.leaf.query("select * from vedur.quarantine")
    assert len(kept) == 1
    assert sorted(leaf.leaf.query("select id from several")) == [(1,), (2,), (2,), (4,), (5,)]


def test_add_table_makes_the_trigger_that_the_key_needs(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf()
    leaf.root.execute("create table late (id int primary key deferrable, v text)")
    got = leaf.root.query(
        "select * from londiste.local_add_table('q', 'public.late', array['ignore=v'])"
    )
    assert got[0].ret_code == 405 and "ignore=" in got[0].ret_note
    call(leaf.root, "londiste.local_add_table", "q", "public.late", ["expect_sync"])
    wanted = "select tgdeferrable and tginitdeferred from pg_trigger where tgname = '_londiste_q'"
    assert leaf.root.value(wanted + " and tgrelid = 'late'::regclass")
    call(leaf.root, "londiste.local_remove_table", "q", "public.late")
    assert leaf.root.value(wanted + " and tgrelid = 'late'::regclass") is None
