"""What the listing commands show, from status to missing; passwords leave here masked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vedur.catalog.sequences import SequenceInfo, get_seq_list
from vedur.catalog.tables import TableInfo, get_table_list, local_show_missing
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.log import mask_connstr
from vedur.names import parse_name
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import Reign, last_reign, read_reigns
from vedur.node.info import Location, NodeInfo, get_subscriber_info
from vedur.ops.fitness import left_out, unfit_keys
from vedur.ops.session import Session
from vedur.sql import SCHEMAS
from vedur.status.snapshot import (
    TAGGED,
    CopyStatus,
    NodeStatus,
    SetStatus,
    read_copies,
    read_node,
    read_set,
    tick_ages,
)

log = logging.getLogger(__name__)


def status(session: Session, dead: Sequence[str] = ()) -> SetStatus:
    """Read all nodes of the set."""
    info = session.require_node()

    def connect(location: str, name: str) -> Database:
        return Endpoint.of_node(session.settings, location).open(name)

    found = read_set(session.db, session.queue, info, session.members(), connect, dead)
    for node in found.nodes:
        if node.failure and node.failure != TAGGED:
            log.warning("Node '%s' failure: %s", node.name, node.failure)
    return found


def members(session: Session) -> tuple[NodeInfo, list[Location]]:
    """Read the local node and all members, passwords masked."""
    info = session.require_node()
    found = sorted(session.members(), key=lambda member: member.node_name)
    return info, [replace(m, node_location=mask_connstr(m.node_location)) for m in found]


@dataclass(frozen=True)
class NodeDetails:
    """`node-info`: everything the local node says about itself, passwords masked."""

    info: NodeInfo
    dead: bool
    local: str
    public: str | None
    provider: str | None
    reign: Reign | None = None  # None: the set has no epoch


def node_info(session: Session) -> NodeDetails:
    """Read the local node."""
    info = session.require_node()
    mine = next((m for m in session.members() if m.node_name == info.node_name), None)
    return NodeDetails(
        info=info,
        dead=bool(mine and mine.dead),
        local=mask_connstr(session.settings.db),
        public=mask_connstr(mine.node_location) if mine else None,
        provider=mask_connstr(info.provider_location)
        if info.provider_location and not info.is_root
        else None,
        reign=last_reign(read_reigns(session.db, session.queue)),
    )


@dataclass(frozen=True)
class NodePlace:
    """`node-status`: the local node between its neighbours."""

    status: NodeStatus
    provider: str | None
    subscribers: tuple[str, ...]


def node_status(session: Session) -> NodePlace:
    """Read the local node with provider and subscribers."""
    info = session.require_node()
    found = read_node(session.db, session.queue, info.node_name)
    if not info.is_root and found.tick is not None:
        try:
            ages = tick_ages(session.provider(info), session.queue, [found.tick])
            found = replace(found, lag=ages.get(found.tick))
        except DatabaseError:
            pass  # the answer then says (n/a)
    subscribers = get_subscriber_info(session.db, session.queue)
    return NodePlace(found, info.provider_node, tuple(item.node_name for item in subscribers))


def tables(session: Session) -> list[TableInfo]:
    """Read tables that are replicated here, by name."""
    session.require_node()
    local = get_table_list(session.db, session.queue).local
    return sorted(local, key=lambda table: table.table_name)


def copies(session: Session) -> list[CopyStatus]:
    """Read first copies under way here."""
    return read_copies(session.db, session.queue)


def seqs(session: Session) -> list[SequenceInfo]:
    """Read sequences of the set by name; those with `local` are replicated here."""
    session.require_node()
    found = get_seq_list(session.db, session.queue)
    return sorted(found, key=lambda seq: seq.seq_name)


def missing(session: Session) -> list[tuple[str, str]]:
    """Read what could be replicated here and is not."""
    session.require_node()
    # upstream's function also lists registered sequences, and what only we have
    known = {seq.seq_name for seq in get_seq_list(session.db, session.queue) if seq.local}
    rows = local_show_missing(session.db, session.queue)
    return [
        (kind, name)
        for kind, name in rows
        if not (kind == "S" and name in known) and parse_name(name).schema not in SCHEMAS
    ]


def unusable(session: Session) -> dict[str, str]:
    """Read the tables of a root's database that cannot be added as they are, with the reason."""
    if not session.require_node().is_root:
        return {}
    tables = [name for kind, name in missing(session) if kind == "r"]
    return left_out(session.db) | unfit_keys(session.db, tables)
