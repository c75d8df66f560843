"""Who keeps the events of a queue from being forgotten, followed down to the last node. Pure.

A queue keeps events for its slowest consumer. One named `.<node>.watermark` stands for a node and
everything below it; so the one to look at may be several nodes further down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vedur.status.detail import Consumer, HeldBy, NodeDetail


def find_holders(nodes: Sequence[NodeDetail]) -> dict[str, HeldBy]:
    """Return who holds back rotation, by node that has a queue."""
    known = {node.name: node for node in nodes}
    found = {node.name: _holder(node, known, ()) for node in nodes}
    return {name: holder for name, holder in found.items() if holder is not None}


def _holder(
    node: NodeDetail, known: Mapping[str, NodeDetail], path: tuple[str, ...]
) -> HeldBy | None:
    lowest = _lowest(node)
    if lowest is None or lowest.last_tick is None:
        return None
    path = (*path, node.name)
    below = known.get(_node_of(lowest.consumer_name))
    if below is not None and below.name not in path:
        tick = below.status.tick
        # the node itself has come that far: somebody below it is the one who has not
        if tick is not None and tick > lowest.last_tick and below.queue is not None:
            deeper = _holder(below, known, path)
            if deeper is not None and deeper.tick <= lowest.last_tick:
                return deeper
    return HeldBy(lowest.consumer_name, node.name, path, lowest.last_tick, lowest.lag)


def _lowest(node: NodeDetail) -> Consumer | None:
    if node.queue is None:
        return None
    # the global watermark follows the others: it never is the cause
    real = [c for c in node.queue.consumers if c.consumer_name != ".global_watermark"]
    placed = [c for c in real if c.last_tick is not None]
    return min(placed, key=lambda c: (c.last_tick or 0, c.consumer_name), default=None)


def _node_of(consumer: str) -> str:
    name = consumer.removeprefix(".").removesuffix(".watermark")
    return name if consumer == f".{name}.watermark" else ""
