"""Names that pgq.queue holds are names wherever SQL is made of them, never SQL themselves."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError
from vedur.queue.batches import get_subscription

#: What follows a name differs from place to place, so each ends another way.
ENDS = [
    "; drop table if exists public.victim; --",
    " (ev_id, ev_time) values (1, now()); drop table if exists public.victim; --",
    " set (fillfactor = 90); drop table if exists public.victim; --",
    " to public; drop table if exists public.victim; --",
    " in access share mode; drop table if exists public.victim; --",
]
CALLS = [
    "select pgq.insert_event('q', 'a', 'b')",
    "select pgq.insert_event_raw('q', 1, now(), null, null, 'a', 'b', null, null, null, null)",
    "select * from pgq.get_batch_events((select sub_batch from pgq.subscription))",
    "select pgq.tune_storage('q')",
    "select pgq.grant_perms('q')",
    "select pgq.maint_rotate_tables_step1('q')",
    "select pgq.drop_queue('q', true)",
    "select * from vedur.create_capture('q', 'c', '_l', 'json', 'IUD')",
    "select vedur.refresh_capture('r')",
    "insert into b values (1)",
]


@pytest.fixture
def ready(db: vdb.Database) -> vdb.Database:
    """A queue with an open batch, captures in both modes, a rotation that is due."""
    db.execute("create table victim (id int)")
    # upstream's table has no such check, and this is about what comes behind it
    db.execute("alter table pgq.queue drop constraint queue_schema_check")
    for name in "bcr":
        db.execute(f"create table {name} (id int primary key)")
    db.call("pgq.create_queue", "q")
    db.call("pgq.register_consumer", "q", "c")
    for table, mode in (("b", "bulk"), ("r", "row")):
        got = db.one(
            "select * from vedur.create_capture('q', %s, '_l', 'json', 'IUD', %s)", [table, mode]
        )
        assert got.ret_code == 200, got
    db.commit()
    db.value("select pgq.force_tick('q')")
    db.commit()
    db.call("pgq.ticker")
    db.commit()
    assert db.value("select pgq.next_batch('q', 'c')") is not None
    db.execute("update pgq.queue set queue_switch_time = 'epoch', queue_rotation_period = '0'")
    db.commit()
    return db


@pytest.mark.parametrize("column", ["queue_data_pfx", "queue_event_seq", "queue_tick_seq"])
def test_a_hostile_name_is_not_run(ready: vdb.Database, column: str) -> None:
    starts = ("pgq.event_1_0", "pgq.event_1", "pgq.event_1_id_seq", "pgq.event_1_tick_seq")
    for call, start, end in product(CALLS, starts, ENDS):
        ready.execute(f"update pgq.queue set {column} = %s", [start + end])
        with suppress(DatabaseError):
            ready.query(call) if call.startswith("select") else ready.execute(call)
            assert ready.value("select to_regclass('public.victim') is not null"), call
        ready.rollback()


def test_a_name_that_needs_quotes_works(ready: vdb.Database) -> None:
    ready.execute("""
        alter table pgq.event_1 rename to "Event 1";
        alter table pgq.event_1_0 rename to "Event 1_0";
        alter table pgq.event_1_1 rename to "Event 1_1";
        alter table pgq.event_1_2 rename to "Event 1_2";
        update pgq.queue set queue_data_pfx = 'pgq.Event 1'
    """)
    assert ready.value("select pgq.insert_event('q', 'a', 'b')") is not None
    assert ready.value("select pgq.current_event_table('q')") == 'pgq."Event 1_0"'
    ready.execute("insert into b values (1)")
    ready.call("vedur.create_capture", "q", "c", "_l")
    ready.execute("insert into c values (1)")
    assert ready.value('select count(*) from pgq."Event 1_0"') == 3
    batch = ready.value("select sub_batch from pgq.subscription")
    assert ready.query("select * from pgq.get_batch_events(%s)", [batch]) == []
    place = get_subscription(ready, "q", "c")
    assert place is not None
    assert place.events == 'pgq."Event 1"'
    assert ready.value("select pgq.drop_queue('q', true)") == 1
    ready.rollback()


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_capture_without_primary_key(db: vdb.Database, mode: str) -> None:
    db.call("pgq.create_queue", "q")
    db.execute("create table t (id int)")
    got = db.one("select * from vedur.create_capture('q', 't', '_l', 'json', 'IUD', %s)", [mode])
    assert got.ret_code == 200, got
    db.execute("insert into t values (1)")
    db.commit()
    for change in ("update t set id = 2", "delete from t"):
        assert db.execute(change + " where false") == 0
        with pytest.raises(DatabaseError, match="Update/Delete on table without pkey"):
            db.execute(change)
        db.rollback()
    assert db.value("select count(*) from pgq.event_1") == 1
    db.rollback()
