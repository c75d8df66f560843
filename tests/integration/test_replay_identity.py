"""GENERATED ALWAYS AS IDENTITY outside of the key takes no update: row by row as in a merge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.test_replay_barriers import execute
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf

__all__ = ["quick_leaf"]

DDL = "create table t (code text primary key, id bigint generated always as identity, v int)"


@pytest.mark.parametrize("policy", ["stop", "quarantine-row"])
@pytest.mark.parametrize("flags", ["J", "L", "Q"])
def test_updates_beside_a_script_arrive(
    quick_leaf: Callable[..., Leaf], flags: str, policy: str
) -> None:
    leaf = quick_leaf(on_error=policy)
    wider = DDL.replace("v int", "own int default 7, v int")  # a column of the leaf alone
    leaf.pair.table("public.t", DDL, dest_ddl=wider, flags=flags)
    leaf.root.execute("insert into t (code, v) values ('a', 1), ('b', 2), ('c', 3)")
    leaf.catch_up()
    leaf.leaf.execute(
        "set session_replication_role = replica; update t set own = 8 where code = 'a';"
        "reset session_replication_role"
    )
    execute(leaf, "other.sql", "create table other (i int)")  # the batch goes row by row
    leaf.root.execute("update t set v = 6 where code = 'a'")
    leaf.root.execute("update t set id = default where code = 'b'")
    leaf.root.execute("update t set code = 'd' where code = 'c'")
    leaf.catch_up()
    rows = [tuple(row) for row in leaf.leaf.query("select code, id, v, own from t order by 1")]
    assert rows == [("a", 1, 6, 8), ("b", 4, 2, 7), ("d", 3, 3, 7)]
    assert [row[:3] for row in rows] == [
        tuple(row) for row in leaf.root.query("select code, id, v from t order by 1")
    ]


def test_a_row_that_the_leaf_lacks_stays_away(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL)
    leaf.root.execute("insert into t (code, v) values ('a', 1), ('b', 2)")
    leaf.catch_up()
    leaf.leaf.execute(
        "set session_replication_role = replica; delete from t where code = 'a';"
        "reset session_replication_role"
    )
    execute(leaf, "other.sql", "create table other (i int)")
    leaf.root.execute("update t set v = v + 1")
    leaf.catch_up()
    assert [tuple(row) for row in leaf.leaf.query("select * from t")] == [("b", 2, 3)]
