"""A second fault: what is said after a takeover or a failover that did not end well works when it
is obeyed, and a reign that others have followed is never given up for a higher tick."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.integration.test_failover import _allow, add_node, depose, gone
from tests.integration.test_takeover import Killed, actions, no_cleaning
from tests.integration.test_takeover_doubts import (
    NEWEST,
    QUARANTINE,
    abort,
    at,
    bring_back,
    die,
)
from tests.labs.chain import Chain, Node
from tests.labs.moving_root import (
    PATIENCE,
    alive,
    make_bank,
    move,
    provider,
    reign,
    require_equal,
    roots,
    settle,
)
from tests.labs.pair import QUEUE
from vedur.db import connect
from vedur.db.conninfo import with_params
from vedur.errors import OtherEpoch, StateError
from vedur.failpoint import set_hook
from vedur.node.epoch import read_reigns
from vedur.node.info import NodeType
from vedur.node.move_lock import try_lock_move
from vedur.node.position import lock_position
from vedur.node.takeover import Note
from vedur.ops.members import read_members
from vedur.ops.tag_node import tag_alive
from vedur.ops.takeover import failover
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import _Live, check_switchover, takeover
from vedur.ops.takeover.verify import Verdict

__all__ = ["no_cleaning"]

MakeChain = Callable[..., Chain]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]

#: Steps at which the command is killed here; see tests/torture/test_short.py.
KILLED = frozenset({"takeover.untagged", "reign.closed_other"})

CHANGED = "update acct set n = n + (-1) ^ id"
GRAVE = "select last_tick from pgq.get_consumer_info(%s, %s)"


def run(ini: Node, old: str, **options: Any) -> Verdict:
    """Run takeover with the ini of a node."""
    with ini.session() as session:
        return takeover(session, old, TakeoverOptions(**{"compare": False, **options}))


def go(chain: Chain, old: str, new: str, **options: Any) -> Verdict:
    """Move the root while it lives; a busy machine is no reason against it."""
    return move(chain, old, new, max_lag=PATIENCE, timeout=PATIENCE, **options)


def test_a_node_that_missed_a_failover_is_not_preferred_for_its_ticks(
    make_chain: MakeChain,
) -> None:
    """n3 was cut off with root n1, and went on; n2 replaced n1, and n4 has followed it. Then n2 is
    lost: n3 has the higher tick, and nothing of what n2 wrote."""
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    add_node(chain, "n4", NodeType.BRANCH, "n2")
    n1, n2, n3, n4 = chain.nodes
    n1.db.execute("update acct set n = n + 1000 where id = 1")
    for _ in range(200):
        tick = chain.tick()
    while n3.worker.work():
        pass
    assert n3.position == tick > n4.position
    with gone(chain, "n1"):
        with gone(chain, "n3"):
            chain.nodes = [n2, n4]
            with alive(chain):
                run(n2, "n1", dead_root=True, dead=("n3",))
                n2.db.execute(CHANGED)
                settle(chain)
                rows = n4.db.query("select * from acct order by 1")
            chain.nodes = [n1, n2, n3, n4]
        assert n4.position < n3.position
        began = reign(chain, "n2").first_tick
        with gone(chain, "n2"):
            chain.nodes = [n3, n4]
            with alive(chain):
                said = rf'"n2" took over at tick {began} \(as "n4" says\).*--node=n4.*"resurrect"'
                with pytest.raises(StateError, match=said):
                    run(n3, "n2", dead_root=True, dead=("n1",))
                said = r'"n3" is tagged as dead, and answers.*run "tag-alive n3"'
                with pytest.raises(StateError, match=said):
                    run(n4, "n2", dead_root=True, dead=("n1",))
                with n4.session() as session:
                    tag_alive(session, ["n3"])
                assert run(n4, "n2", dead_root=True, dead=("n1",)) is Verdict.NODES_LEFT
                assert roots(chain) == ["n4"]
                assert [r.root for r in read_reigns(n4.db, QUEUE)] == ["n1", "n2", "n4"]
                assert n4.db.query("select * from acct order by 1") == rows
                assert n4.db.value(GRAVE, [QUEUE, "n3.gravestone"]) == began
                assert bring_back(n3) >= 1
                assert provider(chain, "n3") == "n4"
                settle(chain)
                assert not n4.db.query("select * from pgq.get_consumer_info(%s, 'n3.gravestone')",
                                       [QUEUE])  # fmt: skip
            chain.nodes = [n1, n2, n3, n4]


@pytest.mark.draw("takeovers")
def test_a_reign_whose_ticks_nobody_has_read_is_followed(make_chain: MakeChain) -> None:
    """n1 was made a branch of n2, which is lost at once: n1 knows of its reign, and n3 does not.
    The reign of n3 follows that one; beside it, n1 would see two roots."""
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    n1, n2, n3 = chain.nodes
    with alive(chain) as life:
        with at(followed=lambda: life.stop("n1")):
            go(chain, "n1", "n2")
        assert until(lambda: n3.position >= n1.position, PATIENCE)
        assert [len(read_reigns(n.db, QUEUE)) for n in (n1, n3)] == [2, 1]
        life.stop("n2")
        with gone(chain, "n2"):
            chain.nodes = [n1, n3]
            life.start(n1)
            assert run(n3, "n2", dead_root=True, timeout=PATIENCE) is Verdict.EQUAL
            assert [r.root for r in read_reigns(n3.db, QUEUE)] == ["n1", "n2", "n3"]
            n3.db.execute(CHANGED)
            settle(chain)
            require_equal(chain)
        chain.nodes = [n1, n2, n3]


def test_the_new_root_is_lost_before_the_old_one_is_a_branch(
    make_chain: MakeChain, no_cleaning: None
) -> None:
    """Every command that is named is run, as it is named."""
    chain = make_bank(make_chain, 3, leaf=False)
    n1, n2, n3 = chain.nodes
    with alive(chain) as life:
        with at(promoted=die), pytest.raises(Killed):
            go(chain, "n1", "n2")
        n2.db.execute(CHANGED)
        newest = int(n2.db.value(NEWEST, [QUEUE])) + 2
        assert until(lambda: n3.position >= newest, PATIENCE)
        life.stop("n2")
        with gone(chain, "n2"):
            chain.nodes = [n1, n3]
            with pytest.raises(StateError, match='"n2" does not answer'):
                run(n1, "n1", node="n2")
            with pytest.raises(StateError, match=r'"n2" does not answer.*say --dead=n2'):
                abort(n1, "n1")
            assert any("takeover n1 --abort --dead=n2" in text for text in actions(chain, "n1"))
            life.stop("n3")
            with gone(chain, "n3"):  # it has followed n2, and is only silent
                with pytest.raises(StateError, match=r"do not answer: n3.*start them.*--dead"):
                    abort(n1, "n1", "n2")
                assert not n1.db.value("select vedur.is_root()")
            life.start(n3)
            said = r'"n3" has followed "n2".*run takeover n2 --dead-root --node=n3, then resurrect'
            with pytest.raises(StateError, match=said):
                abort(n1, "n1", "n2")
            assert run(n1, "n2", node="n3", dead_root=True, timeout=PATIENCE) is Verdict.NODES_LEFT
            assert roots(chain) == ["n3"]
            assert run(n1, "n2", node="n3", dead_root=True) is Verdict.NODES_LEFT  # n1 is left
            taken = read_reigns(n3.db, QUEUE)[1]
            assert n3.db.value(GRAVE, [QUEUE, "n1.gravestone"]) == taken.first_tick
            with pytest.raises(StateError, match=r'"n3" was made root in place.*"resurrect"'):
                abort(n1, "n1")
            life.stop("n1")
            n1.renew()
            with pytest.raises(OtherEpoch, match=r'this root was deposed.*run "resurrect"'):
                n1.worker.work()
            n1.renew()
            life.start(n1)
            assert bring_back(n1) == 0
            assert provider(chain, "n1") == "n3"
            settle(chain)
            require_equal(chain)
        chain.nodes = [n1, n2, n3]


@pytest.mark.draw("takeovers")
def test_an_old_root_that_was_not_turned_is_no_rival(
    make_chain: MakeChain, no_cleaning: None
) -> None:
    chain = make_bank(make_chain, 3, leaf=False)
    with alive(chain):
        with at(promoted=die), pytest.raises(Killed):
            go(chain, "n1", "n2")
        said = r'takeover of "n1" by "n2" is not finished: run takeover n1 --node=n2 first'
        for new in ("n3", "n1"):
            with pytest.raises(StateError, match=said):
                go(chain, "n2", new)
        with chain["n3"].session() as session:
            assert re.search(said, "".join(check_switchover(session, TakeoverOptions())[2]))
        with pytest.raises(StateError, match=f"this node is the root.*{said}"):
            bring_back(chain["n2"])
        go(chain, "n1", "n2")
        assert (roots(chain), provider(chain, "n1")) == (["n2"], "n2")
        go(chain, "n2", "n3")
        assert roots(chain) == ["n3"]


def test_a_deposed_root_that_is_back_is_no_rival(make_chain: MakeChain) -> None:
    """It is closed, and no longer tagged: neither a takeover nor a failover takes it for a root;
    one that is open must be closed first. The new root does that, or is red."""
    chain = make_bank(make_chain, 3, leaf=False)
    depose(chain)
    n1, n2, n3 = chain.nodes
    error = "select cur_error from pgq_node.local_state where consumer_name = 'n2_job'"
    n1.db.execute("alter function vedur.depose rename to out_of_order")
    n2.renew()
    n2.worker.work()
    assert n1.db.value("select vedur.is_root()")
    assert '"n1" was replaced by "n2"' in n2.db.value(error)
    with n2.session() as session:
        tag_alive(session, ["n1"])
    chain.nodes = [n2, n3]
    with alive(chain) as life:
        settle(chain)
        with gone(chain, "n2"):
            said = r'"n1" was replaced by "n2".*takes writes.*let its worker run'
            with pytest.raises(StateError, match=said):
                run(n3, "n2", dead_root=True, dry_run=True)
        life.stop("n2")
        n1.db.execute("alter function vedur.out_of_order rename to depose")
        n2.renew()
        killed = lambda name: die() if name == "reign.closed_other" else None  # noqa: E731
        set_hook(killed)
        with pytest.raises(Killed):
            n2.worker.work()
        assert not n1.db.value("select vedur.is_root()")
        n2.renew()
        n2.worker.work()
        assert n2.db.value(error) is None
        n1.renew()
        with pytest.raises(OtherEpoch, match="this root was deposed"):
            n1.worker.work()
        n2.renew()
        life.start(n2)
        with pytest.raises(StateError, match=r'"n1" was replaced by "n2".*ini of "n1" first'):
            run(n2, "n2", node="n1")
        run(n3, "n2", dry_run=True, max_lag=PATIENCE)
        with gone(chain, "n2"):
            run(n3, "n2", dead_root=True, dry_run=True)
        assert roots(chain) == ["n2"]
    chain.nodes = [n1, n2, n3]


SAID = "echo $1 >> {said}"


@contextmanager
def gone_node(node: Node) -> Iterator[None]:
    """Nobody can connect to it, as if its server were down."""
    _allow([node], False)
    try:
        yield
    finally:
        _allow([node], True)


@pytest.mark.draw("takeovers")
def test_the_old_root_dies_before_it_is_a_branch(
    make_chain: MakeChain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The new root is open: applications are led there, and the way to end it is named. The set had
    no epoch before."""
    said, hook = tmp_path / "said", tmp_path / "hook"
    hook.write_text(SAID.format(said=said))
    chain = make_bank(make_chain, 3, takeover_hook=f"sh {hook}")
    n1, n2, n3 = chain.nodes
    for node in chain.nodes:
        node.db.execute("delete from vedur.reign")
    with alive(chain) as life:

        def lose() -> None:
            life.stop("n1")
            _allow([n1], False)

        ends = r"takeover n1 --dead-root --node=n2"
        try:
            with (
                at(promoted=lose),
                pytest.raises(StateError, match=f'"n2" is the root and takes writes.*{ends}'),
            ):
                go(chain, "n1", "n2")
            assert said.read_text().split() == ["before", "after"]
            chain.nodes = [n2, n3]
            with pytest.raises(StateError, match=f'"n2" is root already, and takes writes.*{ends}'):
                go(chain, "n1", "n2")
            with pytest.raises(StateError, match=r"does not answer.*takeover n1 --dead-root"):
                abort(n2, "n1")
            assert run(n2, "n1", dead_root=True) is Verdict.EQUAL
            n2.db.execute(CHANGED)
            settle(chain)
        finally:
            _allow([n1], True)
        tagged = "select dead from pgq_node.node_location where node_name = 'n1'"
        assert n2.db.value(tagged)
        with pytest.raises(StateError, match=r'tagged as dead.*run "tag-alive n1" first'):
            go(chain, "n1", "n2")
        assert run(n1, "n1", node="n2") is Verdict.EQUAL  # with its own ini: it is not tagged there
        assert not n2.db.value(tagged)
        chain.nodes = [n1, n2, n3]
        n1.renew()
        life.start(n1)
        settle(chain)
        require_equal(chain)


