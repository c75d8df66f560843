"""The demo's live view: topology, lag, events a second, first copies. Deciding is pure.

A `Scene` is all that is known at one moment; `node_lines` and `bars` say what is to be seen of it,
`frame` draws that. Facts come from the overview that the status page shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vedur.status.detail import NodeDetail
from vedur.status.overview import Overview
from vedur.status.problems import problems
from vedur.status.snapshot import CopyStatus, NodeStatus
from vedur.status.tree import by_provider
from vedur.web import words
from vedur.worker.first_copy.context import Step

#: Seconds over which events a second are counted.
WINDOW = 5.0
#: Samples that a sparkline shows.
SPARKS = 12
#: Seconds of lag that are shown as late.
LATE = 5.0
#: Lines about what needs attention.
_TROUBLES = 2
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH = 20


@dataclass(frozen=True)
class Sample:
    """How many events each node has made or applied, at one moment."""

    at: float
    events: dict[str, int]


@dataclass(frozen=True)
class Stage:
    """The stage that is told now."""

    number: int
    total: int
    title: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Scene:
    """What is known. `copied` has the tables whose copy was seen in this stage, `workers` the
    consumer of each node, by which its provider still knows a node that is away."""

    stage: Stage
    overview: Overview | None = None
    samples: tuple[Sample, ...] = ()
    copied: frozenset[tuple[str, str]] = frozenset()
    workers: tuple[tuple[str, str], ...] = ()
    page: str = ""


@dataclass(frozen=True)
class NodeLine:
    """One node of the tree; numbers are None where nobody knows."""

    branch: str
    name: str
    type: str
    server: str
    lag: float | None
    behind: int | None
    rate: float | None
    sparks: str
    tables: str
    away: bool


@dataclass(frozen=True)
class Bar:
    """The first copy of one table: `done` of `total`, which is None before anybody knows."""

    node: str
    table: str
    what: str
    done: int
    total: int | None
    finished: bool = False


def counted(overview: Overview, at: float) -> Sample:
    """Make a sample of an overview; nodes that do not answer are left out."""
    events: dict[str, int] = {}
    for node in overview.nodes:
        if node.status.type == "root" and node.queue and node.queue.events_total is not None:
            events[node.name] = node.queue.events_total
        elif node.reachable and node.status.type != "root":
            events[node.name] = node.batches[0].events_total if node.batches else 0
    return Sample(at, events)


def rates(samples: Sequence[Sample], name: str) -> list[float | None]:
    """Compute events a second of a node at each sample, over the `WINDOW` before it; None while
    away."""
    known = [(sample.at, sample.events[name]) for sample in samples if name in sample.events]
    found: list[float | None] = []
    for sample in samples:
        if name not in sample.events:
            found.append(None)
            continue
        begin, events = next(pair for pair in known if sample.at - pair[0] <= WINDOW)
        seconds = sample.at - begin
        found.append(max(0, sample.events[name] - events) / seconds if seconds > 0 else 0.0)
    return found


def sparkline(values: Sequence[float | None]) -> str:
    """Draw the last values as small bars, scaled to the highest of them."""
    shown = [value or 0.0 for value in values][-SPARKS:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(steps, round(value / top * steps))] for value in shown)


def node_lines(scene: Scene) -> list[NodeLine]:
    """Draw the tree, one line for each node."""
    overview = scene.overview
    if overview is None:
        return []
    below = by_provider([node.status for node in overview.nodes])
    return [
        _node_line(scene, overview, status, branch)
        for top in below[None]
        for status, branch in _walk(top, below, "", "")
    ]


def _walk(
    node: NodeStatus, below: dict[str | None, list[NodeStatus]], branch: str, prefix: str
) -> list[tuple[NodeStatus, str]]:
    found = [(node, branch)]
    under = below.get(node.name, [])
    for child in under:
        last = child is under[-1]
        found += _walk(
            child, below, prefix + ("└─ " if last else "├─ "), prefix + ("   " if last else "│  ")
        )
    return found


def _node_line(scene: Scene, overview: Overview, status: NodeStatus, branch: str) -> NodeLine:
    node = overview.node(status.name)
    assert node is not None
    speeds = rates(scene.samples, node.name)
    lag, behind = node.lag, node.backlog
    if not node.reachable:
        lag, behind = _seen_from_above(scene, overview, node.name)
    elif status.type == "root":
        lag = behind = None
    return NodeLine(
        branch,
        node.name,
        status.type if node.reachable else "away",
        str(node.server_version // 10000) if node.server_version else "",
        lag,
        behind,
        speeds[-1] if speeds else None,
        sparkline(speeds),
        _tables(status),
        not node.reachable,
    )


def _tables(status: NodeStatus) -> str:
    if status.tables_ok is None or status.tables_half is None:
        return ""
    return f"{status.tables_ok}/{status.tables_ok + status.tables_half}"


def _seen_from_above(
    scene: Scene, overview: Overview, name: str
) -> tuple[float | None, int | None]:
    """Return what the queue shows of the consumer of a node that does not answer."""
    worker = dict(scene.workers).get(name)
    for node in overview.nodes:
        for consumer in node.queue.consumers if node.queue else ():
            if consumer.consumer_name == worker:
                return consumer.lag, consumer.pending_events
    return None, None


def copying(overview: Overview) -> frozenset[tuple[str, str]]:
    """List tables that wait for their first copy or are being copied: node and table."""
    return frozenset(
        (node.name, table.name)
        for node in overview.nodes
        for table in node.tables
        if table.local and not table.ready
    )


def bars(scene: Scene) -> list[Bar]:
    """Draw a bar for each table whose copy was seen in this stage, also when it has ended."""
    if scene.overview is None:
        return []
    wanted = scene.copied | copying(scene.overview)
    return [
        _bar(node, table.name, table.ready)
        for node in scene.overview.nodes
        for table in sorted(node.tables, key=lambda table: table.name)
        if (node.name, table.name) in wanted
    ]


def _bar(node: NodeDetail, table: str, ready: bool) -> Bar:
    copy = next((copy for copy in node.copies if copy.table_name == table), None)
    if ready:
        return Bar(node.name, table, "in sync", 1, 1, finished=True)
    if copy is None:
        return Bar(node.name, table, "waits", 0, None)
    done, total = _loaded(copy)
    return Bar(node.name, table, copy.error or copy.step_name, done, total)


def _loaded(copy: CopyStatus) -> tuple[int, int | None]:
    """Return how much is loaded, of how much: in rows, or in slices if rows are not counted."""
    if copy.step > Step.LOAD:
        return 1, 1
    if copy.rows_estimated:
        # an estimate: it must not be smaller than what has come
        return copy.rows_done, max(copy.rows_estimated, copy.rows_done + 1)
    return copy.slices_done, copy.slices or None


def troubles(scene: Scene) -> list[str]:
    """List what needs attention, one line each."""
    if scene.overview is None:
        return []
    found = problems(scene.overview)[:_TROUBLES]
    return [f"{problem.node}: {problem.what}" for problem in found]


# -- drawing -------------------------------------------------------------------------------------


def frame(scene: Scene) -> RenderableType:
    """Build the whole view."""
    stage = scene.stage
    parts: list[RenderableType] = []
    lines = node_lines(scene)
    parts.append(_draw_nodes(lines) if lines else Text("no nodes yet", style="dim"))
    parts += [Text(f"! {line}", "yellow", no_wrap=True, overflow="ellipsis")
              for line in troubles(scene)]  # fmt: skip
    found = bars(scene)
    if found:
        parts += [Text(""), _draw_bars(found)]
    return Panel(
        Group(*parts),
        box=ROUNDED,
        border_style="cyan",
        title=Text(f"{stage.number}/{stage.total} {stage.title} ({stage.seconds:.0f} s)", "bold"),
        title_align="left",
        subtitle=Text(scene.page) if scene.page else None,
        subtitle_align="right",
    )


def _draw_nodes(lines: Sequence[NodeLine]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
    table.add_column("node", ratio=1, no_wrap=True)
    for title in ("PG", "lag", "behind", "events/s"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", width=SPARKS, style="green", no_wrap=True, justify="right")
    table.add_column("tables", justify="right", no_wrap=True)
    for line in lines:
        style = "red" if line.away else "bold"
        late = line.lag is not None and line.lag > LATE
        table.add_row(
            Text.assemble((line.branch, "dim"), (line.name, style), f" {line.type}"),
            line.server,
            Text(_known(words.seconds, line.lag), "red" if late else ""),
            _known(words.count, line.behind),
            _known(words.count, line.rate),
            line.sparks,
            line.tables,
        )
    return table


def _draw_bars(found: Sequence[Bar]) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, ratio=2)
    table.add_column(width=_BAR_WIDTH)
    table.add_column(justify="right", width=5)
    table.add_column(no_wrap=True, ratio=1)
    several = len({bar.node for bar in found}) > 1
    for bar in found:
        part = words.percent(bar.done, bar.total)
        table.add_row(
            Text.assemble((f"{bar.node} " if several else "", "dim"), bar.table),
            ProgressBar(total=100, completed=100 if bar.finished else part or 0, width=_BAR_WIDTH),
            "100 %" if bar.finished else "" if part is None else f"{part} %",
            Text(bar.what, "green" if bar.finished else "dim"),
        )
    return table


def _known(write: Callable[[float | None], str], value: float | None) -> str:
    return "" if value is None else write(value)
