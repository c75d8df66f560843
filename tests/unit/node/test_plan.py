"""Plans of moves, drops and renames, from what nodes say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vedur.errors import StateError
from vedur.node.info import NodeType
from vedur.node.plan import (
    Member,
    children_of,
    path_up,
    plan_consumer_move,
    plan_move,
    plan_rename,
    plan_reparent,
    require_droppable,
    tick_is_missing,
)


def member(name: str, kind: str, provider: str | None, *below: str, **more: object) -> Member:
    values: dict[str, object] = {
        "worker": f"w_{name}",
        "tick": 7,
        "says": name,
        "subscribers": below,
    }
    return Member(name, kind, provider, **(values | more))  # type: ignore[arg-type]


def tree(*changed: Member) -> dict[str, Member]:
    """r is the root; b and a read from it, c from b, d from c."""
    made = [
        member("r", "root", None, "a", "b", first_tick=1, last_tick=9),
        member("a", "leaf", "r"),
        member("b", "branch", "r", "c", first_tick=3, last_tick=9),
        member("c", "branch", "b", "d", first_tick=3, last_tick=9),
        member("d", "leaf", "c"),
    ]
    return {m.name: m for m in [*made, *changed]}


GONE = Member("b", failure="timeout expired")


@pytest.mark.parametrize("kind", list(NodeType))
def test_whether_a_member_has_a_queue_is_said_by_its_type(kind: NodeType) -> None:
    assert member("x", str(kind), None).has_queue is kind.has_queue
    assert GONE.has_queue, "one that does not answer may have a queue"


def test_a_move_and_what_is_left_of_it() -> None:
    move = plan_move(tree(), "d", "b")
    assert (move.consumer, move.switch, move.resume, move.old) == ("w_d", True, False, ("c",))
    # killed after the switch: the note is there, and the old subscription
    noted = {"move_consumer": "w_d", "move_provider": "b", "move_resume": "1"}
    nodes = tree(
        member("d", "leaf", "b", attrs=noted), member("b", "branch", "r", "c", "d", last_tick=9)
    )
    move = plan_move(nodes, "d", "b")
    assert (move.switch, move.resume, move.old) == (False, True, ("c",))
    # killed before it
    nodes = tree(member("d", "leaf", "c", attrs=noted))
    assert plan_move(nodes, "d", "b").resume
    move = plan_move(nodes, "d", "r")  # led elsewhere
    assert (move.switch, move.resume, move.old) == (True, True, ("c",))
    move = plan_move(nodes, "d", "c")  # or given up
    assert (move.switch, move.resume, move.old) == (False, True, ())
    # where it was to go to is gone, and may keep a subscription; or it was dropped
    move = plan_move({**nodes, "b": GONE}, "d", "r")
    assert (move.switch, move.resume, move.old) == (True, True, ("c", "b"))
    dropped = {name: each for name, each in nodes.items() if name != "b"}
    assert plan_move(dropped, "d", "r").old == ("c",)
    assert plan_consumer_move(nodes, "d", "w_d", "c", 9, "r").old == ("c", "b")
    other = {"move_consumer": "audit", "move_provider": "b", "move_resume": "1"}
    nodes = tree(member("d", "leaf", "c", attrs=other))
    said = (
        r'move of "audit" to "b" on node "d" was interrupted.*another --provider; resume --node=d'
    )
    with pytest.raises(StateError, match=said):
        plan_move(nodes, "d", "r")
    with pytest.raises(StateError, match="already 'c'"):
        plan_move(tree(), "d", "c")


@pytest.mark.parametrize(
    "node, provider, why",
    [
        ("r", "b", "is the root"),
        ("b", "b", "subscribe to itself"),
        ("b", "c", r'"c" is below "b" \(c reads from b reads from r\)'),
        ("a", "d", "is a leaf"),
        ("x", "b", "Unknown node: x"),
        ("a", "x", "Unknown node: x"),
    ],
)
def test_moves_that_cannot_be(node: str, provider: str, why: str) -> None:
    with pytest.raises(StateError, match=why):
        plan_move(tree(), node, provider)


def test_copies_under_way_keep_a_node_where_it_is() -> None:
    copying = member("a", "leaf", "r", copies=("t",))
    with pytest.raises(StateError, match="being copied"):
        plan_move(tree(copying), "a", "b")
    assert not plan_move(tree(), "a", "b").anew


@pytest.mark.parametrize("provider", [GONE, Member("b", dead=True, failure="tagged"), None])
def test_copies_of_a_provider_that_does_not_answer_begin_anew(provider: Member | None) -> None:
    copying = member("c", "branch", "b", "d", first_tick=3, last_tick=9, copies=("t",))
    nodes = tree(copying, *([provider] if provider else []))
    if provider is None:
        del nodes["b"]
    move = plan_move(nodes, "c", "r")
    assert move.switch and move.anew
    if provider is not None:
        assert plan_reparent(nodes, "b")[1] == [move]


def test_nodes_that_do_not_answer_in_the_way() -> None:
    assert path_up(tree(GONE), "d") == ["d", "c", "b", "r"], "the root says where b reads"
    assert plan_move(tree(GONE), "d", "r").old == ("c",)
    with pytest.raises(StateError, match=r'"b" does not answer \(timeout expired\)'):
        plan_move(tree(GONE), "d", "b")
    # the root is gone: nobody is above it
    silent = Member("r", failure="timeout expired")
    assert path_up(tree(silent), "c") == ["c", "b", "r"]
    # nobody says where b reads, and there is a root that answers
    root = member("r", "root", None, "a", first_tick=1, last_tick=9)
    with pytest.raises(StateError, match="no other node says whom it reads from"):
        path_up(tree(GONE, root), "c")


def test_a_cycle_is_named() -> None:
    nodes = tree(member("b", "branch", "c", "c"))
    with pytest.raises(StateError, match="form a cycle: c reads from b reads from c"):
        path_up(nodes, "d")


def test_consumers_beside_the_worker() -> None:
    move = plan_consumer_move(tree(), "d", "audit", "c", 5, "r")
    assert (move.switch, move.tick, move.old) == (True, 5, ("c",))
    assert not plan_consumer_move(tree(), "b", "audit", "r", 5, "b").resume
    with pytest.raises(StateError, match="first copy"):
        plan_consumer_move(tree(), "d", "d.copy.t", "c", 5, "r")


def test_children_of_a_node_that_is_gone_are_known() -> None:
    assert children_of(tree(), "b") == ["c"]
    assert children_of(tree(GONE), "b") == ["c"]
    with pytest.raises(StateError, match=r"still has subscribers: c: .*--reparent"):
        require_droppable(tree(GONE), "b")
    above, moves = plan_reparent(tree(GONE), "b")
    assert (above, [(m.node, m.provider) for m in moves]) == ("r", [("c", "r")])
    with pytest.raises(StateError, match="is the root"):
        plan_reparent(tree(), "r")
    # a child that another run has switched, and not resumed
    noted = {"move_consumer": "w_c", "move_provider": "r", "move_resume": "1"}
    switched = member("c", "branch", "r", "d", last_tick=9, attrs=noted)
    assert [m.resume for m in plan_reparent(tree(switched), "b")[1]] == [True]
    # a node that reads from elsewhere is no child, whatever is left of it here
    stray = member("c", "branch", "r", "d", last_tick=9)
    assert children_of(tree(stray), "b") == []


def test_nodes_that_may_read_from_one_that_is_gone() -> None:
    silent = Member("d", failure="timeout expired")
    gone = Member("c", failure="timeout expired")
    with pytest.raises(StateError, match=r'"c" does not answer, and nor do d,.*tag-dead'):
        require_droppable(tree(gone, silent), "c")
    with pytest.raises(StateError, match=r'"b" does not answer, and nor do c, d,'):
        require_droppable(tree(GONE, gone, silent), "b")
    # an operator has said that it is gone, or somebody keeps a place for it
    require_droppable(tree(gone, replace(silent, dead=True)), "c")
    above = member("b", "branch", "r", "c", "d", last_tick=9)
    require_droppable(tree(gone, silent, above), "c")
    require_droppable(tree(silent), "d")
    # the root is silent, too: one that has no place is the root, a second one is not
    root = Member("r", failure="timeout expired")
    require_droppable(tree(root, silent), "d")
    with pytest.raises(StateError, match="nor do d, r,"):
        require_droppable(tree(root, gone, silent), "c")


def test_ticks_that_a_provider_will_have() -> None:
    branch = tree()["b"]
    assert tick_is_missing(branch, 12) == "", "it will come"
    assert "choose another node" in tick_is_missing(branch, 2)
    assert "has no ticks" in tick_is_missing(replace(branch, last_tick=None), 2)


def test_renames() -> None:
    assert plan_rename(tree(), "b", "x") == ["a", "b", "c", "d", "r"], "the root is the last one"
    with pytest.raises(StateError, match='a node "a" already'):
        plan_rename(tree(), "b", "a")
    # begun: one database answers to both names
    both = Member("x", failure='that database has node "b"', says="b")
    assert plan_rename(tree(both), "b", "x") == ["a", "b", "c", "d", "r"]
    moved = Member("b", failure='that database has node "x"', says="x")
    nodes = tree(moved, member("x", "branch", "r", "c"))
    assert plan_rename(nodes, "b", "x") == ["a", "c", "d", "x", "r"]
    with pytest.raises(StateError, match=r"not every node answers \(b\)"):
        plan_rename(tree(GONE), "b", "x")
    for name in ("", "x,y"):
        with pytest.raises(StateError, match="cannot be a name"):
            plan_rename(tree(), "b", name)
    with pytest.raises(StateError, match="Unknown node: y"):
        plan_rename(tree(), "y", "x")
