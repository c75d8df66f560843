"""The connections that all loads of a node may have together, divided over those that run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from vedur.errors import CopyAbandoned

#: Seconds between two looks whether a load that waits is still wanted.
_LOOK = 0.5


class Budget:
    """Shared by the threads of the driver. `total` may be changed at any time.

    Where several queues copy in one process, each has its own, and takes out of a `common` one.
    """

    def __init__(self, total: int, common: Budget | None = None) -> None:
        self.total = total
        self.common = common
        self._used = 0
        self._loads = 0
        self._changed = threading.Condition()

    @contextmanager
    def load(self) -> Iterator[None]:
        """A load that wants a share for as long as it runs."""
        with self._changed:
            self._loads += 1
        try:
            with self.common.load() if self.common else nullcontext():
                yield
        finally:
            with self._changed:
                self._loads -= 1
                self._changed.notify_all()

    @contextmanager
    def take(self, wanted: int, given_up: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Connections for one job of a load: its share, or what is free; waits for the first.

        Others may hold all for hours: raises `CopyAbandoned` when the load is given up meanwhile.
        """
        with self._changed:
            while not self._changed.wait_for(lambda: self._used < max(1, self.total), _LOOK):
                if given_up():
                    raise CopyAbandoned
            total = max(1, self.total)
            share = max(1, total // max(1, self._loads))
            given = min(wanted, share, total - self._used)
            self._used += given
        try:
            with self.common.take(given, given_up) if self.common else nullcontext(given) as mine:
                yield mine
        finally:
            with self._changed:
                self._used -= given
                self._changed.notify_all()
