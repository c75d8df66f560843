"""What ends the wait of a worker that has nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.fixtures.clock import FakeClock
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.db import Notification
from vedur.worker.loop import Worker
from vedur.worker.roles.leaf import LeafRole, Provider


class Listener:
    """Stands for the connection that hears of ticks; says one thing after the other."""

    def __init__(self, clock: FakeClock, *said: str | Callable[[], None] | None) -> None:
        self.clock = clock
        self.said = list(said)

    def notifications(self, timeout: float) -> list[Notification]:
        self.clock.advance(timeout)
        if not self.said:
            pytest.fail("the worker waits on")
        next_ = self.said.pop(0)
        if callable(next_):
            next_()
            return []
        return [Notification("pgq", next_)] if next_ else []


def waiting(*said: Any, loop_delay: float = 3600.0) -> tuple[Worker, Listener]:
    clock = FakeClock()
    settings = LondisteSettings(db="dbname=x", queue_name="replika", loop_delay=loop_delay)
    worker = Worker(settings, lambda *_: pytest.fail("no"), Signals(clock=clock), clock)
    listener = Listener(clock, *said)
    leaf = worker._role = LeafRole(worker)
    leaf._provider = Provider("", Connection(), listener, cast(Any, None))  # type: ignore[arg-type]
    return worker, listener


def test_a_tick_of_its_queue_ends_it() -> None:
    worker, listener = waiting(None, "other:7", "replika2:8", "replika:9")
    worker._wait()
    assert not listener.said


def test_the_delay_ends_it() -> None:
    worker, listener = waiting(None, None, None, None, loop_delay=1.5)
    worker._wait()
    assert len(listener.said) == 1


def test_a_signal_ends_it_however_long_the_delay_is() -> None:
    worker, listener = waiting(None, lambda: worker.signals._on_reload(0, None))
    worker._wait()
    assert not listener.said
    assert worker.signals.take_reload()
    assert not worker.signals.wake.is_set(), "the next wait is a whole one"


def test_a_wish_to_stop_ends_it() -> None:
    worker, _ = waiting(lambda: worker.signals._on_stop(0, None))
    worker._wait()
    assert worker.signals.stop.is_set()


class Connection:
    """Stands for a connection that can only be closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_connections_are_made_anew_after_their_lifetime() -> None:
    worker, _ = waiting()
    clock = worker.clock
    assert isinstance(clock, FakeClock)
    target, provider, listener = Connection(), Connection(), Connection()
    assert isinstance(worker._role, LeafRole)
    worker._target = target  # type: ignore[assignment]
    worker._role._provider = Provider("", provider, listener, cast(Any, None))  # type: ignore[arg-type]
    clock.advance(worker.settings.connection_lifetime)
    worker._renew_connections()
    assert not target.closed
    clock.advance(1)
    worker._renew_connections()
    assert target.closed and provider.closed and listener.closed
