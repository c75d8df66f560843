"""Wait for everybody who may still write to a queue although it is closed.

A transaction whose snapshot is older than the closing still sees the queue open: one in isolation
level repeatable read or serializable that has begun before, a long statement, a transaction that
has written and not ended, one that was prepared for a two-phase commit. What they write belongs
before the last tick. So the transactions that are there when the closing has been committed are
written down, and waited for; later ones see the queue closed. Prepared transactions are looked for
each time: one that is written down may be prepared meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import StateError
from vedur.sql import query

log = logging.getLogger(__name__)

_PERIOD = 0.02
_SAY_EVERY = 2.0


@dataclass(frozen=True)
class Writer:
    """A transaction that may still write; `began` tells it from the next one of its session."""

    pid: int | None
    began: str
    text: str


def read_writers(db: Database, queue: str, txid: int) -> set[Writer]:
    """Read the transactions that do not see transaction `txid` as committed, or hold a lock by
    which events are written."""
    rows = db.query(query("takeover", "writers"), {"queue": queue, "txid": txid})
    return {Writer(row.pid, row.began, _describe(row)) for row in rows}


def _describe(row: object) -> str:
    pid, gid = getattr(row, "pid"), getattr(row, "gid")  # noqa: B009
    seconds, role = getattr(row, "seconds"), getattr(row, "role")  # noqa: B009
    if pid is None:
        return f'prepared transaction "{gid}" of role "{role}", {seconds:.0f} s old'
    application, state = getattr(row, "application"), getattr(row, "state")  # noqa: B009
    return f'pid {pid}, role "{role}", application "{application}", {state}, {seconds:.0f} s'


def wait_for_writers(db: Database, queue: str, txid: int, clock: Clock, deadline: float) -> None:
    """Wait until nobody is left who began before transaction `txid`, which closed the queue, was
    committed; raises, with their names, when `deadline` has passed."""
    known = read_writers(db, queue, txid)
    said = clock.monotonic() + _SAY_EVERY
    while True:
        left = _left(known, read_writers(db, queue, txid))
        if not left:
            return
        now = clock.monotonic()
        if now >= deadline:
            raise StateError(
                f"{len(left)} transaction(s) from before the closing have not ended: "
                f"{_names(left)}; end them, or give them more time with --timeout"
            )
        if now >= said:
            log.info("Waiting for %s", _names(left))
            said = now + _SAY_EVERY
        clock.sleep(_PERIOD)


def _left(known: Collection[Writer], now: Collection[Writer]) -> list[Writer]:
    """Return those of now that were there at the beginning, and all that are prepared."""
    ids = {(writer.pid, writer.began) for writer in known}
    left = [w for w in now if w.pid is None or (w.pid, w.began) in ids]
    return sorted(left, key=lambda w: (w.pid or 0, w.text))


def _names(writers: Collection[Writer]) -> str:
    texts = [writer.text for writer in writers]
    return "; ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")
