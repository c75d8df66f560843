"""One command at a time moves a node: a lock of its session, which ends with that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.sql import query

_TRIES = 3
_PERIOD = 0.2


def patiently(
    lock: Callable[[Database, str], bool], db: Database, queue: str, clock: Clock
) -> bool:
    """Try one of these locks some times, and wait between: the worker of a node has it for an
    instant when it gives up a move that was killed."""
    for _ in range(_TRIES):
        if lock(db, queue):
            return True
        clock.sleep(_PERIOD)
    return lock(db, queue)


def try_lock_move(db: Database, queue: str) -> bool:
    """Take the lock of a node, unless another session has it; one whose machine has gone loses it
    after a minute."""
    db.execute(query("node", "notice_dead_peer"))
    return bool(db.value(query("node", "lock_move"), [queue]))


def unlock_move(db: Database, queue: str) -> None:
    """Give the lock back. A session that is lost has none any more, and that is no error of the
    command: what it did, or what was in its way, has been said."""
    _give_back(db, queue, "unlock_move")


def try_hold_place(db: Database, queue: str) -> bool:
    """Keep a node where it is, unless another session moves it; several may keep it."""
    return bool(db.value(query("node", "hold_place"), [queue]))


def release_place(db: Database, queue: str) -> None:
    """Let a node be moved again, as `unlock_move` does."""
    _give_back(db, queue, "release_place")


def _give_back(db: Database, queue: str, how: str) -> None:
    if not db.closed:
        with contextlib.suppress(DatabaseError):
            db.value(query("node", how), [queue])
