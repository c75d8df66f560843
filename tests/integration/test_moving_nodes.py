"""Nodes that get another provider, another name or another position; commands killed in between."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.killed import Killed
from tests.labs.tree import QUEUE, Tree, tree
from vedur import failpoint
from vedur.clock import SystemClock
from vedur.daemon import PidFile
from vedur.errors import StateError, UsageError
from vedur.node.plan import plan_move
from vedur.node.position import get_applied_tick
from vedur.node.takeover import require_no_moves
from vedur.ops.change_provider import _Mover, change_provider, run_move
from vedur.ops.drop_node import drop_node
from vedur.ops.members import read_members
from vedur.ops.move_position import MoveTo, move_position
from vedur.ops.pause import pause, resume
from vedur.ops.rename_node import rename_node
from vedur.ops.session import Session
from vedur.ops.tag_node import tag_alive, tag_dead
from vedur.ops.wait_sync import wait_provider

__all__ = ["tree"]

NOWHERE = "host=127.0.0.1 port=1 dbname=x"


def branches(tree: Tree) -> int:
    """A root, two branches in a row, and a leaf of the root; all at one tick."""
    tree.add("mid", "branch")
    tree.add("low", "branch", "mid")
    tree.add("dst", "leaf")
    tick = tree.tick()
    tree.everybody_reaches(tick)
    return tick


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.levelno >= logging.INFO]


# -- change-provider ------------------------------------------------------------------------------


def test_a_node_moves_to_a_branch_and_back(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vedur")
    tick = branches(tree)
    with tree.workers():
        change_provider(tree.sessions["dst"], "low")
    assert tree.provider("dst") == "low"
    assert tree.subscribers("low") == {"dst": tick}
    assert tree.subscribers("src") == {"mid": tick}
    assert not tree.paused("dst")
    assert tree.info("dst").attrs == {}
    assert lines(caplog)[-1].endswith(f"reads from 'low', after tick {tick}")
    applied = get_applied_tick(tree.dbs["dst"], QUEUE, "dst", "low")
    assert applied is not None and applied.id == tick, "it knows the tick as low has it"
    with pytest.raises(StateError, match="node 'dst' has already 'low' as provider"):
        change_provider(tree.sessions["dst"], "low")
    with tree.workers():
        change_provider(tree.sessions["src"], "src", node="dst")
    assert tree.subscribers("low") == {}
    assert tree.subscribers("src") == {"mid": tick, "dst": tick}


POINTS = ["paused", "subscribed", "changed", "untagged", "resumed", "held", "unsubscribed"]


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", POINTS)
def test_a_move_that_is_killed_is_finished_by_the_next_run(tree: Tree, point: str) -> None:
    tick = branches(tree)
    command = (
        "from vedur.ops.change_provider import change_provider; change_provider(session, 'mid')"
    )
    with tree.workers():
        tree.killed("dst", f"provider.{point}", command)
        if point in ("paused", "subscribed", "changed", "untagged"):
            assert tree.info("dst").attrs["move_provider"] == "mid"
        if point == "unsubscribed":
            with pytest.raises(StateError, match="has already 'mid'"):
                change_provider(tree.sessions["dst"], "mid")
        else:
            change_provider(tree.sessions["dst"], "mid")
    assert tree.provider("dst") == "mid"
    assert not tree.paused("dst")
    assert tree.info("dst").attrs == {}
    assert tree.subscribers("mid") == {"low": tick, "dst": tick}
    assert tree.subscribers("src") == {"mid": tick}


MOVE_TO_MID = (
    "from vedur.ops.change_provider import change_provider; change_provider(session, 'mid')"
)


@pytest.mark.draw(1)
@pytest.mark.parametrize("target", ["other", "same", "given up"])
@pytest.mark.parametrize("point", ["paused", "subscribed", "changed"])
def test_a_move_that_is_killed_does_not_need_the_node_that_it_led_to(
    tree: Tree, caplog: pytest.LogCaptureFixture, point: str, target: str
) -> None:
    tick = branches(tree)
    tree.add("side", "branch")
    with tree.workers():
        tree.killed("dst", f"provider.{point}", MOVE_TO_MID)
        assert tree.paused("dst")
        with pytest.raises(StateError, match=r"to finish it, or with another --provider; resume"):
            require_no_moves(read_members(tree.sessions["dst"]).members, ["dst"])
        if target == "given up":
            resume(tree.sessions["dst"])
            assert tree.provider("dst") == ("mid" if point == "changed" else "src")
        else:  # mid is gone
            for name in ("src", "dst", "low", "side"):
                tree.dbs[name].execute(
                    "update pgq_node.node_location set node_location = %s where node_name = 'mid'",
                    [NOWHERE],
                )
            provider = "side" if target == "other" else "src"
            change_provider(tree.sessions["dst"], provider)
            assert tree.provider("dst") == provider
            assert tree.subscribers(provider)["dst"] == tick
            assert "'mid' may keep a subscription of 'dst'" in caplog.text
    assert tree.info("dst").attrs == {}
    assert not tree.paused("dst")
    require_no_moves(read_members(tree.sessions["dst"]).members, ["dst"])


def test_a_move_that_is_led_elsewhere_ends_what_the_first_one_had_begun(tree: Tree) -> None:
    tick = branches(tree)
    with tree.workers():
        tree.killed("dst", "provider.subscribed", MOVE_TO_MID)
        assert tree.subscribers("mid") == {"low": tick, "dst": tick}
        change_provider(tree.sessions["dst"], "low")
    assert tree.subscribers("low") == {"dst": tick}
    assert tree.subscribers("mid") == {"low": tick}
    assert tree.subscribers("src") == {"mid": tick}
    assert (tree.paused("dst"), tree.info("dst").attrs) == (False, {})


def test_a_node_that_is_renamed_is_renamed_in_a_move_that_was_killed(tree: Tree) -> None:
    ours(tree)
    with tree.workers():
        tree.killed("dst", "provider.paused", MOVE_TO_MID)
        tree.dbs["src"].execute(
            "select pgq_node.set_node_attrs(%s, 'takeover_to=mid&takeover_epoch=e')", [QUEUE]
        )
        rename_node(tree.sessions["src"], "mid", "middle")
        assert tree.info("dst").attrs["move_provider"] == "middle"
        assert tree.info("src").attrs == {"takeover_to": "middle", "takeover_epoch": "e"}
        change_provider(tree.sessions["dst"], "middle")
    assert tree.provider("dst") == "middle"
    assert (tree.paused("dst"), tree.info("dst").attrs) == (False, {})


def two_arms(tree: Tree) -> None:
    """Two branches below the root, each with a branch of its own."""
    for name, above in (("b", "src"), ("e", "b"), ("c", "src"), ("d", "c")):
        tree.add(name, "branch", above)
    tree.everybody_reaches(tree.tick())


@pytest.mark.parametrize(("first", "second"), [("c", "b"), ("d", "e")])
def test_two_moves_at_once_make_no_ring(tree: Tree, first: str, second: str) -> None:
    """b goes below c, or below the branch of c; c goes below b, or below the branch of b."""
    two_arms(tree)
    refused: list[str] = []

    def hook(name: str) -> None:
        if name == "provider.subscribed":
            failpoint.set_hook(None)
            settings = tree.sessions["c"].settings
            with Session(settings) as other, pytest.raises(StateError) as error:
                change_provider(other, second, max_wait=5)
            refused.append(error.value.message)

    failpoint.set_hook(hook)
    try:
        with tree.workers():
            change_provider(tree.sessions["b"], first)
    finally:
        failpoint.set_hook(None)
    assert "another command moves node" in refused[0]
    assert (tree.provider("b"), tree.provider("c")) == (first, "src")
    assert tree.info("c").attrs == {}


def test_a_plan_that_is_out_of_date_makes_no_ring(tree: Tree) -> None:
    two_arms(tree)
    view = read_members(tree.sessions["c"])
    below, again = (plan_move(view.members, "c", name) for name in ("e", "b"))
    with tree.workers():
        change_provider(tree.sessions["b"], "d")
        for move in (below, again):
            with pytest.raises(StateError, match="is below"):
                run_move(tree.sessions["c"], view, move)
        assert (tree.provider("c"), tree.info("c").attrs) == ("src", {})
        change_provider(tree.sessions["e"], "src")
        change_provider(tree.sessions["c"], "e")
        with pytest.raises(StateError, match="was moved meanwhile"):
            run_move(tree.sessions["c"], view, below)


def test_a_node_that_is_back_is_no_longer_tagged_as_dead(tree: Tree) -> None:
    """Others have tagged it while it was away; it does not know that."""
    branches(tree)
    for name in ("src", "mid", "low"):
        tree.dbs[name].execute("select pgq_node.register_location(%s, 'dst', null, true)", [QUEUE])
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
    for name in tree.dbs:
        assert not any(tree.members(name).values()), name


@pytest.mark.parametrize("point", ["paused", "subscribed", "changed"])
def test_a_move_that_is_interrupted_leaves_nothing_paused(tree: Tree, point: str) -> None:
    tick = branches(tree)

    def hook(name: str) -> None:
        if name == f"provider.{point}":
            raise KeyboardInterrupt

    failpoint.set_hook(hook)
    try:
        with tree.workers(), pytest.raises(KeyboardInterrupt):
            change_provider(tree.sessions["dst"], "mid")
    finally:
        failpoint.set_hook(None)
    assert not tree.paused("dst")
    assert tree.info("dst").attrs == {}
    if point == "changed":
        assert tree.provider("dst") == "mid"
        assert "dst" in tree.subscribers("mid")
    else:
        assert tree.provider("dst") == "src"
        assert tree.subscribers("mid") == {"low": tick}
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
    assert tree.subscribers("src") == {"mid": tick}


def test_a_pause_of_the_operator_stays(tree: Tree) -> None:
    branches(tree)
    with tree.workers():
        pause(tree.sessions["dst"])
        change_provider(tree.sessions["dst"], "mid")
        assert tree.paused("dst")
        resume(tree.sessions["dst"])
    assert tree.provider("dst") == "mid"


def test_what_cannot_be_is_refused_before_anything_is_paused(tree: Tree) -> None:
    tick = branches(tree)
    later = tree.tick()
    tree.reach("dst", later)
    with pytest.raises(StateError, match="is below"):
        change_provider(tree.sessions["mid"], "low")
    with pytest.raises(StateError, match="is a leaf"):
        change_provider(tree.sessions["low"], "dst")
    with pytest.raises(StateError, match="cannot subscribe to itself"):
        change_provider(tree.sessions["dst"], "dst")
    with pytest.raises(StateError, match="is the root"):
        change_provider(tree.sessions["src"], "mid")
    with pytest.raises(StateError, match="Unknown node: nobody"):
        change_provider(tree.sessions["dst"], "nobody")
    with pytest.raises(StateError, match=rf"does not have tick {later}.*ticks .* to {tick}.*wait"):
        change_provider(tree.sessions["dst"], "mid", max_wait=0.3)
    tree.dbs["mid"].execute("delete from pgq.tick where tick_id <= %s", [tick])
    tree.dbs["mid"].execute("select pgq.ticker(%s, %s, now(), 1)", [QUEUE, later + 1])
    with pytest.raises(StateError, match=rf"does not have tick {later}.*choose another node"):
        change_provider(tree.sessions["dst"], "mid")
    assert not tree.paused("dst")
    assert tree.info("dst").attrs == {}


def test_a_worker_that_does_not_run_is_not_waited_for_without_end(tree: Tree) -> None:
    tick = branches(tree)
    said = (
        r'consumer "dst" on node "dst" has not answered for \d+ s: nothing is changed, and it is '
    )
    for drop in (False, True):
        with pytest.raises(StateError, match=said + "not paused; if it does not run, start it"):
            if drop:
                drop_node(tree.sessions["src"], "mid", reparent=True, max_wait=0.2)
            else:
                change_provider(tree.sessions["dst"], "mid", max_wait=0.2)
        if not drop:
            assert tree.provider("dst") == "src"
            with tree.workers():
                change_provider(tree.sessions["dst"], "mid")
    assert not tree.paused("dst")
    assert tree.info("dst").attrs == {}
    assert tree.provider("dst") == "mid"
    assert tree.subscribers("mid") == {"low": tick, "dst": tick}
    assert tree.subscribers("src") == {"mid": tick}


class Leap(SystemClock):
    """A clock on which an hour passes with every look, once `leap` is set."""

    leap = 0.0
    _passed = 0.0

    def monotonic(self) -> float:
        self._passed += self.leap
        return super().monotonic() + self._passed


def test_a_worker_that_ends_during_the_move_goes_on_at_the_new_provider(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tick = branches(tree)
    clock = tree.sessions["dst"].clock = Leap()
    with ExitStack() as stack:

        def hook(name: str) -> None:
            if name == "provider.changed":
                stack.close()  # no worker any more
                clock.leap = 3600.0

        stack.enter_context(tree.workers())
        failpoint.set_hook(hook)
        try:
            change_provider(tree.sessions["dst"], "mid")
        finally:
            failpoint.set_hook(None)
    assert "goes on at 'mid' when it runs" in caplog.text
    assert (tree.provider("dst"), tree.paused("dst")) == ("mid", False)
    assert tree.subscribers("src") == {"mid": tick}


def test_a_provider_that_is_behind_is_waited_for(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vedur")
    branches(tree)
    later = tree.tick()
    tree.reach("dst", later)
    reached = []

    class Comes(logging.Handler):
        """The branch comes up as soon as somebody waits for it."""

        def emit(self, record: logging.LogRecord) -> None:
            if "Waiting until 'mid' has tick" in record.getMessage() and not reached:
                reached.append(later)
                tree.reach("mid", later)

    handler = Comes()
    logging.getLogger("vedur").addHandler(handler)
    try:
        with tree.workers():
            change_provider(tree.sessions["dst"], "mid")
    finally:
        logging.getLogger("vedur").removeHandler(handler)
    assert reached
    assert tree.provider("dst") == "mid"
    assert tree.subscribers("mid")["dst"] == later


def test_a_tick_that_comes_while_it_is_looked_for_is_found(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    branches(tree)
    later = tree.tick()
    tree.reach("dst", later)
    module = sys.modules["vedur.ops.change_provider"]
    get_tick, seen = module.get_tick, []

    def comes_afterwards(*args: object) -> object:
        answer = get_tick(*args)
        if not seen:
            tree.reach("mid", later)
        seen.append(answer)
        return answer

    monkeypatch.setattr(module, "get_tick", comes_afterwards)
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
    assert seen[0] is None
    assert tree.subscribers("mid")["dst"] == later


def test_a_dead_provider_is_left_behind(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    branches(tree)
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
    for name in ("src", "dst", "low"):
        tree.dbs[name].execute(
            "update pgq_node.node_location set node_location = %s where node_name = 'mid'",
            [NOWHERE],
        )
    with tree.workers():
        change_provider(tree.sessions["dst"], "src", dead=["mid"])
    assert tree.provider("dst") == "src"
    assert "'mid' may keep a subscription of 'dst'" in caplog.text
    with pytest.raises(StateError, match="Unknown node: nobody"):
        change_provider(tree.sessions["dst"], "src", dead=["nobody"])
    # it comes back: the same command again ends the subscription that it has kept
    for name in ("src", "dst", "low"):
        tree.dbs[name].execute(
            "update pgq_node.node_location set node_location = %s where node_name = 'mid'",
            [tree.dbs["mid"].connstr],
        )
    assert "dst" in tree.subscribers("mid")
    change_provider(tree.sessions["dst"], "src")
    assert "dst" not in tree.subscribers("mid")


def test_a_consumer_beside_the_worker_moves_alone(tree: Tree) -> None:
    tick = branches(tree)
    dst = tree.dbs["dst"]
    dst.execute("select pgq_node.register_consumer(%s, 'audit', 'src', %s)", [QUEUE, tick])
    tree.dbs["src"].execute("select pgq.register_consumer_at(%s, 'audit', %s)", [QUEUE, tick])
    there = "select last_tick from pgq.get_consumer_info(%s, 'audit')"
    with tree.workers():
        pause(tree.sessions["src"], consumer="audit")  # found on dst
        assert dst.value("select paused from pgq_node.local_state where consumer_name = 'audit'")
        resume(tree.sessions["src"], consumer="audit")
        change_provider(tree.sessions["src"], "mid", consumer="audit")
    assert tree.dbs["mid"].value(there, [QUEUE]) == tick
    assert tree.dbs["src"].value(there, [QUEUE]) is None
    assert tree.provider("dst") == "src", "the worker stays"
    with pytest.raises(StateError, match='no consumer "nobody" on any node that answers'):
        pause(tree.sessions["src"], consumer="nobody")


# -- consumers beside the workers -----------------------------------------------------------------


def with_consumers(tree: Tree) -> int:
    """A plain consumer on the branch, and one on the leaf that reads from the branch."""
    tick = branches(tree)
    dst, mid = tree.dbs["dst"], tree.dbs["mid"]
    dst.execute("select pgq_node.register_consumer(%s, 'audit', 'mid', %s)", [QUEUE, tick])
    for name in ("audit", "lake"):
        mid.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, name, tick])
    return tick


def stands_at(tree: Tree, node: str, consumer: str) -> int | None:
    text = "select last_tick from pgq.get_consumer_info(%s, %s)"
    found: int | None = tree.dbs[node].value(text, [QUEUE, consumer])
    return found


def reads_from(tree: Tree, node: str, consumer: str) -> str | None:
    text = "select provider_node from pgq_node.local_state where consumer_name = %s"
    found: str | None = tree.dbs[node].value(text, [consumer])
    return found


def test_drop_node_names_consumers_that_would_lose_their_positions(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tick = with_consumers(tree)
    src = tree.sessions["src"]
    register = f"select pgq.register_consumer_at\\('q', 'lake', {tick}\\)"
    plain = rf'"lake" reads its queue, after tick {tick}: stop it, run "{register}" on the node'
    moved = (
        rf'"audit" of node "dst" reads from it, after tick {tick}: run change-provider --node=dst '
        "--consumer=audit --provider=src, or use --reparent"
    )
    with tree.workers():
        with pytest.raises(StateError, match=rf"{plain}.*the node is not dropped") as caught:
            drop_node(src, "mid", reparent=True)  # before anything is moved
        assert '"audit"' not in caught.value.message
        assert (tree.provider("low"), reads_from(tree, "dst", "audit")) == ("mid", "mid")
        change_provider(tree.sessions["low"], "src")
        with pytest.raises(StateError, match=rf"{plain}.*{moved}"):
            drop_node(src, "mid")
        # what the message says
        tree.dbs["src"].value("select pgq.register_consumer_at(%s, 'lake', %s)", [QUEUE, tick])
        tree.dbs["mid"].value("select pgq.unregister_consumer(%s, 'lake')", [QUEUE])
        with pytest.raises(StateError, match=f"with node .* would be lost: {moved}"):
            drop_node(src, "mid")
        drop_node(src, "mid", reparent=True)
    assert stands_at(tree, "src", "lake") == stands_at(tree, "src", "audit") == tick
    assert reads_from(tree, "dst", "audit") == "src"
    for name in ("src", "low", "dst"):
        assert set(tree.members(name)) == {"src", "low", "dst"}
    assert "foreign key" not in caplog.text


@pytest.mark.draw("branches")
@pytest.mark.parametrize("gone", [False, True])
def test_positions_of_consumers_can_be_given_up(
    tree: Tree, gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tick = with_consumers(tree)
    mid, src = tree.dbs["mid"], tree.sessions["src"]
    mid.execute("select pgq_node.register_consumer(%s, 'own', 'src', %s)", [QUEUE, tick])
    tree.dbs["src"].execute("select pgq.register_consumer_at(%s, 'own', %s)", [QUEUE, tick])
    with tree.workers():
        change_provider(tree.sessions["low"], "src")
    if gone:
        for name in ("src", "dst", "low"):
            tree.dbs[name].execute(
                "update pgq_node.node_location set node_location = %s where node_name = 'mid'",
                [NOWHERE],
            )
        with pytest.raises(StateError, match=r'"audit" of node "dst".* --provider=src'):
            drop_node(src, "mid")
    else:
        kept = rf'"own" reads from "src" and keeps its position, tick {tick}, on "mid"'
        with pytest.raises(StateError, match=kept):
            drop_node(src, "mid")
    drop_node(src, "mid", forget_consumers=True)
    lost = {"audit"} if gone else {"audit", "lake", "own"}
    said = f"loses its position, tick {tick}, with node 'mid'"
    assert {r.getMessage().split("'")[1] for r in caplog.records if said in r.getMessage()} == lost
    assert reads_from(tree, "dst", "audit") is None
    assert set(tree.members("dst")) == set(tree.members("src")) == {"src", "low", "dst"}
    assert (stands_at(tree, "src", "own") is None) is not gone
    assert "foreign key" not in caplog.text


@pytest.mark.draw("branches")
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", ["paused", "changed", "resumed"])
def test_a_drop_that_is_killed_while_it_moves_consumers_is_finished(
    tree: Tree, point: str, nth: int
) -> None:
    """The leaf reads from the branch, too: its worker and its consumer are moved one after the
    other."""
    tick = with_consumers(tree)
    tree.dbs["mid"].value("select pgq.unregister_consumer(%s, 'lake')", [QUEUE])
    seen: list[str] = []

    def kill(name: str) -> None:
        if name == f"provider.{point}":
            seen.append(name)
            if len(seen) == nth:
                raise Killed(name)

    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
        failpoint.set_hook(kill)
        undo = _Mover._undo
        _Mover._undo = lambda *_: None  # type: ignore[method-assign]
        try:
            with pytest.raises(Killed):
                drop_node(tree.sessions["src"], "mid", reparent=True)
        finally:
            failpoint.set_hook(None)
            _Mover._undo = undo  # type: ignore[method-assign]
        drop_node(tree.sessions["src"], "mid", reparent=True)
    assert len(seen) == nth
    assert tree.provider("dst") == tree.provider("low") == reads_from(tree, "dst", "audit") == "src"
    assert tree.subscribers("src") == {"dst": tick, "low": tick}
    assert stands_at(tree, "src", "audit") == tick
    assert not tree.paused("dst") and tree.info("dst").attrs == tree.info("low").attrs == {}
    assert not tree.dbs["dst"].value("select bool_or(paused) from pgq_node.local_state")
    assert set(tree.members("dst")) == {"src", "low", "dst"}


def test_a_consumer_that_comes_while_nodes_are_moved_stops_the_drop(tree: Tree) -> None:
    tick = branches(tree)

    def come(name: str) -> None:
        if name == "drop.reparented":
            tree.dbs["mid"].value("select pgq.register_consumer_at(%s, 'lake', %s)", [QUEUE, tick])

    failpoint.set_hook(come)
    try:
        with tree.workers(), pytest.raises(StateError, match='"lake" reads its queue'):
            drop_node(tree.sessions["src"], "mid", reparent=True)
    finally:
        failpoint.set_hook(None)
    assert tree.provider("low") == "src"
    assert set(tree.members("low")) == {"src", "mid", "low", "dst"}
    assert stands_at(tree, "mid", "lake") == tick


# -- drop-node, tags ------------------------------------------------------------------------------


@pytest.mark.draw("branches")
def test_drop_node_moves_the_children_first(tree: Tree) -> None:
    tick = branches(tree)
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
        with pytest.raises(StateError, match=r"still has subscribers: dst, low.*--reparent"):
            drop_node(tree.sessions["src"], "mid")
        drop_node(tree.sessions["src"], "mid", reparent=True)
    assert tree.provider("dst") == tree.provider("low") == "src"
    assert tree.subscribers("src") == {"dst": tick, "low": tick}
    assert "mid" not in tree.members("low")
    with pytest.raises(StateError, match="is the root"):
        drop_node(tree.sessions["src"], "src", reparent=True)


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", ["provider.changed", "drop.reparented", "drop.forgotten"])
def test_a_drop_that_is_killed_is_finished_by_the_next_run(tree: Tree, point: str) -> None:
    tick = branches(tree)
    command = "from vedur.ops.drop_node import drop_node; drop_node(session, 'mid', reparent=True)"
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
        tree.killed("low", point, command)
        if "mid" in tree.members("low"):
            drop_node(tree.sessions["low"], "mid", reparent=True)
        else:
            drop_node(tree.sessions["src"], "mid", reparent=True)
    assert tree.subscribers("src") == {"dst": tick, "low": tick}
    assert not tree.paused("dst") and not tree.paused("low")
    assert "mid" not in tree.members("src")


@pytest.mark.draw("branches")
def test_a_dead_branch_is_dropped_from_over_its_children(tree: Tree) -> None:
    tick = branches(tree)
    with tree.workers():
        change_provider(tree.sessions["dst"], "mid")
    for name in ("src", "dst", "low"):
        tree.dbs[name].execute(
            "update pgq_node.node_location set node_location = %s where node_name = 'mid'",
            [NOWHERE],
        )
    with pytest.raises(StateError, match="still has subscribers: dst, low"):
        drop_node(tree.sessions["src"], "mid")
    with tree.workers():
        drop_node(tree.sessions["src"], "mid", reparent=True)
    assert tree.subscribers("src") == {"dst": tick, "low": tick}
    assert set(tree.members("dst")) == {"src", "dst", "low"}


def test_a_silent_branch_is_not_dropped_from_over_a_silent_node(tree: Tree) -> None:
    """Nobody can say whether that reads from it, and what it needs would be forgotten."""
    branches(tree)
    with tree.workers():
        change_provider(tree.sessions["dst"], "low")
        change_provider(tree.sessions["low"], "src")
    src = tree.dbs["src"]
    place = "update pgq_node.node_location set node_location = %s where node_name in ('low', 'dst')"
    src.execute(place, [NOWHERE])
    for reparent in (False, True):
        with pytest.raises(StateError, match=r'"low" does not answer, and nor do dst.*tag-dead'):
            drop_node(tree.sessions["src"], "low", reparent=reparent)
    assert set(tree.subscribers("src")) == {"mid", "low"}
    marks = "select count(*) from pgq.get_consumer_info(%s, '.low.watermark')"
    assert src.value(marks, [QUEUE]) == 1
    tag_dead(tree.sessions["src"], ["dst"])  # it does not come back
    drop_node(tree.sessions["src"], "low")
    assert "low" not in tree.members("src")


def test_tags_reach_every_node(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vedur")
    branches(tree)
    tag_dead(tree.sessions["src"], ["dst", "low"])
    assert "INFO Tagging node 'dst' as dead" in lines(caplog)
    for name in ("src", "mid"):
        assert tree.members(name) == {"src": False, "mid": False, "low": True, "dst": True}
    events = "select count(*) from pgq.event_template where ev_type = 'pgq.location-info'"
    assert tree.dbs["src"].value(events), "the root tells those that were not reached"
    with pytest.raises(StateError, match='node "dst" does not answer'):
        change_provider(tree.sessions["src"], "mid", node="dst")
    tag_alive(tree.sessions["src"], ["dst", "low"])
    for name in tree.dbs:
        assert not any(tree.members(name).values())
    with pytest.raises(StateError, match="Unknown node: nobody"):
        tag_dead(tree.sessions["src"], ["dst", "nobody"])
    with pytest.raises(StateError, match="is the local one"):
        tag_dead(tree.sessions["src"], ["src"])


def test_a_tag_that_is_killed_is_finished_by_the_next_run(tree: Tree) -> None:
    branches(tree)
    command = "from vedur.ops.tag_node import tag_dead; tag_dead(session, ['dst'])"
    tree.killed("src", "tag.told", command)
    tag_dead(tree.sessions["src"], ["dst"])
    for name in ("src", "mid", "low"):
        assert tree.members(name)["dst"]


# -- rename-node ----------------------------------------------------------------------------------


def renamed(tree: Tree, tick: int) -> None:
    for name in tree.dbs:
        assert set(tree.members(name)) == {"src", "middle", "low", "dst"}
    assert tree.info("mid").node_name == "middle"
    assert tree.provider("low") == "middle"
    assert tree.subscribers("src") == {"middle": tick, "dst": tick}
    marks = tree.dbs["src"].query(
        "select consumer_name from pgq.get_consumer_info(%s) where consumer_name like '.m%%'",
        [QUEUE],
    )
    assert [row.consumer_name for row in marks] == [".middle.watermark"]


def ours(tree: Tree) -> int:
    tree.add("mid", "branch", vedur=True)
    tree.add("low", "branch", "mid", vedur=True)
    tree.add("dst", "leaf")
    tick = tree.tick()
    tree.everybody_reaches(tick)
    return tick


def test_a_node_gets_another_name_everywhere(tree: Tree) -> None:
    tick = ours(tree)
    with pytest.raises(StateError, match='there is a node "dst" already'):
        rename_node(tree.sessions["src"], "mid", "dst")
    with pytest.raises(StateError, match="Unknown node: nobody"):
        rename_node(tree.sessions["src"], "nobody", "x")
    tree.dbs["low"].execute(
        "select pgq_node.set_node_attrs(%s, 'sync_watermark=mid%%2Cdst&k=v')", [QUEUE]
    )
    odd = """m"d 'x' %s & =1"""
    rename_node(tree.sessions["src"], "mid", odd)
    assert tree.provider("low") == odd
    rename_node(tree.sessions["src"], odd, "middle")
    renamed(tree, tick)
    assert tree.info("low").attrs == {"sync_watermark": "middle,dst", "k": "v"}
    rename_node(tree.sessions["low"], "src", "top")
    assert tree.info("src").node_name == "top"
    assert tree.provider("mid") == tree.provider("dst") == tree.provider("src") == "top"


