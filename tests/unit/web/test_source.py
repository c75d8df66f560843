"""Looks at the set: how often, how old, and what a failed one shows."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.fixtures.clock import FakeClock
from tests.unit.status.sets import START, node, overview
from vedur.errors import ConnectError
from vedur.status.overview import Overview
from vedur.web import source as source_module
from vedur.web.source import FRESH, OLD, SAMPLES, Look, Source


class FakeReader:
    """Counts; fails when told to."""

    def __init__(self) -> None:
        self.reads = 0
        self.failure: str | None = None

    def read(self) -> Overview:
        self.reads += 1
        if self.failure:
            raise ConnectError(self.failure)
        seen = overview(node("root", "root"), node("a", lag=float(self.reads)))
        return replace(seen, taken_at=START + timedelta(seconds=self.reads))

    def ping(self) -> None:
        if self.failure:
            raise ConnectError(self.failure)

    def close(self) -> None: ...


def test_many_viewers_cost_one_look() -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    for _ in range(20):
        source.look()
    assert reader.reads == 1
    clock.advance(FRESH)
    source.look()
    assert reader.reads == 2


def test_a_failed_look_keeps_the_last_one_on_show() -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    source.sample()
    reader.failure = 'connection to "host=x password=secret" failed'
    clock.advance(FRESH)
    look = source.look()
    assert look.overview is not None and look.overview.queue == "q"
    assert look.failure == 'connection to "host=x password=***" failed'
    assert source.ping() == look.failure
    source.sample()
    assert len(source.samples) == 1  # old values are not history


def test_a_server_that_hangs_makes_the_page_old_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PATIENCE", 0.01)
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    go_on = threading.Event()
    read = reader.read

    def hanging() -> Overview:
        go_on.wait(60)
        return read()

    reader.read = hanging  # type: ignore[method-assign]
    assert source.look() == Look(None, "the set has not been read yet: a server answers slowly")
    go_on.set()
    monkeypatch.setattr(source_module, "PATIENCE", 60.0)
    assert source.look().failure is None
    go_on.clear()
    monkeypatch.setattr(source_module, "PATIENCE", 0.01)
    clock.advance(FRESH)
    assert source.look().failure is None  # a moment old
    clock.advance(OLD)
    old = source.look()
    assert old.overview is not None
    assert old.failure == "the set could not be read for 32 s: a server hangs"
    assert reader.reads == 1
    go_on.set()


def test_a_defect_is_told_and_does_not_end_the_looks(caplog: pytest.LogCaptureFixture) -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    read = reader.read
    reader.read = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert source.look() == Look(None, "the page failed; the log says why")
    assert "ZeroDivisionError" in caplog.text
    reader.read = read  # type: ignore[method-assign]
    clock.advance(FRESH)
    assert source.look().failure is None


def test_history_has_an_end() -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    for _ in range(SAMPLES + 10):
        clock.advance(10)
        source.sample()
    assert len(source.samples) == SAMPLES
    assert source.samples[-1].lags == {"a": SAMPLES + 10.0}
