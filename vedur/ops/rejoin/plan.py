"""What `rejoin` finds and decides: how the positions fit, and the least work that mends it. Pure
but for `read_plan`.

    position and reigns fit                        nothing to do
    the provider has the very tick that this
    node has applied                               the consumer goes to that tick; nothing is lost
    anything else                                  a new tick, and every table is made equal
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vedur.db import Database
from vedur.node.epoch import Match, match_reigns, read_reigns
from vedur.node.info import NodeInfo
from vedur.node.position import (
    AppliedTick,
    Fit,
    Place,
    get_applied_tick,
    get_place,
    get_tick,
    judge,
    keeps_ticks,
)
from vedur.sql import query


class Way(StrEnum):
    """How a node comes back."""

    NOTHING = "nothing"
    MOVE = "move"
    REPAIR = "repair"


@dataclass(frozen=True)
class Found:
    """Both positions. `place` is None where the provider does not know the consumer; `first` and
    `last` are the oldest and the newest tick that its queue has."""

    here: int
    applied: AppliedTick | None
    place: Place | None
    tick: AppliedTick | None
    first: int | None
    last: int | None
    of_branch: bool = False  # the provider is a branch
    match: Match = Match.SAME  # of the reigns that both know


@dataclass(frozen=True)
class Plan:
    """A way, and the reason in one sentence."""

    way: Way
    why: str


def read_found(
    db: Database, provider: Database, queue: str, info: NodeInfo, above: NodeInfo | None
) -> Found:
    """Look at both sides; `above` is what the provider says of itself."""
    worker, name = info.worker_name or "", info.provider_node or ""
    here = int(info.worker_last_tick or 0)
    applied = get_applied_tick(db, queue, worker, name) if keeps_ticks(db) else None
    if applied is not None and applied.id != here:
        applied = None
    ends = provider.one(query("rejoin", "ticks"), [queue])
    mine, theirs = (read_reigns(side, queue) for side in (db, provider))
    return Found(
        here,
        applied,
        get_place(provider, queue, worker, here),
        get_tick(provider, queue, here, name),
        ends.first,
        ends.last,
        above is not None and above.is_branch,
        match_reigns(mine, theirs, here),
    )


def make_plan(found: Found, *, force: bool = False) -> Plan:
    """Decide how the node is brought back, and say why."""
    same = (
        found.applied is not None
        and found.tick is not None
        and found.applied.same(found.tick, of_branch=found.of_branch)
    )
    if force:
        return Plan(Way.REPAIR, "asked for with --force")
    if found.match in (Match.AHEAD, Match.FORKED):
        return Plan(Way.REPAIR, _why_other_reign(found))
    if found.place is not None:
        fit = judge(found.here, found.applied, found.place, of_branch=found.of_branch)
        if fit in (Fit.SAME, Fit.COMMITTED):
            return Plan(Way.NOTHING, f"node and consumer both stand at tick {found.here}")
    if same:
        return Plan(
            Way.MOVE,
            f"the provider still has tick {found.here}, which this node has applied, and every "
            "event after it",
        )
    return Plan(Way.REPAIR, _why_repair(found))


def _why_other_reign(found: Found) -> str:
    if found.match is Match.FORKED:
        return (
            "this node and the provider follow different roots: what this node has applied is of a "
            "history that the provider does not have"
        )
    return (
        f"this node has applied tick {found.here} of an earlier root, and the root that the "
        "provider follows took over before that tick"
    )


def _why_repair(found: Found) -> str:
    here = found.here
    if found.tick is None:
        if found.first is not None and here < found.first:
            return (
                f"the provider no longer has tick {here}, its oldest is {found.first}: "
                "events that this node lacks are gone from the queue"
            )
        if found.last is not None and here > found.last:
            return (
                f"the provider never wrote tick {here}, its newest is {found.last}: this node has "
                "changes of a history that the provider has lost"
            )
        return f"the provider has no tick {here}"
    if found.applied is None:
        return (
            f"nothing tells whether tick {here} of the provider is the tick that this node has "
            "applied: it was written before Vedur kept that"
        )
    return (
        f"tick {here} of the provider is another one than this node has applied: the provider has "
        "lost a part of its history"
    )
