"""The newest tick that a node which comes back has in common with others.

Usually it is the one at which the new root has taken over. A node that was set back, by a backup or
by a standby that was behind, has never seen that one, or has written another tick under its number
since: it is one with the others only up to an earlier tick. A number proves nothing, so that ticks
are compared by their times and event numbers, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from vedur.db import Database
from vedur.node.position import AppliedTick, get_tick
from vedur.sql import query

#: Ticks of one look: the common one is usually the first.
_PORTION = 1000


@dataclass(frozen=True)
class CommonTick:
    """The tick, and the node that has it, too."""

    node: str
    tick: AppliedTick


def find_common_tick(
    here: Database, queue: str, bound: int, others: Iterable[tuple[str, Database]]
) -> CommonTick | None:
    """Find the newest tick, `bound` at the highest, that one of the other nodes has as well; of
    several nodes the first. None where there is no such tick any more."""
    best: CommonTick | None = None
    for name, there in others:
        tick = _newest_common(here, there, queue, bound, name)
        if tick is not None and (best is None or tick.id > best.tick.id):
            best = CommonTick(name, tick)
        if best is not None and best.tick.id == bound:
            break
    return best


def _newest_common(
    here: Database, there: Database, queue: str, bound: int, name: str
) -> AppliedTick | None:
    """Read the newest tick up to `bound` that this node and another one, by name, have both."""
    while True:
        rows = here.query(query("resurrect", "ticks_before"), [queue, bound, _PORTION])
        if not rows:
            return None
        ids, times, seqs = ([row[column] for row in rows] for column in range(3))
        same = there.one(query("resurrect", "newest_same_tick"), [ids, times, seqs, queue])
        if same is not None:
            return replace(AppliedTick(*same), provider=name)
        bound = int(ids[-1]) - 1


def find_safe_tick(
    here: Database, queue: str, bound: int, others: Iterable[tuple[str, Database]]
) -> int | None:
    """Find a tick behind which everything is that only this node may have, where no tick is common
    any more: `bound` if nothing speaks against it, the oldest tick here if this node was set back.
    None for a queue without ticks."""
    mine = get_tick(here, queue, bound, "")
    if mine is not None and all(get_tick(db, queue, bound, name) is None for name, db in others):
        return bound
    oldest = here.value(query("resurrect", "oldest_tick"), [queue])
    return int(oldest) if oldest is not None else None
