"""Reading ticks costs what a batch can take, not what the backlog holds."""

from __future__ import annotations

from typing import Any

import pytest

from vedur.db import Database
from vedur.queue.batches import (
    batch_size,
    expected_end,
    get_backlog,
    get_ticks,
    get_ticks_ahead,
    next_batch,
)
from vedur.sql import query

TICKS = 5_000


@pytest.fixture
def backlog(db: Database) -> Database:
    """A queue with a tick for every ten events."""
    db.execute("select pgq.create_queue('q')")
    db.execute(
        "insert into pgq.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq) "
        "select q.queue_id, 100 + i, now(), txid_current_snapshot(), 1000 + 10 * i "
        "from pgq.queue q, generate_series(1, %s) i",
        [TICKS],
    )
    return db


@pytest.mark.parametrize("limit", [1, 100, 3_000, 10_000_000])
def test_a_backlog_of_ticks_is_read_as_far_as_needed(
    backlog: Database, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    everything = get_ticks(backlog, "q", 110, 1 << 62)
    fetched: list[int] = []
    ask = Database.query

    def counting(self: Database, *args: Any) -> list[Any]:
        rows = ask(self, *args)
        fetched.append(len(rows))
        return rows

    monkeypatch.setattr(Database, "query", counting)
    ticks = get_ticks_ahead(backlog, "q", 110, 130, 2 * limit)
    assert ticks == everything[: len(ticks)]
    assert sum(fetched) == len(ticks) <= 20 + 2 * limit // 10 + 1 + 200
    # The batch after tick 130 ends where it would with all ticks known.
    assert expected_end(ticks[20:], limit) == expected_end(everything[20:], limit)
    assert expected_end(ticks[20:], limit) is not None


def test_the_last_tick_has_nothing_behind_it(backlog: Database) -> None:
    last = 100 + TICKS
    assert [t.id for t in get_ticks_ahead(backlog, "q", last - 1, last, 50)] == [last - 1, last]


def test_the_server_reads_no_more_than_it_sends(backlog: Database) -> None:
    backlog.execute("analyze pgq.tick")
    text = query("worker", "next_ticks")
    plan = backlog.value(f"explain (analyze, format json) {text}", ["UTC", "q", 110, 200])
    scan = plan[0]["Plan"]["Plans"][-1]
    assert scan["Relation Name"] == "tick" and scan["Actual Rows"] == 200


def test_a_worker_that_keeps_behind_takes_what_is_old_enough(backlog: Database) -> None:
    """pgq looks for a tick by the wished count first, and at its age then."""
    backlog.execute("select pgq.register_consumer_at('q', 'c', 101)")
    backlog.execute(
        "update pgq.tick set tick_time = now() - interval '1 hour' where tick_id > 100 "
        "and tick_id <= 600"
    )
    behind, old = get_backlog(backlog, "q", 101), get_backlog(backlog, "q", 101, "10 minutes")
    assert (behind, old) == (10 * (TICKS - 1), 4990)
    assert get_backlog(backlog, "q", 600, "10 minutes") == 0
    assert next_batch(backlog, "q", "c", min_lag="10 minutes", min_count=behind) is None
    count, interval = batch_size(behind, 100_000, reach=old)
    batch = next_batch(
        backlog, "q", "c", min_lag="10 minutes", min_count=count, min_interval=interval
    )
    assert batch is not None and batch.tick == 600
