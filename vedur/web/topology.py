"""The tree of nodes as a picture: places of boxes and the lines between them. Pure.

The root stands at the left, each node right of its provider, leaves below each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vedur.status.agreement import in_ring
from vedur.status.detail import NodeDetail
from vedur.status.overview import Overview
from vedur.web import words

BOX_WIDTH, BOX_HEIGHT = 212, 62
_GAP_X, _GAP_Y, _EDGE = 64, 18, 6
_NAME_LENGTH = 22


@dataclass(frozen=True)
class Box:
    """One node of the picture."""

    name: str
    shown: str
    kind: str
    numbers: str
    state: str
    reachable: bool
    x: int
    y: int


@dataclass(frozen=True)
class Line:
    """From a provider to a node, as an SVG path."""

    path: str
    state: str
    reachable: bool


@dataclass(frozen=True)
class Picture:
    """Boxes and lines within a width and a height."""

    width: int
    height: int
    depth: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    words: str


def draw(overview: Overview, states: Mapping[str, str]) -> Picture:
    """Draw the tree of a set as SVG; `states` are those of the nodes: ok, warn, fail."""
    below = _children(overview.nodes)
    boxes: dict[str, Box] = {}
    rows = 0

    def place(node: NodeDetail, depth: int) -> int:
        """Place a node in the middle of those below it; returns its y."""
        nonlocal rows
        heights = [place(child, depth + 1) for child in below.get(node.name, [])]
        if heights:
            y = (heights[0] + heights[-1]) // 2
        else:
            y = _EDGE + rows * (BOX_HEIGHT + _GAP_Y)
            rows += 1
        x = _EDGE + depth * (BOX_WIDTH + _GAP_X)
        boxes[node.name] = _box(node, states.get(node.name, "ok"), x, y)
        return y

    for top in below[None]:
        place(top, 0)
    lines = [
        _line(boxes[node.status.provider], boxes[node.name])
        for node in overview.nodes
        if node.status.provider in boxes and node.status.provider != node.name
    ]
    right = max((box.x for box in boxes.values()), default=0) + BOX_WIDTH + _EDGE
    lower = max((box.y for box in boxes.values()), default=0) + BOX_HEIGHT + _EDGE
    depth = 1 + (right - BOX_WIDTH - 2 * _EDGE) // (BOX_WIDTH + _GAP_X)
    caption = "; ".join(_sentence(node, states.get(node.name, "ok")) for node in overview.nodes)
    return Picture(right, lower, depth, tuple(boxes.values()), tuple(lines), caption)


def _children(nodes: tuple[NodeDetail, ...]) -> dict[str | None, list[NodeDetail]]:
    """Group nodes by provider. A node whose provider is unknown, or that is part of a cycle, is at
    the top."""
    parents = {node.name: node.status.provider for node in nodes}
    children: dict[str | None, list[NodeDetail]] = {None: []}
    for node in sorted(nodes, key=lambda node: (node.status.type != "root", node.name)):
        provider = node.status.provider
        top = provider not in parents or in_ring(node.name, parents)
        children.setdefault(None if top else provider, []).append(node)
    return children


def _box(node: NodeDetail, state: str, x: int, y: int) -> Box:
    status = node.status
    version = f" · PG {node.server_version // 10000}" if node.server_version else ""
    kind = f"{status.type}{version}{' · paused' if status.paused else ''}"
    if not node.reachable:
        numbers = "no answer"
    elif status.type == "root":
        ticker = node.queue.ticker_lag if node.queue else None
        numbers = f"tick {status.tick} · {words.seconds(ticker)} ago"
    else:
        numbers = f"lag {words.seconds(node.lag)} · {words.count(node.backlog)} events"
    return Box(
        node.name, words.cut(node.name, _NAME_LENGTH), kind, numbers, state, node.reachable, x, y
    )


def _line(source: Box, target: Box) -> Line:
    x1, y1 = source.x + BOX_WIDTH, source.y + BOX_HEIGHT // 2
    x2, y2 = target.x, target.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return Line(f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}", target.state, target.reachable)


def _sentence(node: NodeDetail, state: str) -> str:
    if node.status.provider is None or node.status.type == "root":
        return f"{node.name}, {node.status.type}, {state}"
    lag = "no answer" if not node.reachable else f"lag {words.seconds(node.lag)}"
    return f"{node.name} reads from {node.status.provider}, {lag}, {state}"
