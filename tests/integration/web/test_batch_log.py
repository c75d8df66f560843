"""The log of batches: a ring on the target, written without harm to replay."""

from __future__ import annotations

import logging

import pytest
from psycopg.pq import TransactionStatus

from tests.fixtures.clock import FakeClock
from vedur import db as vdb
from vedur.errors import PrivilegeError
from vedur.queue.batches import Batch
from vedur.sql import query
from vedur.worker.stats import BatchLog


def test_a_ring_of_two_hundred(db: vdb.Database) -> None:
    for tick in range(1, 231):
        nr = db.value(
            "select vedur.log_batch('q', 'w', %s, %s, %s, 1, 2, 3, 4)", [tick - 1, tick, 10]
        )
        assert nr == tick
    db.value("select vedur.log_batch('other', 'w', 0, 1, 5, 0, 0, 0, 0)")
    rows = db.query("select * from vedur.batch_log where queue_name = 'q' order by batch_nr")
    assert [row.batch_nr for row in rows] == list(range(31, 231))
    assert [row.tick_id for row in rows] == list(range(31, 231))
    assert rows[-1].events_total == 2300
    assert (rows[-1].stage_seconds, rows[-1].finish_seconds) == (1, 4)
    assert db.value("select events_total from vedur.batch_log where queue_name = 'other'") == 5


@pytest.mark.parametrize(
    ("batches", "ages", "low", "high"),
    [
        # 200 batches in 20 s, and what this test takes meanwhile
        (230, "(230 - batch_nr) * interval '0.1 second'", 60.0, 100.6),
        # a tenth of them in the last minute
        (200, "case when batch_nr <= 180 then interval '1 hour' else '-1 hour' end", 3.33, 3.34),
        # a ring that is not full reaches back to the first batch
        (60, "interval '-1 hour'", 10.0, 10.0),
        (200, "interval '-1 hour'", 2000.0, 2000.0),
        (200, "interval '1 hour'", 0.0, 0.0),
        (0, "interval '0'", 0.0, 0.0),
    ],
)
def test_the_rate_is_that_of_the_time_that_the_ring_reaches_back(
    db: vdb.Database, batches: int, ages: str, low: float, high: float
) -> None:
    db.execute(
        "select vedur.log_batch('q', 'w', n - 1, n, 10, 0, 0, 0, 0) from generate_series(1, %s) n",
        [batches],
    )
    db.value("select vedur.log_batch('other', 'w', 0, 1, 1000, 0, 0, 0, 0)")
    db.execute(f"update vedur.batch_log set finished_at = clock_timestamp() - ({ages})")
    assert low <= db.value(query("overview", "applied_rate"), ["q"]) <= high


def test_stages_are_timed_and_written(db: vdb.Database) -> None:
    db.autocommit = True
    db.execute("set synchronous_commit = on")
    clock = FakeClock()
    log = BatchLog("q'uote", "w", clock)
    log.begin()
    for stage, seconds in (("stage", 1.0), ("stage", 0.5), ("merge", 0.25), ("finish", 2.0)):
        clock.advance(seconds)
        log.mark(stage)
    log.write(db, Batch(1, 10, 20, 0, 0), {"count": 7})
    log.begin()
    log.write(db, Batch(2, 20, 30, 0, 0), {"count": 0})  # no news
    row = db.one("select * from vedur.batch_log")
    assert (row.queue_name, row.prev_tick, row.tick_id, row.events) == ("q'uote", 10, 20, 7)
    assert (row.stage_seconds, row.merge_seconds, row.commit_seconds, row.finish_seconds) == (
        1.5,
        0.25,
        0.0,
        2.0,
    )
    assert db.raw.info.transaction_status == TransactionStatus.IDLE
    # durability is given up for this one statement, not for the session's batches
    assert db.value("show synchronous_commit") == "on"


def test_a_log_that_cannot_be_written_harms_nothing(
    db: vdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.autocommit = True
    caplog.set_level(logging.DEBUG, "vedur.worker.stats")
    log = BatchLog("q", "w", FakeClock())
    db.execute("alter table vedur.batch_log add constraint no check (events < 5)")
    log.begin()
    log.write(db, Batch(1, 10, 20, 0, 0), {"count": 7})
    log.write(db, Batch(2, 20, 30, 0, 0), {"count": 7})
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and lines[0].startswith("batches are not recorded any more: ")
    assert db.value("select 1") == 1  # the connection is as good as before


def test_an_older_database_keeps_none(db: vdb.Database) -> None:
    db.autocommit = True
    db.execute("drop table vedur.batch_log; drop function vedur.log_batch")
    log = BatchLog("q", "w", FakeClock())
    log.begin()
    log.write(db, Batch(1, 10, 20, 0, 0), {"count": 7})
    assert log._kept is False


def test_a_plain_worker_may_write_and_a_watcher_read(db: vdb.Database) -> None:
    db.autocommit = True
    for role in ("writer", "reader"):
        if not db.value("select 1 from pg_roles where rolname = %s", [f"t_log_{role}"]):
            db.execute(f"create role t_log_{role} in role londiste_{role}")
    db.execute("set role t_log_writer")
    log = BatchLog("q", "w", FakeClock())
    for tick in (1, 2):
        log.begin()
        log.write(db, Batch(tick, tick - 1, tick, 0, 0), {"count": 7})
    db.execute("reset role; set role t_log_reader")
    assert db.value("select sum(events) from vedur.batch_log") == 14
    with pytest.raises(PrivilegeError):
        db.value("select vedur.log_batch('q', 'w', 1, 2, 3, 0, 0, 0, 0)")
    db.execute("reset role")
