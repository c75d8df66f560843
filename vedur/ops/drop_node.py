"""drop-node: take a node out of the set.

Reachable or not, the others must forget it: the root tells them through the queue, and each
member that can be reached is cleaned at once, so that no position of the dead node keeps events.
"""

from __future__ import annotations

import logging

from vedur.catalog.tables import get_table_list, local_remove_table
from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError, RefusedError, StateError
from vedur.node.info import NodeInfo, get_node_info, get_subscriber_info
from vedur.node.position import forget_position
from vedur.node.setup import drop_node as drop
from vedur.node.setup import unregister_location, unregister_subscriber
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def drop_node(session: Session, name: str) -> None:
    """Drop a node by name."""
    local = session.require_node()
    members = {member.node_name: member for member in session.members()}
    if name not in members:
        raise StateError(f"Unknown node: {name}")
    databases = _reachable(session, local, name, list(members))
    target = databases.get(name)
    info = get_node_info(target, session.queue) if target else None
    if target and info:
        _check_subscribers(target, session.queue, name)
    others = {other: db for other, db in databases.items() if other != name}
    if info and info.is_root and others:
        raise StateError(f'node "{name}" is the root: drop the other nodes first')
    for other, db in others.items():
        _forget(db, session.queue, name, other, local.node_name)
    if target and info:
        with target.transaction():
            _end_copies(target, session.queue)
            drop(target, session.queue, name)
            forget_position(target, session.queue)
    log.info("Node dropped: %s", name)


def _end_copies(db: Database, queue: str) -> None:
    """Tables whose copies are cut short get back what the copies have dropped."""
    for table in get_table_list(db, queue):
        if table.local and table.dropped_ddl:
            local_remove_table(db, queue, table.table_name)


def _reachable(
    session: Session, local: NodeInfo, name: str, members: list[str]
) -> dict[str, Database]:
    found: dict[str, Database] = {}
    for member in members:
        try:
            found[member] = session.db if member == local.node_name else session.node(member)
        except ConnectError as error:
            log.warning("Node '%s' failure: %s", member, error.message)
            if member != name:
                log.warning("'%s' still knows '%s': the root tells it later", member, name)
    return found


def _check_subscribers(db: Database, queue: str, name: str) -> None:
    subscribers = [item.node_name for item in get_subscriber_info(db, queue)]
    if subscribers:
        raise StateError(
            f"node still has subscribers: {', '.join(subscribers)}: "
            "change their provider or drop them first"
        )


def _forget(db: Database, queue: str, name: str, member: str, local: str) -> None:
    """Remove traces of a node on another; not having any is fine."""
    prefix = "" if member == local else member
    subscribed = any(item.node_name == name for item in get_subscriber_info(db, queue))
    try:
        if subscribed:
            unregister_subscriber(db, queue, name, node=prefix)
        unregister_location(db, queue, name, node=prefix)
    except RefusedError as error:
        log.warning("%s", error.message)
    except DatabaseError as error:
        log.warning("Node '%s' failure: %s", member, error.message)