@pytest.mark.parametrize("point", ["announced", "switched", "forgotten"])
def test_a_rename_that_is_killed_is_finished_by_the_next_run(tree: Tree, point: str) -> None:
    tick = ours(tree)
    command = "from vedur.ops.rename_node import rename_node; rename_node(session, 'mid', 'middle')"
    tree.killed("src", f"rename.{point}", command)
    rename_node(tree.sessions["src"], "mid", "middle")
    renamed(tree, tick)


def test_a_name_that_was_just_given_up_is_not_given_again(tree: Tree) -> None:
    """Nodes that have yet to read of it would end the subscription of the one that has it now."""
    ours(tree)
    rename_node(tree.sessions["src"], "dst", "end")
    with pytest.raises(StateError, match=r'read yet that an earlier node "dst" left.*run it again'):
        rename_node(tree.sessions["src"], "end", "dst")
    assert tree.info("dst").node_name == "end"
    tree.everybody_reaches(tree.tick())
    rename_node(tree.sessions["src"], "end", "dst")
    assert tree.info("dst").node_name == "dst"
    assert set(tree.subscribers("src")) == {"mid", "dst"}


def test_a_rename_needs_every_node(tree: Tree) -> None:
    ours(tree)
    tree.dbs["src"].execute(
        "update pgq_node.node_location set node_location = %s where node_name = 'dst'", [NOWHERE]
    )
    with pytest.raises(StateError, match=r"not every node answers \(dst\)"):
        rename_node(tree.sessions["src"], "mid", "middle")
    assert "middle" not in tree.members("src")


