"""A node's position against its consumer's: restored leaves, restored roots, numbers used again.

See tests/labs/backup.py for what a restore is here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.backup import Backup, consumer, position, session
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER
from vedur.errors import LostPosition
from vedur.ops.quarantine.list_errors import errors
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.status.snapshot import read_node
from vedur.status.tree import info_lines

__all__ = ["quick_leaf"]

MakeLeaf = Callable[..., Leaf]

TABLE = "create table t (id int primary key, v text)"


def make(quick_leaf: MakeLeaf, **settings: object) -> Leaf:
    leaf = quick_leaf(**settings)
    leaf.pair.table("public.t", TABLE)
    leaf.root.execute("insert into t select i, 'first' from generate_series(1, 10) i")
    leaf.catch_up()
    return leaf


def test_the_position_says_which_tick_it_is(quick_leaf: MakeLeaf) -> None:
    leaf = make(quick_leaf)
    kept = leaf.leaf.one("select * from vedur.position")
    tick = leaf.root.one(
        "select tick_time, tick_event_seq, tick_snapshot::text from pgq.tick where tick_id = %s",
        [position(leaf)],
    )
    assert (kept.queue_name, kept.consumer_name, kept.provider_node) == (QUEUE, WORKER, "root")
    assert kept.tick_id == position(leaf) == consumer(leaf)
    assert (kept.tick_time, kept.tick_event_seq, kept.tick_snapshot) == tuple(tick)


def test_a_restored_leaf_is_told_at_once(
    quick_leaf: MakeLeaf,
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaf = make(quick_leaf)
    backup = Backup(leaf, leaf.leaf)
    here = position(leaf)
    leaf.root.execute("update t set v = 'second'")
    leaf.catch_up()
    last = consumer(leaf)
    backup.restore()
    leaf.root.execute("insert into t values (11, 'new')")
    leaf.pair.tick()
    assert leaf.worker._work_safely()
    said = (
        f'Lost position: this node has applied tick {here}, its consumer "{WORKER}" on provider '
        f'"root" stands at tick {last}: this database was restored from an older backup; nothing '
        'is applied: run "rejoin" on this node, it says what it would do'
    )
    assert f"Job leaf crashed: {said}" in caplog.messages
    shown = info_lines(read_node(leaf.leaf, QUEUE, "leaf"))
    assert f"ERR: {WORKER}: {said}" in shown
    with session(leaf) as here_session:
        (report,) = errors(here_session)
    assert (report.kind, report.message) == ("position", said)
    assert report.actions[0].startswith("rejoin ")
    assert leaf.leaf.value("select count(*) from t where v = 'first'") == 10
    assert position(leaf) == here


def test_a_tick_of_the_same_number_is_not_believed(quick_leaf: MakeLeaf) -> None:
    """The root fails over to a standby that lacks the last ticks, and writes others."""
    leaf = make(quick_leaf)
    standby = Backup(leaf, leaf.root)
    before = consumer(leaf)
    leaf.root.execute("update t set v = 'lost' where id = 1")
    leaf.catch_up()
    here = position(leaf)
    standby.restore()
    with pytest.raises(LostPosition, match=f"has applied tick {here}, .* stands at tick {before}"):
        leaf.worker.work()
    leaf.worker._close_connections()
    leaf.root.execute("select pgq.seq_setval(queue_tick_seq, %s) from pgq.queue", [here - 1])
    leaf.root.execute("update t set v = 'other' where id = 2")
    assert leaf.pair.tick() == here
    with pytest.raises(LostPosition, match=f'tick {here} on provider "root" is not the tick'):
        leaf.worker.work()
    leaf.worker._close_connections()
    # even where the consumer was moved there by hand, or by a worker of an earlier version
    leaf.root.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, WORKER, here])
    with pytest.raises(LostPosition, match="is not the tick"):
        leaf.worker.work()
    assert leaf.leaf.value("select v from t where id = 2") == "first"


def test_a_root_that_forgot_finished_batches_is_moved_on(
    quick_leaf: MakeLeaf,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A standby that has the ticks, but not that they were finished: nothing is lost."""
    caplog.set_level("INFO", "vedur")
    leaf = make(quick_leaf)
    old = consumer(leaf)
    for number in range(3):
        leaf.root.execute("update t set v = %s", [f"step {number}"])
        leaf.catch_up()
    here = position(leaf)
    leaf.root.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, WORKER, old])
    leaf.worker._close_connections()
    leaf.root.execute("insert into t values (11, 'new')")
    leaf.catch_up()
    assert len(leaf.same("t")) == 11
    assert any(f"goes on at tick {here}" in m and f"stood at tick {old}" in m
               for m in caplog.messages)  # fmt: skip


