"""Where the pages get their facts: one overview for all who ask within a moment, and its history.

A look at the set is shared by everybody who asks within `FRESH` seconds, so the load on the
databases does not grow with the number of viewers. Looks are made by a thread, one at a time, and a
viewer waits for it for `PATIENCE` seconds at most: a server that hangs makes the page old, not
slow. Another thread asks every `EVERY` seconds and keeps the lag of each node for the plot. History
lives in memory: the page writes nothing anywhere. When the local database is away, the last
overview stays on show beside the reason. All threads are daemons: a worker's end waits for none.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from vedur.clock import SYSTEM, Clock
from vedur.errors import VedurError
from vedur.log import mask
from vedur.status.overview import Overview
from vedur.threads import Thread

log = logging.getLogger(__name__)

#: Seconds for which a look at the set is good enough for the next viewer.
FRESH = 2.0
#: Seconds that a request waits for a new result before it gets the last one.
PATIENCE = 4.0
#: Seconds after which the last one is said to be old.
OLD = 30.0
#: Seconds between looks for the history.
EVERY = 10.0
#: Two hours of history.
SAMPLES = 720


class Reader(Protocol):
    """What is read: `vedur.status.overview.SetReader`."""

    def read(self) -> Overview:
        """Read the state of all nodes."""

    def ping(self) -> None:
        """Raise unless the local database answers."""

    def close(self) -> None:
        """Close all connections."""


@dataclass(frozen=True)
class Sample:
    """The lag of each node at one moment; None where it was not known."""

    at: datetime
    lags: dict[str, float | None]


@dataclass(frozen=True)
class Look:
    """What is known now. `failure` says why `overview` is old or missing."""

    overview: Overview | None
    failure: str | None = None


@dataclass
class Source:
    """Looks at the set, for many viewers."""

    reader: Reader
    clock: Clock = SYSTEM
    every: float = EVERY
    _last: Look = field(default_factory=lambda: Look(None))
    _looked: float | None = None
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: threading.Event | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def look(self) -> Look:
        """Return the state of the set, at most `FRESH` seconds old if the servers answer; waits for
        them, but not for long."""
        with self._lock:
            if self._looked is not None and self.clock.monotonic() - self._looked < FRESH:
                return self._last
            if self._under_way is None:
                self._under_way = threading.Event()
                args = (self._under_way,)
                Thread(target=self._refresh, args=args, name="vedur-web-look", daemon=True).start()
            ended = self._under_way
        ended.wait(PATIENCE)
        with self._lock:
            return self._seen()

    def _seen(self) -> Look:
        """Return the last result."""
        if self._looked is None:
            return Look(None, "the set has not been read yet: a server answers slowly")
        age = self.clock.monotonic() - self._looked
        if age > OLD and self._last.failure is None:
            return Look(
                self._last.overview, f"the set could not be read for {age:.0f} s: a server hangs"
            )
        return self._last

    def _refresh(self, ended: threading.Event) -> None:
        try:
            look = self._read()
        except Exception as error:
            # A defect: the page shows it like any other reason for missing data.
            log.error("BUG: reading the set for the status page: %r", error)
            look = Look(self._last.overview, "the page failed; the log says why")
        with self._lock:
            self._last = look
            self._looked = self.clock.monotonic()
            self._under_way = None
        ended.set()

    def ping(self) -> str | None:
        """Return why the local database does not answer, None if it does."""
        try:
            self.reader.ping()
        except VedurError as error:
            return mask(error.message)
        return None

    @property
    def samples(self) -> list[Sample]:
        """Return the history, oldest first."""
        return list(self._samples)

    def start(self) -> None:
        """Start the thread that keeps the history."""
        self._thread = Thread(target=self._watch, name="vedur-web-history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop that thread and close the connections."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.reader.close()

    def _watch(self) -> None:
        while True:
            try:
                self.sample()
            except Exception as error:
                # Without this thread the plot would stand still for ever.
                log.warning("looking at the set for the status page: %s", error)
            if self.clock.wait(self._stop, self.every):
                return

    def sample(self) -> None:
        """Read the set once and remember the lags."""
        look = self.look()
        if look.overview is None or look.failure is not None:
            return
        at = look.overview.taken_at
        if not self._samples or self._samples[-1].at < at:
            self._samples.append(Sample(at, lags(look.overview)))

    def _read(self) -> Look:
        try:
            return Look(self.reader.read())
        except VedurError as error:
            return Look(self._last.overview, mask(error.message))


def lags(overview: Overview) -> dict[str, float | None]:
    """Return the lag of every node except the root, which has none."""
    return {node.name: node.lag for node in overview.nodes if node.status.type != "root"}


def names(samples: Iterable[Sample]) -> list[str]:
    """List all nodes of a history, in the order of their first appearance."""
    ordered: dict[str, None] = {}
    for sample in samples:
        ordered.update(dict.fromkeys(sample.lags))
    return list(ordered)
