"""Ordinary roles do the whole work: a writer produces, a reader consumes, an admin runs it."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.errors import PrivilegeError

pytestmark = pytest.mark.every_version


@pytest.fixture
def roles(db: vdb.Database) -> vdb.Database:
    """Roles that only inherit; none is superuser."""
    db.autocommit = True
    for kind in ("reader", "writer", "admin"):
        if not db.value("select 1 from pg_roles where rolname = %s", [f"t_{kind}"]):
            db.execute(f"create role t_{kind} in role pgq_{kind}")
    return db


def test_each_role_does_its_part(roles: vdb.Database) -> None:
    roles.execute("set role t_admin")
    roles.call("pgq.create_queue", "q")
    roles.call("pgq.set_queue_config", "q", "ticker_max_lag", "0")
    roles.call("pgq.set_queue_config", "q", "rotation_period", "0")
    roles.execute("set role t_reader")
    roles.call("pgq.register_consumer", "q", "c")
    roles.execute("set role t_writer")
    assert roles.value("select pgq.insert_event('q', 't', 'd')") == 1
    roles.execute("set role t_admin")
    roles.call("pgq.ticker")
    roles.execute("set role t_reader")
    batch = roles.value("select pgq.next_batch('q', 'c')")
    with roles.transaction():
        rows = roles.query("select ev_data from pgq.get_batch_cursor(%s, 'cur', 10)", [batch])
    assert [r.ev_data for r in rows] == ["d"]
    assert roles.value("select pgq.event_retry(%s, 1, 0)", [batch]) == 1
    roles.call("pgq.finish_batch", batch)
    roles.execute("set role t_admin")
    assert roles.value("select pgq.maint_retry_events()") == 1
    roles.call("pgq.ticker", "q")
    roles.call("pgq.maint_rotate_tables_step1", "q")
    roles.call("pgq.maint_rotate_tables_step2")
    roles.call("pgq.maint_operations")
    assert roles.value("select queue_cur_table from pgq.queue") == 1
    roles.execute("reset role")


@pytest.mark.parametrize(
    ("role", "call"),
    [
        ("t_reader", "select pgq.insert_event('q', 't', 'd')"),
        ("t_reader", "select pgq.ticker()"),
        ("t_reader", "select pgq.drop_queue('q')"),
        ("t_reader", "select * from pgq.retry_queue"),
        ("t_writer", "select pgq.next_batch('q', 'c')"),
        ("t_writer", "select pgq.insert_event_raw('q', 1, now(), 1, 1, '', '', '', '', '', '')"),
        ("t_writer", "select * from pgq.event_1"),
        ("t_writer", "select pgq.create_queue('mine')"),
        ("t_writer", "select pgq._write_tick(1)"),
    ],
)
def test_each_role_does_no_more(roles: vdb.Database, role: str, call: str) -> None:
    roles.call("pgq.create_queue", "q")
    roles.execute(f"set role {role}")
    with pytest.raises(PrivilegeError):
        roles.query(call)
    roles.execute("reset role")


def test_anybody_may_look(roles: vdb.Database) -> None:
    roles.call("pgq.create_queue", "q")
    if not roles.value("select 1 from pg_roles where rolname = 't_nobody'"):
        roles.execute("create role t_nobody")
    roles.execute("set role t_nobody")
    assert roles.value("select queue_name from pgq.get_queue_info('q')") == "q"
    assert roles.query("select * from pgq.get_consumer_info()") == []
    with pytest.raises(PrivilegeError):
        roles.call("pgq.insert_event", "q", "t", "d")
    roles.execute("reset role")


def test_objects_of_the_caller_cannot_stand_in_for_ours(roles: vdb.Database) -> None:
    """A function or table in the caller's search_path is not used by security definer functions."""
    roles.call("pgq.create_queue", "q")
    roles.execute(
        "grant temp on database " + roles.value("select current_database()") + " to public"
    )
    roles.execute("set role t_writer")
    roles.execute("create temp table queue (queue_name text)")
    roles.execute(
        "create function pg_temp.now() returns timestamptz"
        " language sql as 'select null::timestamptz'"
    )
    roles.execute("set search_path = pg_temp, pg_catalog")
    assert roles.value("select pgq.insert_event('q', 't', 'd')") == 1
    roles.execute("reset role")
    assert roles.value("select ev_time is not null from pgq.event_1")
