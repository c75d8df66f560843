"""The ticker: when it ticks, and that ticks and snapshots grow together."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from tests.fixtures.wait import until
from vedur import db as vdb
from vedur.errors import DatabaseError


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    """A queue "q" with two ticks; autocommit."""
    db.autocommit = True
    db.call("pgq.create_queue", "q")
    db.value("select pgq.ticker('q')")
    return db


@pytest.fixture
def other(queue: vdb.Database) -> Iterator[vdb.Database]:
    with vdb.connect(queue.connstr, autocommit=True) as db:
        yield db


def age(db: vdb.Database, last: str, gap: str) -> None:
    """Make the last tick so old, and the one before older by a gap."""
    db.execute(
        "update pgq.tick set tick_time = now() - %s::interval"
        " - case tick_id when 1 then %s::interval else '0' end",
        [last, gap],
    )


@pytest.mark.parametrize(
    ("events", "last", "gap", "due"),
    [
        (0, "1 second", "0.1 seconds", False),  # idle, younger than half of max_lag (3 s)
        (0, "2 seconds", "0.5 seconds", True),  # idle, and the gap has doubled
        (0, "30 seconds", "20 seconds", False),  # idle, not yet doubled
        (0, "61 seconds", "50 seconds", True),  # idle, but idle_period (1 min) is over
        (5, "1 second", "1 hour", False),  # a few events, young
        (5, "4 seconds", "1 hour", True),  # a few events, older than max_lag
        (501, "0 seconds", "1 hour", True),  # more than max_count (500)
        (0, "-1 hour", "1 second", True),  # the clock was set back
        (5, "-1 hour", "1 second", True),
    ],
)
def test_when_a_queue_is_due(
    queue: vdb.Database, events: int, last: str, gap: str, due: bool
) -> None:
    queue.value("select setval('pgq.event_1_id_seq', 1000)")
    queue.execute("update pgq.tick set tick_event_seq = 1000")
    queue.query("select pgq.insert_event('q', 't', 'd') from generate_series(1, %s)", [events])
    with queue.transaction():  # in which no time passes
        age(queue, last, gap)
        assert queue.value("select pgq.ticker()") == int(due)
    with queue.transaction():
        age(queue, last, gap)
        queue.execute("delete from pgq.tick where tick_id > 2")
        assert (queue.value("select pgq.ticker('q')") is not None) == due


def test_the_very_first_event_is_not_overlooked(queue: vdb.Database) -> None:
    """It moves last_value of the sequence from 1 to 1."""
    assert queue.query("select tick_event_seq from pgq.tick") == [(0,), (0,)]
    assert queue.value("select ev_new from pgq.get_queue_info('q')") == 0
    age(queue, "4 seconds", "1 hour")  # older than max_lag (3 s), far from the next idle tick
    assert queue.value("select pgq.ticker()") == 0
    queue.value("select pgq.insert_event('q', 't', 'first')")
    assert queue.value("select ev_new from pgq.get_queue_info('q')") == 1
    assert queue.value("select pgq.ticker()") == 1
    assert queue.value("select tick_event_seq from pgq.tick where tick_id = 3") == 1
    assert queue.value("select ev_new from pgq.get_queue_info('q')") == 0


def test_an_unused_queue_behind_a_tick_of_another_node_has_no_new_events(
    queue: vdb.Database,
) -> None:
    """Upstream sends 1 for a sequence that was never used."""
    queue.execute("update pgq.queue set queue_external_ticker = true")
    queue.value("select pgq.ticker('q', 10::bigint, now(), 1::bigint)")
    assert queue.value("select ev_new from pgq.get_queue_info('q')") == 0


def test_gaps_of_an_idle_queue_double_up_to_the_idle_period(queue: vdb.Database) -> None:
    """Ten minutes pass in steps of a second."""
    queue.execute("delete from pgq.tick")
    seen = []
    for second in range(600):
        queue.execute("update pgq.tick set tick_time = tick_time - interval '1 second'")
        if queue.value("select pgq.ticker()"):
            seen.append(second)
    gaps = [b - a for a, b in itertools.pairwise(seen)]
    assert gaps == sorted(gaps)
    assert gaps[-1] in (60, 61)
    assert len(seen) < 20


def test_a_tick_is_announced(queue: vdb.Database, other: vdb.Database) -> None:
    other.execute("listen pgq_tick")
    queue.call("pgq.force_tick", "q")
    tick = queue.value("select pgq.ticker('q')")
    notes = list(other.raw.notifies(timeout=60, stop_after=1))
    assert [(n.channel, n.payload) for n in notes] == [("pgq_tick", f"q:{tick}")]


def test_force_tick_makes_the_ticker_tick(queue: vdb.Database) -> None:
    queue.execute("update pgq.queue set queue_ticker_max_lag = '1 hour'")
    assert queue.value("select pgq.ticker('q')") is None
    assert queue.value("select pgq.force_tick('q')") == 2
    assert queue.value("select pgq.ticker('q')") == 3
    assert queue.value("select ev_new from pgq.get_queue_info('q')") == 0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("queue_external_ticker", "This queue has external tick source."),
        ("queue_ticker_paused", "Ticker has been paused for this queue"),
    ],
)
def test_queues_that_do_not_tick_here(queue: vdb.Database, column: str, message: str) -> None:
    queue.execute(f"update pgq.queue set {column} = true")
    queue.call("pgq.force_tick", "q")
    assert queue.value("select pgq.ticker()") == 0
    with pytest.raises(DatabaseError, match=message):
        queue.call("pgq.ticker", "q")


def test_external_ticks_move_both_sequences_and_only_forward(queue: vdb.Database) -> None:
    queue.execute("update pgq.queue set queue_external_ticker = true")
    text = "select pgq.ticker('q', %s::bigint, now(), %s::bigint)"
    assert queue.value(text, [10, 5000]) == 10
    assert queue.value("select pgq.seq_getval('pgq.event_1_tick_seq')") == 10
    assert queue.value("select pgq.insert_event('q', 't', 'd')") == 5001
    with pytest.raises(DatabaseError, match='tick 9 is behind the last tick 10 of queue "q"'):
        queue.value(text, [9, 5000])


def test_a_tick_from_the_future_is_refused(queue: vdb.Database) -> None:
    queue.execute(
        "update pgq.tick set tick_snapshot = '900000000000:900000000001:'"
        " where tick_id = (select max(tick_id) from pgq.tick)"
    )
    queue.call("pgq.force_tick", "q")
    with pytest.raises(DatabaseError, match='tick 2 of queue "q" waits for transaction'):
        queue.call("pgq.ticker")


def test_a_second_ticker_leaves_a_queue_to_the_first(
    queue: vdb.Database, other: vdb.Database
) -> None:
    queue.call("pgq.force_tick", "q")
    with other.transaction():
        assert other.value("select pgq.ticker()") == 1
        queue.call("pgq.force_tick", "q")
        assert queue.value("select pgq.ticker()") == 0
    assert queue.value("select pgq.ticker()") == 1


def test_the_snapshot_of_a_tick_is_taken_after_the_lock(
    queue: vdb.Database, other: vdb.Database
) -> None:
    """A ticker waits for the lock; what is committed meanwhile is in its tick."""
    queue.call("pgq.force_tick", "q")
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(other.value("select pgq.ticker('q')")))
    queue.execute("select pg_advisory_lock(1885827444, 1)")
    waiter.start()
    waiting = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
        " where l.locktype = 'advisory' and not l.granted and d.datname = current_database()"
    )
    assert until(lambda: queue.value(waiting)), "the second ticker does not wait for the lock"
    txid = queue.value(
        "with e as (select pgq.insert_event('q', 't', 'd')) select txid_current() from e"
    )
    queue.execute("select pg_advisory_unlock(1885827444, 1)")
    waiter.join(120)
    assert got == [3]
    assert queue.value(
        "select txid_visible_in_snapshot(%s, tick_snapshot) from pgq.tick where tick_id = 3", [txid]
    )


def test_a_frozen_snapshot_older_than_a_tick_cannot_become_one(
    queue: vdb.Database, other: vdb.Database
) -> None:
    other.execute("begin isolation level repeatable read")
    other.execute("select 1")
    queue.call("pgq.force_tick", "q")
    assert queue.value("select pgq.ticker('q')") == 3
    other.call("pgq.force_tick", "q")
    with pytest.raises(DatabaseError, match="tick in isolation level read committed"):
        other.call("pgq.ticker", "q")
    other.execute("rollback")


def test_an_idle_round_is_cheap(queue: vdb.Database) -> None:
    """Fifty idle queues: no write, few page reads (counted, not timed)."""
    queue.query("select pgq.create_queue('q' || i) from generate_series(1, 50) i")
    queue.call("pgq.ticker")
    # however slow the machine is: no idle tick falls due meanwhile
    queue.execute("update pgq.queue set queue_ticker_max_lag = '1 hour'")
    before = queue.value("select txid_current()")
    for _ in range(10):
        assert queue.value("select pgq.ticker()") == 0
    assert queue.value("select txid_current()") == before + 1
    plan = queue.query("explain (analyze, buffers, timing off) select pgq.ticker()")
    hits = [int(w.split("hit=")[1].split()[0]) for (w,) in plan if "hit=" in w]
    assert max(hits) < 2500
