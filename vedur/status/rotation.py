"""Who keeps the events of a queue from being forgotten, followed down to the last node. Pure.

A queue keeps events for its slowest consumer. One named `.<node>.watermark` stands for a node and
everything below it; so the one to look at may be several nodes further down. The one named
`.global_watermark` follows all others of the set, and is the cause only where it stands still: the
worker of the root does not run, or a node that a branch waits for (`sync_watermark`) is silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vedur.status.detail import Consumer, HeldBy, NodeDetail

#: The consumer that follows all others of the set, and keeps events for nodes that move.
_GLOBAL = ".global_watermark"

#: Seconds that it may be behind the slowest of the others: the root's worker publishes it every
#: five minutes, and a branch that is behind hears of it later.
_FOLLOWS = 1800.0


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
    placed = [c for c in node.queue.consumers if c.last_tick is not None]
    real = [c for c in placed if c.consumer_name != _GLOBAL]
    lowest = min(real, key=lambda c: (c.last_tick or 0, c.consumer_name), default=None)
    follows = next((c for c in placed if c.consumer_name == _GLOBAL), None)
    return follows if follows is not None and _stands_still(follows, lowest) else lowest


def _stands_still(follows: Consumer, lowest: Consumer | None) -> bool:
    """Tell whether the global watermark no longer follows the others: it is the cause then."""
    if lowest is not None and (follows.last_tick or 0) >= (lowest.last_tick or 0):
        return False
    behind = (follows.lag or 0.0) - (lowest.lag or 0.0 if lowest is not None else 0.0)
    return behind > _FOLLOWS


def _node_of(consumer: str) -> str:
    name = consumer.removeprefix(".").removesuffix(".watermark")
    return name if consumer == f".{name}.watermark" else ""
