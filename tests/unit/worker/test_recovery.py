"""The pause after an error: how long, what ends it, what it asks for meanwhile."""

from __future__ import annotations

import pytest

from tests.fixtures.clock import FakeClock
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.errors import ConnectError, DatabaseError, EngineLost, StateError
from vedur.node import endpoint
from vedur.worker import recovery
from vedur.worker.loop import Worker
from vedur.worker.recovery import Recovery
from vedur.worker.roles.leaf import LeafRole

SETTINGS = LondisteSettings(db="dbname=here", queue_name="q", exception_sleep=20.0)
PAUSES = [1, 2, 4, 8, 16, 20, 20]
REFUSED = ConnectError("connection failed: Connection refused", connection="db", query=None)


class Pauses:
    """A recovery on a fake clock; `asked` are the servers that it has looked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, back_at: float = float("inf")) -> None:
        self.clock = FakeClock()
        self.signals = Signals(clock=self.clock)
        self.recovery = Recovery(self.signals)
        self.asked: list[str] = []
        self.look = 0.0  # seconds that a look at a server takes
        self.wanted_at = float("inf")  # when an operator asks something of the worker

        def answers(connstr: str) -> bool:
            self.asked.append(connstr)
            self.clock.advance(self.look)
            return self.clock.monotonic() >= back_at

        monkeypatch.setattr(recovery, "_answers", answers)
        monkeypatch.setattr(
            recovery, "_is_asked", lambda *_: self.clock.monotonic() >= self.wanted_at
        )

    def pause(self, error: Exception) -> float:
        """Seconds that pass."""
        before = self.clock.monotonic()
        self.recovery.pause(SETTINGS, error, "dbname=there")
        return self.clock.monotonic() - before


def test_other_errors_wait_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(monkeypatch)
    for error in (StateError("no"), DatabaseError("no", query="select 1"), RuntimeError("no")):
        assert [pauses.pause(error) for _ in range(2)] == [20.0, 20.0]
    assert not pauses.asked


@pytest.mark.parametrize("sqlstate", ["40P01", "40001", "55P03"])
def test_a_deadlock_passes_soon(monkeypatch: pytest.MonkeyPatch, sqlstate: str) -> None:
    pauses = Pauses(monkeypatch)
    error = DatabaseError("deadlock detected", connection="db", query="x", sqlstate=sqlstate)
    assert [pauses.pause(error) for _ in range(6)] == [1, 2, 4, 8, 16, 20]
    assert not pauses.asked


def test_a_server_that_is_away_is_waited_for_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = Pauses(monkeypatch)
    assert [pauses.pause(REFUSED) for _ in range(7)] == [1, 2, 4, 8, 16, 20, 20]
    assert pauses.asked == ["dbname=here"] * 71
    pauses.recovery.reset()
    assert pauses.pause(REFUSED) == 1


def test_the_pause_ends_when_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(monkeypatch, back_at=40.0)
    lengths = []
    while pauses.clock.monotonic() < 40.0:
        lengths.append(pauses.pause(REFUSED))
    assert lengths == [1, 2, 4, 8, 16, 9]


def test_a_host_that_is_switched_off_makes_no_pause_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not refuse a connection, it says nothing: each look takes its whole time."""
    pauses = Pauses(monkeypatch)
    pauses.look = 2.0
    lengths = [pauses.pause(REFUSED) for _ in range(7)]
    assert all(length <= wanted + 2 for length, wanted in zip(lengths, PAUSES, strict=True))


def test_a_look_at_a_silent_host_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(
        endpoint, "connect", lambda connstr, **_: tried.append(connstr) or _raise(REFUSED)
    )
    assert not recovery._answers("host=there")
    assert not recovery._is_asked(SETTINGS, StateError("no"))
    assert ["connect_timeout=2" in connstr for connstr in tried] == [True, True]


@pytest.mark.parametrize("error", [REFUSED, StateError("no"), EngineLost()])
def test_what_an_operator_asks_ends_the_pause(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pauses = Pauses(monkeypatch)
    pauses.wanted_at = 40.0
    while pauses.clock.monotonic() < 40.0:
        pauses.pause(error)
    assert pauses.clock.monotonic() == 40.0


@pytest.mark.parametrize("name", ["provider_db", "provider"])
def test_the_provider_is_asked_for_when_it_is_away(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pauses = Pauses(monkeypatch)
    pauses.pause(ConnectError("Connection refused", connection=name, query=None))
    assert pauses.asked == ["dbname=there"]


@pytest.mark.parametrize(
    "error",
    [
        EngineLost(),
        # it may be our statement that brings the server down
        ConnectError("terminating connection", connection="db", query="insert", sqlstate="57P02"),
        # a server may lock out who fails to log in too often
        ConnectError("failed: FATAL:  password authentication failed", connection="db", query=None),
    ],
    ids=["spark", "crash", "login"],
)
def test_only_time_helps(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    pauses = Pauses(monkeypatch, back_at=0.0)
    assert [pauses.pause(error) for _ in range(3)] == [1, 2, 4]
    assert not pauses.asked


def test_a_server_that_starts_up_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(monkeypatch)
    text = "failed: FATAL:  the database system is starting up"
    pauses.pause(ConnectError(text, connection="db", query=None, sqlstate="57P03"))
    assert pauses.asked == ["dbname=here"]


def test_a_signal_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(monkeypatch)
    for _ in range(4):
        pauses.pause(REFUSED)
    pauses.clock.on_wait = pauses.signals.wake.set
    assert pauses.pause(REFUSED) == 1.0
    assert not pauses.signals.wake.is_set()


@pytest.mark.parametrize(
    ("error", "lost", "told"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True, EngineLost),
        (ConnectionRefusedError(111, "Connection refused"), False, ConnectionRefusedError),
        (StateError("no"), True, StateError),
    ],
    ids=["java has gone", "java is there", "an error of ours"],
)
def test_what_a_dead_spark_is_called(
    monkeypatch: pytest.MonkeyPatch, error: Exception, lost: bool, told: type[Exception]
) -> None:
    """Its client speaks of sockets; the operator hears that Spark has ended."""
    worker = Worker(SETTINGS, lambda *_: pytest.fail("no"), spark_lost=lambda thorough: lost)
    reported: list[Exception] = []
    paused: list[Exception] = []
    closed: list[bool] = []

    class Runner:
        def close(self) -> None:
            closed.append(True)

    leaf = worker._role = LeafRole(worker)
    leaf._runner = Runner()  # type: ignore[assignment]
    monkeypatch.setattr(Recovery, "report", lambda self, settings, e: reported.append(e))
    monkeypatch.setattr(Recovery, "pause", lambda self, settings, e, _: paused.append(e))
    monkeypatch.setattr(worker, "work", lambda: _raise(error))
    assert worker._work_safely(), "and tries again"
    assert [type(e) for e in (*reported, *paused)] == [told, told]
    assert closed == [True] and leaf._runner is None


def _raise(error: Exception) -> bool:
    raise error
