"""Whose reign it is: the history of roots that a node knows, compared with its provider's.

A tick is known by its number, and numbers come again: two nodes that were made root independently
write the same ones, and so does a root that was deposed and goes on. So every reign of a root has
an identity, its epoch (`vedur.reign`), and a node reads only from a provider whose history
continues its own:

    the provider knows the node's last reign, and the node has not gone beyond the tick at which the
    next one began there

Everything else is refused. A set without epochs (Londiste's, or one that was made before) is not
checked: `keeps_epochs` tells, and node-info says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from weakref import WeakKeyDictionary

from vedur.db import Answer, Database, command
from vedur.errors import OtherEpoch
from vedur.sql import query

#: How every message about it begins: `status` and the page know it by that.
OTHER = "Other epoch"


class ReignKind(StrEnum):
    """How a node became root."""

    CREATED = "created"
    TAKEOVER = "takeover"
    FAILOVER = "failover"
    ADOPTED = "adopted"  # by another program; its worker has noticed
    KEPT = "kept"  # it was root before, and stays it: its successor is lost for good


@dataclass(frozen=True)
class Reign:
    """The time in which one node is root; it begins behind tick `first_tick`."""

    epoch: str
    serial: int
    root: str
    first_tick: int
    previous: str | None = None
    kind: str = ReignKind.CREATED


Reigns = Sequence[Reign]


class Match(StrEnum):
    """How the histories of a node and its provider go together."""

    SAME = "same"  # or one of them keeps none
    BEHIND = "behind"  # the provider is of an earlier reign: deposed, or restored from a backup
    AHEAD = "ahead"  # the node went on behind the tick at which the next reign began
    FORKED = "forked"  # two nodes were made root


def last_reign(reigns: Reigns) -> Reign | None:
    """Return the newest reign of a history, None where there is none."""
    return max(reigns, key=lambda r: r.serial, default=None)


def next_reign(reigns: Reigns, epoch: str) -> Reign | None:
    """Return the reign that followed another one."""
    return next((r for r in reigns if r.previous == epoch), None)


def match_reigns(mine: Reigns, theirs: Reigns, position: int) -> Match:
    """Compare the history of a node that stands at a tick with that of its provider."""
    here, there = last_reign(mine), last_reign(theirs)
    if here is None or there is None or here.epoch == there.epoch:
        return Match.SAME
    if any(r.epoch == here.epoch for r in theirs):
        follows = next_reign(theirs, here.epoch)
        beyond = follows is not None and position > follows.first_tick
        return Match.AHEAD if beyond else Match.SAME
    return Match.BEHIND if any(r.epoch == there.epoch for r in mine) else Match.FORKED


def explain_forgotten(name: str, mine: Reigns, theirs: Reigns) -> str:
    """Return what to do with a node that others follow as root and that does not know it, because
    it was restored from a backup of before; empty where that is not so."""
    newest = last_reign(theirs)
    if newest is None or newest.root != name or any(r.epoch == newest.epoch for r in mine):
        return ""
    return (
        f'node "{name}" is root since tick {newest.first_tick}, and does not know it: it was '
        "restored from a backup of before; nothing is changed: stop its server, run takeover "
        f"{name} --dead-root --node=NODE with a branch that has gone further, start it, and run "
        '"resurrect" on it'
    )


def explain(match: Match, mine: Reigns, theirs: Reigns, position: int, provider: str) -> OtherEpoch:
    """Make the error that says what does not fit, and what to do."""
    here, there = last_reign(mine), last_reign(theirs)
    assert here is not None and there is not None
    if match is Match.BEHIND and (forgotten := explain_forgotten(provider, theirs, mine)):
        return OtherEpoch(f"{OTHER}: {forgotten}")
    if match is Match.BEHIND:
        return OtherEpoch(
            f'{OTHER}: provider "{provider}" follows root "{there.root}" (epoch {there.epoch}), '
            f'which "{here.root}" has replaced at tick {here.first_tick}: it was deposed, or '
            "restored from a backup; nothing is applied: run change-provider "
            f'--provider={here.root} on this node, and resurrect or drop-node "{provider}"'
        )
    if match is Match.AHEAD:
        follows = next_reign(theirs, here.epoch)
        assert follows is not None
        return OtherEpoch(
            f'{OTHER}: this node has applied tick {position}, and root "{follows.root}" has taken '
            f"over at tick {follows.first_tick}: what came after it was lost with root "
            f'"{here.root}"; nothing is applied: run "rejoin" on this node, it says what it '
            'would do (a branch: "resurrect")'
        )
    return OtherEpoch(
        f'{OTHER}: this node follows root "{here.root}" (epoch {here.epoch}), provider '
        f'"{provider}" follows root "{there.root}" (epoch {there.epoch}), and neither came after '
        "the other: two nodes were made root; nothing is applied: choose one of them, and run "
        '"rejoin" or "resurrect" on the nodes of the other'
    )


def is_other_epoch(message: str) -> bool:
    """Tell whether a stored message is about epochs."""
    return OTHER in message


# -- reading and writing ---------------------------------------------------------------------------

_keeps: WeakKeyDictionary[Database, bool] = WeakKeyDictionary()


def keeps_epochs(db: Database) -> bool:
    """Read, once for a connection, whether a database has the table of reigns."""
    if db not in _keeps:
        _keeps[db] = bool(db.value(query("epoch", "keeps")))
    return _keeps[db]


def read_reigns(db: Database, queue: str) -> tuple[Reign, ...]:
    """Read the reigns that a node knows, the oldest first."""
    if not keeps_epochs(db):
        return ()
    rows = db.query(query("epoch", "reigns"), [queue])
    return tuple(
        Reign(r.epoch, r.serial, r.root_node, r.first_tick, r.previous, r.kind) for r in rows
    )


def check_epoch(db: Database, provider: Database, queue: str, position: int, name: str) -> None:
    """Raise OtherEpoch unless a node that stands at a tick may read from its provider, by name."""
    mine = read_reigns(db, queue)
    if not mine:
        return
    theirs = read_reigns(provider, queue)
    match = match_reigns(mine, theirs, position)
    if match is not Match.SAME:
        raise explain(match, mine, theirs, position, name)


def take_reigns(db: Database, provider: Database, queue: str, position: int) -> bool:
    """Write the history of the provider down on a node that has none: True if there was one."""
    if not keeps_epochs(db) or read_reigns(db, queue):
        return False
    found = [r for r in read_reigns(provider, queue) if r.first_tick <= position]
    _write(db, queue, found)
    return bool(found)


def add_reigns(db: Database, provider: Database, queue: str) -> None:
    """Write down on a node what its provider knows beyond that; events tell the same later."""
    if keeps_epochs(db):
        _write(db, queue, read_reigns(provider, queue))


def replace_reigns(db: Database, provider: Database, queue: str) -> None:
    """Make the history of a node that of its provider; belongs in the transaction that moves the
    node to a tick of the provider."""
    if keeps_epochs(db):
        forget_reigns(db, queue)
        _write(db, queue, read_reigns(provider, queue))


def forget_reigns(db: Database, queue: str) -> None:
    """Remove what a node knows of reigns: it has ended, or begins anew."""
    if keeps_epochs(db):
        db.execute(query("epoch", "forget"), {"queue": queue})


def _write(db: Database, queue: str, reigns: Reigns) -> None:
    if reigns:
        rows = [
            (queue, r.epoch, r.serial, r.root, r.first_tick, r.previous, r.kind) for r in reigns
        ]
        db.executemany(query("epoch", "write"), rows)


def begin_reign(
    db: Database, queue: str, kind: ReignKind, *, epoch: str | None = None, announce: bool = True
) -> str:
    """Begin the reign of the local node, which is root; returns its epoch."""
    return str(db.value(query("epoch", "begin"), [queue, kind.value, epoch, announce]))


def note_reign(db: Database, queue: str, text: str) -> Answer:
    """Store a reign that an event has told of, in the transaction of its batch."""
    return command(db, "vedur.note_reign", queue, text, quiet=True)


def depose(db: Database, queue: str, by: Reign) -> Answer:
    """Close the queue of the local root, which another one has replaced."""
    return command(db, "vedur.depose", queue, by.epoch, by.root, by.first_tick)


def read_deposed(db: Database, queue: str) -> Reign | None:
    """Read who has replaced the local root, None if nobody has."""
    if not keeps_epochs(db):
        return None
    row = db.one(query("epoch", "deposed"), [queue])
    return None if row is None else Reign(row.epoch, 0, row.root_node, row.first_tick)
