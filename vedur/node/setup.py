"""Creating, joining and dropping nodes: the writing half of pgq_node that operators use."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from vedur.db import Answer, Database, command
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info
from vedur.node.plan import MOVE_CONSUMER, MOVE_PROVIDER, MOVE_RESUME
from vedur.sql import query


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


#: What to do about two nodes of one job_name that exist already.
OTHER_JOB = "drop-node one of the two and create it again with another job_name"


def require_own_consumer(
    db: Database, queue: str, name: str, worker: str, provider: str, way_out: str
) -> None:
    """Raise where the consumer by which a node is to read here is somebody else's: to register it
    would move that one. In a transaction, other commands that subscribe a node wait for its end."""
    db.execute(query("node", "lock_subscriptions"), [queue])
    found = db.one(
        query("node", "whose_consumer"), {"queue": queue, "consumer": worker, "node": name}
    )
    if found.other is not None:
        raise StateError(
            f'consumer "{worker}" on node "{provider}" is that of node "{found.other}": nodes that '
            f"read from one provider need different job names; nothing is changed: {way_out}"
        )
    if found.there and not found.own:
        raise StateError(
            f'queue "{queue}" on node "{provider}" has a consumer "{worker}" that is not of node '
            f'"{name}": nothing is changed; if nobody reads by it any more, unregister it there '
            f"(pgq.unregister_consumer), else {way_out}"
        )


def unregister_subscriber(db: Database, queue: str, name: str, *, node: str = "") -> Answer:
    """Unregister a node that no longer reads from this one."""
    return command(db, "pgq_node.unregister_subscriber", queue, name, node=node)


def set_node_attrs(db: Database, queue: str, attrs: str | None, *, quiet: bool = False) -> Answer:
    """Replace all attributes of the local node by these, urlencoded; None takes all away. Whoever
    sets one reads the others first and gives them, too."""
    return command(db, "pgq_node.set_node_attrs", queue, attrs, quiet=quiet)


def set_move_note(db: Database, queue: str, note: Mapping[str, str] | None) -> None:
    """Write down on a node which move of its consumer is under way, or that none is."""
    info = get_node_info(db, queue)
    attrs = {} if info is None else dict(info.attrs)
    for key in (MOVE_CONSUMER, MOVE_PROVIDER, MOVE_RESUME):
        attrs.pop(key, None)
    attrs |= note or {}
    set_node_attrs(db, queue, urlencode(attrs) or None, quiet=True)


def is_told_to_forget(root: Database, queue: str, name: str, tick: int) -> bool:
    """Tell whether a node at a tick has yet to read that an earlier node of a name left the set: it
    would take a new one for that, and end its subscription."""
    row = root.one(query("node", "snapshot_of_tick"), [tick, queue])
    if row is None or row.snapshot is None:
        return False
    text = query("node", "told_to_forget").format(events=row.events)
    return bool(root.value(text, {"snapshot": row.snapshot, "name": name}))


def untag(db: Database, queue: str, name: str, *, node: str = "") -> bool:
    """Take the tag "dead" from a member that is back; a root tells everybody. True if it had it."""
    if not db.value(query("worker", "is_tagged_dead"), [queue, name]):
        return False
    register_location(db, queue, name, None, False, node=node, quiet=True)
    return True
