"""worker --rewind, --reset, --set-tick: move the position of this node by hand, and end.

A position is stored twice (`vedur/node/position.py`): here, with the data, and on the provider, as
that of a consumer. --rewind puts the consumer where this node is; --reset puts this node where its
consumer is; --set-tick puts both at a tick. Whatever lies between the old and the new position of
this node is passed over, or applied a second time: how much that is is said first, and a yes asked
for.
On a branch the position of the node cannot be moved: its own queue would have a hole, or events
twice, and so would every node below it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.node.info import NodeInfo
from vedur.node.position import (
    AppliedTick,
    complete_tick,
    get_place,
    get_tick,
    keeps_ticks,
    lock_position,
    set_consumer_completed,
)
from vedur.node.state import hold_back_watermark
from vedur.ops.combined import require_unmerged
from vedur.ops.session import Session
from vedur.sql import query

log = logging.getLogger(__name__)

Confirm = Callable[[str], bool]


@dataclass(frozen=True)
class MoveTo:
    """What was asked for; exactly one of the three."""

    rewind: bool = False
    reset: bool = False
    tick: int | None = None

    def check(self) -> None:
        """Raise unless exactly one is given."""
        if [self.rewind, self.reset, self.tick is not None].count(True) != 1:
            raise UsageError("give one of --rewind, --reset and --set-tick=TICK")


@dataclass(frozen=True)
class PositionChange:
    """A move that was worked out: of the node, of its consumer, and the events in between.

    events is what the node passes over; below 0 it is what it applies again; None: nobody knows.
    """

    here: int
    there: int
    to: int
    events: int | None

    @property
    def text(self) -> str:
        """What it means, as a sentence."""
        if self.here == self.to:
            return f"the node stays at tick {self.to}, its consumer moves from tick {self.there}"
        count = "an unknown number of" if self.events is None else f"about {abs(self.events)}"
        word = "passed over: they are lost here" if self.to > self.here else "applied again"
        return f"from tick {self.here} to tick {self.to}: {count} event(s) are {word}"


def move_position(session: Session, asked: MoveTo, confirm: Confirm) -> PositionChange:
    """Move the position; `confirm` is asked unless no row can be touched by it."""
    asked.check()
    info = session.require_node()
    if info.is_root:
        raise StateError(f'node "{info.node_name}" is the root: it reads from nobody')
    require_unmerged(info, "moving the position")
    provider, worker = session.provider(info), info.worker_name or ""
    change = _plan(session, info, provider, worker, asked)
    _require_allowed(session.db, session.queue, info, change)
    if change.here == change.to == change.there:
        log.info("The position is tick %s on both sides: nothing to do", change.to)
        return change
    if change.here != change.to and not confirm(change.text):
        raise UsageError(f"{change.text}; nothing is changed, say --yes to do it")
    tick = _require_tick(provider, session.queue, info, change.to)
    if change.here != change.to:
        _set_here(session.db, session.queue, worker, change, tick)
    reach("tick.set")
    if change.there != change.to:
        _set_there(provider, session.queue, info, change)
    log.info("Position of '%s': %s", info.node_name, change.text)
    return change


def _plan(
    session: Session, info: NodeInfo, provider: Database, worker: str, asked: MoveTo
) -> PositionChange:
    here = info.worker_last_tick
    if here is None:
        raise StateError(f'node "{info.node_name}" has no position')
    place = get_place(provider, session.queue, worker, here)
    if place is None:
        raise StateError(
            f'consumer "{worker}" is not registered on provider "{info.provider_node}": run rejoin'
        )
    to = here if asked.rewind else place.last if asked.reset else asked.tick
    assert to is not None
    events = provider.value(query("node", "events_between"), [to, here, session.queue])
    return PositionChange(here, place.last, to, None if events is None else int(events))


def _require_allowed(db: Database, queue: str, info: NodeInfo, change: PositionChange) -> None:
    if change.here == change.to:
        return
    if info.is_branch:
        what = "a hole" if change.to > change.here else "events twice"
        raise StateError(
            f'node "{info.node_name}" is a branch: its queue would have {what} '
            f"({change.text}), and so would every node below it; nothing is changed"
        )
    copies = [t.table_name for t in get_table_list(db, queue) if t.merge_state and not t.ready]
    if copies:
        raise StateError(
            f"{len(copies)} table(s) are being copied ({', '.join(copies[:5])}): nothing is "
            "changed; run wait-sync first"
        )


def _require_tick(provider: Database, queue: str, info: NodeInfo, tick: int) -> AppliedTick:
    found = get_tick(provider, queue, tick, info.provider_node or "")
    if found is None:
        ends = provider.one(query("rejoin", "ticks"), [queue])
        raise StateError(
            f'provider "{info.provider_node}" does not have tick {tick} (it has ticks {ends.first} '
            f"to {ends.last}): nothing is changed"
        )
    return found


def _set_here(
    db: Database, queue: str, worker: str, change: PositionChange, tick: AppliedTick
) -> None:
    with db.transaction():
        if lock_position(db, queue, worker) != change.here:
            raise StateError("the worker went on meanwhile: stop it, then run the command again")
        if keeps_ticks(db):
            complete_tick(db, queue, worker, tick, silent=True)
        else:
            set_consumer_completed(db, queue, worker, change.to)


def _set_there(provider: Database, queue: str, info: NodeInfo, change: PositionChange) -> None:
    """Move the consumer on the provider, and what keeps events for the node where that is ahead:
    it would not go back by itself. Where it is behind, the worker moves it on."""
    with provider.transaction():
        provider.value(query("node", "register_consumer_at"), [queue, info.worker_name, change.to])
        hold_back_watermark(provider, queue, info.node_name, change.to)
