"""change-provider: read from another node from now on, without copying anything again.

Tick ids are the same on all nodes of a set, so the position carries over. The new provider gets
the subscription before the old one loses it: no event can vanish in between.
"""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.errors import ConnectError, StateError
from vedur.node.info import NodeInfo, get_node_info, get_worker_state
from vedur.node.setup import register_location, register_subscriber, unregister_subscriber
from vedur.node.state import change_consumer_provider
from vedur.ops.create_node import require_serving
from vedur.ops.pause import set_paused
from vedur.ops.session import Session

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
    set_paused(session, db, info.node_name, worker, True)
    state = get_worker_state(db, queue)
    if state is None:
        raise StateError(f'node "{info.node_name}" has no worker state')
    members = {member.node_name: member for member in session.members()}
    mine = members[info.node_name]
    with new.transaction():
        register_location(new, queue, mine.node_name, mine.node_location, mine.dead)
        register_subscriber(
            new, queue, info.node_name, worker, state.completed_tick, node=new_info.node_name
        )
    there = members[new_info.node_name]
    with db.transaction():
        register_location(db, queue, there.node_name, there.node_location, there.dead)
        change_consumer_provider(db, queue, worker, new_info.node_name)
    set_paused(session, db, info.node_name, worker, False)
    if info.provider_node:
        try:
            old = session.node(info.provider_node)
            unregister_subscriber(old, queue, info.node_name, node=info.provider_node)
        except ConnectError as error:
            log.warning("Node '%s' failure: %s", info.provider_node, error.message)
    log.info("Consumer '%s' on node '%s' reads from '%s'", worker, info.node_name, there.node_name)
