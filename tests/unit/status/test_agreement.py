"""Nodes that disagree about the tree, and who holds back rotation."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.status.sets import HEALTHY, node, overview
from vedur.status.agreement import find_disagreements, in_ring
from vedur.status.detail import Consumer, NodeDetail
from vedur.status.overview import with_whole_tree
from vedur.status.problems import Kind, problems
from vedur.status.rotation import find_holders
from vedur.status.snapshot import NodeStatus, SetStatus, with_tree
from vedur.status.tree import compact_lines, tree_lines


def one(name: str, kind: str, provider: str | None, *below: str, lag: float = 0.0) -> NodeStatus:
    return NodeStatus(
        name, kind, provider, tables_ok=1, tables_half=0, tables_ignored=0, tick=5, lag=lag,
        subscribers=below,
    )  # fmt: skip


CHAIN = (
    one("r", "root", None, "b", lag=1.0),
    one("b", "branch", "r", "c", lag=3.0),
    one("c", "branch", "b", "d", lag=10.0),
    one("d", "leaf", "c", lag=75.0),
)


def test_a_chain_agrees_and_shows_the_lag_of_each_hop() -> None:
    assert find_disagreements(CHAIN) == []
    nodes = with_tree(CHAIN)
    assert [n.hop_lag for n in nodes] == [None, 2.0, 7.0, 65.0]
    lines = tree_lines(SetStatus("q", "r", nodes))
    assert [line.strip(" |") for line in lines] == [
        "r (root)", "Tables: 1/0/0", "Lag: 1s, Tick: 5",
        "+--b (branch)", "Tables: 1/0/0", "Lag: 3s, Tick: 5",
        "+--c (branch)", "Tables: 1/0/0", "Lag: 10s (7s behind b), Tick: 5",
        "+--d (leaf)", "Tables: 1/0/0", "Lag: 1m15s (1m5s behind c), Tick: 5",
    ]  # fmt: skip
    assert lines[9].startswith(" " * 12 + "+--d")


def said(*nodes: NodeStatus) -> list[tuple[str, str, str]]:
    return [(d.node, d.severity, d.what) for d in find_disagreements(nodes)]


def test_a_provider_that_does_not_know_its_reader() -> None:
    root, leaf = one("r", "root", None), one("a", "leaf", "r")
    assert said(root, leaf) == [
        ("a", "fail", 'it reads from "r", which keeps no subscription for it')
    ]
    unknown = replace(root, subscribers=None)
    assert said(unknown, leaf) == []


def test_two_parents() -> None:
    nodes = (one("r", "root", None, "b", "a"), one("b", "branch", "r", "a"), one("a", "leaf", "b"))
    assert said(*nodes) == [
        ("r", "warn", 'it keeps a subscription for "a", which reads from "b": '
         "rotation waits for it"),
    ]  # fmt: skip
    away = replace(nodes[2], failure="timeout", provider=None)
    assert said(*nodes[:2], away) == [], "nobody knows from whom it reads"


def test_a_place_that_is_left_for_the_root_is_ended_by_a_takeover_that_is_done() -> None:
    root, low = one("r", "root", None, "b"), one("c", "branch", "b", "r")
    mid = one("b", "branch", "r", "c", "r")
    found = find_disagreements((root, mid, low))
    assert [(d.node, d.what) for d in found] == [
        (name, 'it keeps a subscription for "r", which is the root: rotation waits for it')
        for name in ("b", "c")
    ]
    # c does not read from the root itself: the command is about a node that does
    ends = '"vedur INI takeover b --node=r --no-compare" ends it'
    assert [d.action for d in found] == [ends, ends]


def test_a_cycle_is_shown_and_named() -> None:
    nodes = (
        one("r", "root", None),
        one("a", "branch", "b", "b"),
        one("b", "branch", "a", "a", "c"),
        one("c", "leaf", "b"),
    )
    assert said(*nodes) == [
        ("a", "fail", "it reads from itself: a reads from b reads from a"),
        ("b", "fail", "it reads from itself: b reads from a reads from b"),
    ]
    status = SetStatus("q", "r", with_tree(nodes))
    for lines in (tree_lines(status), compact_lines(status)):
        for name in "rabc":
            assert sum(f"{name} (" in line for line in lines) == 1, lines
    assert in_ring("a", {"a": "a"}) and not in_ring("c", {"a": "b", "b": "a", "c": "b"})


def test_other_things_that_do_not_fit() -> None:
    assert said(one("r", "root", None), one("s", "root", None)) == [
        ("r", "fail", "there are several roots: r, s"),
        ("s", "fail", "there are several roots: r, s"),
    ]
    nodes = (one("r", "root", None, "a", "new"), one("a", "leaf", "r", "b"), one("b", "leaf", "a"))
    assert said(*nodes) == [
        ("b", "fail", 'it reads from "a", which is a leaf and has no queue'),
    ], "a subscriber that is not known here yet is no trouble"
    assert said(one("a", "leaf", "gone")) == [
        ("a", "warn", 'it reads from "gone", which is no member as seen from here')
    ]


def test_disagreements_and_interrupted_moves_are_problems() -> None:
    root = node("root", type="root")
    leaf = node("leaf")
    root = replace(root, status=replace(root.status, subscribers=()))
    leaf = replace(
        leaf,
        status=replace(leaf.status, attrs={"move_provider": "mid", "move_consumer": "w"}),
    )
    found = problems(overview(*with_whole_tree([root, leaf])))
    tree = [p for p in found if p.kind is Kind.TREE]
    assert [p.severity for p in tree] == ["fail", "warn"]
    assert "keeps no subscription" in tree[0].what
    assert "change-provider --node=leaf --consumer=w --provider=mid" in tree[1].action


def with_consumers(detail: NodeDetail, tick: int, **ticks: int) -> NodeDetail:
    """`name=5` is a consumer, `w_name=5` the watermark of a node."""
    consumers = tuple(
        Consumer(f".{name[2:]}.watermark" if name.startswith("w_") else name, 60.0, 1.0, at, 9)
        for name, at in ticks.items()
    )
    queue = replace(HEALTHY, consumers=consumers)
    return replace(detail, queue=queue, status=replace(detail.status, tick=tick))


def test_who_holds_back_rotation_is_followed_down_the_tree() -> None:
    root = with_consumers(node("root", type="root"), 9, b=9, w_b=4, other=7)
    branch = with_consumers(node("b", type="branch"), 9, c=8, w_c=4)
    lower = with_consumers(node("c", type="branch", provider="b"), 8, d=4, w_d=6)
    leaf = replace(node("d", provider="c"), queue=None)
    found = find_holders([root, branch, lower, leaf])
    assert (found["root"].consumer, found["root"].node) == ("d", "c")
    assert found["root"].path == ("root", "b", "c")
    assert found["root"].text == 'consumer "d" on node c, at tick 4'
    assert found["b"].path == ("b", "c")
    assert "d" not in found
    # the branch has not come further itself: it is the one to look at
    slow = with_consumers(node("b", type="branch"), 4, c=4)
    assert find_holders([root, slow])["root"].consumer == ".b.watermark"
    # somebody beside the tree
    root = with_consumers(node("root", type="root"), 9, b=9, w_b=8, other=7)
    assert find_holders([root, branch])["root"].text == 'consumer "other", at tick 7'


def test_a_global_watermark_that_stands_still_is_named() -> None:
    def queue(lag: float, **ticks: int) -> NodeDetail:
        detail = with_consumers(node("b", type="branch"), 9, **ticks)
        assert detail.queue is not None
        follows = Consumer(".global_watermark", lag, 1.0, 3, 9)
        consumers = (*detail.queue.consumers, follows)
        return replace(detail, queue=replace(detail.queue, consumers=consumers))

    # it follows the others after some minutes, and is at the same tick where they stand
    assert find_holders([queue(300.0, c=8)])["b"].consumer == "c"
    assert find_holders([queue(7200.0, c=3)])["b"].consumer == "c"
    assert find_holders([queue(7200.0, c=8)])["b"].text == 'consumer ".global_watermark", at tick 3'
    assert find_holders([queue(7200.0)])["b"].consumer == ".global_watermark"
    assert find_holders([queue(300.0)]) == {}


def test_a_watermark_that_waits_for_a_node_that_is_gone() -> None:
    root, branch = one("r", "root", None, "b"), one("b", "branch", "r")
    named = replace(branch, attrs={"sync_watermark": "b, r,gone"})
    assert said(root, branch) == []
    assert said(root, named) == [
        ("b", "warn", "its sync_watermark names gone, not in the set: passed over")
    ]
