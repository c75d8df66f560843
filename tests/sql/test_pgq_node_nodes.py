"""pgq_node on every server version: members, positions, watermarks, a change of the root."""

from __future__ import annotations

from typing import Any

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError


def call(db: vdb.Database, function: str, *params: Any) -> tuple[Any, ...]:
    marks = ", ".join(["%s"] * len(params))
    return tuple(db.one(f"select * from {function}({marks})", list(params)))


def tick(db: vdb.Database, queue: str) -> int:
    """Make a tick that the rules of the ticker would not make yet."""
    db.execute(
        "update pgq.queue set queue_ticker_max_count = 1, queue_ticker_max_lag = '0',"
        " queue_ticker_idle_period = '0' where queue_name = %s",
        [queue],
    )
    db.execute("select pgq.insert_event(%s, 'x', 'y')", [queue])
    return int(db.value("select pgq.ticker(%s)", [queue]))


def events(db: vdb.Database, queue: str, kind: str) -> list[tuple[Any, ...]]:
    table = db.value("select queue_data_pfx from pgq.queue where queue_name = %s", [queue])
    return [
        tuple(row)
        for row in db.query(
            f"select ev_data, ev_extra1, ev_extra2, ev_extra3 from {table}"
            " where ev_type = %s order by ev_id",
            [kind],
        )
    ]


@pytest.fixture
def root(db: vdb.Database) -> vdb.Database:
    """Database with a root "n1" of queue "q" and known locations of "n2" and "n3"."""
    for name in ("n1", "n2", "n3"):
        call(db, "pgq_node.register_location", "q", name, f"dbname={name}", False)
    call(db, "pgq_node.create_node", "q", "root", "n1", "n1_worker", None, None, None)
    return db


def test_a_root_owns_the_queue_and_tells_new_locations(root: vdb.Database) -> None:
    info = root.one("select * from pgq_node.get_node_info('q')")
    assert (info.ret_code, info.node_type, info.provider_node) == (100, "root", "n1")
    assert info.worker_last_tick == info.local_watermark == info.global_watermark == 1
    call(root, "pgq_node.register_location", "q", "n4", "dbname=n4", True)
    assert events(root, "q", "pgq.location-info") == [("n4", "q", "dbname=n4", "true")]


def test_the_global_watermark_waits_for_the_slowest_subscriber(root: vdb.Database) -> None:
    call(root, "pgq_node.register_subscriber", "q", "n2", "n2_worker", None)
    call(root, "pgq_node.register_subscriber", "q", "n3", "n3_worker", None)
    last = tick(root, "q")
    for consumer in ("n2_worker", "n3_worker"):
        root.execute("select pgq.register_consumer_at('q', %s, %s)", [consumer, last])
    assert call(root, "pgq_node.set_subscriber_watermark", "q", "n2", last)[0] == 200
    assert call(root, "pgq_node.set_global_watermark", "q", None)[1] == "Global watermark set to 1"
    assert call(root, "pgq_node.set_subscriber_watermark", "q", "n3", last)[0] == 200
    assert call(root, "pgq_node.set_global_watermark", "q", None) == (
        200,
        f"Global watermark set to {last}",
    )
    assert events(root, "q", "pgq.global-watermark")[-1] == (str(last), "q", None, None)
    assert call(root, "pgq_node.set_subscriber_watermark", "q", "n2", 1)[0] == 405


def test_maintenance_publishes_the_watermark_of_a_stopped_worker(root: vdb.Database) -> None:
    root.execute("update pgq.tick set tick_time = now() - interval '6 minutes'")
    last = tick(root, "q")
    assert root.value("select pgq_node.maint_watermark('q')") == 0
    assert events(root, "q", "pgq.global-watermark") == [(str(last), "q", None, None)]
    assert ("pgq_node.maint_watermark", "q") in [
        tuple(row) for row in root.query("select * from pgq.maint_operations()")
    ]


def test_steps_of_a_demotion_have_an_order(root: vdb.Database) -> None:
    with pytest.raises(DatabaseError, match="steps in wrong order"):
        call(root, "pgq_node.demote_root", "q", 2, "n2")
    root.rollback()


def test_demoting_stops_writers_before_the_last_tick(root: vdb.Database) -> None:
    assert call(root, "pgq_node.demote_root", "q", 1, "n2")[0] == 200
    root.execute("savepoint s")
    with pytest.raises(DatabaseError, match="Insert into queue disallowed"):
        root.execute("select pgq.insert_event('q', 'x', 'y')")
    root.execute("rollback to s")
    code, _, last = call(root, "pgq_node.demote_root", "q", 2, "n2")
    assert (code, last) == (200, 2)
    assert call(root, "pgq_node.demote_root", "q", 3, "n2")[2] == last
    state = root.one("select * from pgq_node.get_worker_state('q')")
    assert (state.node_type, state.provider_node, state.completed_tick) == ("branch", "n2", last)
    assert call(root, "pgq_node.promote_branch", "q")[0] == 200
    root.execute("select pgq.insert_event('q', 'x', 'y')")
    assert root.one("select * from pgq_node.get_node_info('q')").provider_node == "n1"


def test_a_branch_begins_at_the_watermark_and_skips_unknown_ticks(db: vdb.Database) -> None:
    for name in ("n1", "n2"):
        call(db, "pgq_node.register_location", "q", name, "x", False)
    call(db, "pgq_node.create_node", "q", "branch", "n2", "w", "n1", 100, None)
    db.execute("select pgq.ticker('q', 105, now(), 7)")
    assert call(db, "pgq_node.set_global_watermark", "q", 103)[1].startswith("Skipping")
    assert call(db, "pgq_node.set_global_watermark", "q", None)[0] == 500
    assert call(db, "pgq_node.set_global_watermark", "q", 105)[0] == 200


def test_dropping_a_node_leaves_nothing(root: vdb.Database) -> None:
    root.execute("create table public.t (id int primary key)")
    call(root, "londiste.local_add_table", "q", "public.t")
    call(root, "pgq_node.register_subscriber", "q", "n2", "n2_worker", None)
    assert call(root, "pgq_node.drop_node", "q", "n1")[0] == 200
    for table in (
        "pgq.queue",
        "pgq.subscription",
        "pgq_node.node_info",
        "pgq_node.node_location",
        "pgq_node.local_state",
        "pgq_node.subscriber_info",
        "londiste.table_info",
    ):
        assert root.value(f"select count(*) from {table}") == 0, table
    left = "select count(*) from pg_trigger where tgrelid = 'public.t'::regclass"
    assert root.value(left) == 0


def test_a_pause_is_a_wish_until_the_worker_has_seen_it(root: vdb.Database) -> None:
    call(root, "pgq_node.set_consumer_uptodate", "q", "n1_worker", True)
    assert call(root, "pgq_node.set_consumer_paused", "q", "n1_worker", True)[0] == 200
    assert call(root, "pgq_node.set_consumer_paused", "q", "n1_worker", True)[0] == 201
    state = root.one("select * from pgq_node.get_worker_state('q')")
    assert (state.paused, state.uptodate) == (True, False)


def test_an_error_stays_until_the_next_success(root: vdb.Database) -> None:
    call(root, "pgq_node.set_consumer_error", "q", "n1_worker", "no luck")
    assert root.one("select * from pgq_node.get_worker_state('q')").cur_error == "no luck"
    call(root, "pgq_node.set_consumer_completed", "q", "n1_worker", 5)
    state = root.one("select * from pgq_node.get_worker_state('q')")
    assert (state.cur_error, state.completed_tick) == (None, 5)
