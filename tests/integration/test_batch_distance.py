"""Small batches that are Spark jobs of their own keep a distance: their ticks are one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.fixtures.clock import FakeClock
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from vedur.pipeline.spark.tasks import TaskAnswer
from vedur.queue import batches

__all__ = ["quick_leaf"]

DISTANCE = 0.5


class Resident:
    """Stands for a resident task: has every slice staged as an ordinary job does it."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.there = True

    def ask(self, _db: object, do: Callable[[str], object], order: str) -> TaskAnswer | None:
        return TaskAnswer(do(order)) if self.there else None

    def close(self) -> None:
        pass


class Ground:
    """A leaf on a clock of its own; ticks come while its worker waits."""

    def __init__(self, leaf: Leaf) -> None:
        leaf.pair.table("public.t", "create table t (id int primary key)", flags="AIUDJ")
        leaf.catch_up()
        self.leaf, self.clock, self.rows = leaf, FakeClock(), 0
        leaf.worker.clock = self.clock
        leaf.role._began = 0.0  # by this clock

    def change(self) -> None:
        """Write a row, and let a tick follow it."""
        self.rows += 1
        self.leaf.root.execute("insert into t values (%s)", [self.rows])
        self.tick()

    def tick(self) -> None:
        """Let the queue tick, without the many numbers that a forced tick uses up."""
        self.leaf.root.execute("update pgq.tick set tick_time = tick_time - interval '1 hour'")
        self.leaf.root.execute("select pgq.ticker()")

    def applied(self) -> int:
        """How many rows are there?"""
        return int(self.leaf.leaf.value("select count(*) from t"))


@pytest.fixture
def ground(quick_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(batches, "JOB_DISTANCE", DISTANCE)
    return Ground(quick_leaf())


def test_ticks_that_come_meanwhile_are_one_batch(ground: Ground) -> None:
    worker, clock = ground.leaf.worker, ground.clock
    clock.advance(60)
    ground.change()
    assert worker.work()
    assert (ground.applied(), clock.waits) == (1, [])  # whoever has rested need not wait
    clock.advance(0.2)
    ground.change()
    clock.on_wait = ground.change
    assert worker.work()
    assert (ground.applied(), clock.waits) == (1, [pytest.approx(DISTANCE - 0.2)])
    assert worker.work()
    assert (ground.applied(), len(clock.waits)) == (3, 1)


def test_a_resident_task_lets_them_follow_at_once(ground: Ground) -> None:
    worker, clock = ground.leaf.worker, ground.clock
    clock.advance(60)
    ground.change()
    assert worker.work()  # by a job
    resident = Resident(ground.leaf)
    applier = ground.leaf.appliers[-1]
    applier.residence = resident  # type: ignore[assignment]
    clock.advance(DISTANCE)
    for count in (2, 3, 4):
        ground.change()
        assert worker.work()
        assert (ground.applied(), clock.waits) == (count, [])
    resident.there = False  # it is lost: one batch finds out, the next ones keep their distance
    ground.change()
    assert worker.work()
    assert (ground.applied(), clock.waits) == (5, [])
    ground.change()
    assert worker.work()
    assert (ground.applied(), clock.waits) == (5, [pytest.approx(DISTANCE)])


def test_a_backlog_waits_for_nobody(ground: Ground) -> None:
    clock = ground.clock
    clock.advance(60)
    ground.change()
    assert ground.leaf.worker.work()
    ground.leaf.root.execute(
        "insert into t select generate_series(10, 9 + %s)", [batches.PREFETCH_EVENTS]
    )
    ground.tick()
    assert ground.leaf.worker.work()
    assert (ground.applied(), clock.waits) == (1 + batches.PREFETCH_EVENTS, [])


def test_a_wish_to_stop_ends_the_wait(ground: Ground) -> None:
    worker = ground.leaf.worker
    ground.clock.advance(60)
    ground.change()
    assert worker.work()
    ground.change()
    stop = threading.Timer(0.0, worker.signals.stop.set)
    stop.start()
    stop.join()
    assert worker.work()
    assert (ground.applied(), ground.clock.waits) == (1, [])
