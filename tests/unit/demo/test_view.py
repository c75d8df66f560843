"""What the demo's live view decides to show, and that it can be drawn."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from vedur.demo.view import (
    WINDOW,
    Bar,
    Sample,
    Scene,
    Stage,
    bars,
    counted,
    frame,
    node_lines,
    rates,
    sparkline,
)
from vedur.status.detail import BatchEntry, Consumer, NodeDetail, QueueHealth, TableStatus
from vedur.status.overview import Overview
from vedur.status.snapshot import DEAD, CopyStatus, NodeStatus

STAGE = Stage(3, 8, "add the tables", 12.0)
QUEUE = QueueHealth(
    event_tables=3,
    current_table=0,
    rotation_period=7200.0,
    since_rotation=60.0,
    external_ticker=False,
    ticker_paused=False,
    idle_period=60.0,
    ticker_lag=0.5,
    events_per_second=10.0,
    events_new=0,
    last_tick=9,
    first_tick=1,
    events_total=5000,
    consumers=(Consumer("dst_worker", 17.0, 17.0, 4, 4200),),
)


def root() -> NodeDetail:
    status = NodeStatus("src", "root", tick=9, tables_ok=2, tables_half=0)
    return NodeDetail(status, lag=0.0, backlog=0, server_version=160003, queue=QUEUE)


def leaf(name: str = "dst", provider: str = "src", applied: int = 0, **more: object) -> NodeDetail:
    status = NodeStatus(name, "leaf", provider, tick=8, tables_ok=1, tables_half=1)
    batch = BatchEntry(7, 7, 8, 100, applied, 0.1, 0.1, 0.1, 0.1, 1.0)
    node = NodeDetail(
        status, lag=0.4, backlog=120, server_version=180001, worker=f"{name}_worker",
        batches=(batch,) if applied else (),
    )  # fmt: skip
    return replace(node, **more)  # type: ignore[arg-type]


def scene(*nodes: NodeDetail, **more: object) -> Scene:
    overview = Overview("q", "src", datetime(2026, 1, 1, tzinfo=UTC), nodes)
    return replace(Scene(STAGE, overview), **more)  # type: ignore[arg-type]


def drawn(shown: Scene, width: int = 80) -> str:
    console = Console(file=io.StringIO(), record=True, width=width)
    console.print(frame(shown))
    return console.export_text()


def test_rates_are_counted_over_a_window() -> None:
    samples = [Sample(float(at), {"dst": 100 * at}) for at in range(20)]
    assert rates(samples, "dst")[0] == 0.0
    assert rates(samples, "dst")[-1] == 100.0
    burst = [*samples, Sample(20.0, {"dst": 1900 + 500})]
    assert rates(burst, "dst")[-1] == (500 + 100 * (WINDOW - 1)) / WINDOW


def test_a_node_that_was_away_has_no_rate_of_that_time() -> None:
    samples = [Sample(0.0, {"dst": 10}), Sample(1.0, {}), Sample(2.0, {"dst": 10})]
    assert rates(samples, "dst") == [0.0, None, 0.0]
    assert rates(samples, "other") == [None] * 3


def test_events_are_those_made_and_those_applied() -> None:
    away = leaf("gone", status=NodeStatus("gone", DEAD, "src", failure="refused"))
    sample = counted(scene(root(), leaf(applied=4800), leaf("new"), away).overview, 3.0)  # type: ignore[arg-type]
    assert sample == Sample(3.0, {"src": 5000, "dst": 4800, "new": 0})


def test_sparkline_is_scaled_to_its_highest() -> None:
    assert sparkline([0, 50, None, 100]) == " ▄ █"
    assert sparkline([0, 0]) == ""
    assert sparkline([1] * 100) == "█" * 12


def test_the_tree() -> None:
    lines = node_lines(
        scene(root(), leaf("b"), leaf("a"), leaf("below", "b"), samples=(Sample(0.0, {"b": 1}),))
    )
    assert [(line.branch, line.name) for line in lines] == [
        ("", "src"),
        ("├─ ", "a"),
        ("└─ ", "b"),
        ("   └─ ", "below"),
    ]
    assert (lines[0].lag, lines[0].behind, lines[0].server) == (None, None, "16")
    assert (lines[1].lag, lines[1].behind, lines[1].tables) == (0.4, 120, "1/2")
    assert node_lines(Scene(STAGE)) == []


def test_a_node_that_is_away_is_known_from_the_queue() -> None:
    away = NodeDetail(NodeStatus("dst", DEAD, "src", failure="connection refused"))
    (_, line) = node_lines(scene(root(), away, workers=(("dst", "dst_worker"),)))
    assert (line.type, line.away, line.lag, line.behind) == ("away", True, 17.0, 4200)
    assert line.rate is None
    text = drawn(scene(root(), away, workers=(("dst", "dst_worker"),)))
    assert "dst away" in text and "4,200" in text and "17 s" in text
    assert "! dst:" in text


def copy(table: str, done: int, estimated: int | None, **more: object) -> CopyStatus:
    made = CopyStatus(table, 6, "load", 1, 4, done, estimated, 9000, 2.0, None)
    return replace(made, **more)  # type: ignore[arg-type]


def test_bars_of_copies_that_wait_run_and_are_done() -> None:
    tables = (
        TableStatus("s.done", "s.done", True, "ok", None),
        TableStatus("s.load", "s.load", True, "in-copy", None),
        TableStatus("s.more", "s.more", True, "in-copy", None),
        TableStatus("s.parts", "s.parts", True, "in-copy", None),
        TableStatus("s.then", "s.then", True, "catching-up", None),
        TableStatus("s.wait", "s.wait", True, None, None),
        TableStatus("s.long_ago", "s.long_ago", True, "ok", None),
        TableStatus("s.elsewhere", "s.elsewhere", False, None, None),
    )
    copies = (
        copy("s.load", 450, 1000),
        copy("s.more", 1200, 1000),
        copy("s.parts", 1200, 0),
        copy("s.then", 0, 0, step=8, step_name="catch up"),
    )
    shown = scene(root(), leaf(tables=tables, copies=copies), copied=frozenset({("dst", "s.done")}))
    assert bars(shown) == [
        Bar("dst", "s.done", "in sync", 1, 1, finished=True),
        Bar("dst", "s.load", "load", 450, 1000),
        Bar("dst", "s.more", "load", 1200, 1201),
        Bar("dst", "s.parts", "load", 1, 4),
        Bar("dst", "s.then", "catch up", 1, 1),
        Bar("dst", "s.wait", "waits", 0, None),
    ]
    text = drawn(shown)
    assert "45 %" in text and "100 %" in text and "in sync" in text and "waits" in text
    assert "━" in text


def test_the_frame_tells_stage_and_page_and_fits() -> None:
    samples = tuple(Sample(float(at), {"src": 1000 * at, "dst": 900 * at}) for at in range(9))
    page = "http://127.0.0.1:8060/"
    text = drawn(scene(root(), leaf(applied=7200), samples=samples, page=page))
    assert "3/8 add the tables (12 s)" in text and page in text
    assert "1,000" in text and "900" in text
    assert max(map(len, text.splitlines())) == 80
    assert "no nodes yet" in drawn(Scene(STAGE))


def test_names_are_no_markup() -> None:
    assert "[red]x" in drawn(scene(root(), leaf("[red]x")))
