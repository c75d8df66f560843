"""One transaction with very many changes: cut inside, read by several tasks, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.leaf import Leaf
from tests.labs.pair import tick
from vedur.db import connect
from vedur.pipeline.replay import stage as replay
from vedur.pipeline.spark.tasks import run_tasks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 100_000
#: At least 150 bytes are counted for a row, so a task holds some 13,000 of them at a time.
FLUSH_BYTES = 2 << 20
#: A task looks at its size after every new row: it is over by one row at most.
SLACK = 1000


@pytest.fixture
def summaries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the tasks of a test say."""
    said: list[dict[str, Any]] = []

    def noted(*args: Any) -> list[dict[str, Any]]:
        answers = run_tasks(*args)
        said.extend(answers)
        return answers

    monkeypatch.setattr(replay, "run_tasks", noted)
    return said


@pytest.mark.draw("large tables")
def test_a_giant_transaction_is_cut_and_memory_bounded(
    make_leaf: Callable[..., Leaf], summaries: list[dict[str, Any]]
) -> None:
    leaf = make_leaf()
    leaf.parallel, leaf.flush_bytes = 2, FLUSH_BYTES
    leaf.pair.table("public.t", "create table t (id int primary key, v int, w text)", flags="AIUDJ")
    leaf.catch_up()
    with leaf.root.transaction():
        leaf.root.execute(f"insert into t select i, i, 'x' from generate_series(1, {ROWS}) i")
        leaf.root.execute("update t set v = v + 1, w = null")
    summaries.clear()
    leaf.catch_up()
    count, total = leaf.leaf.one("select count(*), sum(v) from t where w is null")
    assert (count, total) == (ROWS, ROWS * (ROWS + 1) // 2 + ROWS)
    # One transaction, two tasks with about half of it each, and no row twice.
    assert sum(s["events"] for s in summaries) == 2 * ROWS
    assert len(summaries) == 2
    assert all(s["events"] > ROWS // 2 for s in summaries)
    # What a task holds at a time is bounded, however much it reads.
    assert all(s["held"] <= FLUSH_BYTES + SLACK for s in summaries)
    chunks = sum(s["tables"]["public.t"]["chunks"] for s in summaries)
    assert chunks >= 2 * ROWS * 150 // FLUSH_BYTES


@pytest.mark.draw("large tables")
def test_a_giant_transaction_that_ticks_have_passed_is_cut(
    make_leaf: Callable[..., Leaf], summaries: list[dict[str, Any]]
) -> None:
    leaf = make_leaf()
    leaf.parallel = 2
    leaf.pair.table("public.t", "create table t (id int primary key, v int, w text)", flags="AIUDJ")
    leaf.catch_up()
    rows = ROWS + 5000
    with connect(leaf.root.connstr, autocommit=True) as other, leaf.root.transaction():
        leaf.root.execute(f"insert into t select i, i, 'x' from generate_series(1, {rows}) i")
        tick(other)  # it knows of all these events and holds none
        while leaf.worker.work():
            pass
    summaries.clear()
    leaf.catch_up()
    assert len(summaries) == 2
    assert sum(s["events"] for s in summaries) == rows
    assert all(s["events"] > rows // 3 for s in summaries)
    leaf.same("t")
