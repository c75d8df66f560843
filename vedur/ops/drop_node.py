"""drop-node: take a node out of the set.

Reachable or not, the others must forget it: the root tells them through the queue, and each
member that can be reached is cleaned at once, so that no position of the dead node keeps events.
With --reparent the nodes that read from it are moved to its provider first, each without a copy.
"""

from __future__ import annotations

import logging
from urllib.parse import urlencode

from vedur.catalog.tables import get_table_list, local_remove_table
from vedur.db import Database
from vedur.errors import DatabaseError, RefusedError, StateError
from vedur.failpoint import reach
from vedur.node.epoch import forget_reigns
from vedur.node.info import SYNC_WATERMARK, get_node_info, get_subscriber_info, synced_nodes
from vedur.node.plan import plan_move, plan_reparent, require_droppable
from vedur.node.position import forget_position, lock_position
from vedur.node.setup import drop_node as drop
from vedur.node.setup import set_node_attrs, unregister_location, unregister_subscriber
from vedur.ops.change_provider import MAX_WAIT, run_move
from vedur.ops.members import SetView, read_members
from vedur.ops.session import Session
from vedur.ops.takeover.failover import GRAVESTONE
from vedur.sql import query

log = logging.getLogger(__name__)


def drop_node(
    session: Session, name: str, *, reparent: bool = False, max_wait: float = MAX_WAIT
) -> None:
    """Drop a node by name; with `reparent` its children read from its provider from then on."""
    view = read_members(session)
    if name not in view.members:
        raise StateError(f"Unknown node: {name}")
    if reparent:
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
    """Move the children one after the other; all are planned before the first one is moved."""
    above, moves = plan_reparent(view.members, name)
    for move in moves:
        # what an earlier one has changed belongs in the plan of the next one
        run_move(session, view, plan_move(view.members, move.node, above), max_wait)
        view = read_members(session)
        reach("drop.reparented")
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
