"""The status tree as text; pure. Layout is the contract's: information begins at column 30, and
what is ours comes on lines of its own, or behind `Tick:`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vedur import __version__
from vedur.status.agreement import in_ring
from vedur.status.snapshot import VEDUR, NodeStatus, SetStatus

_INFO_COLUMN = 30
_TITLE_WIDTH = 60
_INFO_WIDTH = 30
#: Nodes of this version are not told apart.
OWN = f"{VEDUR} {__version__}"
#: Seconds of lag that an operator should look at.
_LATE = 60.0
#: ANSI: red for trouble, yellow for attention, bold for names.
_RED, _YELLOW, _BOLD, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"


def lag_text(seconds: float | None) -> str:
    """Format a lag: `18s`, `2h10m42s`, `3d0h1m5s`; `(n/a)` where it is unknown."""
    if seconds is None:
        return "(n/a)"
    rest = int(seconds)
    parts: list[str] = []
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{letter}")
    return "".join(parts) + f"{rest}s"


def info_lines(node: NodeStatus, *, colour: bool = False, hop: str | None = None) -> list[str]:
    """Return what is said about a node, one line each; `hop` is what it is behind its provider."""

    def paint(text: str, code: str, when: bool = True) -> str:
        return f"{code}{text}{_PLAIN}" if colour and when else text

    if not node.answers:
        return [paint(f"ERR: {node.name}: {node.failure}", _RED)] if node.failure else []
    counts = f"Tables: {node.tables_ok}/{node.tables_half}/{node.tables_ignored}"
    lag = paint(f"Lag: {lag_text(node.lag)}", _RED, node.lag is not None and node.lag >= _LATE)
    if hop is not None:
        lag += f" ({hop})"
    words = [lag, f"Tick: {node.tick}"]
    if node.paused:
        words.append(paint("PAUSED", _YELLOW))
    if not node.uptodate:
        words.append(paint("NOT UPTODATE", _YELLOW))
    lines = [counts, ", ".join(words)]
    if node.software not in (None, OWN):
        lines.append(f"Version: {node.software}")
    if node.attrs:
        lines.append("Attr: " + ", ".join(f"{key}={value}" for key, value in node.attrs.items()))
    lines += [paint(f"ERR: {error.line}", _RED) for error in node.errors]
    for copy in node.copy_errors:
        lines.append(paint(f"ERR: first copy of {copy.table}: {copy.error}", _RED))
    for wait in node.copy_waits:
        lines.append(paint(f"Copy of {wait.table}: {wait.waits}", _YELLOW))
    for item in node.table_problems:
        word, code = ("ERR", _RED) if item.severity == "fail" else ("WARN", _YELLOW)
        lines.append(paint(f"{word}: {item.table_name}: {item.what}", code))
    for mismatch in node.disagreements:
        word, code = ("ERR", _RED) if mismatch.severity == "fail" else ("WARN", _YELLOW)
        lines.append(paint(f"{word}: {node.name}: {mismatch.what}", code))
    if node.resident_loss is not None:
        since = lag_text(node.resident_loss.seconds)
        said = f"no resident task for {since}: {node.resident_loss.reason}"
        lines.append(paint(f"WARN: {node.name}: {said}", _YELLOW))
    if node.quarantined:
        lines.append(paint(f"Quarantine: {node.quarantined} event(s)", _YELLOW))
    return lines


def hop_text(node: NodeStatus, types: Mapping[str, str]) -> str | None:
    """Return how far a node is behind its provider; None where that is the root, as its lag is the
    same then, and where nobody knows."""
    if node.hop_lag is None or node.provider is None or types.get(node.provider) == "root":
        return None
    return f"{lag_text(node.hop_lag)} behind {node.provider}"


def title(node: NodeStatus) -> str:
    """Format name and type, and the service that its location names."""
    service = f", {node.service}" if node.service else ""
    return f"{node.name} ({node.type}{service})"


def tree_lines(status: SetStatus, *, colour: bool = False) -> list[str]:
    """Draw the tree below each node whose provider is not in the set."""
    lines: list[str] = []
    children = by_provider(status.nodes)
    types = {node.name: node.type for node in status.nodes}
    for top in children[None]:
        lines += _branch(top, children, types, "", "", colour)
    return lines


def compact_lines(status: SetStatus, *, colour: bool = False) -> list[str]:
    """Format one line for each node, indented by depth; what is longer than its column moves the
    rest of its line."""
    children = by_provider(status.nodes)
    types = {node.name: node.type for node in status.nodes}

    def walk(node: NodeStatus, depth: int) -> list[str]:
        head = "   " * depth + title(node)
        hop = hop_text(node, types)
        plain = info_lines(node, hop=hop)
        painted = info_lines(node, colour=colour, hop=hop)
        infos = "".join(
            line + " " * max(2, _INFO_WIDTH - len(seen))  # colours have no width
            for line, seen in zip(painted, plain, strict=True)
        )
        lines = [f"{head:<{_TITLE_WIDTH - 2}}  {infos}".rstrip()]
        for child in children.get(node.name, []):
            lines += walk(child, depth + 1)
        return lines

    return [line for top in children[None] for line in walk(top, 0)]


def by_provider(nodes: Sequence[NodeStatus]) -> dict[str | None, list[NodeStatus]]:
    """Group nodes by provider, shallow ones first. Those whose provider is unknown, and those that
    read from each other in a cycle, stand at the top."""
    parents = {node.name: node.provider for node in nodes}
    children: dict[str | None, list[NodeStatus]] = {None: []}
    for node in nodes:
        known = node.provider in parents and node.provider != node.name
        known = known and not in_ring(node.name, parents)
        children.setdefault(node.provider if known else None, []).append(node)

    def depth(name: str) -> int:
        return 1 + max((depth(child.name) for child in children.get(name, [])), default=0)

    for below in children.values():
        below.sort(key=lambda node: (depth(node.name), len(children.get(node.name, [])), node.name))
    children[None].sort(key=lambda node: (node.type != "root", node.name))
    return children


def _branch(
    node: NodeStatus,
    children: dict[str | None, list[NodeStatus]],
    types: Mapping[str, str],
    mark: str,
    prefix: str,
    colour: bool,
) -> list[str]:
    """Draw a node and those below it; `mark` leads to its title, `prefix` continues the lines above
    it."""
    below = children.get(node.name, [])
    name = f"{_BOLD}{title(node)}{_PLAIN}" if colour else title(node)
    gutter = f"{prefix}  |" if below else prefix
    lines = [f"{mark}{name}"]
    infos = info_lines(node, colour=colour, hop=hop_text(node, types))
    lines += [f"{gutter:<{_INFO_COLUMN}}{line}" for line in infos]
    for child in below:
        last = child is below[-1]
        lines += _branch(
            child,
            children,
            types,
            f"{prefix}  +--",
            prefix + ("     " if last else "  |  "),
            colour,
        )
    return lines
