"""The three duties of a ticker towards one database: ticks, maintenance, retry.

All of them want a connection in autocommit, since each call must be a transaction of its own:
rotation in two steps is safe only because the steps are two transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vedur.db import Database, Row
from vedur.errors import ConnectError, DatabaseError
from vedur.failpoint import reach
from vedur.names import parse_name, quote_ident
from vedur.sql import query

_log = logging.getLogger(__name__)

#: Operations that are statements about a table, not functions.
_STATEMENTS = ("vacuum", "vacuum analyze")

Stopped = Callable[[], bool]


class Ticked(NamedTuple):
    """What one run of the ticker did.

    queues   how many got a tick
    lags     `ticker_max_lag`, in seconds, of each of them that had events since its last tick
    """

    queues: int
    lags: tuple[float, ...] = ()


@dataclass
class Queues:
    """The queues of one database, as one connection sees them.

    version     of the contract; None where the database has no pgq or one older than 3
    notifies    pgq.ticker() itself wakes listeners (upstream's does not)
    """

    version: str | None
    notifies: bool
    _seen: dict[str, Row] = field(default_factory=dict)  # the last tick of each queue

    def tick(self, db: Database) -> Ticked:
        """Run `pgq.ticker()` once; writes ticks and wakes listeners."""
        queues = int(db.value(query("ticker", "ticker")) or 0)
        if not queues:
            return Ticked(0)
        reach("ticker.ticked")
        before = self._seen
        self._seen = {row.queue_name: row for row in db.query(query("ticker", "last_ticks"))}
        if not self.notifies:
            self._notify(db, before)
        return Ticked(queues, tuple(self._lags(before)))

    def _notify(self, db: Database, before: dict[str, Row]) -> None:
        """Notify listeners of queues whose last tick is new."""
        new = [
            f"{name}:{row.tick_id}"
            for name, row in self._seen.items()
            if name not in before or before[name].tick_id != row.tick_id
        ]
        if new:
            db.execute(query("ticker", "notify_tick"), [new])

    def _lags(self, before: dict[str, Row]) -> Iterator[float]:
        """List the lags of queues that are ticked here and have had events since then."""
        for name, row in self._seen.items():
            moved = name in before and before[name].tick_event_seq != row.tick_event_seq
            if moved and row.max_lag is not None:
                yield float(row.max_lag)


def probe(db: Database) -> Queues:
    """Read which version of pgq the database has, and whether its ticker notifies."""
    state = db.one(query("ticker", "pgq_state"), ())
    if not state.installed:
        return Queues(None, False)
    version = str(db.value(query("ticker", "version")))
    if not _new_enough(version):
        _log.warning("[%s]: bad pgq version: %s", db.name, version)
        return Queues(None, False)
    return Queues(version, bool(state.notifies))


def _new_enough(version: str) -> bool:
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= 3


def maintain(db: Database, stopped: Stopped) -> int:
    """Run what `pgq.maint_operations()` lists and answer how many operations worked.

    One that fails is logged and does not keep the others from running.
    """
    done = 0
    for name, arg in [tuple(row) for row in db.query(query("ticker", "maint_operations"))]:
        if stopped():
            break
        try:
            _operate(db, name, arg, stopped)
            reach("ticker.operated")
            done += 1
        except ConnectError:
            raise
        except DatabaseError as error:
            _log.error("[%s]: %s(%s): %s", db.name, name, arg or "", error.message)
    return done


def _operate(db: Database, name: str, arg: str | None, stopped: Stopped) -> None:
    if name.lower() in _STATEMENTS and arg is not None:
        _log.debug("[%s]: %s %s", db.name, name, arg)
        db.execute(f"{name.lower()} {parse_name(arg).quoted}")
        return
    text, params = maint_call(name, arg)
    while True:
        _log.debug("[%s]: %s %s", db.name, text, params)
        result = db.value(text, params)
        # A function that answers non-zero has more to do.
        if not _more(result) or stopped():
            return


def _more(result: Any) -> bool:
    return isinstance(result, int) and result != 0


def maint_call(name: str, arg: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the statement that calls a maintenance function; bare names use search_path."""
    quoted = ".".join(quote_ident(part) for part in name.split(".", 1))
    return (f"select {quoted}()", ()) if arg is None else (f"select {quoted}(%s)", (arg,))


def retry_events(db: Database, stopped: Stopped) -> int:
    """Put every event whose time has come back into its queue; returns how many."""
    total = 0
    while True:
        moved = int(db.value(query("ticker", "retry_events")) or 0)
        total += moved
        if not moved or stopped():
            return total


def list_databases(db: Database) -> list[str]:
    """Read which databases of the server may hold queues."""
    return [row.datname for row in db.query(query("ticker", "databases"))]