def test_nodes_that_kept_no_tick_go_on_as_before(quick_leaf: MakeLeaf) -> None:
    """Upstream's and earlier versions' have the bare number, or not even the table."""
    leaf = make(quick_leaf)
    leaf.leaf.execute("delete from vedur.position")
    leaf.worker._close_connections()
    leaf.root.execute("insert into t values (11, 'new')")
    leaf.catch_up()
    assert leaf.leaf.value("select tick_id from vedur.position") == position(leaf)
    # committed, not finished: passed over by its number
    before = consumer(leaf)
    leaf.root.execute("insert into t values (12, 'new')")
    leaf.catch_up()
    leaf.leaf.execute("drop table vedur.position")
    leaf.root.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, WORKER, before])
    leaf.worker._close_connections()
    leaf.root.execute("insert into t values (13, 'new')")
    while leaf.worker.work():
        pass
    leaf.catch_up()
    assert len(leaf.same("t")) == 13


def test_an_open_batch_that_is_committed_is_finished(quick_leaf: MakeLeaf) -> None:
    leaf = make(quick_leaf)
    before = consumer(leaf)
    leaf.root.execute("insert into t values (11, 'new')")
    leaf.catch_up()
    here = position(leaf)
    leaf.root.execute(
        "update pgq.subscription set sub_last_tick = %s, sub_next_tick = %s,"
        " sub_batch = nextval('pgq.batch_id_seq') from pgq.consumer"
        " where co_id = sub_consumer and co_name = %s",
        [before, here, WORKER],
    )
    leaf.worker._close_connections()
    while leaf.worker.work():
        pass
    assert consumer(leaf) == position(leaf) == here
    assert len(leaf.same("t")) == 11


def test_a_consumer_that_is_not_registered(quick_leaf: MakeLeaf) -> None:
    leaf = make(quick_leaf)
    leaf.root.execute("select pgq.unregister_consumer(%s, %s)", [QUEUE, WORKER])
    with pytest.raises(LostPosition, match=r'not registered on provider "root".*"rejoin"'):
        leaf.worker.work()
    leaf.worker._close_connections()
    with pytest.raises(LostPosition, match="not registered"):
        leaf.worker.work()


def test_a_root_whose_transaction_numbers_began_anew(
    quick_leaf: MakeLeaf,
) -> None:
    """Restored from a dump into another server, at the very tick of the leaf: events would count
    as read, because their numbers are below those of the tick."""
    leaf = make(quick_leaf)
    leaf.worker._close_connections()
    far = (1 << 33) + 5
    leaf.root.execute(
        "update pgq.tick set tick_snapshot = (%s || ':' || %s || ':')::txid_snapshot"
        " where tick_id = %s",
        [far, far, position(leaf)],
    )
    leaf.leaf.execute("update vedur.position set tick_snapshot = %s", [f"{far}:{far}:"])
    leaf.root.execute("insert into t values (11, 'new')")
    with pytest.raises(LostPosition, match=r'dump.*"pg_resetwal --epoch=3".*rejoin'):
        leaf.worker.work()
    with session(leaf) as here, pytest.raises(LostPosition, match="transaction numbers"):
        rejoin(here, RejoinOptions(apply=True))
