"""What every node of the set says of itself, asked before a command changes the tree."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.log import mask
from vedur.node.epoch import keeps_epochs, read_reigns
from vedur.node.info import (
    ConsumerInfo,
    Location,
    get_consumer_info,
    get_node_info,
    get_subscriber_info,
    has_schema,
)
from vedur.node.plan import Member
from vedur.ops.session import Session
from vedur.sql import query

log = logging.getLogger(__name__)


class Answering(dict[str, Database]):
    """Connections to the nodes that answered. A command that needs another one ends with one line:
    a node may fall silent between two looks at the set."""

    def __missing__(self, name: str) -> Database:
        raise StateError(f'node "{name}" does not answer: run the same command again when it does')


@dataclass(frozen=True)
class SetView:
    """All members as they answered, with open connections to those that did."""

    local: str
    members: dict[str, Member]
    databases: Answering
    locations: dict[str, Location]

    def prefix(self, name: str) -> str:
        """Return the word before notes of a node: none for the local one."""
        return "" if name == self.local else name


def read_members(session: Session, dead: Collection[str] = ()) -> SetView:
    """Ask every member. One that is tagged as dead, or named in `dead`, is not connected to; one
    that does not answer is part of the view, with the reason."""
    local = session.require_node()
    locations = {member.node_name: member for member in session.members()}
    for name in dead:
        if name not in locations:
            raise StateError(f"Unknown node: {name}")
        if name == local.node_name:
            raise StateError(f'node "{name}" is the local one: it cannot be dead')
    members: dict[str, Member] = {}
    databases = Answering()
    for name, member in locations.items():
        if member.dead or name in dead:
            members[name] = Member(name, dead=True, failure="it is tagged as dead")
            continue
        try:
            here = name == local.node_name
            db = session.db if here else session.remote(member.node_location, f"node.{name}")
            members[name] = read_member(db, session.queue, name)
            databases[name] = db
        except DatabaseError as error:
            log.warning("Node '%s' failure: %s", name, mask(error.message))
            members[name] = Member(name, failure=mask(error.message))
    return SetView(local.node_name, members, databases, locations)


def read_member(db: Database, queue: str, name: str) -> Member:
    """Read what a node says of itself; `name` is the one that it is known by."""
    info = get_node_info(db, queue) if has_schema(db) else None
    if info is None:
        return Member(name, failure=f'no node for queue "{queue}" there')
    copies, ahead = read_copies(db, queue)
    ticks = db.one(query("rejoin", "ticks"), [queue])
    member = Member(
        name=name,
        type=str(info.node_type),
        provider=None if info.is_root else info.provider_node,
        worker=info.worker_name or "",
        tick=info.worker_last_tick,
        first_tick=ticks.first,
        last_tick=ticks.last,
        paused=info.worker_paused,
        subscribers=tuple(item.node_name for item in get_subscriber_info(db, queue)),
        copies=copies,
        ahead=ahead,
        attrs=info.attrs,
        closed=bool(db.value(query("takeover", "is_closed"), [queue])),
        parts=tuple(sorted(info.target_for)),
        says=info.node_name,
        reigns=read_reigns(db, queue),
        epochs=keeps_epochs(db),
    )
    if info.node_name != name:
        return replace(member, failure=f'that database has node "{info.node_name}"')
    return member


def read_copies(db: Database, queue: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read which tables of a node are being copied, and which are in sync and have the snapshot of
    their copy still, as a copy of Londiste's leaves them."""
    if not db.value(query("admin", "has_schema"), ["londiste"]):
        return (), ()
    tables = get_table_list(db, queue).local
    copies = tuple(t.table_name for t in tables if t.merge_state and not t.ready)
    return copies, tuple(t.table_name for t in tables.ready if t.custom_snapshot)


def find_consumer(
    session: Session, view: SetView, consumer: str, node: str | None = None
) -> tuple[str, ConsumerInfo]:
    """Find the node on which a consumer keeps its position: `node`, or the only one that has it."""
    names = [node] if node else [view.local, *(n for n in view.databases if n != view.local)]
    found = [
        (name, info)
        for name in names
        if name in view.databases
        for info in get_consumer_info(view.databases[name], session.queue)
        if info.consumer_name == consumer
    ]
    if found and (len(found) == 1 or found[0][0] == view.local):
        return found[0]
    if found:
        raise StateError(
            f'consumer "{consumer}" is on several nodes ({", ".join(name for name, _ in found)}): '
            "say which one with --node"
        )
    where = f'on node "{node}"' if node else "on any node that answers"
    raise StateError(f'no consumer "{consumer}" {where}')
