"""Typed face of schema pgq_node: the nodes of a queue, their positions and their settings."""

from __future__ import annotations

from vedur.db import Answer, command
from vedur.node.info import (
    ConsumerInfo,
    Location,
    NodeInfo,
    NodeType,
    Subscriber,
    WorkerState,
    get_consumer_info,
    get_node_info,
    get_queue_locations,
    get_subscriber_info,
    get_worker_state,
)

__all__ = [
    "Answer",
    "ConsumerInfo",
    "Location",
    "NodeInfo",
    "NodeType",
    "Subscriber",
    "WorkerState",
    "command",
    "get_consumer_info",
    "get_node_info",
    "get_queue_locations",
    "get_subscriber_info",
    "get_worker_state",
]