def test_a_failover_that_was_begun_and_the_root_is_back(
    make_chain: MakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_bank(make_chain, 3)
    n1, n2, n3 = chain.nodes
    tags = "select count(*) from pgq_node.node_location where dead"
    chain.nodes = [n2, n3]
    with alive(chain):
        with gone_node(n1), at(tagged=die), pytest.raises(Killed):
            run(n2, "n1", dead_root=True)
        with pytest.raises(StateError, match=r"answers, so it is not dead.*takeover n1 --abort"):
            run(n2, "n1", dead_root=True)
        with pytest.raises(StateError, match=r'tagged as dead.*run "tag-alive n1" first'):
            go(chain, "n1", "n2")
        run(n2, "n1", abort=True, dry_run=True)
        assert n2.db.value(tags) + n3.db.value(tags) > 0
        with at(untagged=die), pytest.raises(Killed):
            run(n2, "n1", abort=True)
        with gone_node(n1), at(tagged=die), pytest.raises(Killed):
            run(n2, "n1", dead_root=True)
        run(n2, "n1", abort=True)
        assert n2.db.value(tags) + n3.db.value(tags) == 0
        with pytest.raises(StateError, match="there is nothing to undo"):
            run(n2, "n1", abort=True)
        n1.db.execute(CHANGED)
        n1.db.value("select pgq.force_tick(%s)", [QUEUE])
        n1.db.value("select pgq.ticker(%s)", [QUEUE])
        tick = int(n1.db.value(NEWEST, [QUEUE]))
        assert until(lambda: n3.position >= tick, PATIENCE)
        with gone_node(n1):
            undone = lambda: n2.db.execute("update pgq_node.node_location set dead = false")  # noqa: E731
            with at(caught_up_from=undone), pytest.raises(StateError, match="undone meanwhile"):
                run(n2, "n1", dead_root=True)
            assert roots(chain) == []
            with at(failed_over=die), pytest.raises(Killed):
                run(n2, "n1", dead_root=True)
        assert run(n2, "n1", dead_root=True, everybody=True) is Verdict.EQUAL
        assert "'n1' answers: run resurrect with its ini" in caplog.text
        assert roots(chain) == ["n2"]
        with pytest.raises(StateError, match=r'"n2" was made root in place of "n1"'):
            run(n2, "n1", abort=True)
    chain.nodes = [n1, n2, n3]


@pytest.mark.draw("takeovers")
def test_what_comes_into_the_set_after_the_checks(
    make_chain: MakeChain, no_cleaning: None, caplog: pytest.LogCaptureFixture
) -> None:
    """A sequence that the new root lacks would give out numbers that are used. And a run that goes
    on with what another one has closed says how long that took."""
    chain = make_bank(make_chain, 2, leaf=False)
    n1, n2 = chain.nodes
    for node in chain.nodes:
        node.db.execute("create sequence late_seq")
    add = "select * from londiste.local_add_seq(%s, 'public.late_seq')"
    known = "select count(*) from londiste.seq_info"
    with alive(chain):

        def come() -> None:
            n1.db.query(add, [QUEUE])
            assert until(lambda: n2.db.value(known) > 0, PATIENCE)

        said = r'cannot take over any more: sequence "public.late_seq" is not replicated on "n2"'
        with at(caught_up=come), pytest.raises(StateError, match=said):
            go(chain, "n1", "n2")
        assert roots(chain) == ["n1"]
        n2.db.query(add, [QUEUE])
        with at(ticked=die), pytest.raises(Killed):
            go(chain, "n1", "n2")
        with n2.session() as session:
            reasons = check_switchover(session, TakeoverOptions())[2]
        assert len(reasons) == 1 and "run takeover n1 --node=n2 to finish it" in reasons[0]
        with caplog.at_level("INFO"):
            go(chain, "n1", "n2")
        assert "Writers were refused for" in caplog.text
        assert roots(chain) == ["n2"]


NOTED = "takeover_to={}&takeover_epoch=" + str(uuid.uuid4()) + "&takeover_txid=1"
NOTE = "update pgq_node.node_info set node_attrs = %s"
PLACE = "update pgq_node.node_location set node_location = %s where node_name = 'n2'"


@pytest.mark.draw("takeovers")
def test_what_is_refused_before_anything_is_changed(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = make_bank(make_chain, 3)
    n1, n2, n3 = chain.nodes
    ticker = with_params(n2.settings.db, application_name="pgqd")

    def asked() -> str:
        with n2.session() as session:
            return "\n".join(check_switchover(session, TakeoverOptions(max_lag=1.0))[2])

    def refused(said: str, node: Node = n2, old: str = "n1", **options: Any) -> None:
        with pytest.raises(StateError, match=said):
            run(node, old, **options)

    refused('"n2" cannot take over from itself: say --node', old="n2")
    promote, demote = "vedur.promote(text, uuid, text, bigint)", "pgq_node.demote_root"
    n2.db.execute("alter function vedur.promote rename to hidden")
    assert 'node "n2" has no function vedur.promote' in asked()
    n2.db.execute("alter function vedur.hidden rename to promote")
    assert n2.db.value("select to_regprocedure(%s)", [promote]) is not None
    role = f"plain_{uuid.uuid4().hex[:8]}"
    n1.db.execute(f"create role {role} login in role pgq_admin, londiste_writer, pg_read_all_stats")
    n1.db.execute(f"revoke execute on function {demote} from pgq_admin, public")
    place = "update pgq_node.node_location set node_location = %s where node_name = 'n1'"
    n2.db.execute(place, [with_params(n1.db.connstr, user=role)])
    try:
        with psycopg.connect(ticker):
            assert 'the role on "n1" may not run pgq_node.demote_root' in asked()
            n2.db.execute(place, [n1.db.connstr])
            n1.db.execute(f"grant execute on function {demote} to pgq_admin")
            mine = n2.db.value("select epoch from vedur.reign")
            n2.db.execute("update vedur.reign set epoch = gen_random_uuid()")
            assert '"n2" and "n1" follow different roots (forked)' in asked()
            n2.db.execute("update vedur.reign set epoch = %s", [mine])
            n2.db.execute(QUARANTINE, [QUEUE])
            assert '1 event(s) are in quarantine on "n2"' in asked()
            n2.db.execute("delete from vedur.quarantine")
            n2.db.execute("update pgq.queue set queue_ticker_paused = true")
            reason = asked()
            assert 'the ticker of the queue is paused on "n2"' in reason
            for statement in re.findall('"(select .*?)"', reason):
                n2.db.value(statement)
            chain.catch_up()
            assert re.fullmatch('"n2" has not applied tick .*see that its worker runs.*', asked())
            with connect(n2.settings.db, autocommit=True) as other:
                assert try_lock_move(other, QUEUE)
                refused('another command moves node "n2"')
                with gone(chain, "n1"):
                    refused('another command moves node "n2"', dead_root=True)
            with gone(chain, "n1"):
                with n2.session() as session, pytest.raises(StateError, match="none; there must"):
                    check_switchover(session, TakeoverOptions())
                refused(r"does not answer.*takeover n1 --dead-root --node=n2 goes on without it")
                n3.db.execute("update vedur.reign set epoch = gen_random_uuid()")
                refused('"n3" and "n2" follow different roots', dead_root=True)
                n3.db.execute("update vedur.reign set epoch = %s", [mine])
                monkeypatch.setattr(failover, "_FENCE_SECONDS", 0.2)
                with connect(n2.settings.db) as other, other.transaction():
                    lock_position(other, QUEUE, "n2_job")
                    refused("has been committing a batch", dead_root=True, timeout=0.2)
                assert not n2.db.value("select vedur.is_root()")
    finally:
        n1.db.execute(f"drop role {role}")
    n2.db.execute("update pgq_node.node_location set dead = false")
    n1.db.execute(NOTE, [NOTED.format("n9")])
    refused('is closed for "n9", which is no member', n1, abort=True)
    n1.db.execute(NOTE, [NOTED.format("n2")])
    n1.db.execute(PLACE, [with_params(n2.db.connstr, user="nobody_of_that_name")])
    refused('the server of "n2" answers, and refuses this command', n1, abort=True, dead=("n2",))
    assert read_members_of(n1) == {"n1": "root"}


def read_members_of(node: Node) -> dict[str, str]:
    """The roots, as a node sees the set."""
    with node.session() as session:
        members = read_members(session).members.values()
    return {m.name: m.type for m in members if m.is_root}


@pytest.mark.draw("takeovers")
def test_what_ends_a_takeover_in_the_window(make_chain: MakeChain) -> None:
    """Each time the old root takes writes again; and a command that comes late changes nothing."""
    chain = make_bank(make_chain, 2, leaf=False)
    n1, n2 = chain.nodes
    with alive(chain) as life:

        def write_behind() -> None:
            n1.db.execute("update pgq.queue set queue_disable_insert = false")
            n1.db.execute(CHANGED)
            n1.db.execute("update pgq.queue set queue_disable_insert = true")

        with (
            at(ticked=write_behind),
            pytest.raises(StateError, match=r"was written behind its last tick"),
        ):
            go(chain, "n1", "n2")
        assert roots(chain) == ["n1"]
        with (
            at(drained=lambda: life.stop("n2")),
            pytest.raises(StateError, match=r'"n2" has not applied the last tick .* in time'),
        ):
            move(chain, "n1", "n2", max_lag=PATIENCE, timeout=3.0)
        assert roots(chain) == ["n1"]
        n2.renew()
        life.start(n2)
        with n2.session() as session:
            late = _Live(session, read_members(session), "n1", "n2", TakeoverOptions())
            go(chain, "n1", "n2")
            with pytest.raises(StateError, match=r"Node not root.*: another command was quicker"):
                late._demote(1)
            with pytest.raises(StateError, match=r"has not begun its reign.*\"resurrect\""):
                late._turn(Note("n2", str(uuid.uuid4()), 1, 1))
        assert (roots(chain), provider(chain, "n1")) == (["n2"], "n2")
