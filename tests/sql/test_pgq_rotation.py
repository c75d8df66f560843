"""Rotation: tables are emptied when nobody needs them, and never before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    """A queue that ticks and rotates whenever asked, with one consumer; autocommit."""
    db.autocommit = True
    db.call("pgq.create_queue", "q")
    db.execute(
        "update pgq.queue set queue_ticker_max_lag = '0', queue_ticker_max_count = 1,"
        " queue_ticker_idle_period = '0', queue_rotation_period = '0'"
    )
    db.call("pgq.register_consumer", "q", "c")
    return db


@pytest.fixture
def other(queue: vdb.Database) -> Iterator[vdb.Database]:
    """A second connection."""
    with vdb.connect(queue.connstr, autocommit=True) as db:
        yield db


def current(db: vdb.Database) -> int:
    return int(db.value("select queue_cur_table from pgq.queue"))


def consume(db: vdb.Database) -> list[str]:
    """Tick, and read everything."""
    assert db.value("select pgq.ticker('q')") is not None
    found: list[str] = []
    while (batch := db.value("select pgq.next_batch('q', 'c')")) is not None:
        found += [row.ev_data for row in db.call("pgq.get_batch_events", batch)]
        db.call("pgq.finish_batch", batch)
    return found


def rotate(db: vdb.Database) -> bool:
    """Both steps; True if the current table changed."""
    before = current(db)
    assert db.value("select pgq.maint_rotate_tables_step1('q')") == 0
    assert db.value("select pgq.maint_rotate_tables_step2()") == 0
    return current(db) != before


def test_tables_take_turns(queue: vdb.Database) -> None:
    for nr in (1, 2, 0, 1):
        queue.value("select pgq.insert_event('q', 't', 'd')")
        consume(queue)
        assert rotate(queue)
        assert current(queue) == nr
        assert queue.value(f"select count(*) from pgq.event_1_{nr}") == 0
    assert queue.value("select pgq.current_event_table('q')") == "pgq.event_1_1"


def test_nothing_happens_before_its_time(queue: vdb.Database) -> None:
    queue.execute("update pgq.queue set queue_rotation_period = '1 hour'")
    consume(queue)
    assert not rotate(queue)
    assert queue.query("select * from pgq.maint_operations() where func_name like 'pgq.%'") == []


def test_the_second_step_comes_before_the_next_first(queue: vdb.Database) -> None:
    consume(queue)
    queue.call("pgq.maint_rotate_tables_step1", "q")
    consume(queue)
    queue.call("pgq.maint_rotate_tables_step1", "q")
    assert current(queue) == 1
    queue.call("pgq.maint_rotate_tables_step2")
    consume(queue)
    assert rotate(queue)


def test_a_consumer_that_stands_still_stops_rotation(queue: vdb.Database) -> None:
    queue.value("select pgq.insert_event('q', 't', 'kept')")
    queue.value("select pgq.ticker('q')")
    assert not rotate(queue)  # the consumer has not seen the switch before this one
    assert consume(queue) == ["kept"]
    assert rotate(queue)


def test_a_table_in_use_is_left_alone(queue: vdb.Database, other: vdb.Database) -> None:
    consume(queue)
    with other.transaction():
        other.execute("lock table pgq.event_1_1 in access share mode")
        assert not rotate(queue)  # and does not wait for it
    assert rotate(queue)


def test_a_reader_that_is_nearly_always_there_does_not_stop_rotation(
    queue: vdb.Database, other: vdb.Database
) -> None:
    stop = threading.Event()
    started = threading.Event()
    failed: list[Exception] = []

    def read() -> None:
        try:
            while not stop.is_set():
                with other.transaction():
                    other.query("select * from pgq.event_1")
                    started.set()
                    other.query("select pg_sleep(0.03)")
                stop.wait(0.005)
        except Exception as error:
            failed.append(error)

    consume(queue)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert started.wait(120)
        # One look finds the table free in one of seven cases, a round of them nearly always.
        rounds = []
        for _ in range(8):
            rounds.append(rotate(queue))
            consume(queue)
    finally:
        stop.set()
        reader.join(120)
    assert failed == []
    assert rounds.count(True) >= 4


def test_the_last_tick_stays_without_consumers(queue: vdb.Database) -> None:
    queue.call("pgq.unregister_consumer", "q", "c")
    for _ in range(5):
        queue.value("select pgq.ticker('q')")
        rotate(queue)
        rotate(queue)
    assert queue.value("select count(*) from pgq.tick") >= 1
    assert queue.value("select pgq.register_consumer('q', 'new')") == 1


def test_old_ticks_go_with_their_events(queue: vdb.Database) -> None:
    for _ in range(4):
        consume(queue)
        rotate(queue)
    assert queue.value("select min(tick_id) from pgq.tick") > 1
    assert (
        queue.value(
            "select count(*) from pgq.tick t join pgq.subscription s on t.tick_id = s.sub_last_tick"
        )
        == 1
    )


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_an_event_of_an_old_snapshot_is_delivered(
    queue: vdb.Database, other: vdb.Database, turns: int
) -> None:
    """The producer chose its table before the switches and writes after them."""
    other.execute("begin isolation level repeatable read")
    other.execute("select 1 from pgq.queue")
    for _ in range(turns):
        consume(queue)
        assert rotate(queue)
    consume(queue)
    other.execute("select pgq.insert_event('q', 't', 'late')")
    assert other.value("select tableoid::regclass::text from pgq.event_1") == "pgq.event_1_0"
    other.execute("commit")
    assert consume(queue) == ["late"]


def test_a_table_with_an_undelivered_event_of_an_old_snapshot_is_not_emptied(
    queue: vdb.Database, other: vdb.Database
) -> None:
    other.execute("begin isolation level repeatable read")
    other.execute("select 1 from pgq.queue")
    for _ in range(2):
        consume(queue)
        assert rotate(queue)
    consume(queue)
    other.execute("select pgq.insert_event('q', 't', 'late')")
    assert not rotate(queue)  # its table, the next in turn, is locked
    other.execute("commit")
    assert not rotate(queue)  # and now it holds what the consumer has not seen
    assert consume(queue) == ["late"]
    assert rotate(queue)
    # nobody can be put before an event that is gone
    assert queue.value("select count(*) from pgq.event_1_0") == 0
    assert (
        queue.value(
            "select count(*) from pgq.tick t, pgq.subscription s where t.tick_id < s.sub_last_tick"
        )
        == 0
    )


def test_rotation_needs_read_committed(queue: vdb.Database) -> None:
    consume(queue)
    queue.execute("begin isolation level repeatable read")
    with pytest.raises(DatabaseError, match="use read committed"):
        queue.call("pgq.maint_rotate_tables_step1", "q")
    queue.execute("rollback")
