"""Consumers: subscribe, read batches, retry, look at positions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    """A queue that ticks whenever asked, with one consumer; autocommit."""
    db.autocommit = True
    db.call("pgq.create_queue", "q")
    db.execute("update pgq.queue set queue_ticker_max_lag = '0', queue_ticker_idle_period = '0'")
    db.call("pgq.register_consumer", "q", "c")
    return db


@pytest.fixture
def other(queue: vdb.Database) -> Iterator[vdb.Database]:
    with vdb.connect(queue.connstr, autocommit=True) as db:
        yield db


def insert(db: vdb.Database, *data: str) -> None:
    for text in data:
        db.value("select pgq.insert_event('q', 't', %s)", [text])


def tick(db: vdb.Database) -> int:
    return int(db.value("select pgq.ticker('q')"))


def batch(db: vdb.Database, consumer: str = "c") -> int:
    return int(db.value("select pgq.next_batch('q', %s)", [consumer]))


def events(db: vdb.Database, batch_id: int) -> list[str]:
    return [row.ev_data for row in db.call("pgq.get_batch_events", batch_id)]


def test_a_batch_stays_open_until_it_is_finished(queue: vdb.Database) -> None:
    insert(queue, "a", "b")
    assert queue.value("select pgq.next_batch('q', 'c')") is None
    tick(queue)
    first = batch(queue)
    insert(queue, "c")
    tick(queue)
    assert batch(queue) == first
    assert events(queue, first) == ["a", "b"]
    assert queue.value("select pgq.finish_batch(%s)", [first]) == 1
    second = batch(queue)
    assert second > first
    assert events(queue, second) == ["c"]
    info = queue.one("select * from pgq.get_batch_info(%s)", [second])
    assert (info.queue_name, info.consumer_name, info.prev_tick_id, info.tick_id) == (
        "q",
        "c",
        2,
        3,
    )
    queue.call("pgq.finish_batch", second)
    assert queue.value("select pgq.next_batch('q', 'c')") is None


def test_finishing_twice_warns(queue: vdb.Database) -> None:
    notes: list[str | None] = []
    queue.raw.add_notice_handler(lambda note: notes.append(note.message_primary))
    assert queue.value("select pgq.finish_batch(99)") == 0
    assert notes == ["finish_batch: batch 99 not found"]


def test_a_long_transaction_comes_once_after_its_commit(
    queue: vdb.Database, other: vdb.Database
) -> None:
    other.execute("begin")
    insert(other, "long")
    for nr in range(3):
        insert(queue, f"short{nr}")
        tick(queue)
        assert events(queue, batch(queue)) == [f"short{nr}"]
        queue.call("pgq.finish_batch", batch(queue))
    insert(other, "longer")
    other.execute("commit")
    tick(queue)
    assert events(queue, batch(queue)) == ["long", "longer"]


def test_events_come_by_id_not_by_commit(queue: vdb.Database, other: vdb.Database) -> None:
    other.execute("begin")
    insert(other, "1")
    insert(queue, "2")
    insert(other, "3")
    other.execute("commit")
    tick(queue)
    assert events(queue, batch(queue)) == ["1", "2", "3"]


def test_the_batch_query_uses_the_index(queue: vdb.Database, other: vdb.Database) -> None:
    """Hundreds of pages of old events, a long transaction, a small batch: no table is scanned."""
    queue.execute("select pgq.insert_event('q', 't', 'old') from generate_series(1, 30000)")
    other.execute("begin")
    insert(other, "long")
    tick(queue)
    queue.call("pgq.finish_batch", batch(queue))
    other.execute("commit")
    insert(queue, "new")
    tick(queue)
    text = queue.value("select pgq.batch_event_sql(%s)", [batch(queue)])
    plan = "\n".join(row[0] for row in queue.query(f"explain (analyze, buffers) {text}"))
    # tables that are empty have no index worth using; the full one must be entered by index
    assert "Seq Scan on event_1_0" not in plan, plan
    assert events(queue, batch(queue)) == ["long", "new"]
    touched = [
        int(line.split("hit=")[1].split()[0]) for line in plan.splitlines() if "hit=" in line
    ]
    assert max(touched) < 100, plan


def test_cursor(queue: vdb.Database) -> None:
    insert(queue, *"abcdef")
    tick(queue)
    number = batch(queue)
    with queue.transaction():
        first = queue.query("select ev_data from pgq.get_batch_cursor(%s, 'cur', 2)", [number])
        rest = queue.query("fetch all from cur")
        scroll = queue.value("select is_scrollable from pg_cursors where name = 'cur'")
    assert [r.ev_data for r in first + rest] == list("abcdef")
    assert scroll is False
    with queue.transaction():
        some = queue.query(
            "select ev_data from pgq.get_batch_cursor(%s, 'c \"r', 9, 'ev_data > ''d''')", [number]
        )
    assert [r.ev_data for r in some] == ["e", "f"]


def test_two_consumers_each_get_everything(queue: vdb.Database) -> None:
    insert(queue, "before")
    tick(queue)
    assert queue.value("select pgq.register_consumer('q', 'late')") == 1
    insert(queue, "after")
    tick(queue)
    assert events(queue, batch(queue, "late")) == ["after"]
    assert events(queue, batch(queue)) == ["before"]


def test_repositioning_drops_the_open_batch(queue: vdb.Database) -> None:
    insert(queue, "a")
    tick(queue)
    old = batch(queue)
    queue.call("pgq.finish_batch", old)
    insert(queue, "b")
    tick(queue)
    open_batch = batch(queue)
    assert queue.value("select pgq.register_consumer_at('q', 'c', 1)") == 0
    with pytest.raises(DatabaseError, match="batch not found"):
        queue.call("pgq.get_batch_events", open_batch)
    assert events(queue, batch(queue)) == ["a"]
    with pytest.raises(DatabaseError, match="cannot reposition, tick not found: 99"):
        queue.value("select pgq.register_consumer_at('q', 'c', 99)")


def test_a_registration_without_position_changes_nothing(queue: vdb.Database) -> None:
    insert(queue, "a")
    tick(queue)
    number = batch(queue)
    assert queue.value("select pgq.register_consumer('q', 'c')") == 0
    assert batch(queue) == number


def test_unregister_forgets_retries_and_unused_names(queue: vdb.Database) -> None:
    queue.call("pgq.create_queue", "q2")
    queue.call("pgq.register_consumer", "q2", "c")
    insert(queue, "a")
    tick(queue)
    queue.value("select pgq.event_retry(%s, 1, 0)", [batch(queue)])
    assert queue.value("select pgq.unregister_consumer('q', 'c')") == 1
    assert queue.value("select pgq.unregister_consumer('q', 'c')") == 0
    assert queue.value("select count(*) from pgq.retry_queue") == 0
    assert queue.value("select co_name from pgq.consumer") == "c"  # still on q2
    queue.call("pgq.unregister_consumer", "q2", "c")
    assert queue.value("select count(*) from pgq.consumer") == 0


def test_unregister_takes_cooperating_consumers_along(queue: vdb.Database) -> None:
    for name in ("c.1", "c.2"):
        queue.call("pgq.register_consumer", "q", name)
    queue.execute("update pgq.subscription set sub_id = 1")
    assert queue.value("select pgq.unregister_consumer('q', 'c.1')") == 1
    assert queue.value("select pgq.unregister_consumer('q', 'c')") == 2
    assert queue.value("select count(*) from pgq.consumer") == 0


def test_a_retried_event_comes_back_to_its_consumer_alone(queue: vdb.Database) -> None:
    queue.call("pgq.register_consumer", "q", "d")
    insert(queue, "a", "b")
    tick(queue)
    for name in ("c", "d"):
        assert events(queue, batch(queue, name)) == ["a", "b"]
    text = "select pgq.event_retry(%s, 1, %s)"
    assert queue.value(text, [batch(queue), 0]) == 1
    assert queue.value(text, [batch(queue), 0]) == 0
    for name in ("c", "d"):
        queue.call("pgq.finish_batch", batch(queue, name))
    assert queue.value("select pgq.maint_retry_events()") == 1
    assert queue.value("select pgq.maint_retry_events()") == 0
    tick(queue)
    again = queue.call("pgq.get_batch_events", batch(queue))
    assert [(row.ev_id, row.ev_retry, row.ev_data) for row in again] == [(1, 1, "a")]
    assert events(queue, batch(queue, "d")) == []


def test_retries_wait_for_their_time_and_come_ten_at_a_time(queue: vdb.Database) -> None:
    insert(queue, *(str(n) for n in range(15)))
    tick(queue)
    queue.value("select pgq.event_retry(%s, 1, now() + '1 hour')", [batch(queue)])
    assert queue.value("select pgq.batch_retry(%s, 0)", [batch(queue)]) == 14
    assert [queue.value("select pgq.maint_retry_events()") for _ in range(3)] == [10, 4, 0]
    assert queue.value("select ev_id from pgq.retry_queue") == 1


def test_a_queue_that_refuses_inserts_does_not_stop_other_retries(queue: vdb.Database) -> None:
    queue.call("pgq.create_queue", "closed")
    queue.call("pgq.register_consumer", "closed", "c")
    for name in ("closed", "q"):
        queue.value(
            "select pgq.event_retry_raw(%s, 'c', now(), 5, now(), 0, 't', 'd', '', '', '', '')",
            [name],
        )
    queue.execute(
        "update pgq.queue set queue_disable_insert = (queue_name = 'closed'),"
        " queue_per_tx_limit = 0"  # a limit for producers, not for retries
    )
    assert queue.value("select pgq.maint_retry_events()") == 1
    assert queue.value("select pgq.maint_retry_events()") == 0


def test_a_lost_tick_is_named(queue: vdb.Database) -> None:
    queue.execute("delete from pgq.tick")
    with pytest.raises(DatabaseError, match="Consumer c on queue q does not see tick 1"):
        batch(queue)
    with pytest.raises(DatabaseError, match=r"No ticks for this queue\.  Please run ticker"):
        queue.call("pgq.register_consumer", "q", "new")


def test_wished_sizes(queue: vdb.Database) -> None:
    for nr in range(6):
        insert(queue, *(f"{nr}{c}" for c in "abc"))
        tick(queue)
    text = "select cur_tick_id from pgq.next_batch_custom('q', 'c', %s::interval, %s::int, null)"
    assert queue.value(text, ["1 hour", None]) is None
    assert queue.value(text, [None, 100]) is None
    assert queue.value(text, [None, 5]) == 3
    assert queue.value("select count(*) from pgq.get_batch_events(1)") == 6


def test_information(queue: vdb.Database) -> None:
    insert(queue, "a", "b")
    tick(queue)
    number = batch(queue)
    insert(queue, "c")
    row = queue.one("select * from pgq.get_consumer_info('q', 'c')")
    assert (row.last_tick, row.current_batch, row.next_tick, row.pending_events) == (
        1,
        number,
        2,
        2,
    )
    info = queue.one("select * from pgq.get_queue_info('q')")
    assert (info.ev_new, info.last_tick_id, info.queue_ntables) == (1, 2, 3)
    assert info.ev_per_sec > 0
    assert info.ticker_lag.total_seconds() >= 0


def test_vacuum_is_asked_for_only_without_autovacuum(queue: vdb.Database) -> None:
    assert queue.query("select * from pgq.maint_tables_to_vacuum()") == []


def test_extra_maintenance_and_upper_schemas_are_listed(queue: vdb.Database) -> None:
    queue.execute("update pgq.queue set queue_extra_maint = '{mine.check,mine.clean}'")
    rows = [tuple(row) for row in queue.call("pgq.maint_operations")]
    assert rows[:2] == [("mine.check", "q"), ("mine.clean", "q")]
    assert ("londiste.periodic_maintenance", None) in rows
