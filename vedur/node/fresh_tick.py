"""A tick of now on a provider, whether or not its ticker runs: where a node can begin.

Whatever was committed before is before this tick, so nothing of an earlier life of the node, and
no table or script that is past, comes to it through the queue.
"""

from __future__ import annotations

from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import StateError
from vedur.node.info import NodeInfo
from vedur.node.position import AppliedTick, get_tick, require_newest_tick
from vedur.sql import query

_ATTEMPTS = 50
_PAUSE = 0.1


def fresh_tick(db: Database, queue: str, provider: NodeInfo, clock: Clock) -> AppliedTick:
    """Write a tick on a root and return it; of a branch, which repeats ticks, the newest."""
    number = _make(db, queue, clock) if provider.is_root else None
    if number is None:
        number = require_newest_tick(db, queue)
    tick = get_tick(db, queue, number, provider.node_name)
    if tick is None:
        raise StateError(f'tick {number} of queue "{queue}" has gone: run the command again')
    return tick


def _make(db: Database, queue: str, clock: Clock) -> int:
    """Make a tick and return its number. Where another ticker is quicker, its tick may have begun
    before this call: then it waits and makes another."""
    for _ in range(_ATTEMPTS):
        db.value(query("admin", "force_tick"), [queue])
        number = db.value(query("rejoin", "make_tick"), [queue])
        if number is not None:
            return int(number)
        clock.sleep(_PAUSE)
    raise StateError(
        f'queue "{queue}" gets no tick: see whether its ticker is paused (pgq.queue), '
        "then run the command again"
    )
