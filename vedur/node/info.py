"""What a database knows about its node, as frozen values.

Every function reads only; `get_…` returns None or an empty list where the queue has no node here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from vedur.db import Answer, Database, Row, exec_query, report
from vedur.errors import StateError
from vedur.sql import query

T = TypeVar("T")

#: Attribute of a node: names of nodes that hold each other's queues.
SYNC_WATERMARK = "sync_watermark"


def synced_nodes(attrs: Mapping[str, str]) -> tuple[str, ...]:
    """Read the names that a node's attributes give for that; a list by hand may have blanks."""
    names = attrs.get(SYNC_WATERMARK, "").split(",")
    return tuple(name.strip() for name in names if name.strip())


class NodeType(StrEnum):
    """The place of a node in the cascade."""

    ROOT = "root"
    BRANCH = "branch"
    LEAF = "leaf"

    @property
    def has_queue(self) -> bool:
        """Whether other nodes can read from a node of this type."""
        return self is not NodeType.LEAF


@dataclass(frozen=True)
class NodeInfo:
    """`pgq_node.get_node_info`: the local node of a queue and its worker."""

    node_type: NodeType
    node_name: str
    global_watermark: int | None
    local_watermark: int | None
    provider_node: str | None
    provider_location: str | None
    combined_queue: str | None
    combined_type: str | None
    worker_name: str | None
    worker_paused: bool
    worker_uptodate: bool
    worker_last_tick: int | None
    node_attrs: str | None
    target_for: tuple[str, ...]

    @property
    def is_root(self) -> bool:
        """Is it the node where changes are made, so that nothing has to be waited for?"""
        return self.node_type is NodeType.ROOT

    @property
    def is_branch(self) -> bool:
        """Does it pass on the events and ticks of its provider?"""
        return self.node_type is NodeType.BRANCH

    @property
    def attrs(self) -> dict[str, str]:
        """Return the node's attributes; a key without a value gives an empty string."""
        pairs = (part.partition("=") for part in (self.node_attrs or "").split("&") if part)
        return {unquote_plus(key): unquote_plus(value) for key, _, value in pairs}


@dataclass(frozen=True)
class WorkerState:
    """`pgq_node.get_worker_state`: the position of the local worker."""

    node_type: NodeType
    node_name: str
    completed_tick: int
    provider_node: str
    provider_location: str | None
    paused: bool
    uptodate: bool
    cur_error: str | None
    worker_name: str
    global_watermark: int | None
    local_watermark: int | None
    local_queue_top: int | None
    combined_queue: str | None
    combined_type: str | None

    @property
    def passes_on(self) -> bool:
        """Does it write what it applies into a queue: a branch's own, or the combined queue?"""
        return self.node_type is NodeType.BRANCH or self.combined_queue is not None


@dataclass(frozen=True)
class ConsumerInfo:
    """One consumer that keeps its position on this node."""

    consumer_name: str
    provider_node: str
    last_tick_id: int
    paused: bool
    uptodate: bool
    cur_error: str | None


@dataclass(frozen=True)
class Location:
    """A member of the set and how to reach it; the location may hold a password."""

    node_name: str
    node_location: str
    dead: bool


@dataclass(frozen=True)
class Subscriber:
    """A node that reads from this one."""

    node_name: str
    worker_name: str
    node_watermark: int | None


def _type_of(text: str) -> NodeType:
    try:
        return NodeType(text)
    except ValueError:
        raise StateError(
            f'the node is of type "{text}", which this version of Vedur does not know: '
            "run a version that does, or ask the node with the program that made it"
        ) from None


def _from_row(cls: type[T], row: Row) -> T:
    values: dict[str, Any] = {f.name: getattr(row, f.name) for f in fields(cls)}  # type: ignore[arg-type]
    if "node_type" in values:
        values["node_type"] = _type_of(values["node_type"])
    if "target_for" in values:
        values["target_for"] = tuple(values["target_for"] or ())
    return cls(**values)


def _answered(rows: list[Row]) -> Row | None:
    """Return the row of an answer, None for 404 (the queue has no node here); raises for other
    refusals."""
    row = rows[0] if rows else None
    if row is None or row.ret_code == 404:
        return None
    if row.ret_code >= 400:
        report(Answer(row.ret_code, row.ret_note, row))
    return row


def get_node_info(db: Database, queue: str) -> NodeInfo | None:
    """Read the local node of the queue; None where there is none."""
    row = _answered(exec_query(db, "pgq_node.get_node_info", queue))
    return None if row is None or row.node_type is None else _from_row(NodeInfo, row)


def get_worker_state(db: Database, queue: str) -> WorkerState | None:
    """Read the position of the local worker; None where the queue has no node."""
    row = _answered(exec_query(db, "pgq_node.get_worker_state", queue))
    return None if row is None else _from_row(WorkerState, row)


def get_consumer_info(db: Database, queue: str) -> list[ConsumerInfo]:
    """Read all consumers that keep their position here, the worker among them."""
    rows = exec_query(db, "pgq_node.get_consumer_info", queue)
    return [_from_row(ConsumerInfo, row) for row in rows]


def get_queue_locations(db: Database, queue: str) -> list[Location]:
    """Read all members of the set that this node knows."""
    rows = exec_query(db, "pgq_node.get_queue_locations", queue)
    return [_from_row(Location, row) for row in rows]


def get_subscriber_info(db: Database, queue: str) -> list[Subscriber]:
    """Read which nodes read from this one."""
    rows = exec_query(db, "pgq_node.get_subscriber_info", queue)
    return [_from_row(Subscriber, row) for row in rows]


def passes_nothing_on(db: Database, info: NodeInfo) -> bool:
    """Read whether a node is a branch of a version of ours that applies events and does not publish
    them.

    A branch of Londiste's own worker publishes them. It is known by what is installed: nobody but
    Vedur makes schema vedur.
    """
    if not info.is_branch:
        return False
    return bool(db.value(query("node", "has_vedur"))) and not db.value(
        query("publish", "can_publish")
    )


def has_schema(db: Database) -> bool:
    """Read whether pgq_node is installed at all; asking a bare database must not be an error."""
    return bool(db.value(query("node", "has_schema")))
