"""`qsplitter`: events of a table become events of another queue of the node, once and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.test_quarantine_events import quarantined, replay
from tests.labs.chain import Chain, make_chain
from tests.labs.handlers import set_handler
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import StateError
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.compare_tables import handler_refusal
from vedur.ops.session import Session
from vedur.worker.loop import Worker

__all__ = ["make_chain", "quick_leaf", "without_spark"]

DDL = "create table t (id int primary key, v text)"
FIELDS = "ev_time, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
SPLIT = "qsplitter(queue=other)"


def events(db: Database, queue: str, table: str = "public.t") -> list[Any]:
    """All that a queue has of a table, in the order of its numbers."""
    events = db.value("select pgq.current_event_table(%s)", [queue])
    return db.query(f"select {FIELDS} from {events} where ev_extra1 = %s order by ev_id", [table])


def add(leaf: Leaf) -> None:
    """A table of the root that the leaf has not, and gives to another queue."""
    leaf.pair.root.execute(DDL)
    words = "{expect_sync,backup,ev_extra3='x'}"
    leaf.root.execute("select londiste.local_add_table(%s, 'public.t', %s)", [QUEUE, words])
    leaf.catch_up()
    with Session(leaf.settings) as session:
        wanted = AddTable(tables=["t"], handler="qsplitter", handler_args=["queue=other"])
        with pytest.raises(StateError, match='no queue "other" on this node'):
            add_table(session, wanted)
        leaf.leaf.execute("select pgq.create_queue('other')")
        add_table(session, wanted)


def write(leaf: Leaf) -> None:
    leaf.root.execute(
        "truncate t; insert into t select i, E'v\\t' || i from generate_series(1, 700) i"
    )
    leaf.root.execute("update t set v = 'é' where id % 3 = 0; delete from t where id % 5 = 0")
    leaf.root.execute("truncate t; insert into t values (1, null)")


def test_events_go_over_as_they_are(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    add(leaf)
    for _ in range(2):
        write(leaf)
        leaf.catch_up()
    there = events(leaf.root, QUEUE)
    assert len(there) > 2000 and events(leaf.leaf, "other") == there
    assert any(event.ev_extra2 for event in there) and any(event.ev_extra3 for event in there)
    (table,) = get_table_list(leaf.leaf, QUEUE)
    assert "no rows here" in handler_refusal(table)
    assert leaf.leaf.value("select to_regclass('t')") is None


def test_a_crash_passes_nothing_on_twice(
    quick_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = quick_leaf()
    add(leaf)
    write(leaf)
    leaf.pair.tick()

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "batch.merged":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("vedur.worker.batch.reach", die)
        with pytest.raises(Killed):
            leaf.worker.work()
    assert events(leaf.leaf, "other") == []
    leaf.worker._close()
    leaf.worker = Worker(leaf.settings, leaf._runner)
    leaf.catch_up()
    assert events(leaf.leaf, "other") == events(leaf.root, QUEUE)


def test_a_queue_that_takes_nothing_holds_the_table(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    add(leaf)
    leaf.pair.table("public.plain", "create table plain (id int primary key)")
    place = leaf.leaf.value("select pgq.current_event_table('other')")
    leaf.leaf.execute(f"alter table {place} add constraint shut check (ev_id < 0)")
    leaf.root.execute("insert into plain values (1); insert into t values (1, 'a')")
    leaf.root.execute("update t set v = 'b'; truncate t; insert into t values (2, 'c')")
    leaf.catch_up()
    leaf.same("plain")
    assert [row[0] for row in quarantined(leaf)] == ["public.t"] * 4
    leaf.leaf.execute(f"alter table {place} drop constraint shut")
    replay(leaf)
    leaf.root.execute("insert into t values (3, 'd')")
    leaf.catch_up()
    ours, theirs = events(leaf.leaf, "other"), events(leaf.root, QUEUE)
    assert [event[1:] for event in ours] == [event[1:] for event in theirs]


def test_a_branch_splits_and_passes_on(
    make_chain: Callable[..., Chain], without_spark: None
) -> None:
    chain = make_chain(3)
    chain.table("public.t", DDL)
    branch = chain["n2"].db
    branch.execute("select pgq.create_queue('other')")
    set_handler(branch, "public.t", SPLIT)
    chain.root.execute("insert into t values (1, 'a'); update t set v = 'b'")
    chain.catch_up()
    assert events(branch, "other") == events(chain.root, QUEUE)
    chain.require_same("t", "n3")
    chain.require_queues()
    # the queue of the set is not for events of its own
    set_handler(branch, "public.t", f"qsplitter(queue={QUEUE})")
    chain.tick()
    with pytest.raises(StateError, match="this node is no root of it"):
        chain["n2"].worker.work()