def test_a_rename_needs_our_sql_where_the_name_is_kept(tree: Tree) -> None:
    branches(tree)
    with pytest.raises(StateError, match=r"low, mid has no function vedur\.rename_node"):
        rename_node(tree.sessions["src"], "mid", "middle")
    assert "middle" not in tree.members("src")


# -- positions ------------------------------------------------------------------------------------


def test_positions_are_moved_by_hand(tree: Tree) -> None:
    first = branches(tree)
    src = tree.dbs["src"]
    for number in range(5):
        src.execute("select pgq.insert_event(%s, 'x', %s)", [QUEUE, str(number)])
    later = tree.tick()
    asked: list[str] = []

    def yes(text: str) -> bool:
        asked.append(text)
        return True

    dst = tree.sessions["dst"]
    with pytest.raises(UsageError, match="give one of --rewind, --reset and --set-tick"):
        move_position(dst, MoveTo(rewind=True, reset=True), yes)
    with pytest.raises(UsageError, match=rf"from tick {first} to tick {later}.*say --yes"):
        move_position(dst, MoveTo(tick=later), lambda text: False)
    assert tree.position("dst") == first
    change = move_position(dst, MoveTo(tick=later), yes)
    assert (change.here, change.to) == (first, later)
    assert change.events is not None and change.events >= 5
    assert "are passed over: they are lost here" in asked[-1]
    assert tree.position("dst") == tree.subscribers("src")["dst"] == later
    move_position(dst, MoveTo(tick=first), yes)
    assert "applied again" in asked[-1]
    assert tree.position("dst") == tree.subscribers("src")["dst"] == first
    # the consumer is ahead: the node was restored from a backup, say
    src.execute("select pgq.register_consumer_at(%s, 'dst', %s)", [QUEUE, later])
    asked.clear()
    move_position(dst, MoveTo(rewind=True), yes)
    assert tree.subscribers("src")["dst"] == first
    assert asked == [], "no row is touched by that"
    src.execute("select pgq.register_consumer_at(%s, 'dst', %s)", [QUEUE, later])
    move_position(dst, MoveTo(reset=True), yes)
    assert tree.position("dst") == later
    with pytest.raises(StateError, match=r"does not have tick 999 \(it has ticks"):
        move_position(dst, MoveTo(tick=999), yes)
    with pytest.raises(StateError, match="is the root"):
        move_position(tree.sessions["src"], MoveTo(rewind=True), yes)


