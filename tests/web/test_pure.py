"""The parts of the page that need no database."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.clock import FakeClock
from vedur.errors import ConnectError, StateError
from vedur.status.detail import (
    Consumer,
    NodeDetail,
    QueueHealth,
    TableStatus,
    Transaction,
    Watermarks,
)
from vedur.status.overview import Overview, with_providers
from vedur.status.problems import Kind, Severity, problems, ready
from vedur.status.snapshot import TAGGED, CopyStatus, NodeStatus
from vedur.web import plot, topology, words
from vedur.web import source as source_module
from vedur.web.guard import host_name, known_hosts
from vedur.web.server import listen
from vedur.web.source import FRESH, OLD, SAMPLES, Look, Sample, Source

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(
    name: str, type: str = "leaf", provider: str | None = "root", **more: object
) -> NodeDetail:
    status = NodeStatus(name, type, None if type == "root" else provider, tick=5, tables_ok=1)
    return replace(NodeDetail(status, lag=0.0, backlog=0, server_version=160003), **more)  # type: ignore[arg-type]


def overview(*nodes: NodeDetail, local: str = "root") -> Overview:
    return Overview("q", local, START, nodes)


HEALTHY = QueueHealth(
    event_tables=3,
    current_table=0,
    rotation_period=7200.0,
    since_rotation=60.0,
    external_ticker=False,
    ticker_paused=False,
    idle_period=60.0,
    ticker_lag=1.0,
    events_per_second=10.0,
    events_new=0,
    last_tick=5,
    first_tick=1,
    events_total=100,
)


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
    gone = NodeDetail(NodeStatus("gone", "dead", failure="timeout expired"))
    stray = NodeDetail(NodeStatus("stray", "dead", failure="timeout expired"))
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


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StateError, match=f"port {port}: .*; choose another with --port"):
            listen("127.0.0.1", port)
    with pytest.raises(StateError, match="cannot listen"):
        listen("no.such.host.invalid", 8060)


class FakeReader:
    """Counts; fails when told to."""

    def __init__(self) -> None:
        self.reads = 0
        self.failure: str | None = None

    def read(self) -> Overview:
        self.reads += 1
        if self.failure:
            raise ConnectError(self.failure)
        seen = overview(node("root", "root"), node("a", lag=float(self.reads)))
        return replace(seen, taken_at=START + timedelta(seconds=self.reads))

    def ping(self) -> None:
        if self.failure:
            raise ConnectError(self.failure)

    def close(self) -> None: ...


def test_many_viewers_cost_one_look() -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    for _ in range(20):
        source.look()
    assert reader.reads == 1
    clock.advance(FRESH)
    source.look()
    assert reader.reads == 2


def test_a_failed_look_keeps_the_last_one_on_show() -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    source.sample()
    reader.failure = 'connection to "host=x password=secret" failed'
    clock.advance(FRESH)
    look = source.look()
    assert look.overview is not None and look.overview.queue == "q"
    assert look.failure == 'connection to "host=x password=***" failed'
    assert source.ping() == look.failure
    source.sample()
    assert len(source.samples) == 1  # old values are not history


def test_a_server_that_hangs_makes_the_page_old_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PATIENCE", 0.01)
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    go_on = threading.Event()
    read = reader.read

    def hanging() -> Overview:
        go_on.wait(60)
        return read()

    reader.read = hanging  # type: ignore[method-assign]
    assert source.look() == Look(None, "no look at the set has ended yet: a server answers slowly")
    go_on.set()
    monkeypatch.setattr(source_module, "PATIENCE", 60.0)
    assert source.look().failure is None
    go_on.clear()
    monkeypatch.setattr(source_module, "PATIENCE", 0.01)
    clock.advance(FRESH)
    assert source.look().failure is None  # a moment old
    clock.advance(OLD)
    old = source.look()
    assert old.overview is not None
    assert old.failure == "no look has ended for 32 s: a server hangs"
    assert reader.reads == 1
    go_on.set()


def test_a_defect_is_told_and_does_not_end_the_looks(caplog: pytest.LogCaptureFixture) -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    read = reader.read
    reader.read = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert source.look() == Look(None, "the page failed; the log says why")
    assert "ZeroDivisionError" in caplog.text
    reader.read = read  # type: ignore[method-assign]
    clock.advance(FRESH)
    assert source.look().failure is None


def test_history_has_an_end() -> None:
    clock, reader = FakeClock(), FakeReader()
    source = Source(reader, clock)
    for _ in range(SAMPLES + 10):
        clock.advance(10)
        source.sample()
    assert len(source.samples) == SAMPLES
    assert source.samples[-1].lags == {"a": SAMPLES + 10.0}


def test_a_set_in_health_has_no_problems() -> None:
    seen = overview(node("root", "root", queue=HEALTHY), node("a"))
    assert problems(seen) == []
    assert ready(seen) == []


@pytest.mark.parametrize(
    "sick,kind,severity,what",
    [
        ({"lag": 61.0, "backlog": 9}, Kind.LAG, Severity.WARN, "61 s behind the root, about 9"),
        ({"notes": ("cannot read x",)}, Kind.RIGHTS, Severity.WARN, "cannot read x"),
        (
            {"copies": (CopyStatus("t", 4, "load", 1, 2, 3, 4, 5, 6.0, "disk full"),)},
            Kind.COPY,
            Severity.FAIL,
            "the first copy of t is held up: disk full",
        ),
        (
            {"transactions": (Transaction(7, "joe", "d", "psql", "idle in transaction", 900.0),)},
            Kind.TRANSACTION,
            Severity.WARN,
            'open for 15 minutes: pid 7, role "joe", application "psql"',
        ),
        (
            {"queue": replace(HEALTHY, ticker_paused=True)},
            Kind.TICKER,
            Severity.WARN,
            "the ticker of the queue is paused",
        ),
        (
            {"queue": replace(HEALTHY, ticker_lag=None)},
            Kind.TICKER,
            Severity.FAIL,
            "the queue has no tick",
        ),
        (
            {"queue": replace(HEALTHY, ticker_lag=71.0)},
            Kind.TICKER,
            Severity.FAIL,
            "no tick for 71 s",
        ),
        (
            {"queue": replace(HEALTHY, since_rotation=22000.0)},
            Kind.ROTATION,
            Severity.WARN,
            "not rotated for 6.1 h",
        ),
        (
            {
                "queue": replace(
                    HEALTHY,
                    consumers=(
                        Consumer("old", 9e5, 9e5, 1, 77),
                        Consumer(".old.watermark", 9e5, 9e5, 1, 77),
                        Consumer("new", 1.0, 1.0, 5, 0),
                    ),
                )
            },
            Kind.ROTATION,
            Severity.WARN,
            'consumer "old" was not seen for 250 h, 77 events wait for it',
        ),
    ],
)
def test_each_illness(sick: dict[str, object], kind: Kind, severity: Severity, what: str) -> None:
    found = problems(overview(node("root", "root", queue=HEALTHY), node("a", **sick)))
    assert [(p.kind, p.severity, p.node) for p in found] == [(kind, severity, "a")]
    assert what in found[0].what
    assert found[0].action


def test_a_node_that_holds_back_rotation_is_named() -> None:
    """Its watermark stands still while its position moves: the queue keeps everything since."""
    late = Consumer(".a.watermark", 9000.0, 5.0, 1, 77)
    queue = replace(HEALTHY, consumers=(late, Consumer(".global_watermark", 9000.0, 5.0, 1, 77)))
    (found,) = problems(overview(node("root", "root", queue=queue), node("a", tick_age=2.0)))
    assert (found.kind, found.node) == (Kind.ROTATION, "root")
    assert (
        'node "a" holds back rotation: its position is tick 5, its watermark is tick 1'
        in found.what
    )
    # a node that is itself as far behind is no such case, nor one that reported not long ago
    assert not problems(overview(node("root", "root", queue=queue), node("a", tick_age=8999.0)))
    queue = replace(HEALTHY, consumers=(replace(late, lag=900.0),))
    assert not problems(overview(node("root", "root", queue=queue), node("a", tick_age=2.0)))


def test_a_branch_of_ours_is_named() -> None:
    mid = node("mid", "branch", vedur_version="0.1.0")
    (found,) = problems(overview(node("root", "root", queue=HEALTHY), mid))
    assert (found.kind, found.severity) == (Kind.NODE, Severity.FAIL)
    assert "passes no events on yet" in found.what
    assert not problems(overview(node("root", "root", queue=HEALTHY), node("mid", "branch")))


def test_nodes_that_do_not_answer() -> None:
    gone = NodeDetail(NodeStatus("a", "dead", failure="timeout expired"))
    dead = NodeDetail(NodeStatus("b", "dead", failure=TAGGED))
    found = problems(overview(node("root", "root"), dead, gone))
    assert [(p.node, p.severity) for p in found] == [("a", Severity.FAIL), ("b", Severity.WARN)]
    assert ready(overview(node("root", "root"), gone, local="a")) == ['node "a": timeout expired']


def test_not_ready_without_the_root() -> None:
    half = TableStatus("t", "t", True, "in-copy", None)
    alone = node("a", lag=None, tables=(half,))
    reasons = ready(overview(alone, local="a"))
    assert reasons == [
        "the lag is not known: the root does not answer",
        "1 table(s) not in sync yet",
    ]
