"""rejoin: a leaf or its root was restored from a backup; one command brings the leaf back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.labs.backup import Backup, consumer, position, session
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER, call
from vedur import failpoint
from vedur.catalog import get_table_list
from vedur.errors import LostPosition, StateError
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.doctor.result import Verdict
from vedur.ops.doctor.server import check_provider
from vedur.ops.quarantine.list_errors import errors
from vedur.ops.rejoin.plan import Way
from vedur.ops.rejoin.run import Rejoined, RejoinOptions, rejoin
from vedur.ops.resync import resync
from vedur.worker.loop import Worker

__all__ = ["quick_leaf"]

MakeLeaf = Callable[..., Leaf]


def fill(leaf: Leaf) -> Leaf:
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.pair.table("public.u", "create table u (id int primary key, v text)")
    leaf.root.execute("insert into t select i, 'first' from generate_series(1, 100) i")
    leaf.root.execute("insert into u select i, 'first' from generate_series(1, 100) i")
    leaf.catch_up()
    return leaf


def run(leaf: Leaf, **options: object) -> Rejoined:
    with session(leaf) as here:
        return rejoin(here, RejoinOptions(**options), leaf.spark)  # type: ignore[arg-type]


def states(leaf: Leaf) -> dict[str, str | None]:
    rows = leaf.leaf.query("select table_name, merge_state from londiste.table_info")
    return {row.table_name: row.merge_state for row in rows}


@contextmanager
def running(leaf: Leaf) -> Iterator[None]:
    """The worker works by itself."""
    thread = threading.Thread(target=leaf.worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        leaf.worker.signals.stop.set()
        leaf.worker.signals.wake.set()
        thread.join(60)
        leaf.worker = Worker(leaf.settings, leaf._runner)


class Killed(BaseException):
    """Not an error that anybody could handle."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    def hook(name: str) -> None:
        if name == point:
            raise Killed(point)

    failpoint.set_hook(hook)
    try:
        with pytest.raises(Killed, match=point):
            yield
    finally:
        failpoint.set_hook(None)


def doctor_says(leaf: Leaf) -> list[str]:
    with session(leaf) as here:
        found = check_provider(here, here.require_node())
        return [f.found for f in found if f.check == "position" and f.verdict is Verdict.FAIL]


# -- exact ----------------------------------------------------------------------------------------


def test_a_restored_leaf_whose_events_are_there_goes_back_to_its_tick(
    quick_leaf: MakeLeaf,
) -> None:
    leaf = fill(quick_leaf())
    with session(leaf) as here:
        assert rejoin(here, RejoinOptions(apply=True)).way is Way.NOTHING
    assert doctor_says(leaf) == []
    backup = Backup(leaf, leaf.leaf)
    at = position(leaf)
    for number in range(3):
        leaf.root.execute("update t set v = %s", [f"step {number}"])
        leaf.root.execute("insert into u values (%s, 'new')", [200 + number])
        leaf.catch_up()
    # the watermark is reported now and then: here it has passed the tick of the backup
    call(leaf.root, "pgq_node.set_subscriber_watermark", QUEUE, "leaf", position(leaf))
    last = consumer(leaf)
    backup.restore()
    leaf.root.execute("delete from u where id < 10")
    leaf.pair.tick()
    with pytest.raises(LostPosition):
        leaf.worker.work()
    leaf.worker._close_connections()
    assert doctor_says(leaf)[0].startswith("lost: the provider still has tick")
    plan = run(leaf)
    assert (plan.way, plan.applied, plan.tables) == (Way.MOVE, False, ())
    assert consumer(leaf) == last
    with killed_at("rejoin.planned"):
        run(leaf, apply=True)
    done = run(leaf, apply=True)
    assert (done.way, done.tick) == (Way.MOVE, at)
    assert consumer(leaf) == position(leaf) == at
    assert set(states(leaf).values()) == {"ok"}
    leaf.catch_up()
    assert len(leaf.same("t")) == 100
    assert len(leaf.same("u")) == 94
    assert leaf.leaf.value("select cur_error from pgq_node.local_state") is None
    assert run(leaf, apply=True).way is Way.NOTHING


def test_what_rejoin_refuses(quick_leaf: MakeLeaf) -> None:
    leaf = fill(quick_leaf())
    old = consumer(leaf)
    leaf.root.execute("update t set v = 'x'")
    leaf.catch_up()
    leaf.worker._close_connections()
    leaf.leaf.execute("delete from vedur.position")
    leaf.leaf.execute("update pgq_node.local_state set last_tick_id = %s", [old])
    leaf.leaf.execute("update pgq_node.local_state set paused = true")
    with pytest.raises(StateError, match="worker is paused"):
        run(leaf, apply=True)
    leaf.leaf.execute("update pgq_node.local_state set paused = false")
    leaf.leaf.execute("update pgq_node.node_location set node_location = %s"
                      " where node_name = 'root'", [leaf.leaf.connstr])  # fmt: skip
    with pytest.raises(StateError, match=r'provider "root" leads to node "leaf".*change-location'):
        run(leaf, apply=True)
    leaf.leaf.execute("drop table vedur.position")
    with pytest.raises(StateError, match='"create-leaf" again'):
        run(leaf, apply=True)


# -- repair ---------------------------------------------------------------------------------------


