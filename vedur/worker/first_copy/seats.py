"""The connections with which tables catch up: a few for all of them, however many tables wait.

A table that catches up works in moves: look at its state, replay a range, answer the worker. A seat
is what one move needs: two connections to the target and one to the provider. Between two moves a
table has none, so fifty tables that wait for the worker hold no more than two do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from vedur import db as vdb
from vedur.worker.first_copy.context import CopySetup

#: Connections to the target that a seat has.
_PER_SEAT = 2


@dataclass
class Seat:
    """Connections in autocommit mode; `stage` is the applier's."""

    target: vdb.Database
    stage: vdb.Database
    provider: vdb.Database
    provider_connstr: str
    #: Consumers whose source was found to be what they know (source_check.py), in this session.
    believed: set[str] = field(default_factory=set)

    def close(self) -> None:
        """Close all of them."""
        for db in (self.target, self.stage, self.provider):
            db.close()

    @property
    def usable(self) -> bool:
        """Are all of them open?"""
        return not (self.target.closed or self.stage.closed or self.provider.closed)


class Seats:
    """As many as `max_connections_per_node` allows; safe to use from several threads."""

    def __init__(self, setup: CopySetup) -> None:
        self.setup = setup
        self.total = max(1, setup.connections // _PER_SEAT)
        self.ticker_awaited = False  # said once for all tables
        self._used = 0
        self._idle: list[Seat] = []
        self._changed = threading.Condition()

    @contextmanager
    def take(self, provider: str, urgent: bool) -> Iterator[Seat]:
        """Wait for a seat; the connections of one in which something failed are not used again.

        The worker waits for a table that is being handed over: such a one does not wait behind
        the replays of others, one seat is always left for it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._used < self._limit(urgent))
            self._used += 1
            seat = self._idle.pop() if self._idle else None
        try:
            seat = self._ready(seat, provider)
            yield seat
        except BaseException:
            if seat is not None:
                seat.close()
                seat = None
            raise
        finally:
            with self._changed:
                self._used -= 1
                if seat is not None and seat.usable:
                    self._idle.append(seat)
                self._changed.notify_all()

    def close_idle(self) -> None:
        """Close what nobody uses."""
        with self._changed:
            idle, self._idle = self._idle, []
        for seat in idle:
            seat.close()

    def _limit(self, urgent: bool) -> int:
        return self.total if urgent or self.total == 1 else self.total - 1

    def _ready(self, seat: Seat | None, provider: str) -> Seat:
        if seat is not None and seat.usable and seat.provider_connstr == provider:
            return seat
        if seat is not None:
            seat.close()
        with ExitStack() as opened:
            target = opened.enter_context(self.setup.connect())
            stage = opened.enter_context(self.setup.connect())
            source = opened.enter_context(
                vdb.connect(
                    provider,
                    name="provider_db",
                    autocommit=True,
                    application_name="vedur copy",
                )
            )
            source.without_timeouts()
            opened.pop_all()
        return Seat(target, stage, source, provider)
