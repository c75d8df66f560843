"""change-provider: read from another node from now on, without copying anything again.

Tick ids are the same on all nodes of a set, so the position carries over. The new provider gets
the subscription before the old one loses it: no event can vanish in between.
"""

from __future__ import annotations

import logging

from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import ConnectError, StateError, VedurError
from vedur.failpoint import reach
from vedur.node.info import NodeInfo, get_node_info, get_worker_state
from vedur.node.position import get_tick
from vedur.node.setup import register_location, register_subscriber, unregister_subscriber
from vedur.node.state import change_consumer_provider, set_consumer_paused
from vedur.ops.create_node import require_serving
from vedur.ops.pause import set_paused
from vedur.ops.session import Session
from vedur.sql import query

log = logging.getLogger(__name__)


def change_provider(session: Session, provider: str, *, node: str | None = None) -> None:
    """Move the worker of a node (default: the local one) to another provider, by node name."""
    local = session.require_node()
    name = node or local.node_name
    db = session.db if name == local.node_name else session.node(name)
    info = _info(db, session.queue, name)
    if info.is_root:
        raise StateError(f'node "{name}" is the root: it has no provider to change')
    if provider == name:
        raise StateError("cannot subscribe to itself")
    if info.provider_node == provider:
        raise StateError(f"node '{name}' has already '{provider}' as provider")
    new = session.node(provider)
    new_info = _info(new, session.queue, provider)
    require_serving(new, new_info)
    _move(session, db, info, new, new_info)


def _info(db: Database, queue: str, name: str) -> NodeInfo:
    info = get_node_info(db, queue)
    if info is None:
        raise StateError(f'node "{name}" is not initialized')
    return info


def _move(
    session: Session, db: Database, info: NodeInfo, new: Database, new_info: NodeInfo
) -> None:
    queue, worker = session.queue, info.worker_name or ""
    _require_tick(new, queue, new_info, _position(db, queue, info))
    _require_no_copies(db, queue, info)
    members = {member.node_name: member for member in session.members()}
    mine, there = members[info.node_name], members[new_info.node_name]
    try:
        if not info.worker_paused:
            set_paused(session, db, info.node_name, worker, True)
        reach("provider.paused")
        tick = _position(db, queue, info)
        _require_tick(new, queue, new_info, tick)
        with new.transaction():
            register_location(new, queue, mine.node_name, mine.node_location, mine.dead)
            register_subscriber(new, queue, info.node_name, worker, tick, node=new_info.node_name)
        reach("provider.subscribed")
        with db.transaction():
            register_location(db, queue, there.node_name, there.node_location, there.dead)
            change_consumer_provider(db, queue, worker, new_info.node_name)
        reach("provider.changed")
    except BaseException:  # an interrupt, too: the worker must not stay paused for it
        _resume_anyway(db, queue, info, worker)
        raise
    if not info.worker_paused:
        set_paused(session, db, info.node_name, worker, False)
    _unsubscribe(session, queue, info)
    log.info(
        "Consumer '%s' on node '%s' reads from '%s', after tick %s",
        worker,
        info.node_name,
        there.node_name,
        tick,
    )


def _position(db: Database, queue: str, info: NodeInfo) -> int:
    state = get_worker_state(db, queue)
    if state is None:
        raise StateError(f'node "{info.node_name}" has no worker state')
    return state.completed_tick


def _require_tick(new: Database, queue: str, provider: NodeInfo, tick: int) -> None:
    """The new provider must have the tick that the node has applied, or it cannot go on there."""
    if get_tick(new, queue, tick, provider.node_name) is not None:
        return
    ends = new.one(query("rejoin", "ticks"), [queue])
    behind = ends.last is not None and tick > ends.last
    then = "wait until it has come that far" if behind else "choose another node"
    raise StateError(
        f'node "{provider.node_name}" does not have tick {tick}, which the node has applied (it '
        f"has ticks {ends.first} to {ends.last}): nothing is changed; {then}"
    )


def _require_no_copies(db: Database, queue: str, info: NodeInfo) -> None:
    """A copy under way reads from the old provider, and is known there by a consumer of its own."""
    tables = [t for t in get_table_list(db, queue) if t.local and t.merge_state]
    begun = [t.table_name for t in tables if not t.ready]
    if begun:
        raise StateError(
            f'{len(begun)} table(s) of node "{info.node_name}" are being copied '
            f"({', '.join(begun[:5])}): nothing is changed; run wait-sync first"
        )


def _resume_anyway(db: Database, queue: str, info: NodeInfo, worker: str) -> None:
    """Let the worker go on without waiting for its answer, unless it was paused before."""
    if info.worker_paused:
        return
    try:
        set_consumer_paused(db, queue, worker, False)
    except VedurError as error:
        log.error(
            "The worker of '%s' stays paused (%s): run resume --node=%s",
            info.node_name,
            error.message,
            info.node_name,
        )


def _unsubscribe(session: Session, queue: str, info: NodeInfo) -> None:
    if not info.provider_node:
        return
    try:
        old = session.node(info.provider_node)
        unregister_subscriber(old, queue, info.node_name, node=info.provider_node)
    except ConnectError as error:
        log.warning("Node '%s' failure: %s", info.provider_node, error.message)