def test_a_position_half_set_by_a_killed_command_is_finished(tree: Tree) -> None:
    first = branches(tree)
    later = tree.tick()
    command = (
        "from vedur.ops.move_position import MoveTo, move_position; "
        f"move_position(session, MoveTo(tick={later}), lambda text: True)"
    )
    tree.killed("dst", "tick.set", command)
    assert tree.position("dst") == later
    assert tree.subscribers("src")["dst"] == first
    move_position(tree.sessions["dst"], MoveTo(tick=later), lambda text: False)  # no row changes
    assert tree.position("dst") == tree.subscribers("src")["dst"] == later


@pytest.mark.draw("branches")
def test_the_command_line_asks_for_a_yes(tree: Tree, tmp_path: Path) -> None:
    branches(tree)
    later = tree.tick()
    ini = tmp_path / "dst.ini"
    ini.write_text(
        f"[londiste3]\njob_name = dst\ndb = {tree.dbs['dst'].connstr}\nqueue_name = {QUEUE}\n"
        f"pidfile = {tmp_path}/dst.pid\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        args = [sys.executable, "-m", "vedur", str(ini), "worker", *words]
        return subprocess.run(
            args, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120
        )

    refused = run(f"--set-tick={later}")
    assert refused.returncode == 1
    assert "say --yes to do it" in refused.stderr
    assert tree.position("dst") != later
    with PidFile(f"{tmp_path}/dst.pid"):
        assert "another process running" in run("--rewind").stderr
    done = run(f"--set-tick={later}", "--yes")
    assert done.returncode == 0, done.stderr
    assert tree.position("dst") == tree.subscribers("src")["dst"] == later


def test_no_hole_is_made_on_a_branch(tree: Tree) -> None:
    first = branches(tree)
    later = tree.tick()
    mid = tree.sessions["mid"]
    with pytest.raises(StateError, match="is a branch: its queue would have a hole"):
        move_position(mid, MoveTo(tick=later), lambda text: True)
    tree.dbs["src"].execute("select pgq.register_consumer_at(%s, 'mid', %s)", [QUEUE, later])
    with pytest.raises(StateError, match="is a branch"):
        move_position(mid, MoveTo(reset=True), lambda text: True)
    move_position(mid, MoveTo(rewind=True), lambda text: True)
    assert tree.subscribers("src")["mid"] == tree.position("mid") == first


def test_wait_provider_of_a_branch(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vedur")
    tick = branches(tree)
    wait_provider(tree.sessions["low"])
    assert [line for line in lines(caplog) if "commit" not in line][-4:] == [
        "INFO Provider is mid",
        "INFO Fetching last tick for mid",
        f"INFO Waiting for tick > {tick - 1}",
        f"INFO Got tick {tick}, exiting",
    ]
