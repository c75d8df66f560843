"""Loops of the ticker, on a clock that does not wait: how long they would wait, what ends them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.clock import FakeClock
from vedur.config import PgqdSettings
from vedur.errors import ConnectError
from vedur.ticker.service import DatabaseJobs, Job, TickerService


class Watched(TickerService):
    """Looks for databases in memory: each entry of `answers` is an error, or nothing found."""

    def __init__(self, answers: list[Exception | None], clock: FakeClock) -> None:
        super().__init__(PgqdSettings(check_period=60), clock)
        self.answers = answers
        clock.on_wait = self._end

    def _end(self) -> None:
        if not self.answers:
            self._stop.set()

    def _find(self) -> list[str]:
        answer = self.answers.pop(0)
        if answer:
            raise answer
        return []


def test_looking_for_databases_waits_longer_after_each_failure() -> None:
    lost = ConnectError("gone")
    clock = FakeClock()
    Watched([None, *[lost] * 7, None, lost], clock)._watch()
    assert clock.waits == [60, 60, 1, 2, 4, 8, 16, 30, 30, 60, 1]


def test_looking_for_databases_survives_an_error_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    Watched([RuntimeError("odd"), None], clock)._watch()
    assert clock.waits == [60, 1, 60]
    assert "BUG: looking for databases: RuntimeError('odd')" in caplog.text


def test_a_database_without_threads_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    service = TickerService(PgqdSettings(), FakeClock())
    monkeypatch.setattr(
        "vedur.ticker.service.DatabaseJobs.start",
        lambda _jobs: (_ for _ in ()).throw(RuntimeError("can't start new thread")),
    )
    with pytest.raises(RuntimeError):
        service._serve(["one"])
    assert service.databases == []
    assert service.stop()


def test_no_database_begins_to_be_served_behind_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    service = TickerService(PgqdSettings())
    asked: list[str] = []
    stopping = threading.Thread(target=service.stop)

    def start(jobs: DatabaseJobs) -> None:
        if not stopping.is_alive():
            stopping.start()
        stopping.join(0.2)  # a stop that did not wait would be over by now

    monkeypatch.setattr(DatabaseJobs, "start", start)
    monkeypatch.setattr(DatabaseJobs, "ask_to_stop", lambda jobs: asked.append(jobs.database))
    service._serve(["one"])
    stopping.join()
    service._serve(["two"])
    assert service.databases == asked == ["one"]


def test_a_duty_keeps_its_period_whatever_it_takes() -> None:
    clock = FakeClock()

    class Slow(Job):
        left = 3

        def step(self) -> float:
            clock.advance(0.25)
            self.left -= 1
            if not self.left:
                self.stop.set()
            return 1.0

    context: Any = SimpleNamespace(clock=clock)
    Slow("slow", "db", context)._run()
    assert clock.waits == [0.75, 0.75]
    assert clock.monotonic() == 2.25
