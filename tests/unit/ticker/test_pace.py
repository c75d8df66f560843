"""When the ticker runs again: pure decisions, and the loop that follows them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.clock import FakeClock
from vedur.config import PgqdSettings
from vedur.ticker.duties import Ticked
from vedur.ticker.pace import Pace
from vedur.ticker.service import Context, TickJob


@pytest.mark.parametrize(
    ("lags", "seconds"),
    [
        ([], 0.1),  # nobody has events
        ([0.04], 0.042),  # a moment after the queue may tick again
        ([0.1], 0.1),  # as often as ever
        ([3.0], 0.1),
        ([3.0, 0.04], 0.042),  # the one that ticks most often
        ([0.0], 0.02),  # not more often than busy_period
        ([0.001], 0.02),
    ],
)
def test_busy_queues_are_looked_at_as_often_as_they_may_tick(
    lags: list[float], seconds: float
) -> None:
    assert Pace().until_next(5.0, lags, 0.1, 0.02) == pytest.approx(seconds)


def test_a_queue_is_busy_for_a_second_after_its_last_tick_with_events() -> None:
    pace = Pace()
    assert pace.until_next(5.0, [0.04], 0.1, 0.02) == pytest.approx(0.042)
    # another queue's ticks neither end that nor make it longer
    assert pace.until_next(5.5, [3.0], 0.1, 0.02) == pytest.approx(0.042)
    assert pace.until_next(5.99, [], 0.1, 0.02) == pytest.approx(0.042)
    assert pace.until_next(6.0, [], 0.1, 0.02) == 0.1
    assert pace.until_next(7.0, [0.05], 0.1, 0.02) == pytest.approx(0.052)


@pytest.mark.parametrize("least", [0.1, 0.5])
def test_the_period_of_busy_queues_may_be_the_ordinary_one(least: float) -> None:
    pace = Pace()
    for now in (1.0, 1.04, 1.5):
        assert pace.until_next(now, [0.0, 0.04], 0.1, least) == 0.1


class Scripted:
    """Stands for the queues of a database: each run of the ticker gives the next of `lags`."""

    version = "3.5"

    def __init__(self, lags: list[tuple[float, ...]], job: TickJob) -> None:
        self.lags, self.job = lags, job

    def tick(self, _db: Any) -> Ticked:
        lags = self.lags.pop(0)
        if not self.lags:
            self.job.stop.set()
        return Ticked(len(lags), lags)


def test_the_loop_keeps_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    context = Context(PgqdSettings(ticker_period=0.3, busy_period=0.05), clock)
    job = TickJob("db", context)
    monkeypatch.setattr(job, "connection", lambda: None)
    monkeypatch.setattr(job, "_queues", Scripted([(), (0.2,), (), (0.0,), *[()] * 20, (), ()], job))
    job._run()
    waits = [round(wait, 3) for wait in clock.waits]
    assert waits[:4] == [0.3, 0.202, 0.202, 0.05]
    assert set(waits[4:23]) == {0.05}  # for a second
    assert waits[-1] == 0.3
