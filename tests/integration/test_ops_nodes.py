"""Nodes that come anew under an old name, move to another address or change their provider."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.fixtures.pg import Servers
from tests.integration.test_ops_admin import (
    QUEUE,
    Lab,
    MakeOn,
    Meanwhile,
    _accept,
    installed,
    kind,
    lab,
)
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import call
from vedur import db as vdb
from vedur import failpoint
from vedur.db.conninfo import with_params
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info, get_queue_locations
from vedur.ops import show
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_location import change_location
from vedur.ops.change_provider import change_provider
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.drop_node import drop_node
from vedur.ops.remove_table import remove_table
from vedur.ops.sequences import add_seq, remove_seq

__all__ = ["installed", "kind", "lab", "quick_leaf"]

NOWHERE = "host=127.0.0.1 port=1 dbname=x"


def to_come(lab: Lab) -> list[str]:
    """Types of the events that the leaf's worker will read."""
    lab.tick()
    batch = lab.root_db.value("select pgq.next_batch(%s, 'dst')", [QUEUE])
    rows = lab.root_db.query("select ev_type from pgq.get_batch_events(%s)", [batch])
    lab.root_db.value("select pgq.finish_batch(%s)", [batch])
    return [row.ev_type for row in rows]


def create_leaf(lab: Lab, name: str = "dst", location: str = "") -> None:
    node = plan_node(
        lab.leaf, NodeType.LEAF, name, location or lab.leaf_db.connstr, lab.root_db.connstr
    )
    create_node(lab.leaf, node)


# -- created anew ---------------------------------------------------------------------------------


def test_a_leaf_of_an_old_name_reads_nothing_of_before(lab: Lab) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a", "s.b"]))
    add_seq(lab.root, ["s.b_id_seq"])
    lab.root_db.execute("create sequence s.gone")
    add_seq(lab.root, ["s.gone"])
    lab.tick()
    drop_node(lab.root, "dst")
    remove_table(lab.root, ["s.a"])
    remove_seq(lab.root, ["s.gone"])
    lab.root_db.execute("select pgq.insert_event(%s, 'EXECUTE', 'select 1', 'x.sql', '', '', '')",
                        [QUEUE])  # fmt: skip
    moved = with_params(lab.leaf_db.connstr, application_name="elsewhere")
    create_leaf(lab, location=moved)
    assert set(to_come(lab)) <= {"pgq.location-info"}
    # what the queue told before is known all the same
    known = lab.leaf_db.query("select table_name from londiste.get_table_list(%s)", [QUEUE])
    assert [row.table_name for row in known] == ["s.b"]
    assert [seq.seq_name for seq in show.seqs(lab.root)] == ["s.b_id_seq"]
    rows = lab.leaf_db.query("select seq_name from londiste.get_seq_list(%s)", [QUEUE])
    assert [row.seq_name for row in rows] == ["s.b_id_seq"]
    for db in (lab.root_db, lab.leaf_db):
        found = {m.node_name: m.node_location for m in get_queue_locations(db, QUEUE)}
        assert found["dst"] == moved


def test_a_creation_that_was_broken_off_can_be_repeated(lab: Lab) -> None:
    create_node(lab.root, plan_node(lab.root, NodeType.ROOT, "src", lab.root_db.connstr))

    subscribers = "select * from pgq_node.get_subscriber_info(%s)"
    for point in ("create.ticked", "create.ticked", "create.subscribed", "create.subscribed"):

        def hook(name: str, point: str = point) -> None:
            if name == point:
                raise KeyboardInterrupt

        failpoint.set_hook(hook)
        try:
            with pytest.raises(KeyboardInterrupt):
                create_leaf(lab)
        finally:
            failpoint.set_hook(None)
        if point == "create.ticked":
            assert lab.root_db.query(subscribers, [QUEUE]) == []
        assert get_node_info(lab.leaf_db, QUEUE) is None, "no node that its provider does not know"
    create_leaf(lab)
    info = get_node_info(lab.leaf_db, QUEUE)
    place = lab.root_db.value("select last_tick from pgq.get_consumer_info(%s, 'dst')", [QUEUE])
    assert info and info.worker_last_tick == place


