"""Who has replaced a root that comes back, and at which tick. Pure.

Every member tells the reigns that it knows (`vedur/node/epoch.py`). The one that follows the last
reign of this node began behind a tick that this node has, too: up to there both histories are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vedur.errors import StateError
from vedur.node.epoch import (
    Reign,
    ReignKind,
    Reigns,
    explain_forgotten,
    last_reign,
    next_reign,
)
from vedur.node.plan import Member, Members


@dataclass(frozen=True)
class Successor:
    """The root of now, the last tick that this node has in common with it, and the reign that this
    node knows as the last one; None where the set had no epochs before."""

    root: str
    tick: int
    epoch: str | None


def find_successor(
    local: Member, mine: Reigns, histories: Mapping[str, Reigns], members: Members
) -> Successor | None:
    """Find who has replaced the local node, or its root; None where nobody has.

    Raises where two nodes were made root independently, and where the root of now does not answer:
    this node could not read from it.
    """
    here = last_reign(mine)
    forks = {name: fork for name, r in histories.items() if (fork := find_fork(mine, r))}
    if not forks:
        return None
    followers = {fork.follower.epoch: fork.follower for fork in forks.values()}
    if len(followers) > 1:
        roots = ", ".join(sorted(f'"{r.root}" (epoch {r.epoch})' for r in followers.values()))
        raise StateError(
            f"several nodes were made root after this one: {roots}: drop all of them but one, with "
            "the nodes below them, then run resurrect again"
        )
    newest = max((last_reign(histories[name]) for name in forks), key=_serial)
    assert newest is not None
    _require_root(newest, members, {**histories, local.name: mine})
    tick = min(fork.tick for fork in forks.values())
    if local.is_branch and local.tick is not None and local.tick <= tick:
        return None  # it has gone no further than the new root: it just reads on
    return Successor(newest.root, tick, here.epoch if here is not None else None)


@dataclass(frozen=True)
class Fork:
    """Where another history leaves this one: its first reign of its own, the last common tick."""

    follower: Reign
    tick: int


def find_fork(mine: Reigns, theirs: Reigns) -> Fork | None:
    """Find where the history of another node left that of this one; None where it has not.

    Usually it goes on where this one ends. Where this node became root itself and nobody noticed,
    both have a reign of their own after the last common one. A set that had no epochs begins with
    the reign of whoever has replaced its root.
    """
    if not mine:
        first = min(theirs, key=lambda reign: reign.serial, default=None)
        if first is None or first.kind == ReignKind.CREATED:
            return None
        return Fork(first, first.first_tick)
    known = {reign.epoch for reign in theirs}
    common = [reign for reign in mine if reign.epoch in known]
    last = last_reign(common)
    if last is None:
        return None
    follower, own = next_reign(theirs, last.epoch), next_reign(mine, last.epoch)
    if follower is None:
        return None
    ticks = [reign.first_tick for reign in (follower, own) if reign is not None]
    return Fork(follower, min(ticks))


def _serial(reign: Reign | None) -> int:
    return reign.serial if reign is not None else 0


def _require_root(reign: Reign, members: Members, histories: Mapping[str, Reigns]) -> None:
    root = members.get(reign.root)
    if root is None:
        raise StateError(f'the root is node "{reign.root}", which this node does not know')
    if not root.answers:
        raise StateError(f'the root "{root.name}" does not answer ({root.failure})')
    if forgotten := explain_forgotten(root.name, histories.get(root.name, ()), [reign]):
        raise StateError(forgotten)
    if not root.is_root:
        raise StateError(
            f'node "{root.name}" is a {root.type}, although its reign is the last one: run the '
            "takeover that was begun again, it finishes it; then run resurrect again"
        )
