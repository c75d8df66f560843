"""A move of a consumer whose command was killed: it has left a note, and the consumer paused.

The note and the pause are written, and taken away again, by whoever holds the lock of the node's
moves (`move_lock.py`). So a note under a free lock is that of a command that has ended in between.
"""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.node.info import get_node_info
from vedur.node.move_lock import try_lock_move, unlock_move
from vedur.node.plan import MOVE_CONSUMER, MOVE_PROVIDER, MOVE_RESUME
from vedur.node.setup import set_move_note
from vedur.node.state import set_consumer_paused

log = logging.getLogger(__name__)


def give_up_killed_move(db: Database, queue: str, consumer: str) -> bool:
    """Let a consumer go on that a killed move has paused, where it reads from now; False if there
    is none, if somebody moves it just now, or if an operator had paused it before."""
    if _resuming(db, queue, consumer) is None or not try_lock_move(db, queue):
        return False
    try:
        with db.transaction():
            provider = _resuming(db, queue, consumer)
            if provider is None:
                return False
            set_move_note(db, queue, None)
            set_consumer_paused(db, queue, consumer, False)
    finally:
        unlock_move(db, queue)
    log.warning(
        "A move of '%s' to '%s' was interrupted, and is given up: run change-provider again, "
        "there or back, so that no other node keeps a subscription",
        consumer,
        provider,
    )
    return True


def keep_paused(db: Database, queue: str, consumer: str) -> None:
    """Let a killed move, finished or given up, leave a consumer paused: an operator wants that. A
    move that is under way is left alone."""
    if _resuming(db, queue, consumer) is None or not try_lock_move(db, queue):
        return
    try:
        with db.transaction():
            provider = _resuming(db, queue, consumer)
            if provider is not None:
                note = {MOVE_CONSUMER: consumer, MOVE_PROVIDER: provider, MOVE_RESUME: "0"}
                set_move_note(db, queue, note)
    finally:
        unlock_move(db, queue)


def _resuming(db: Database, queue: str, consumer: str) -> str | None:
    """Read where a move that paused a consumer was to lead, None if there is no such move."""
    info = get_node_info(db, queue)
    attrs = {} if info is None else info.attrs
    if attrs.get(MOVE_CONSUMER) != consumer or attrs.get(MOVE_RESUME) != "1":
        return None
    return attrs.get(MOVE_PROVIDER, "")
