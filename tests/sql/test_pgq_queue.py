"""Queues and producers: create, configure, insert, drop."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    db.autocommit = True
    assert db.value("select pgq.create_queue('q')") == 1
    return db


def test_a_queue_has_its_tables_and_first_tick(queue: vdb.Database) -> None:
    assert queue.value("select pgq.create_queue('q')") == 0
    tables = queue.query(
        "select c.relname, c.reloptions, i.inhparent::regclass::text as parent"
        " from pg_class c join pg_inherits i on i.inhrelid = c.oid"
        " where c.relname like 'event\\_1\\__' order by 1"
    )
    options = ["fillfactor=100", "autovacuum_enabled=off"]
    assert [tuple(t) for t in tables] == [
        (f"event_1_{nr}", options, "pgq.event_1") for nr in range(3)
    ]
    assert queue.value("select count(*) from pgq.tick") == 1


def test_events_written_in_the_transaction_of_create_queue_are_delivered(db: vdb.Database) -> None:
    db.call("pgq.create_queue", "q")
    db.call("pgq.register_consumer", "q", "c")
    db.value("select pgq.insert_event('q', 't', 'first')")
    db.commit()
    db.value("select pgq.ticker('q')")
    batch = db.value("select pgq.next_batch('q', 'c')")
    assert [row.ev_data for row in db.call("pgq.get_batch_events", batch)] == ["first"]


def test_two_who_create_the_same_queue(queue: vdb.Database) -> None:
    with vdb.connect(queue.connstr) as other:
        assert other.value("select pgq.create_queue('twice')") == 1
        queue.execute("set lock_timeout = '100ms'")
        with pytest.raises(DatabaseError, match="lock timeout"):
            queue.call("pgq.create_queue", "twice")
        other.commit()
    assert queue.value("select pgq.create_queue('twice')") == 0


def test_set_queue_config(queue: vdb.Database) -> None:
    for name, value, stored in [
        ("external_ticker", "true", "true"),
        ("ticker_paused", "on", "true"),
        ("ticker_max_count", "7", "7"),
        ("ticker_max_lag", "4 seconds", "00:00:04"),
        ("ticker_idle_period", "2 minutes", "00:02:00"),
        ("rotation_period", "3 hours", "03:00:00"),
    ]:
        assert queue.value("select pgq.set_queue_config('q', %s, %s)", [name, value]) == 1
        assert queue.value(f"select queue_{name}::text from pgq.queue") == stored


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("q", "ntables", "5"), 'cannot change parameter "ntables"'),
        (("q", "name = 1; drop table x", "5"), 'cannot change parameter "name = 1; drop table x"'),
        (("nope", "ticker_max_lag", "5"), "No such event queue"),
        (("q", None, "5"), "Invalid NULL value"),
        (("q", "ticker_max_lag", None), "Invalid NULL value"),
        (("q", "ticker_max_count", "many"), "invalid input syntax for type integer"),
    ],
)
def test_bad_configuration(queue: vdb.Database, args: tuple[str | None, ...], message: str) -> None:
    with pytest.raises(DatabaseError, match=message.replace("(", "\\(")):
        queue.value("select pgq.set_queue_config(%s::text, %s::text, %s::text)", args)


def test_events_by_name_of_the_arguments(queue: vdb.Database) -> None:
    text = "select pgq.insert_event(queue_name => 'q', ev_type => 't', ev_data => 'd')"
    assert queue.value(text) == 1
    row = queue.one("select * from pgq.event_1_0")
    assert (row.ev_type, row.ev_data, row.ev_extra1, row.ev_owner) == ("t", "d", None, None)


def test_a_given_id_moves_the_sequence_too(queue: vdb.Database) -> None:
    text = (
        "select pgq.insert_event_raw('q', 77, '2001-01-01', null, 3, 't', 'd', '1', '2', '3', '4')"
    )
    assert queue.value(text) == 77
    assert queue.value("select pgq.insert_event('q', 't', 'd')") == 2


def test_hostile_names_and_values(queue: vdb.Database) -> None:
    name = 'o\'dd "näme"; \\ %s'
    assert queue.value("select pgq.create_queue(%s)", [name]) == 1
    assert queue.value("select pgq.insert_event(%s, %s, %s)", [name, name, name]) == 1
    assert queue.value("select ev_data from pgq.event_2") == name
    assert queue.value("select pgq.drop_queue(%s)", [name]) == 1


def test_a_very_long_name_can_still_tick(queue: vdb.Database) -> None:
    name = "n" * 2500
    queue.value("select pgq.create_queue(%s)", [name])
    assert queue.value("select pgq.ticker(%s)", [name]) == 2


def test_disabled_queues_take_events_in_replica_role_only(queue: vdb.Database) -> None:
    queue.execute("update pgq.queue set queue_disable_insert = true")
    with pytest.raises(DatabaseError, match="Insert into queue disallowed"):
        queue.call("pgq.insert_event", "q", "t", "d")
    with pytest.raises(DatabaseError, match="Writing to queue disabled"):
        queue.call("pgq.current_event_table", "q")
    queue.execute("set session_replication_role = replica")
    assert queue.value("select pgq.insert_event('q', 't', 'd')") == 2
    assert queue.value("select pgq.current_event_table('q')") == "pgq.event_1_0"


def test_a_queue_that_opens_while_an_event_is_refused_takes_it(queue: vdb.Database) -> None:
    """As where a node becomes the root between two looks of one statement."""
    queue.execute("update pgq.queue set queue_disable_insert = true")
    queue.execute(
        "create or replace function vedur.where_to_write(i_queue_name text) returns text as $$"
        " begin update pgq.queue set queue_disable_insert = false; return null; end"
        " $$ language plpgsql"
    )
    event = queue.value("select pgq.insert_event('q', 't', 'd')")
    assert queue.query("select ev_id, ev_data from pgq.event_template") == [(event, "d")]


def test_limit_of_events_in_one_transaction(queue: vdb.Database) -> None:
    queue.execute("update pgq.queue set queue_per_tx_limit = 2")
    queue.call("pgq.create_queue", "free")
    insert = "select pgq.insert_event('q', 't', 'd') from generate_series(1, %s)"
    for _ in range(3):  # each transaction has its own count
        queue.query(insert, [2])
    with pytest.raises(DatabaseError, match="Queue 'q' allows max 2 events from one TX"):
        queue.query(insert, [3])
    with queue.transaction():
        queue.query("select pgq.insert_event('free', 't', 'd') from generate_series(1, 9)")
        queue.query(insert, [1])
        queue.execute("savepoint s")
        queue.query(insert, [1])
        queue.execute("rollback to s")
        queue.query(insert, [1])  # the undone one does not count
    queue.execute("update pgq.queue set queue_per_tx_limit = -1")
    queue.query(insert, [9])


def test_copy_into_the_current_table(queue: vdb.Database) -> None:
    table = queue.value("select pgq.current_event_table('q')")
    queue.execute(f"insert into {table} (ev_time, ev_type, ev_data) values (now(), 't', 'bulk')")
    assert queue.one("select ev_id, ev_data from pgq.event_1") == (1, "bulk")


def test_drop_queue(queue: vdb.Database) -> None:
    queue.call("pgq.register_consumer", "q", "c")
    with pytest.raises(DatabaseError, match="cannot drop queue, consumers still attached"):
        queue.call("pgq.drop_queue", "q")
    with pytest.raises(DatabaseError, match="No such event queue"):
        queue.call("pgq.drop_queue", "nope")
    text = "select pgq.event_retry_raw('q', 'c', now(), 5, now(), 0, 't', 'd', '', '', '', '')"
    queue.value(text)
    assert queue.value("select pgq.drop_queue('q', true)") == 1
    for table in ("queue", "tick", "subscription", "consumer", "retry_queue"):
        assert queue.value(f"select count(*) from pgq.{table}") == 0
    left = "select count(*) from pg_class where relname like 'event\\_1%'"
    assert queue.value(left) == 0


def test_sequences_never_go_back(queue: vdb.Database) -> None:
    queue.execute('create schema "Odd"; create sequence "Odd"."my.Seq"')
    assert queue.value("select pgq.seq_getval('Odd.my.Seq')") == 1
    assert queue.value("select pgq.seq_setval('Odd.my.Seq', 10)") == 10
    assert queue.value("select pgq.seq_setval('Odd.my.Seq', 5)") == 10
    assert queue.value('select nextval(\'"Odd"."my.Seq"\')') == 11


def test_the_installer_runs_twice_and_keeps_queues(queue: vdb.Database) -> None:
    from vedur.sql import schema_files

    queue.value("select pgq.insert_event('q', 't', 'd')")
    with queue.transaction():
        for file in (*schema_files("pgq"), *schema_files("pgq_ext")):
            if not file.once:
                queue.execute(file.text)
    assert queue.value("select count(*) from pgq.event_1") == 1
    assert queue.value("select pgq.upgrade_schema() + pgq_ext.upgrade_schema()") == 0
    assert int(queue.value("select pgq.version()").split(".")[0]) >= 3
