"""A root asks the other nodes of its set whether it is still the root.

Asked for are their histories and positions (node/epoch.py). What a member can tell:

    a reign that continues ours      this root was replaced: its queue is closed, `resurrect` is due
    a reign beside ours              two nodes were made root; an operator has to choose
    a position behind our last tick  this root was restored from a backup
    an earlier reign of ours         it was replaced; if it is root and open, it is closed from here

A member that does not answer tells nothing, and nothing is concluded from that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.errors import LostPosition, OtherEpoch, VedurError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node import NodeInfo, WorkerState, get_node_info, get_queue_locations
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import (
    OTHER,
    Reign,
    ReignKind,
    Reigns,
    begin_reign,
    depose,
    keeps_epochs,
    last_reign,
    next_reign,
    read_reigns,
)
from vedur.node.info import has_schema
from vedur.node.plan import TAKEOVER_EPOCH
from vedur.node.position import LOST, read_newest_tick
from vedur.sql import query

log = logging.getLogger(__name__)

#: Seconds that a member gets to answer.
_PATIENCE = 3


@dataclass(frozen=True)
class _Said:
    """What another member says of the set."""

    info: NodeInfo
    reigns: Reigns
    location: str
    is_open: bool  # it is root, and takes writes

    def knows(self, epoch: str) -> bool:
        return any(r.epoch == epoch for r in self.reigns)


def require_reign(db: Database, state: WorkerState, settings: LondisteSettings) -> str | None:
    """Ask all members; raises where this node is not, or not alone, the root of the set. A reign is
    begun where another program has made this node root. Returns what is to be said of a root that
    was replaced, takes writes and cannot be closed."""
    if not keeps_epochs(db):
        return None
    queue = settings.queue_name
    mine = read_reigns(db, queue)
    members = list(_ask(db, state.node_name, settings))
    by = _replaced_by(state.node_name, mine, members)
    if by is not None:
        own = get_node_info(db, queue)
        # the name of the new root would not tell: a failover to the same node leaves events behind
        mine_now = own is not None and own.attrs.get(TAKEOVER_EPOCH) == by.epoch
        if mine_now and not _lost_since(by, members):
            return None  # a takeover is about to make this node a branch
        if depose(db, queue, by).code == 301:
            return None  # a takeover has just made it one
        reach("reign.deposed")
        raise deposed_error(by)
    _require_alone(state.node_name, mine, members)
    _require_newest(db, queue, state.node_name, mine, members)
    _adopt(db, queue, state.node_name, mine)
    return _close_others(settings, state.node_name, mine, members)


def deposed_error(by: Reign) -> OtherEpoch:
    """Make the error of a root that was replaced."""
    return OtherEpoch(
        f'{OTHER}: this root was deposed: "{by.root}" has taken over at tick {by.first_tick} '
        f"(epoch {by.epoch}); the queue is closed for writers: let applications connect to "
        f'"{by.root}", and run "resurrect" on this node'
    )


def _ask(db: Database, name: str, settings: LondisteSettings) -> Iterator[_Said]:
    for member in get_queue_locations(db, settings.queue_name):
        if member.node_name == name:
            continue  # one that is tagged as dead is asked, too: it may be back, and be root
        try:
            endpoint = Endpoint.of_node(settings, member.node_location)
            with endpoint.with_connect_timeout(_PATIENCE).open("member") as there:
                info = get_node_info(there, settings.queue_name) if has_schema(there) else None
                if info is not None and info.node_name == member.node_name:
                    closed = there.value(query("takeover", "is_closed"), [settings.queue_name])
                    reigns = read_reigns(there, settings.queue_name)
                    yield _Said(info, reigns, member.node_location, info.is_root and not closed)
        except VedurError as error:
            log.debug('node "%s" was not asked who is root: %s', member.node_name, error)


def _replaced_by(name: str, mine: Reigns, members: list[_Said]) -> Reign | None:
    """Return the reign that followed the one of this root, None if nobody knows of any. Pure."""
    here = last_reign(mine)
    for said in members:
        there = last_reign(said.reigns)
        if there is None or there.root == name:
            continue
        if here is None:  # the set had no epochs when this node was its root
            first = min(said.reigns, key=lambda r: r.serial)
            return first if first.root != name else next_reign(said.reigns, first.epoch)
        if here.root == name and here.epoch != there.epoch and said.knows(here.epoch):
            return next_reign(said.reigns, here.epoch) or there
    return None


def _replaced(name: str, mine: Reigns, said: _Said) -> Reign | None:
    """Return the reign of our history that has ended the one of another root, which does not know
    it and takes writes; None for any other node. Pure."""
    here, there = last_reign(mine), last_reign(said.reigns)
    if here is None or there is None or here.root != name or not said.is_open:
        return None
    return next_reign(mine, there.epoch) if there.root == said.info.node_name else None


def _close_others(
    settings: LondisteSettings, name: str, mine: Reigns, members: list[_Said]
) -> str | None:
    """Close roots that were replaced and do not know it: they may reach nobody. Returns what is to
    be said of one that cannot be closed."""
    queue = settings.queue_name
    for said in members:
        by = _replaced(name, mine, said)
        if by is None:
            continue
        other = said.info.node_name
        try:
            endpoint = Endpoint.of_node(settings, said.location)
            with endpoint.with_connect_timeout(_PATIENCE).open("member") as there:
                with there.transaction():
                    there.value(query("epoch", "lock_node"), [queue])
                    if last_reign(read_reigns(there, queue)) != last_reign(said.reigns):
                        continue  # it has learnt of another reign meanwhile
                    depose(there, queue, by)
                reach("reign.closed_other")
            log.warning('root "%s" was replaced at tick %s: it is closed', other, by.first_tick)
        except VedurError as error:
            return (
                f'{OTHER}: "{other}" was replaced by "{by.root}" at tick {by.first_tick}, takes '
                f"writes, and cannot be closed from here ({mask(error.message)}): stop its "
                'applications, let its worker run, which closes it, and run "resurrect" there'
            )
    return None


def _lost_since(by: Reign, members: list[_Said]) -> bool:
    """Tell whether the root that has taken over from this one was lost since: nobody finishes that
    takeover then. Pure."""
    return any(
        r.serial > by.serial and r.kind == ReignKind.FAILOVER
        for said in members
        for r in said.reigns
    )


def _require_alone(name: str, mine: Reigns, members: list[_Said]) -> None:
    """Raise where another node is root, too. Pure."""
    here = last_reign(mine)
    if here is None:
        return
    for said in members:
        there = last_reign(said.reigns)
        if there is None:
            continue
        known = said.knows(here.epoch) or any(r.epoch == there.epoch for r in mine)
        rival = here.root != name and said.info.is_root and there.epoch == here.epoch
        if not known or rival:
            raise OtherEpoch(
                f'{OTHER}: this node was made root, and "{said.info.node_name}" follows root '
                f'"{there.root}" (epoch {there.epoch}): two nodes were made root; choose one of '
                'them, close the other one for applications, and run "resurrect" there'
            )


def _require_newest(
    db: Database, queue: str, name: str, mine: Reigns, members: list[_Said]
) -> None:
    """Raise where a member has applied what this root has never written."""
    here, newest = last_reign(mine), read_newest_tick(db, queue)
    for said in members:
        there = last_reign(said.reigns)
        tick = said.info.worker_last_tick
        if here is None or there is None or newest is None or tick is None:
            continue
        if here.epoch == there.epoch and not said.info.is_root and tick > newest:
            # the queue may have got ticks since it was looked at
            newest = read_newest_tick(db, queue) or newest
            if tick > newest:
                raise LostPosition(
                    f'{LOST}: node "{said.info.node_name}" has applied tick {tick}, and the queue '
                    f"of this root ends with tick {newest}: this database was restored from an "
                    f'older backup; run "rejoin" on "{said.info.node_name}"; or, to go on with '
                    "what that node has, stop the server of this root and run takeover "
                    f"{name} --dead-root --node={said.info.node_name}"
                )


def _adopt(db: Database, queue: str, name: str, mine: Reigns) -> None:
    """Begin a reign where another program has made this node root."""
    here = last_reign(mine)
    if here is not None and here.root != name:
        epoch = begin_reign(db, queue, ReignKind.ADOPTED)
        reach("reign.adopted")
        log.info('node "%s" was made root by another program: its epoch is %s', name, epoch)
