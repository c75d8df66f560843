"""Tables that wait: for a tick behind their snapshot, and for the worker, with few connections.

The tasks run in this process: Spark only carries them.
"""

from __future__ import annotations

import threading

import pytest

from tests.fixtures.wait import until
from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur import failpoint
from vedur.status.snapshot import read_node
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.timeout(400)]

SUMS = """
select (select sum(v) from a) + (select sum(v) from b) as total,
       (select bool_and(merge_state = 'ok') from londiste.table_info where local) as ok
"""
SESSIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name like 'vedur copy%'
"""


def make_accounts(lab: Lab) -> None:
    """Two tables whose sum is always the same on the root; a is in sync on the leaf."""
    for name in ("a", "b"):
        for db in (lab.root, lab.leaf):
            db.execute(f"create table {name} (id int primary key, v int)")
        lab.root.execute(f"insert into {name} values (1, 100)")
        call(lab.root, "londiste.local_add_table", QUEUE, f"public.{name}")
        call(lab.leaf, "londiste.global_add_table", QUEUE, f"public.{name}")
    lab.add_leaf("public.a")


@pytest.mark.draw("copies")
def test_a_table_is_not_ok_ahead_of_the_others(
    quick_lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """The ticker is away: rows of b are later than all that the worker may apply."""
    lab = quick_lab
    lab.tick_wait = 0.2
    make_accounts(lab)
    lab.start()
    lab.wait_ok()
    lab.settle()
    lab.ticker_away = True
    lab.root.execute("begin; update a set v = 50; update b set v = 150; commit")
    lab.add_leaf("public.b")
    text = "is the ticker of queue"
    assert until(lambda: text in caplog.text, 60), lab.states()
    assert lab.leaf.one(SUMS).total == 250
    assert lab.states()["public.b"] == "catching-up"
    lab.stop()
    # Another worker, and a table that an earlier version left at a tick of before its snapshot.
    worker = "select last_tick_id from pgq_node.local_state where consumer_name = 'leaf_worker'"
    lab.leaf.execute(
        f"update londiste.table_info set merge_state = 'do-sync:' || ({worker})"
        " where table_name = 'public.b'"
    )
    lab.start()
    lab.wait_until(lambda: lab.states()["public.b"] == "catching-up")
    lab.ticker_away = False
    seen = []
    while not (seen and seen[-1].ok):
        seen.append(lab.leaf.one(SUMS))
    assert seen[-1].total == 200
    lab.wait_ok()
    lab.same("a")
    lab.same("b")
    assert until(lambda: not lab.debris())
    assert lab.leaf.value("select count(custom_snapshot) from londiste.table_info") == 0
    assert sum(text in r.getMessage() for r in caplog.records) in (1, 2)  # once by a worker


@pytest.mark.draw("copies")
def test_many_tables_that_wait_hold_few_connections(quick_lab: Lab) -> None:
    lab = quick_lab
    names = [f"public.m{i}" for i in range(32)]
    for db in (lab.root, lab.leaf):
        for name in names:
            db.execute(f"create table {name} (id int primary key)")
    lab.add(*names)
    counted = threading.Event()

    def hold_worker(place: str) -> None:
        if place == "batch.taken" and lab.copies():
            assert counted.wait(180)

    def all_wait() -> bool:
        return all((s or "").startswith("wanna-sync") for s in lab.states().values())

    failpoint.set_hook(hold_worker)
    lab.start()
    lab.wait_until(all_wait)
    # both sides: seats, and the worker's own lock of its copies
    assert until(lambda: lab.leaf.value(SESSIONS) <= lab.max_connections + 1)
    assert until(lambda: lab.root.value(SESSIONS) <= lab.max_connections / 2)
    failpoint.set_hook(None)
    counted.set()
    lab.wait_ok()
    assert until(lambda: not lab.debris())
    assert until(lambda: lab.root.value(SESSIONS) == 0)


@pytest.mark.draw("copies")
def test_status_shows_a_copy_that_fails_again_and_again(quick_lab: Lab) -> None:
    """The error stays while the next attempt runs, until it is past the step that failed."""
    lab = quick_lab
    for db, check in ((lab.root, ""), (lab.leaf, " check (v < 5)")):
        db.execute(f"create table t (id int primary key, v int{check})")
    lab.root.execute("insert into t values (1, 7)")
    shown: list[list[str]] = []

    def look(table: str, step: Step) -> None:
        if step is Step.LOAD:
            with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
                shown.append([error.error for error in read_node(db, QUEUE, "leaf").copy_errors])

    lab.add("public.t")
    lab.start(look)
    assert until(lambda: len(shown) > 3, 60), lab.states()
    assert shown[0] == []
    for errors in shown[1:4]:
        assert len(errors) == 1 and "violates check constraint" in errors[0]
    lab.leaf.execute("alter table t drop constraint t_v_check")
    lab.wait_ok()
    assert read_node(lab.leaf, QUEUE, "leaf").copy_errors == ()
    lab.same("t")
