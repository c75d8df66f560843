"""Old tools on our SQL, our ticker on upstream's: each side of the contract without the other.

The C `pgqd` and the Python module `pgq` come from Debian's packages pgqd and python3-pgq and run
as they are; where they are missing the tests skip.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fixtures.pg import Servers, TestServer
from tests.fixtures.wait import until
from tests.labs.upstream import C_PGQD, Collector, require_c_ticker, ticking
from vedur.clock import SYSTEM
from vedur.db import Database

OUR_PGQD = [sys.executable, "-m", "vedur.cli.pgqd"]
QUEUE = "shop.orders"


def make_queue(db: Database) -> Database:
    db.autocommit = True
    db.call("pgq.create_queue", QUEUE)
    db.call("pgq.set_queue_config", QUEUE, "ticker_max_lag", "0")
    db.call("pgq.set_queue_config", QUEUE, "ticker_idle_period", "0.1")
    return db


def read_batch(db: Database) -> list[str]:
    """The events of the next batch that has any; empty batches are passed."""
    for _ in range(400):
        batch = db.value("select pgq.next_batch(%s, 'c')", [QUEUE])
        if batch is None:
            SYSTEM.sleep(0.05)
            continue
        events = db.query("select * from pgq.get_batch_events(%s) order by ev_id", [batch])
        for event in events:
            if event.ev_data == "later" and not event.ev_retry:
                db.call("pgq.event_retry", batch, event.ev_id, 0)
        db.call("pgq.finish_batch", batch)
        if events:
            return [event.ev_data for event in events]
    return []


def ticks_retries_and_rotates(db: Database) -> None:
    """What any ticker must do with any implementation of the queue."""
    db.call("pgq.register_consumer", QUEUE, "c")
    for data in ("one", "two", "later"):
        db.call("pgq.insert_event", QUEUE, "t", data)
    got: list[str] = []
    while got.count("later") < 2 and (more := read_batch(db)):
        got += more
    assert got == ["one", "two", "later", "later"], "every event once, the one put off again"

    db.call("pgq.set_queue_config", QUEUE, "rotation_period", "0")
    seen: set[int] = set()

    def all_tables_used() -> bool:
        batch = db.value("select pgq.next_batch(%s, 'c')", [QUEUE])
        if batch is not None:
            db.call("pgq.finish_batch", batch)
        seen.add(db.value("select queue_cur_table from pgq.queue"))
        return seen == {0, 1, 2}

    assert until(all_tables_used), f"tables used: {seen}"
    db.call("pgq.set_queue_config", QUEUE, "rotation_period", "1 hour")
    db.call("pgq.insert_event", QUEUE, "t", "after rotation")
    db.call("pgq.insert_event", QUEUE, "t", "and again")
    after: list[str] = []
    while len(after) < 2 and (more := read_batch(db)):
        after += more
    assert after == ["after rotation", "and again"]


def test_the_c_ticker_serves_our_queues(pg_server: TestServer, make_db_on, tmp_path: Path) -> None:
    require_c_ticker()
    db = make_queue(make_db_on(pg_server))
    with ticking([C_PGQD], tmp_path, pg_server.port, [db]):
        ticks_retries_and_rotates(db)
    assert "pgq version ok: 3." in (tmp_path / "pgqd.log").read_text()


def test_our_ticker_serves_our_queues(pg_server: TestServer, make_db_on, tmp_path: Path) -> None:
    db = make_queue(make_db_on(pg_server))
    with ticking(OUR_PGQD, tmp_path, pg_server.port, [db]):
        ticks_retries_and_rotates(db)


def test_our_ticker_serves_upstream_queues(servers: Servers, make_db_on, tmp_path: Path) -> None:
    server = servers.get(15)
    db = make_queue(make_db_on(server, "upstream"))
    with ticking(OUR_PGQD, tmp_path, server.port, [db]):
        ticks_retries_and_rotates(db)


@pytest.fixture
def consumer(tmp_path: Path) -> Collector:
    return Collector(tmp_path, QUEUE)


def test_upstream_consumer_reads_our_queue(
    pg_server: TestServer, make_db_on, consumer, tmp_path: Path
) -> None:
    db = make_queue(make_db_on(pg_server))
    consumer(db, "--register")
    db.execute("create table t (id int primary key, v text)")
    db.execute(
        "create trigger capture after insert or update or delete on t "
        f"for each row execute function pgq.logutriga('{QUEUE}')"
    )
    with ticking(OUR_PGQD, tmp_path, pg_server.port, [db]):
        db.execute("insert into t values (1, 'a b'); update t set v = null; delete from t")
        db.call("pgq.insert_event", QUEUE, "plain", "later")
        got: list[list[str]] = []

        def complete() -> bool:
            got.extend(consumer(db))
            return any(line[0] == "got" and line[2] == "later" for line in got)

        assert until(complete)
    assert got == [
        ["got", "I:id", "id=1&v=a+b", "public.t"],
        ["got", "U:id", "id=1&v", "public.t"],
        ["got", "D:id", "id=1&v", "public.t"],
        ["put off", "plain", "later"],
        ["got", "plain", "later", None],
    ]
    assert consumer(db, "--unregister") == []
    assert db.value("select count(*) from pgq.get_consumer_info(%s)", [QUEUE]) == 0


def test_upstream_consumer_under_the_c_ticker(
    pg_server: TestServer, make_db_on, consumer, tmp_path: Path
) -> None:
    require_c_ticker()
    db = make_queue(make_db_on(pg_server))
    consumer(db, "--register")
    with ticking([C_PGQD], tmp_path, pg_server.port, [db]):
        for number in range(700):
            db.call("pgq.insert_event", QUEUE, "n", str(number))
        got: list[list[str]] = []
        assert until(lambda: got.extend(consumer(db)) or len(got) >= 700)
    assert [line[2] for line in got] == [str(number) for number in range(700)]
