"""What commands print: table layout, the tree of nodes, lags."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from vedur.cli.output import table_text
from vedur.status.snapshot import (
    ConsumerError,
    CopyError,
    CopyWait,
    NodeStatus,
    ResidentLoss,
    SetStatus,
)
from vedur.status.tree import compact_lines, lag_text, tree_lines


def test_table_layout_is_the_walk_throughs() -> None:
    rows = [
        ("digoal_01.user_info", "in-copy", {}),
        ("digoal_01.user_session", None, {"copy_condition": "userid<1000"}),
    ]
    text = table_text("Tables on node", ("table_name", "merge_state", "table_attrs"), rows)
    assert text.splitlines() == [
        "Tables on node",
        "table_name              merge_state      table_attrs",
        "----------------------  ---------------  ---------------------------------",
        "digoal_01.user_info     in-copy          ",
        "digoal_01.user_session  None             {'copy_condition': 'userid<1000'}",
        "",
        "",
    ]


def test_no_rows_no_output() -> None:
    assert table_text("Sequences on node", ("seq_name",), []) == ""


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, "(n/a)"),
        (0.4, "0s"),
        (18, "18s"),
        (7842, "2h10m42s"),
        (60, "1m0s"),
        (90061, "1d1h1m1s"),
    ],
)
def test_lags(seconds: float | None, text: str) -> None:
    assert lag_text(seconds) == text


def node(name: str, kind: str, provider: str | None, **more: object) -> NodeStatus:
    values: dict[str, object] = {
        "tables_ok": 4,
        "tables_half": 0,
        "tables_ignored": 0,
        "lag": 18.0,
        "tick": 2238,
    }
    return NodeStatus(name, kind, provider, **(values | more))  # type: ignore[arg-type]


def test_tree_is_the_walk_throughs() -> None:
    status = SetStatus(
        "replika",
        "dst2_digoal_02",
        (
            node(
                "dst2_digoal_02",
                "leaf",
                "src_digoal_01",
                tables_ok=2,
                tables_ignored=2,
                lag=7842.0,
                tick=2021,
                errors=(ConsumerError("dst2_digoal_02", 'schema "digoal_01" does not exist'),),
            ),
            node("src_digoal_01", "root", None),
            node("dst1_digoal_01", "leaf", "src_digoal_01"),
        ),
    )
    assert tree_lines(status) == [
        "src_digoal_01 (root)",
        "  |                           Tables: 4/0/0",
        "  |                           Lag: 18s, Tick: 2238",
        "  +--dst1_digoal_01 (leaf)",
        "  |                           Tables: 4/0/0",
        "  |                           Lag: 18s, Tick: 2238",
        "  +--dst2_digoal_02 (leaf)",
        "                              Tables: 2/0/2",
        "                              Lag: 2h10m42s, Tick: 2021",
        '                              ERR: dst2_digoal_02: schema "digoal_01" does not exist',
    ]


def test_tree_of_a_cascade() -> None:
    nodes = (
        node("r", "root", None),
        node("leaf", "leaf", "mid", paused=True, uptodate=False),
        node("mid", "branch", "r"),
        node("z", "leaf", "r"),
        NodeStatus("gone", "unreachable", failure="connection refused"),
        NodeStatus("old", "dead", failure="tagged as dead"),
    )
    assert tree_lines(SetStatus("q", "r", nodes)) == [
        "r (root)",
        "  |                           Tables: 4/0/0",
        "  |                           Lag: 18s, Tick: 2238",
        "  +--z (leaf)",
        "  |                           Tables: 4/0/0",
        "  |                           Lag: 18s, Tick: 2238",
        "  +--mid (branch)",
        "       |                      Tables: 4/0/0",
        "       |                      Lag: 18s, Tick: 2238",
        "       +--leaf (leaf)",
        "                              Tables: 4/0/0",
        "                              Lag: 18s, Tick: 2238, PAUSED, NOT UPTODATE",
        "gone (unreachable)",
        "                              ERR: gone: connection refused",
        "old (dead)",
        "                              ERR: old: tagged as dead",
    ]


def test_a_worker_without_its_resident_task_is_a_warning() -> None:
    loss = ResidentLoss("its job has ended", 75.0)
    without = replace(node("l", "leaf", None), resident_loss=loss)
    assert tree_lines(SetStatus("q", "l", (without,)))[-1].strip() == (
        "WARN: l: no resident task for 1m15s: its job has ended"
    )


def test_a_first_copy_that_fails_is_an_error() -> None:
    failing = replace(node("l", "leaf", None), copy_errors=(CopyError("s.t", "no space left"),))
    assert tree_lines(SetStatus("q", "l", (failing,)))[-1].strip() == (
        "ERR: first copy of s.t: no space left"
    )


def test_a_first_copy_that_waits_for_another_part_says_for_which() -> None:
    what = 'wait for table "s.t" of queue "s1"'
    waiting = replace(node("l", "leaf", None), copy_waits=(CopyWait("s.t", what),))
    assert tree_lines(SetStatus("q", "l", (waiting,)))[-1].strip() == f"Copy of s.t: {what}"


def test_compact_is_one_line_per_node() -> None:
    status = SetStatus("q", "r", (node("r", "root", None), node("l", "leaf", "r")))
    assert compact_lines(status) == [
        "r (root)".ljust(60) + "Tables: 4/0/0".ljust(30) + "Lag: 18s, Tick: 2238",
        "   l (leaf)".ljust(60) + "Tables: 4/0/0".ljust(30) + "Lag: 18s, Tick: 2238",
    ]


def test_what_is_longer_than_its_column_stays_apart() -> None:
    long = "a" * 70
    paused = node(long, "leaf", None, paused=True, uptodate=False, attrs={"k": "v"})
    for colour in (False, True):
        (line,) = compact_lines(SetStatus("q", long, (paused,)), colour=colour)
        assert re.split("  +", re.sub(r"\x1b\[\d+m", "", line)) == [
            f"{long} (leaf)",
            "Tables: 4/0/0",
            "Lag: 18s, Tick: 2238, PAUSED, NOT UPTODATE",
            "Attr: k=v",
        ]


def test_trouble_is_red_on_a_terminal() -> None:
    late = SetStatus("q", "r", (node("r", "root", None, lag=61.0),))
    assert any("\x1b[31mLag: 1m1s\x1b[0m" in line for line in tree_lines(late, colour=True))
    assert not any("\x1b" in line for line in tree_lines(late))


def test_colours_do_not_move_columns() -> None:
    status = SetStatus("q", "r", (node("r", "root", None, lag=61.0, attrs={"k": "v"}),))
    painted = [re.sub(r"\x1b\[\d+m", "", line) for line in compact_lines(status, colour=True)]
    assert painted == compact_lines(status)
