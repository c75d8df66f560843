"""What is wrong with a set that was looked at, and whether a node is ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.status.sets import HEALTHY, node, overview
from vedur.status.detail import (
    Consumer,
    NodeDetail,
    TableStatus,
    Transaction,
)
from vedur.status.problems import Kind, Severity, problems, ready
from vedur.status.snapshot import TAGGED, CopyStatus, NodeStatus, ResidentLoss


def test_a_lost_resident_task_is_no_reason_not_to_read() -> None:
    healthy = node("a")
    status = replace(healthy.status, resident_loss=ResidentLoss("no slot", 3.0))
    seen = overview(node("root", "root", queue=HEALTHY), replace(healthy, status=status))
    (problem,) = problems(seen)
    assert problem.severity is Severity.WARN and "no slot" in problem.what
    assert ready(seen) == []


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


def test_a_branch_is_no_problem() -> None:
    for mid in (node("mid", "branch", vedur_version="0.1.0"), node("mid", "branch")):
        assert not problems(overview(node("root", "root", queue=HEALTHY), mid))


def test_nodes_that_do_not_answer() -> None:
    gone = NodeDetail(NodeStatus("a", "unreachable", failure="timeout expired"))
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
