"""The only reader of time. Everything that waits is given a `Clock`, so tests need not sleep."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as the rest of the package sees it."""

    def now(self) -> datetime:
        """Return the wall-clock time, with zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; for periods and deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for `seconds`, or return True as soon as `event` is set."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))


SYSTEM: Clock = SystemClock()


@dataclass
class Backoff:
    """Growing pauses between attempts: `first`, then double, never above `cap`."""

    first: float = 1.0
    cap: float = 30.0
    _next: float = 0.0

    def pause(self) -> float:
        """Return the seconds to wait before the next attempt."""
        current = self._next or self.first
        self._next = min(self.cap, current * 2)
        return min(self.cap, current)

    def reset(self) -> None:
        """Begin again at `first`, after an attempt that worked."""
        self._next = 0.0
