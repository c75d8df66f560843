"""Nodes that move while tables of theirs are being copied, or were copied just now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.killed import Killed, killed_at
from tests.fixtures.wait import until
from tests.integration.test_branch import TABLE, change, working
from tests.integration.test_branch_gone import running
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE
from vedur import failpoint
from vedur.errors import ConnectError, StateError, VedurError
from vedur.node.info import get_node_info
from vedur.ops.change_provider import change_provider
from vedur.ops.drop_node import drop_node
from vedur.ops.members import read_members
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.ops.resync import resync
from vedur.ops.takeover.checks import Candidate, find_reasons

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(300)]

MakeChain = Callable[..., Chain]

NOWHERE = "host=127.0.0.1 port=1 dbname=x connect_timeout=1"
PATIENCE = 60.0


def filled(make_chain: MakeChain) -> Chain:
    """A root, a branch and a leaf in a row, which have some rows."""
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    change(chain, 0)
    chain.catch_up()
    return chain


def provider(node: Node) -> tuple[str | None, bool, dict[str, str]]:
    info = get_node_info(node.db, QUEUE)
    assert info is not None
    return info.provider_node, info.worker_paused, info.attrs


def copies_on(node: Node) -> list[str]:
    rows = node.db.query("select * from pgq.get_consumer_info(%s)", [QUEUE])
    return [row.consumer_name for row in rows if ".copy." in row.consumer_name]


def readers_of(node: Node) -> list[str]:
    rows = node.db.query("select * from pgq_node.get_subscriber_info(%s)", [QUEUE])
    return [row.node_name for row in rows]


# -- in sync, with the snapshot of a copy ---------------------------------------------------------


def leave_snapshot(chain: Chain) -> None:
    """Let the table of the leaf be as a copy of Londiste's leaves it that ended at the newest tick.
    The branch has used up many transaction numbers, which the root has yet to use."""
    mid = chain["n2"].db
    mid.execute("do $$ begin for i in 1..2000 loop begin perform txid_current(); "
                "create temp table x (i int); raise exception 'x'; "
                "exception when others then null; end; end loop; end $$")  # fmt: skip
    snapshot = mid.value("select txid_current_snapshot()::text")
    chain["n3"].db.execute("update londiste.table_info set custom_snapshot = %s", [snapshot])


class OnLine(logging.Handler):
    """Does something when a line of the log has some words."""

    def __init__(self, words: str, do: Callable[[], object]) -> None:
        super().__init__()
        self.words, self.do, self.seen = words, do, 0

    def emit(self, record: logging.LogRecord) -> None:
        if self.words in record.getMessage():
            self.seen += 1
            self.do()


@contextmanager
def on_line(words: str, do: Callable[[], object]) -> Iterator[OnLine]:
    handler = OnLine(words, do)
    logging.getLogger("vedur").addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger("vedur").removeHandler(handler)


@pytest.mark.draw("branches")
def test_a_snapshot_in_numbers_of_the_old_provider_is_waited_for(
    make_chain: MakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    """At the new provider its numbers would cover all changes of the table for a long time."""
    caplog.set_level(logging.INFO, "vedur")
    chain = filled(make_chain)
    leave_snapshot(chain)
    low = chain["n3"]
    said = r"1 table\(s\) of node \"n3\" were copied just now \(public\.t\), .* of node \"n2\""
    with working(low), low.session() as session:
        with pytest.raises(StateError, match=said) as caught:
            change_provider(session, "n1", max_wait=0.3)
        assert "wait-sync" not in caught.value.message
        assert provider(low) == ("n2", False, {})
        with pytest.raises(StateError, match=said), chain["n1"].session() as root:
            drop_node(root, "n2", reparent=True, max_wait=0.3)
        # a rejoin that would touch no table leaves it to change-provider
        with pytest.raises(StateError, match="run change-provider --provider=n1"):
            rejoin(session, RejoinOptions(provider="n1", apply=True))
        assert low.db.value("select custom_snapshot from londiste.table_info") is not None

        def tick() -> None:
            chain.tick()
            chain["n2"].worker.work()

        with on_line("Waiting for the next tick", tick) as waited:
            change_provider(session, "n1")
        assert waited.seen == 1
    assert provider(low) == ("n1", False, {})
    change(chain, 1)
    chain.catch_up()
    change(chain, 2)
    chain.catch_up()
    assert len(chain.require_same("t")) == 27


@pytest.mark.draw("branches")
@pytest.mark.parametrize("what", ["custom_snapshot = '9999:9999:'", "merge_state = 'in-copy'"])
def test_a_copy_that_has_come_since_the_plan_keeps_the_node(
    make_chain: MakeChain, what: str
) -> None:
    chain = filled(make_chain)
    low = chain["n3"]

    def come(name: str) -> None:
        if name == "provider.subscribed":
            low.db.execute(f"update londiste.table_info set {what}")

    failpoint.set_hook(come)
    try:
        with (
            working(low),
            low.session() as session,
            pytest.raises(StateError, match=r"1 table\(s\) of node \"n3\".*nothing is changed"),
        ):
            change_provider(session, "n1")
    finally:
        failpoint.set_hook(None)
    assert provider(low) == ("n2", False, {})
    assert (readers_of(chain["n1"]), readers_of(chain["n2"])) == (["n2"], ["n3"])


def test_a_node_with_such_a_snapshot_takes_nothing_over(make_chain: MakeChain) -> None:
    chain = make_chain(3, leaf=False)
    chain.table("public.t", TABLE)
    chain.catch_up()
    chain["n2"].db.execute("update londiste.table_info set custom_snapshot = '9999:9999:'")
    chain["n3"].db.execute("update londiste.table_info set custom_snapshot = '9999:9999:'")
    with chain["n2"].session() as session:
        view = read_members(session)
        members = view.members
        reasons = find_reasons(Candidate(session, view, members["n2"], members["n1"], 9.0))
        ahead = [reason for reason in reasons if "copied just now" in reason]
        assert [r.count('"n2"') + r.count('"n3"') for r in ahead] == [1, 1, 2], ahead
        assert ahead[0].endswith("wait for its next tick")
        lost = find_reasons(Candidate(session, view, members["n2"], None, 9.0))
        ahead = [reason for reason in lost if "copied just now" in reason]
        assert len(ahead) == 1 and "cannot be mended without a root" in ahead[0]


# -- the provider is gone -------------------------------------------------------------------------


def hold_copies(at: str = "copy.catch_up") -> None:
    """Let copies come to a step, and no further, until the hook is taken away."""

    def fail(name: str) -> None:
        if name == at:
            raise VedurError("not yet")

    failpoint.set_hook(fail)


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    failpoint.set_hook(None)


def locate(chain: Chain, location: str) -> None:
    """Tell the other nodes where the branch is, or that it is nowhere."""
    for name in ("n1", "n3"):
        chain[name].db.execute(
            "update pgq_node.node_location set node_location = %s where node_name = 'n2'",
            [location],
        )


def copy_from_the_branch(chain: Chain, **options: Any) -> None:
    """The leaf has loaded its table from the branch and has yet to catch up; the branch goes."""
    low = chain["n3"]
    hold_copies()
    with low.session() as session:
        resync(session, ["public.t"], **options)
    chain.work_until(lambda: chain.states("n3") == {"public.t": "catching-up"})
    assert copies_on(chain["n2"]) == ["n3_job.copy.public.t"]
    low.worker._close_connections()
    low.close()
    locate(chain, NOWHERE)
    low.renew()
    failpoint.set_hook(None)


def require_copied(chain: Chain) -> None:
    """The leaf has its table from the root, and goes on; the branch may be gone."""
    low = chain["n3"]
    assert until(lambda: chain.tick() and chain.states("n3") == {"public.t": "ok"}, PATIENCE)
    change(chain, 2)
    tick = chain.tick()
    assert until(lambda: low.position >= tick, PATIENCE)
    assert len(chain.require_same("t", "n3")) > 10
    names = "select consumer_name from pgq_node.local_state"
    assert until(lambda: [r[0] for r in low.db.query(names)] == ["n3_job"], PATIENCE)
    assert copies_on(chain["n1"]) == []
    assert provider(low) == ("n1", False, {})


@pytest.mark.draw("branches")
@pytest.mark.parametrize("command", ["change-provider", "drop-node"])
def test_copies_of_a_provider_that_is_gone_begin_anew(
    make_chain: MakeChain, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    chain = filled(make_chain)
    copy_from_the_branch(chain, copy_node="n2")
    change(chain, 1)
    with running(chain["n3"]):
        if command == "drop-node":
            with chain["n1"].session() as session:
                drop_node(session, "n2", reparent=True)
        else:
            with chain["n3"].session() as session:
                change_provider(session, "n1", dead=["n2"])
        assert "'n3' copies from 'n1', from the beginning: public.t" in caplog.text
        attrs = chain["n3"].db.value("select table_attrs from londiste.table_info")
        assert "copy_node" not in (attrs or ""), "it is not looked for where it cannot be"
        require_copied(chain)
    assert "foreign key" not in caplog.text
    if command == "drop-node":
        return
    # the branch comes back: what the copy has left there would keep its events for ever
    locate(chain, chain["n2"].db.connstr)
    assert copies_on(chain["n2"]) == ["n3_job.copy.public.t"]
    with chain["n3"].session() as session:
        change_provider(session, "n1")
    assert (copies_on(chain["n2"]), readers_of(chain["n2"])) == ([], [])
    chain.catch_up()
    assert chain.require_same("t")


@pytest.mark.draw("branches")
def test_a_move_that_is_killed_has_set_no_copy_back(make_chain: MakeChain) -> None:
    chain = filled(make_chain)
    copy_from_the_branch(chain)
    low = chain["n3"]
    with running(low):
        with (
            killed_at("takeover.recopied") as reached,
            low.session() as session,
            pytest.raises(Killed),
        ):
            change_provider(session, "n1", dead=["n2"])
        assert reached
        assert chain.states("n3") == {"public.t": "catching-up"}
        assert provider(low) == ("n2", False, {})
        with low.session() as session:
            change_provider(session, "n1", dead=["n2"])
        require_copied(chain)


@pytest.mark.draw("branches")
def test_the_provider_is_back_before_the_switch(make_chain: MakeChain) -> None:
    """The plan says that it does not answer; its copy goes on meanwhile, and begins anew."""
    chain = filled(make_chain)
    copy_from_the_branch(chain)
    low = chain["n3"]

    def back(name: str) -> None:
        if name == "provider.subscribed":
            locate(chain, chain["n2"].db.connstr)

    failpoint.set_hook(back)
    with running(low), low.session() as session:
        change_provider(session, "n1")
        failpoint.set_hook(None)
        require_copied(chain)
    chain.catch_up()
    assert chain.require_same("t")


@pytest.mark.draw("branches")
def test_resync_needs_the_provider_only_where_it_copies_from_it(make_chain: MakeChain) -> None:
    chain = filled(make_chain)
    low = chain["n3"]
    low.worker._close_connections()
    locate(chain, NOWHERE)
    with low.session() as session:
        for options, way in (({}, "--copy-node"), ({"find_copy_node": True}, "name the node")):
            said = rf'provider "n2" of this node.* does not answer: nothing is changed; .*{way}'
            with pytest.raises(ConnectError, match=said):
                resync(session, ["public.t"], **options)  # type: ignore[arg-type]
        assert chain.states("n3") == {"public.t": "ok"}
        resync(session, ["public.t"], copy_node="n1")
        assert chain.states("n3") == {"public.t": None}
        change(chain, 1)
        with running(low):
            change_provider(session, "n1")
            require_copied(chain)


@pytest.mark.draw("branches")
def test_a_copy_from_a_node_that_lives_goes_on(
    make_chain: MakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    chain = filled(make_chain)
    low = chain["n3"]
    hold_copies()
    with low.session() as session:
        resync(session, ["public.t"], copy_node="n1")
        chain.work_until(lambda: chain.states("n3") == {"public.t": "catching-up"})
        low.close()
        locate(chain, NOWHERE)
        low.renew()
        loaded = "select merge_state, custom_snapshot from londiste.table_info"
        before = low.db.query(loaded)
        with running(low):
            change_provider(session, "n1")
            assert low.db.query(loaded) == before
            failpoint.set_hook(None)
            require_copied(chain)
    assert "from the beginning" not in caplog.text


@pytest.mark.draw("branches")
def test_rows_that_a_copy_found_are_not_copied_twice(make_chain: MakeChain) -> None:
    chain = filled(make_chain)
    low = chain["n3"]
    low.db.execute("update londiste.table_info set table_attrs = 'skip_truncate=1'")
    low.db.execute("set session_replication_role = replica; delete from t; "
                   "insert into t values (-1, 'own'); reset session_replication_role")  # fmt: skip
    copy_from_the_branch(chain)
    with running(low), low.session() as session:
        with pytest.raises(StateError, match=r"skip-truncate\): it cannot begin anew"):
            change_provider(session, "n1", dead=["n2"])
        assert provider(low) == ("n2", False, {})
        assert chain.states("n3") == {"public.t": "catching-up"}
    assert readers_of(chain["n1"]) == ["n2"]
