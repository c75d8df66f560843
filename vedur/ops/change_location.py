"""change-location: a node has moved to another host, port or database name; all nodes learn it.

The root tells everybody through the queue. But a node that reads from the one that has moved can
hear nothing from there, so each node that can be reached is told at once; those that cannot be are
named. The new address must lead to the node, unless the check is switched off.
"""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.db.conninfo import has_host
from vedur.errors import ConnectError, DatabaseError, StateError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.info import Location, NodeInfo, get_node_info, has_schema
from vedur.node.setup import register_location
from vedur.ops.create_node import check_same_database
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def change_location(session: Session, name: str, location: str, *, check: bool = True) -> None:
    """Tell the set that node `name` is reached by another connect string."""
    local = session.require_node()
    members = {member.node_name: member for member in session.members()}
    if name not in members:
        raise StateError(f"Unknown node: {name}")
    if not has_host(location):
        log.warning("No host= in public connect string, bad idea")
    if check:
        _check(session, local, members[name], location)
    reach("location.checked")
    told, away, root_told = [], [], False
    for member in members.values():
        try:
            db = _connect(session, local, member, name, location)
            info = get_node_info(db, session.queue) if has_schema(db) else None
            if info is None or info.node_name != member.node_name:
                log.warning("Node '%s' failure: it is not at its location", member.node_name)
                away.append(member.node_name)
                continue
            prefix = "" if member.node_name == local.node_name else member.node_name
            register_location(db, session.queue, name, location, members[name].dead, node=prefix)
        except DatabaseError as error:
            log.warning("Node '%s' failure: %s", member.node_name, mask(error.message))
            away.append(member.node_name)
            continue
        told.append(member.node_name)
        root_told = root_told or info.is_root
        reach("location.told")
    _report(name, told, away, root_told)


def _connect(
    session: Session, local: NodeInfo, member: Location, name: str, location: str
) -> Database:
    if member.node_name == local.node_name:
        return session.db
    where = location if member.node_name == name else member.node_location
    return session.remote(where, f"node.{member.node_name}")


def _check(session: Session, local: NodeInfo, member: Location, location: str) -> None:
    """Ask the new address whether it leads to this very node; raises where it does not, or does not
    answer."""
    name = member.node_name
    if name == local.node_name:
        check_same_database(session, session.db, location)
        return
    try:
        there = session.remote(location, f"node.{name}")
    except ConnectError as error:
        raise StateError(
            f'node "{name}" does not answer there ({mask(error.message)}): nothing is changed; '
            "--nocheck stores the connect string all the same"
        ) from error
    info = get_node_info(there, session.queue) if has_schema(there) else None
    if info is None:
        raise StateError(
            f'there is no node of queue "{session.queue}" in that database: nothing is changed'
        )
    if info.node_name != name:
        raise StateError(
            f'that database has node "{info.node_name}", not "{name}": nothing is changed'
        )
    if local.provider_node == name:
        _require_subscriber(there, session, local, name)


def _require_subscriber(there: Database, session: Session, local: NodeInfo, name: str) -> None:
    """Raise where the node there does not know this one as its subscriber: a copy of the provider
    that was made long ago has the name, too, but not this. Reads from there."""
    known = there.call("pgq_node.get_subscriber_info", session.queue)
    if local.node_name not in [row.node_name for row in known]:
        raise StateError(
            f'the node "{name}" there does not know "{local.node_name}" as a subscriber: it may be '
            "an old copy of the provider; nothing is changed"
        )


def _report(name: str, told: list[str], away: list[str], root_told: bool) -> None:
    log.info("Location of '%s' changed on: %s", name, ", ".join(told))
    if away:
        then = (
            "the root tells them through the queue; one that reads from the node that has moved "
            "must be told there"
            if root_told
            else "run the same command there"
        )
        log.warning("Not reached: %s: %s", ", ".join(away), then)
    if not root_told:
        log.warning(
            "The root was not reached: other nodes learn nothing; run this again when it answers"
        )
