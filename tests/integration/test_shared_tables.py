"""Several tables that come together in one: nothing of one of them removes rows of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.first_copy import Lab
from tests.labs.in_process import quick_leaf  # noqa: F401
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call
from vedur.db import Database
from vedur.errors import StateError

DDL = "create table {} (id int primary key, v text)"


def share(db: Database, table: str, dest: str) -> None:
    """Sets of earlier times may have it, whatever commands accept now."""
    text = "update londiste.table_info set dest_table = %s where table_name = %s"
    db.execute(text, [dest, table])


def test_truncate_empties_one_part(quick_leaf: Callable[..., Leaf]) -> None:  # noqa: F811
    leaf = quick_leaf()
    leaf.leaf.execute(DDL.format("together"))
    attrs = {"a": "copy_condition=id%3c100+--+ours", "b": "copy_condition=id%3e%3d100"}
    for name, text in attrs.items():
        leaf.pair.table(f"public.{name}", DDL.format(name))
        share(leaf.leaf, f"public.{name}", "public.together")
        call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, f"public.{name}", text)
    leaf.pair.table("public.alone", DDL.format("alone"))
    for name, first in (("a", 1), ("b", 101), ("alone", 1)):
        leaf.root.execute(f"insert into {name} select {first} + i from generate_series(0, 4) i")
    leaf.catch_up()
    ids = "select array_agg(id order by id) from together"
    assert leaf.leaf.value(ids) == [1, 2, 3, 4, 5, 101, 102, 103, 104, 105]
    leaf.root.execute("truncate a, alone; insert into a values (7)")
    leaf.catch_up()
    assert leaf.leaf.value(ids) == [7, 101, 102, 103, 104, 105]
    assert leaf.leaf.value("select count(*) from alone") == 0
    # nothing tells the rows of b from those of a
    call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, "public.b", None)
    leaf.root.execute("truncate b")
    with pytest.raises(StateError, match=r"^\[ev_id=\d+.*TRUNCATE would empty .*skip the event"):
        leaf.catch_up()
    assert len(leaf.leaf.value(ids)) == 6
    stopped = leaf.leaf.one("select ev_id, ev_txid, table_name from vedur.replay_error")
    assert stopped.table_name == "public.b"
    leaf.leaf.execute(
        "insert into vedur.skip_request"
        " (queue_name, consumer_name, ev_id, ev_txid, table_name, reason)"
        " values ('q', 'leaf_worker', %s, %s, 'public.b', 'rows were deleted by hand')",
        [stopped.ev_id, stopped.ev_txid],
    )
    leaf.catch_up()
    assert len(leaf.leaf.value(ids)) == 6


def test_a_copy_empties_nobody_elses_table(quick_lab: Lab) -> None:
    lab = quick_lab
    part = "partition of p for values from (0) to (100)"
    for db in (lab.root, lab.leaf):
        for name in ("a", "b"):
            db.execute(DDL.format(name))
        db.execute("create table p (id int primary key, v text) partition by range (id)")
        db.execute(f"create table p1 {part}")
    lab.root.execute("insert into a select i from generate_series(1, 5) i")
    lab.root.execute("insert into b select i from generate_series(101, 105) i")
    lab.add("public.a")
    # a set that begins here feeds nothing
    call(lab.leaf, "pgq_node.register_location", "next", "here", lab.leaf.connstr, False)
    call(lab.leaf, "pgq_node.create_node", "next", "root", "here", "w", None, None, None)
    lab.leaf.execute(
        "insert into londiste.table_info (queue_name, table_name, local, merge_state)"
        " values ('next', 'public.a', true, 'ok')"
    )
    lab.start()
    lab.wait_ok()
    with lab.leaf.transaction():
        lab.add("public.b")
        share(lab.leaf, "public.b", "public.a")
    error = "select error from vedur.copy_progress where table_name = 'public.b'"
    lab.wait_until(lambda: "would empty" in (lab.leaf.value(error) or ""))
    assert lab.leaf.value("select count(*) from a") == 5
    # with its rows kept it is no harm, and the other goes on all the while
    call(lab.leaf, "londiste.local_remove_table", QUEUE, "public.b")
    with lab.leaf.transaction():
        lab.add_leaf("public.b", attrs="skip_truncate=1")
        share(lab.leaf, "public.b", "public.a")
    lab.root.execute("insert into a values (6)")
    lab.wait_ok()
    lab.settle()
    assert lab.leaf.value("select count(*) from a") == 11
    # a partition is a part of its parent
    lab.add("public.p")
    lab.wait_ok()
    lab.root.execute("insert into p values (1, 'x')")
    lab.settle()
    call(lab.root, "londiste.local_add_table", QUEUE, "public.p1", ["no_triggers"])
    call(lab.leaf, "londiste.global_add_table", QUEUE, "public.p1")
    lab.leaf.execute("update londiste.table_info set local = true where table_name = 'public.p1'")
    error = "select error from vedur.copy_progress where table_name = 'public.p1'"
    lab.wait_until(lambda: "would empty" in (lab.leaf.value(error) or ""))
    assert lab.leaf.value("select count(*) from p") == 1
