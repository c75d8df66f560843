"""Creating, joining and dropping nodes: the writing half of pgq_node that operators use."""

from __future__ import annotations

from vedur.db import Database
from vedur.db.contract import Answer, command
from vedur.node.info import NodeType


def register_location(
    db: Database,
    queue: str,
    name: str,
    location: str | None,
    dead: bool = False,
    *,
    node: str = "",
    quiet: bool = False,
) -> Answer:
    """Tell a node how to reach another; a root passes it on to everybody."""
    args = (queue, name, location, dead)
    return command(db, "pgq_node.register_location", *args, node=node, quiet=quiet)


def unregister_location(db: Database, queue: str, name: str, *, node: str = "") -> Answer:
    """Forget a member."""
    return command(db, "pgq_node.unregister_location", queue, name, node=node)


def create_node(
    db: Database,
    queue: str,
    kind: NodeType,
    name: str,
    worker: str,
    provider: str | None = None,
    watermark: int | None = None,
    combined: str | None = None,
) -> Answer:
    """Make this database a node of the queue."""
    return command(
        db,
        "pgq_node.create_node",
        queue,
        kind.value,
        name,
        worker,
        provider,
        watermark,
        combined,
    )


def drop_node(db: Database, queue: str, name: str, *, node: str = "") -> Answer:
    """Remove a node: all of it when it is the local one, its traces when it is another."""
    return command(db, "pgq_node.drop_node", queue, name, node=node)


def register_subscriber(
    db: Database, queue: str, name: str, worker: str, tick: int | None = None, *, node: str = ""
) -> Answer:
    """Let a node read from this one; the answer's row has `global_watermark`."""
    return command(db, "pgq_node.register_subscriber", queue, name, worker, tick, node=node)


def unregister_subscriber(db: Database, queue: str, name: str, *, node: str = "") -> Answer:
    """A node no longer reads from this one."""
    return command(db, "pgq_node.unregister_subscriber", queue, name, node=node)


def set_node_attrs(db: Database, queue: str, attrs: str | None, *, quiet: bool = False) -> Answer:
    """Store the urlencoded attributes of the local node."""
    return command(db, "pgq_node.set_node_attrs", queue, attrs, quiet=quiet)
