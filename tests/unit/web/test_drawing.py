"""What the page makes of values: words, curves, the picture of the set, names of hosts."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.status.sets import START, node, overview
from vedur.status.detail import (
    NodeDetail,
    Watermarks,
)
from vedur.status.overview import with_providers
from vedur.status.snapshot import NodeStatus
from vedur.web import plot, topology, words
from vedur.web.guard import host_name, known_hosts
from vedur.web.source import Sample


@pytest.mark.parametrize(
    "value,text",
    [
        (None, "–"),
        (0, "0 s"),
        (0.0001, "<1 ms"),
        (0.34, "340 ms"),
        (1.0, "1 s"),
        (4.24, "4.2 s"),
        (12.4, "12 s"),
        (59.4, "59 s"),
        (200, "3m 20s"),
        (300, "5m"),
        (7500, "2h 5m"),
        (273600, "3d 4h"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


def test_other_numbers() -> None:
    assert (words.count(1234567), words.count(None)) == ("1,234,567", "–")
    assert [words.rate(x) for x in (0, 0.26, 99.94, 1234.5)] == ["0", "0.3", "99.9", "1,234"]
    assert [words.size(x) for x in (0, 999, 8200, 1.4e9, 3e18)] == [
        "0 B",
        "999 B",
        "8.2 kB",
        "1.4 GB",
        "3000.0 PB",
    ]
    assert words.server(160003) == "PostgreSQL 16.3"
    assert words.percent(999, 1000) == 99
    assert words.percent(5000, 1000) == 100
    assert words.percent(5, 0) is None and words.percent(5, None) is None


@given(st.floats(0, 1e9))
def test_an_axis_reaches_the_highest_value_in_few_steps(highest: float) -> None:
    step, top = plot.scale(highest)
    assert top >= max(highest, 1.0) * (1 - 1e-9)
    assert 1 <= round(top / step) <= 6
    assert top <= max(highest, 1.0) * 2.6 or highest > 50 * 86400


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=2, max_size=300))
def test_curves_stay_inside_their_axes(lags: list[float | None]) -> None:
    samples = [
        Sample(START + timedelta(seconds=10 * at), {"a": lag}) for at, lag in enumerate(lags)
    ]
    drawn = plot.draw(samples)
    for x, y in re.findall(r"[ML](\S+) ([0-9.]+)", drawn.curves[0].path):
        assert plot.LEFT - 0.1 <= float(x) <= plot.WIDTH - plot.RIGHT + 0.1
        assert plot.TOP - 0.1 <= float(y) <= plot.HEIGHT - plot.BOTTOM + 0.1
    assert len(drawn.x_marks) == 5


def test_a_gap_in_the_history_is_not_bridged() -> None:
    times = [0, 10, 20, 400, 410]
    samples = [Sample(START + timedelta(seconds=at), {"a": 1.0}) for at in times]
    assert plot.draw(samples).curves[0].path.count("M") == 2
    assert plot.draw(samples[:1]).curves == ()


def test_a_peak_between_two_points_is_kept() -> None:
    samples = [
        Sample(START + timedelta(seconds=at), {"a": 40.0 if at == 501 else 0.0})
        for at in range(1000)
    ]
    path = plot.draw(samples).curves[0].path
    assert path.count("L") < 400
    assert min(float(y) for y in re.findall(r"[ML]\S+ ([0-9.]+)", path)) == plot.TOP


TREES = st.lists(st.integers(0, 30), min_size=1, max_size=25)


@given(TREES)
def test_no_two_boxes_of_a_picture_overlap(parents: list[int]) -> None:
    """Any shape, providers that are unknown and rings among them."""
    nodes = [
        node(f"n{at}", provider=f"n{parent}") if at else node("n0", "root")
        for at, parent in enumerate(parents)
    ]
    drawn = topology.draw(overview(*nodes, local="n0"), {})
    assert sorted(box.name for box in drawn.boxes) == sorted(n.name for n in nodes)
    places = {(box.x, box.y) for box in drawn.boxes}
    assert len(places) == len(nodes)
    for one in drawn.boxes:
        assert one.x + topology.BOX_WIDTH <= drawn.width
        assert one.y + topology.BOX_HEIGHT <= drawn.height
        for two in drawn.boxes:
            if one is not two and one.x == two.x:
                assert abs(one.y - two.y) >= topology.BOX_HEIGHT
    by_name = {box.name: box for box in drawn.boxes}
    for item in nodes:
        provider = by_name.get(item.status.provider or "")
        if provider and provider.x < by_name[item.name].x:
            assert by_name[item.name].x - provider.x == topology.BOX_WIDTH + 64


def test_a_node_that_does_not_answer_keeps_its_place() -> None:
    """Its provider still has it among its subscribers."""
    marks = Watermarks("w", 1, 1, (("gone", 4),))
    gone = NodeDetail(NodeStatus("gone", "unreachable", failure="timeout expired"))
    stray = NodeDetail(NodeStatus("stray", "unreachable", failure="timeout expired"))
    root = node("root", "root", watermarks=marks)
    found = with_providers([root, gone, stray])
    assert [item.status.provider for item in found] == [None, "root", None]
    drawn = topology.draw(overview(*found), {"gone": "fail"})
    assert [(line.state, line.reachable) for line in drawn.lines] == [("fail", False)]


def test_hosts_that_are_answered() -> None:
    assert host_name("localhost:8060") == "localhost"
    assert host_name("[::1]:8060") == "::1"
    assert host_name("EXAMPLE.com") == "example.com"
    assert known_hosts("127.0.0.1", ["Status.Example"]) == {
        "localhost",
        "127.0.0.1",
        "::1",
        "status.example",
    }
    assert known_hosts("0.0.0.0") is None
    assert known_hosts("0.0.0.0", ["a"]) == {"a"}