@pytest.mark.draw("running")
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_restored_root_and_a_leaf_that_is_ahead_of_it(make_leaf: MakeLeaf) -> None:
    leaf = fill(make_leaf(loop_delay=0.2))
    leaf.root.execute("create sequence s; select setval('s', 50)")
    leaf.leaf.execute("create sequence s")
    call(leaf.root, "londiste.local_add_seq", QUEUE, "public.s")
    leaf.catch_up()
    call(leaf.leaf, "londiste.local_add_seq", QUEUE, "public.s")
    backup = Backup(leaf, leaf.root)
    leaf.root.execute("select setval('s', 50000)")
    call(leaf.root, "londiste.root_check_seqs", QUEUE)
    leaf.root.execute("insert into t values (500, 'only the leaf has it')")
    leaf.root.execute("update t set v = 'lost' where id <= 5; delete from t where id = 6")
    leaf.pair.table("public.late", "create table late (id int primary key)")
    leaf.catch_up()
    ahead = position(leaf)
    backup.restore()
    leaf.leaf.execute(
        "insert into vedur.quarantine (queue_name, consumer_name, prev_tick, tick_id, ev_id,"
        " ev_txid, ev_type, table_name, holds, cause) values (%s, %s, 1, 2, 3, 4, 'I:id',"
        " 'public.t', 'row', 'error')",
        [QUEUE, WORKER],
    )
    leaf.root.execute("insert into u values (600, 'new history')")
    leaf.root.execute("update t set v = 'new history' where id = 100")
    leaf.pair.tick()
    with pytest.raises(LostPosition):
        leaf.worker.work()
    leaf.worker._close_connections()

    before = leaf.pair.rows("t")[1]
    plan = run(leaf)
    assert (plan.way, plan.applied, plan.forgotten) == (Way.REPAIR, False, ("public.late",))
    counts = {t.table: (t.inserts, t.updates, t.deletes) for t in plan.tables}
    assert counts == {"public.t": (1, 6, 1), "public.u": (1, 0, 0)}
    assert leaf.pair.rows("t")[1] == before
    assert (position(leaf), states(leaf)["public.t"]) == (ahead, "ok")

    # without a worker: one that runs finds the node at a tick of its provider, and moves its
    # consumer there by itself
    for point in ("rejoin.placed", "rejoin.moved"):
        with killed_at(point):
            run(leaf, apply=True)
        assert states(leaf) == {"public.t": None, "public.u": None}, point
    with running(leaf):
        with killed_at("rejoin.applied"):
            run(leaf, apply=True)
        assert states(leaf) == {"public.t": None, "public.u": None}
        with session(leaf) as here:
            kinds = {report.kind for report in errors(here)}
        assert "rejoin" in kinds
        with killed_at("rejoin.repaired"):
            run(leaf, apply=True)
        assert sorted(states(leaf).values(), key=str) == [None, "ok"]
        leaf.root.execute("insert into t values (601, 'meanwhile')")
        leaf.root.execute("insert into u values (601, 'meanwhile')")
        done = run(leaf, apply=True)
        assert done.way is Way.NOTHING and len(done.tables) == 1
        assert states(leaf) == {"public.t": "ok", "public.u": "ok"}
        with session(leaf) as here:
            assert compare(here, CompareOptions(), leaf.spark).bad == 0
    leaf.catch_up()
    assert len(leaf.same("t")) == 101
    assert len(leaf.same("u")) == 102
    removed = leaf.leaf.query("select old_row from vedur.repair_log where action = 'delete'")
    assert [row.old_row["v"] for row in removed] == ["only the leaf has it"]
    assert leaf.leaf.value("select count(*) from late") == 0, "its table stays"
    assert leaf.leaf.value("select count(*) from vedur.quarantine") == 0
    assert leaf.leaf.value("select outcome from vedur.quarantine_log") == "obsolete"
    assert leaf.leaf.value("select last_value from s") >= 50000, "no number is given out twice"
    assert leaf.leaf.value("select count(*) from vedur.rejoin") == 0
    assert run(leaf, apply=True).way is Way.NOTHING


@pytest.mark.draw("running")
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_root_that_does_not_know_the_leaf_and_a_table_copied_instead(
    make_leaf: MakeLeaf,
) -> None:
    """The root's backup is older than the leaf; and what was begun can be given to a copy."""
    leaf = fill(make_leaf(loop_delay=0.2))
    leaf.root.execute("select pgq_node.unregister_subscriber(%s, 'leaf')", [QUEUE])
    leaf.root.execute("select pgq_node.unregister_location(%s, 'leaf')", [QUEUE])
    leaf.leaf.execute("delete from vedur.position")
    leaf.leaf.execute("set session_replication_role = replica; delete from t where id = 1;"
                      " reset session_replication_role")  # fmt: skip
    with killed_at("rejoin.moved"):
        run(leaf, apply=True)
    assert consumer(leaf) == position(leaf)
    with session(leaf) as here:
        resync(here, ["public.u"])
    assert states(leaf) == {"public.t": None, "public.u": None}
    tables = leaf.role._to_copy(leaf.leaf, get_table_list(leaf.leaf, QUEUE))
    assert {t.table_name: t.merge_state for t in tables} == {"public.t": "ok", "public.u": None}
    with running(leaf):
        done = run(leaf, apply=True)
    assert [t.table for t in done.tables] == ["public.t"]
    assert done.tables[0].inserts == 1
    leaf.root.execute("update t set v = 'then' where id < 4")
    leaf.catch_up()
    assert len(leaf.same("t")) == 100
    assert states(leaf) == {"public.t": "ok", "public.u": None}