def test_events_about_what_is_gone_do_not_stop_a_worker(
    quick_leaf: Callable[..., Leaf],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A list of the set that was read later than the queue stands has them already."""
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    for ev_type, data, extra in (
        ("londiste.remove-table", "public.unknown", ""),
        ("londiste.remove-seq", "public.unknown", ""),
        ("pgq.unregister-location", "leaf", "q"),
        ("pgq.unregister-location", "root", "q"),
        ("pgq.unregister-location", "unknown", "q"),
        ("pgq.global-watermark", "1000000", "q"),
    ):
        leaf.root.execute(
            "select pgq.insert_event('q', %s, %s, %s, '', '', '')", [ev_type, data, extra]
        )
    leaf.root.execute("insert into t values (1)")
    leaf.catch_up()
    assert leaf.same("t") == ["(1)"]
    assert "leaf" in [m.node_name for m in get_queue_locations(leaf.leaf, "q")]
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert any("own location: it is kept" in line for line in said)
    assert any("location of node's parent: it is kept" in line for line in said)


def test_create_on_a_node_that_is_there(lab: Lab) -> None:
    lab.create_nodes()
    create_leaf(lab)
    assert lab.lines()[-1] == "INFO Node is already initialized as leaf"
    other = with_params(lab.leaf_db.connstr, connect_timeout="9", password="secret")
    with pytest.raises(StateError, match=r'"change-location dst CONNSTR" changes it') as refused:
        create_leaf(lab, location=other)
    assert "secret" not in refused.value.message
    with pytest.raises(StateError, match='already initialized as leaf "dst": nothing is changed'):
        create_leaf(lab, "dst2")
    moved = plan_node(lab.root, NodeType.ROOT, "src", with_params(lab.root_db.connstr, port="1"))
    with pytest.raises(StateError, match='"change-location src CONNSTR"'):
        create_node(lab.root, moved)


# -- moved ----------------------------------------------------------------------------------------


def locations(db: vdb.Database) -> dict[str, str]:
    return {m.node_name: m.node_location for m in get_queue_locations(db, QUEUE)}


def test_change_location_tells_every_node(lab: Lab) -> None:
    lab.create_nodes()
    to_come(lab)
    new = with_params(lab.leaf_db.connstr, connect_timeout="9")
    change_location(lab.leaf, "dst", new)
    assert locations(lab.root_db)["dst"] == locations(lab.leaf_db)["dst"] == new
    assert lab.lines()[-1] == "INFO Location of 'dst' changed on: dst, src"
    assert "pgq.location-info" in to_come(lab)
    # the root has moved, and the leaf cannot reach it where it was
    lab.leaf_db.execute("update pgq_node.node_location set node_location = %s"
                        " where node_name = 'src'", [NOWHERE])  # fmt: skip
    new = with_params(lab.root_db.connstr, connect_timeout="9")
    change_location(lab.leaf, "src", new)
    assert locations(lab.root_db)["src"] == locations(lab.leaf_db)["src"] == new
    # a member that cannot be reached is named
    lab.lines()
    lab.root_db.execute("select pgq_node.register_location(%s, 'away', %s, false)",
                        [QUEUE, NOWHERE])  # fmt: skip
    change_location(lab.root, "src", lab.root_db.connstr)
    lines = lab.lines()
    assert any(line.startswith("WARNING Not reached: away: the root tells them") for line in lines)
    assert locations(lab.leaf_db)["src"] == lab.root_db.connstr


def test_change_location_looks_who_is_there(lab: Lab) -> None:
    lab.create_nodes()
    with pytest.raises(StateError, match="Unknown node: nobody"):
        change_location(lab.leaf, "nobody", lab.leaf_db.connstr)
    with pytest.raises(StateError, match=r'"src" does not answer there.*--nocheck'):
        change_location(lab.leaf, "src", NOWHERE)
    with pytest.raises(StateError, match='that database has node "dst", not "src"'):
        change_location(lab.leaf, "src", lab.leaf_db.connstr)
    with pytest.raises(StateError, match="points to different database"):
        change_location(lab.leaf, "dst", lab.root_db.connstr)
    lab.root_db.execute("select pgq_node.unregister_subscriber(%s, 'dst')", [QUEUE])
    new = with_params(lab.root_db.connstr, connect_timeout="9")
    with pytest.raises(StateError, match=r'does not know "dst" as a subscriber'):
        change_location(lab.leaf, "src", new)
    assert locations(lab.leaf_db)["src"] == lab.root_db.connstr
    lab.lines()
    change_location(lab.leaf, "src", NOWHERE, check=False)
    assert locations(lab.leaf_db)["src"] == NOWHERE
    lines = lab.lines()
    assert any("Not reached: src: run the same command there" in line for line in lines)
    assert lines[-1].startswith("WARNING The root was not reached")


# -- another provider -----------------------------------------------------------------------------


def make_branch(lab: Lab, db: vdb.Database) -> None:
    """A branch of Londiste's own worker, which passes events on; it stands at the first tick."""
    for name, location in (("src", lab.root_db.connstr), ("mid", db.connstr)):
        for each in (db, lab.leaf_db, lab.root_db):
            call(each, "pgq_node.register_location", QUEUE, name, location, False)
    call(lab.root_db, "pgq_node.register_subscriber", QUEUE, "mid", "mid_worker", 1)
    call(db, "pgq_node.create_node", QUEUE, "branch", "mid", "mid_worker", "src", 1, None)


def paused(lab: Lab) -> bool:
    return bool(lab.leaf_db.value("select paused from pgq_node.local_state"))


def test_change_provider_that_fails_leaves_the_node_as_it_was(
    lab: Lab, make_db_on: MakeOn, servers: Servers
) -> None:
    lab.create_nodes()
    mid_db = make_db_on(servers.get(15), "upstream", autocommit=True)
    make_branch(lab, mid_db)
    here = get_node_info(lab.leaf_db, QUEUE)
    assert here is not None
    tick = here.worker_last_tick
    lab.lines()
    with pytest.raises(StateError, match=rf'"mid" does not have tick {tick}.*ticks 1 to 1.*wait'):
        change_provider(lab.leaf, "mid", max_wait=0)
    assert lab.lines() == [], "it did not even pause"
    mid_db.execute("select pgq.ticker(%s, %s, now(), 1)", [QUEUE, tick])

    def interrupt(name: str) -> None:
        if name == "provider.paused":
            raise KeyboardInterrupt

    failpoint.set_hook(interrupt)
    try:
        with Meanwhile(lambda: _accept(lab)), pytest.raises(KeyboardInterrupt):
            change_provider(lab.leaf, "mid")
    finally:
        failpoint.set_hook(None)
    assert not paused(lab)
    assert mid_db.query("select * from pgq_node.get_subscriber_info(%s)", [QUEUE]) == []
    # a subscription that a killed command has left is replaced
    call(mid_db, "pgq_node.register_location", QUEUE, "dst", lab.leaf_db.connstr, False)
    call(mid_db, "pgq_node.register_subscriber", QUEUE, "dst", "dst", 1)
    lab.leaf_db.execute("update pgq_node.local_state set paused = true, uptodate = true")
    lab.lines()
    change_provider(lab.leaf, "mid")
    assert paused(lab), "an operator has paused it"
    assert lab.lines()[-1].endswith(f"reads from 'mid', after tick {tick}")
    text = "select last_tick from pgq.get_consumer_info(%s, 'dst')"
    assert mid_db.value(text, [QUEUE]) == tick


def test_change_provider_waits_for_no_copy(lab: Lab, make_db_on: MakeOn, servers: Servers) -> None:
    lab.create_nodes()
    lab.add_both("s.a")
    mid_db = make_db_on(servers.get(15), "upstream", autocommit=True)
    make_branch(lab, mid_db)
    info = get_node_info(lab.leaf_db, QUEUE)
    assert info is not None
    mid_db.execute("select pgq.ticker(%s, %s, now(), 1)", [QUEUE, info.worker_last_tick])
    call(lab.leaf_db, "londiste.local_set_table_state", QUEUE, "s.a", None, "in-copy")
    with pytest.raises(StateError, match=r'1 table\(s\) of node "dst" are being copied \(s\.a\)'):
        change_provider(lab.leaf, "mid")
    assert not paused(lab)


def test_a_node_made_again_in_its_database_believes_nothing_of_before(
    lab: Lab,
) -> None:
    """The whole set is made anew: numbers of ticks begin at 1 again."""
    for _ in range(2):
        lab.create_nodes()
        kept = lab.leaf_db.one("select tick_id, tick_time from vedur.position")
        info = get_node_info(lab.leaf_db, QUEUE)
        text = "select tick_time from pgq.tick where tick_id = %s"
        assert info and info.worker_last_tick == kept.tick_id
        assert lab.root_db.value(text, [kept.tick_id]) == kept.tick_time
        lab.leaf_db.execute("insert into vedur.rejoin values (%s, 's.a', 1)", [QUEUE])
        drop_node(lab.root, "dst")
        assert lab.leaf_db.value("select count(*) from vedur.position") == 0
        assert lab.leaf_db.value("select count(*) from vedur.rejoin") == 0
        drop_node(lab.root, "src")
