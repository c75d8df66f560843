"""A table that Londiste registered with a handler of its own moves not one row in the open."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote_plus

import pytest

from tests.labs.first_copy import Lab
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.catalog.tables import TableInfo, get_table_list
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import unknown_handler
from vedur.ops.add_table import AddTable
from vedur.ops.check import check
from vedur.ops.compare_tables import chosen_tables
from vedur.ops.doctor.tables import check_tables
from vedur.ops.session import Session
from vedur.status.snapshot import read_node

__all__ = ["quick_leaf"]

DDL = "create table people (id int primary key, name text)"


def set_handler(leaf: Leaf | Lab, table: str, handler: str | None) -> None:
    attrs = None if handler is None else f"handler={quote_plus(handler)}"
    leaf.leaf.execute("select londiste.local_set_table_attrs(%s, %s, %s)", [QUEUE, table, attrs])


@pytest.mark.parametrize(
    "attrs, known",
    [
        (None, True),
        ("handler=londiste", True),
        ("handler=londiste%28%29", True),
        ("handler=", True),
        ("handler", True),
        ("copy_condition=handler%3D1", True),
        ("handler=shard%28key%3Did%29", False),
        ("handler=londiste%28encoding%3Dutf8%29", False),
        ("skip_truncate=1&handler=my.own", False),
    ],
)
def test_which_handlers_are_known(attrs: str | None, known: bool) -> None:
    table = TableInfo("public.t", True, "ok", None, attrs, None, None, 0, "public.t")
    assert (unknown_handler(table) is None) == known


def test_replay_stops_before_a_row_moves(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.people", DDL)
    leaf.pair.table("public.other", "create table other (id int primary key)")
    set_handler(leaf, "public.people", "obfuscate(name=skip)")
    leaf.root.execute("insert into people values (1, 'Ann'); insert into other values (1)")
    leaf.pair.tick()
    with pytest.raises(StateError, match=r'"public\.people" .* handler "obfuscate\(name=skip\)"'):
        leaf.worker.work()
    leaf.worker.on_alive = lambda: None
    with pytest.raises(StateError):
        leaf.worker.run()
    assert leaf.leaf.query("select * from people") == []
    assert leaf.leaf.query("select * from other") == []
    assert "obfuscate" in str(read_node(leaf.leaf, QUEUE, "leaf").errors)
    with Session(leaf.settings) as session:
        with pytest.raises(StateError, match="obfuscate"):  # compare, repair, change-filter
            chosen_tables(session, ("people",))
        told = {f.table: f.differences for f in check(session)}
        assert "obfuscate" in told["public.people"][0]
        assert told["public.other"] == ()
        (found,) = [
            f for f in check_tables(session, session.require_node()) if f.check == "handlers"
        ]
        assert found.verdict == "fail" and "public.people (obfuscate" in found.found
    set_handler(leaf, "public.people", None)
    leaf.catch_up()
    leaf.same("people")
    leaf.same("other")


def test_the_first_copy_does_not_begin(quick_lab: Lab) -> None:
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(DDL)
    lab.root.execute("insert into people values (1, 'Ann')")
    lab.add("public.people", attrs="handler=obfuscate")
    lab.start()
    lab.wait_until(lambda: "obfuscate" in str(read_node(lab.leaf, QUEUE, "leaf").errors))
    assert lab.states() == {"public.people": None}
    assert lab.leaf.query("select * from people") == []
    (table,) = get_table_list(lab.leaf, QUEUE)
    assert unknown_handler(table) == "obfuscate"


def test_add_table_refuses_one() -> None:
    with pytest.raises(UsageError, match='unknown handler "obfuscate"'):
        AddTable(tables=["t"], handler="obfuscate").attrs()
