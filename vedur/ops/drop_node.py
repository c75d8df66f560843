"""drop-node: take a node out of the set.

Reachable or not, the others must forget it: the root tells them through the queue, and each
member that can be reached is cleaned at once, so that no position of the dead node keeps events.
With --reparent the nodes that read from it are moved to its provider first, each without a copy,
and so are consumers beside workers that keep their positions on nodes. Where others would lose
theirs, the node is not dropped, unless --forget-consumers gives them up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlencode

from vedur.catalog.tables import get_table_list, local_remove_table
from vedur.db import Database
from vedur.errors import DatabaseError, RefusedError, StateError
from vedur.failpoint import reach
from vedur.node.epoch import forget_reigns
from vedur.node.info import SYNC_WATERMARK, get_node_info, get_subscriber_info, synced_nodes
from vedur.node.plan import (
    MOVE_CONSUMER,
    MOVE_PROVIDER,
    Move,
    find_above,
    plan_consumer_move,
    plan_move,
    plan_reparent,
    require_droppable,
)
from vedur.node.position import forget_position, lock_position
from vedur.node.setup import drop_node as drop
from vedur.node.setup import set_node_attrs, unregister_location, unregister_subscriber
from vedur.ops.change_provider import MAX_WAIT, run_move
from vedur.ops.members import SetView, find_consumer, read_members
from vedur.ops.readers import OtherConsumer, forget_readers, read_readers, require_no_readers
from vedur.ops.session import Session
from vedur.ops.takeover.failover import GRAVESTONE
from vedur.sql import query

log = logging.getLogger(__name__)


def drop_node(
    session: Session,
    name: str,
    *,
    reparent: bool = False,
    forget_consumers: bool = False,
    max_wait: float = MAX_WAIT,
) -> None:
    """Drop a node by name; with `reparent` its children read from its provider from then on, and
    with `forget_consumers` other consumers lose their positions with it."""
    view = read_members(session)
    if name not in view.members:
        raise StateError(f"Unknown node: {name}")
    if reparent:
        if not forget_consumers:
            readers = read_readers(view, session.queue, name)
            require_no_readers(view, session.queue, name, readers, reparent=True)
        view = _reparent(session, view, name, max_wait)
    require_droppable(view.members, name)
    target = view.databases.get(name)
    info = get_node_info(target, session.queue) if target else None
    others = {other: db for other, db in view.databases.items() if other != name}
    if info and info.target_for:
        raise StateError(
            f'parts are merged into "{name}" ({", ".join(info.target_for)}): drop-node them there '
            "first, with the ini of each"
        )
    if info and info.is_root and others:
        raise StateError(f'node "{name}" is the root: drop the other nodes first')
    readers = read_readers(view, session.queue, name)
    if not forget_consumers:  # one may have come meanwhile
        require_no_readers(view, session.queue, name, readers, reparent=False)
    forget_readers(view, session.queue, name, readers)
    for other in view.members:
        if other not in others and other != name:
            log.warning("'%s' still knows '%s': the root tells it later", other, name)
    for other, db in others.items():
        _forget(db, session.queue, name, other, view.local)
        _forget_watermark(db, session.queue, name, other)
        reach("drop.forgotten")
    if target and info:
        with target.transaction():
            # before any row: a batch that is being committed has locked its tables, and would wait
            # for rows that are deleted here, while this waits for those tables to drop triggers
            lock_position(target, session.queue, info.worker_name or "")
            _end_copies(target, session.queue)
            drop(target, session.queue, name)
            forget_position(target, session.queue)
            forget_reigns(target, session.queue)
    log.info("Node dropped: %s", name)


def _forget_watermark(db: Database, queue: str, name: str, member: str) -> None:
    """Take a node out of those whose watermark a branch waits for. A list that would be empty keeps
    the branch itself: its provider is not to wait for the nodes below it from now on."""
    try:
        info = get_node_info(db, queue)
        attrs = {} if info is None else dict(info.attrs)
        names = synced_nodes(attrs)
        if name in names:
            left = [each for each in names if each != name] or [member]
            attrs[SYNC_WATERMARK] = ",".join(left)
            set_node_attrs(db, queue, urlencode(attrs), quiet=True)
    except DatabaseError as error:
        log.warning("Node '%s' failure: %s", member, error.message)


def _reparent(session: Session, view: SetView, name: str, max_wait: float) -> SetView:
    """Move the children one after the other, then other consumers that read from the node; all are
    planned before the first one is moved."""
    view = _finish_moves(session, view, find_above(view.members, name), max_wait)
    above, moves = plan_reparent(view.members, name)
    for reader in _movable(session, view, name):
        _plan_reader(view, reader, above, moves)
    for move in moves:
        # what an earlier one has changed belongs in the plan of the next one
        view = _run(session, view, plan_move(view.members, move.node, above), max_wait)
    for reader in _movable(session, view, name):
        view = _run(session, view, _plan_reader(view, reader, above), max_wait)
    return view


def _run(session: Session, view: SetView, move: Move, max_wait: float) -> SetView:
    run_move(session, view, move, max_wait)
    reach("drop.reparented")
    return read_members(session)


def _movable(session: Session, view: SetView, name: str) -> list[OtherConsumer]:
    """Read which consumers read from a node and keep their positions on another one."""
    return [r for r in read_readers(view, session.queue, name) if r.host not in ("", name)]


def _plan_reader(
    view: SetView, reader: OtherConsumer, above: str, first: Sequence[Move] = ()
) -> Move:
    """Plan the move of a consumer; `first` are moves that are done before it, also where they were
    begun and are noted on the same node."""
    members = dict(view.members)
    if reader.host in [move.node for move in first]:
        members[reader.host] = replace(members[reader.host], attrs={})
    return plan_consumer_move(
        members, reader.host, reader.consumer, reader.provider, reader.tick or 0, above
    )


def _finish_moves(session: Session, view: SetView, above: str, max_wait: float) -> SetView:
    """Finish moves of consumers in the middle of which an earlier run was killed: until then the
    workers of their nodes cannot be moved."""
    for member in list(view.members.values()):
        consumer = member.attrs.get(MOVE_CONSUMER)
        if consumer in (None, member.worker) or member.attrs.get(MOVE_PROVIDER) != above:
            continue
        _, info = find_consumer(session, view, str(consumer), member.name)
        reader = OtherConsumer(
            info.consumer_name, info.last_tick_id, info.provider_node, member.name
        )
        view = _run(session, view, _plan_reader(view, reader, above), max_wait)
    return view


def _end_copies(db: Database, queue: str) -> None:
    """Give back to tables whose copies are cut short what the copies have dropped."""
    for table in get_table_list(db, queue).local:
        if table.dropped_ddl:
            local_remove_table(db, queue, table.table_name)


def _forget(db: Database, queue: str, name: str, member: str, local: str) -> None:
    """Remove traces of a node on another; not having any is fine."""
    prefix = "" if member == local else member
    subscribed = any(item.node_name == name for item in get_subscriber_info(db, queue))
    try:
        if subscribed:
            unregister_subscriber(db, queue, name, node=prefix)
        if db.value(query("resurrect", "has_consumer"), [queue, name + GRAVESTONE]):
            # nobody comes back for what it keeps
            db.value(query("node", "unregister_consumer"), [queue, name + GRAVESTONE])
        unregister_location(db, queue, name, node=prefix)
    except RefusedError as error:
        log.warning("%s", error.message)
    except DatabaseError as error:
        log.warning("Node '%s' failure: %s", member, error.message)
