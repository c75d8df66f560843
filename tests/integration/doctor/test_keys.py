"""What doctor says of keys: a key that a first copy has dropped is not one to add by hand."""

from __future__ import annotations

from collections.abc import Callable

from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.ops.doctor.result import Finding
from vedur.ops.doctor.tables import check_tables
from vedur.ops.session import Session

__all__ = ["quick_leaf"]


def keys(leaf: Leaf) -> Finding:
    with Session(leaf.settings) as session:
        (found,) = [f for f in check_tables(session, session.require_node()) if f.check == "keys"]
    return found


def test_a_key_that_the_copy_makes_again_is_not_missing(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    assert keys(leaf).found == "every table has a key"
    leaf.leaf.execute("alter table t drop constraint t_pkey")
    assert keys(leaf).verdict == "fail"
    state = "select londiste.local_set_table_state(%s, 'public.t', null, 'in-copy')"
    leaf.leaf.execute(state, [QUEUE])
    ddl = "alter table t add primary key (id)"
    leaf.leaf.execute("select londiste.local_set_table_struct(%s, 'public.t', %s)", [QUEUE, ddl])
    found = keys(leaf)
    assert found.verdict == "ok" and "first copy: public.t" in found.found
