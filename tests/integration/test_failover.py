"""A root, or a branch, is gone: the set goes on with what is left, and nobody believes a root that
comes back, was restored, or was made a second time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest

from tests.fixtures.wait import until
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
from vedur.node.info import NodeType, get_subscriber_info
from vedur.node.state import set_consumer_paused
from vedur.ops import pause
from vedur.ops.members import SetView, read_members
from vedur.ops.session import Session
from vedur.ops.takeover import failover
from vedur.ops.takeover.verify import Verdict
from vedur.status.overview import open_reader
from vedur.status.problems import Kind, Severity, problems
from vedur.worker.roles.reign import require_reign

MakeChain = Callable[..., Chain]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]

ADD = "select * from londiste.local_add_table(%s, %s, array['expect_sync'])"


STEPS = ("tagged", "caught_up_from", "failed_over", "orphan_led")
REIGN = ("deposed", "adopted")
#: Steps at which somebody is killed here; see tests/torture/test_short.py.
KILLED = frozenset(
    (*(f"takeover.{point}"
       for point in (*STEPS, "pointed", "orphan_moved", "recopied")),
     *(f"reign.{point}" for point in REIGN))
)  # fmt: skip


class Killed(BaseException):
    """The command ends here."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """Whoever reaches it first ends there, and must."""

    def hook(name: str) -> None:
        if name == point:
            set_hook(None)
            raise Killed(name)

    set_hook(hook)
    try:
        with pytest.raises(Killed):
            yield
    finally:
        set_hook(None)


@contextmanager
def gone(chain: Chain, *names: str) -> Iterator[None]:
    """Nobody can connect to these nodes, as if their servers were down."""
    nodes = [chain[name] for name in names]
    _allow(nodes, False)
    try:
        yield
    finally:
        _allow(nodes, True)


def _allow(nodes: list[Node], allowed: bool) -> None:
    for node in nodes:
        parts = psycopg.conninfo.conninfo_to_dict(node.settings.db)
        database = str(parts.pop("dbname"))
        with connect(
            psycopg.conninfo.make_conninfo(**parts, dbname="postgres"), autocommit=True
        ) as admin:
            admin.execute(f'alter database "{database}" allow_connections {allowed}')
            if not allowed:
                node.worker._close_connections(doubtful=True)
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                    [database],
                )
        if allowed:
            node.db = connect(node.settings.db, autocommit=True)


def add_node(chain: Chain, name: str, kind: NodeType, above: str) -> None:
    """A node with the bank's tables, in sync."""
    node = chain.add(name, kind, chain.make_db(), provider=above)
    for table in ("acct", "done"):
        node.db.execute(f"create table {table} (id int primary key, n int not null)")
    node.db.execute("insert into acct select i, 100 from generate_series(0, 39) i")
    for table in ("acct", "done"):
        node.db.query(ADD, [QUEUE, f"public.{table}"])
    chain.catch_up()  # all nodes know it now


def test_the_root_is_gone(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain) as life:
        settle(chain)
        life.stop("n1")
        with gone(chain, "n1"):
            move(chain, "n1", "n2", dead_root=True)
            assert chain["n2"].db.value("select vedur.is_root()")
            chain["n2"].db.execute("update acct set n = n + (-1) ^ id")
            newest = "select last_tick_id from pgq.get_queue_info(%s)"
            tick = int(chain["n2"].db.value(newest, [QUEUE])) + 2
            assert until(lambda: chain["n3"].position >= tick, PATIENCE)
            require_equal(chain, "n2", "n3")
            place = chain["n2"].db.one(
                "select last_tick from pgq.get_consumer_info(%s, 'n1.gravestone')", [QUEUE]
            )
            assert place.last_tick == reign(chain, "n2").first_tick
            assert reign(chain, "n3") == reign(chain, "n2")
            move(chain, "n1", "n2", dead_root=True)  # again: nothing is left to do
            told = len(life.errors)
            chain["n2"].db.execute("update acct set n = n - (-1) ^ id")
            tick = int(chain["n2"].db.value(newest, [QUEUE])) + 2
            assert until(lambda: chain["n3"].position >= tick, PATIENCE)
            assert life.errors[told:] == []


def test_a_root_that_answers_is_not_dead(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        with pytest.raises(StateError, match="answers, so it is not dead"):
            move(chain, "n1", "n2", dead_root=True)
        assert roots(chain) == ["n1"]


@pytest.mark.draw("takeovers")
def test_the_new_root_catches_up_from_the_survivor_that_has_most(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)  # n1, branch n2
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    add_node(chain, "n4", NodeType.LEAF, "n1")
    chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
    tick = chain.tick()
    for name in ("n3", "n4"):  # n2 has not got it
        while chain[name].worker.work():
            pass
        assert chain[name].position == tick
    assert chain["n2"].position < tick
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain):
            move(chain, "n1", "n2", dead_root=True)
            assert [provider(chain, n) for n in ("n3", "n4")] == ["n2", "n2"]
            settle(chain)
            require_equal(chain, "n2", "n3", "n4")
            assert chain["n2"].db.value("select count(*) from acct where n <> 100") == 40


READERS = """
select c.co_name
from pgq.subscription s join pgq.consumer c on c.co_id = s.sub_consumer
where c.co_name in ('n2_job', '.n2.watermark')
"""


@pytest.mark.parametrize("below", ["n1", "n3"])
def test_the_new_root_reads_from_nobody_any_more(make_chain: MakeChain, below: str) -> None:
    """What a survivor kept for it would hold back the queues of all nodes for ever. It has caught
    up from n3, which was its provider, or became it for that."""
    chain = make_bank(make_chain, 1, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    add_node(chain, "n2", NodeType.BRANCH, below)
    chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
    chain.tick()
    while chain["n3"].worker.work():
        pass
    assert chain["n2"].position < chain["n3"].position
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain):
            move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
            assert chain["n3"].db.query(READERS) == []
            assert (roots(chain), provider(chain, "n3")) == (["n2"], "n2")
            settle(chain)
            require_equal(chain)


@pytest.mark.parametrize(
    ("point", "epochs"), [("pointed", True), ("failed_over", True), ("failed_over", False)]
)
def test_a_leaf_that_has_more_than_all_branches_is_named(
    make_chain: MakeChain, caplog: pytest.LogCaptureFixture, point: str, epochs: bool
) -> None:
    """Killed before it was pointed, too: the new root comes to a tick of the same number, which is
    not what the leaf has applied."""
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.LEAF, "n1")
    chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
    tick = chain.tick()
    while chain["n3"].worker.work():
        pass
    assert chain["n2"].position < tick == chain["n3"].position
    if not epochs:
        for node in chain.nodes:
            node.db.execute("delete from vedur.reign")
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain) as life:
            with killed_at(f"takeover.{point}"):
                move(chain, "n1", "n2", dead_root=True)
            chain["n2"].db.execute("update acct set n = n - (-1) ^ id")
            newest = "select last_tick_id from pgq.get_queue_info(%s)"
            assert until(lambda: chain["n2"].db.value(newest, [QUEUE]) >= tick, PATIENCE)
            assert move(chain, "n1", "n2", dead_root=True) is Verdict.NODES_LEFT
            assert "'n3' does not read from 'n2' yet: it has applied more" in caplog.text
            assert provider(chain, "n3") == "n2"
            places = get_subscriber_info(chain["n2"].db, QUEUE)
            assert "n3" not in [item.node_name for item in places]
            if not epochs:
                return
            wanted = lambda name, text: name == "n3" and '"rejoin' in text  # noqa: E731
            assert until(lambda: any(wanted(*said) for said in life.errors), PATIENCE)


ADMIN = "pgq_node.register_location(%s, 'n1', %s, false)"


@pytest.mark.draw("takeovers")
def test_who_reads_on_until_the_root_is_tagged_is_not_left_behind(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command cannot reach the root, and a branch still can: it gets more after the command has
    looked for the survivor that has most."""
    chain = make_bank(make_chain, 1, leaf=False)
    for name in ("n2", "n3"):
        add_node(chain, name, NodeType.BRANCH, "n1")
    chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
    tick = chain.tick()
    nowhere = "host=127.0.0.1 port=1 dbname=x"
    chain["n2"].db.query(f"select * from {ADMIN}", [QUEUE, nowhere])
    tag = failover.tag_dead

    def late(session: Session, view: SetView, names: tuple[str, ...], timeout: float) -> None:
        while n3.position < tick:
            n3.worker.work()
        chain.nodes.append(n3)
        life.start(n3)
        tag(session, view, names, timeout)

    monkeypatch.setattr(failover, "tag_dead", late)
    n1, n2, n3 = chain.nodes
    chain.nodes = [n2]
    with alive(chain) as life:
        move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
        assert reign(chain, "n2").first_tick >= tick
        settle(chain)
        require_equal(chain)
        assert n2.db.value("select count(*) from acct where n <> 100") == 40
    chain.nodes.append(n1)


def test_a_server_that_turns_the_command_away_is_not_dead(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    n2 = chain["n2"].db
    with alive(chain) as life:
        settle(chain)
        life.stop("n1")
        refused = with_params(chain["n1"].settings.db, user="nobody_of_that_name")
        n2.query(f"select * from {ADMIN}", [QUEUE, refused])
        tagged = "select bool_or(dead) from pgq_node.node_location"
        for kind in ("dead_root", "dead_branch"):
            with pytest.raises(StateError, match=r"answers, and refuses this command .*--dead=n1"):
                move(chain, "n1", "n2", **{kind: True})
        assert not n2.value(tagged) and not n2.value("select vedur.is_root()")
        assert move(chain, "n1", "n2", dead_root=True, dead=("n1",)) is Verdict.EQUAL
        assert n2.value(tagged) and n2.value("select vedur.is_root()")


@pytest.mark.draw("takeovers")
def test_a_copy_from_the_dead_root_begins_anew_at_the_new_one(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.LEAF, "n1")
    text = "select * from londiste.local_set_table_state(%s, 'public.acct', null, 'in-copy')"
    chain["n3"].db.query(text, [QUEUE])
    chain["n3"].db.execute(
        "set session_replication_role = replica; delete from acct where id > 10;"
        "reset session_replication_role"
    )
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain):
            with killed_at("takeover.recopied"):
                move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
            verdict = move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
            assert (verdict, provider(chain, "n3")) == (Verdict.EQUAL, "n2")
            assert until(lambda: set(chain.states("n3").values()) == {"ok"}, PATIENCE)
            settle(chain)
            require_equal(chain)


@pytest.mark.draw("takeovers")
def test_what_the_new_root_lacks_can_be_given_up(make_chain: MakeChain) -> None:
    """Nobody can add a table without a root: the reasons have statements that end them."""
    chain = make_bank(make_chain, 2, leaf=False)
    n2 = chain["n2"].db
    for node in chain.nodes:
        node.db.execute('create table "it\'s" (id serial primary key)')
        if node.name == "n2":
            node.db.query("select * from londiste.global_add_table(%s, 'public.it''s')", [QUEUE])
        text = "select * from londiste.local_add_table(%s, 'public.it''s', array['expect_sync'])"
        node.db.query(text, [QUEUE])
    n2.query("select * from londiste.global_add_table(%s, 'public.gone')", [QUEUE])
    n2.query("select * from londiste.global_update_seq(%s, 'public.gone_seq', 1)", [QUEUE])
    chain.catch_up()
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain):
            reasons = []
            for _ in range(4):
                try:
                    move(chain, "n1", "n2", dead_root=True)
                except StateError as error:
                    reasons.append(error.message)
                    for statement in re.findall('"(select .*?\\))"', error.message):
                        n2.query(statement)
            assert [len(re.findall("without a root", r)) for r in reasons] == [1, 1, 0]
            assert "set it behind all numbers" in reasons[2]
            assert roots(chain) == ["n2"]


def test_a_worker_that_waits_after_an_error_answers_an_operator(make_chain: MakeChain) -> None:
    """Else commands that move it would give up and call a worker dead that runs."""
    chain = make_bank(make_chain, 2)
    node = chain["n2"]
    node.settings = replace(node.settings, exception_sleep=6000.0)
    node.renew()
    node.db.query("select * from pgq_node.register_location(%s, 'n1', null, true)", [QUEUE])
    chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
    chain.tick()
    thread = threading.Thread(target=node.worker.run, daemon=True)
    thread.start()
    try:
        failed = "select cur_error ~ 'tagged as dead' from pgq_node.local_state"
        assert until(lambda: bool(node.db.value(failed)), PATIENCE)
        with node.session() as session:
            set_consumer_paused(node.db, QUEUE, "n2_job", True)
            pause.wait_accepted(session, node.db, "n2", "n2_job", paused=True, max_wait=PATIENCE)
    finally:
        node.worker.signals.stop.set()
        node.worker.signals.wake.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", STEPS)
def test_killed_anywhere_the_same_command_goes_on(make_chain: MakeChain, point: str) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    add_node(chain, "n4", NodeType.LEAF, "n1")
    chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
    chain.tick()
    while chain["n3"].worker.work():
        pass

    def hook(name: str) -> None:
        if name == f"takeover.{point}":
            set_hook(None)
            raise Killed(name)

    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain):
            set_hook(hook)
            try:
                with pytest.raises(Killed):
                    move(chain, "n1", "n2", dead_root=True)
            finally:
                set_hook(None)
            assert len(roots(chain)) <= 1
            move(chain, "n1", "n2", dead_root=True)
            assert roots(chain) == ["n2"]
            assert [provider(chain, n) for n in ("n3", "n4")] == ["n2", "n2"]
            settle(chain)
            require_equal(chain, "n2", "n3", "n4")


def test_a_node_that_falls_silent_in_between_is_left_and_named(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    for name in ("n3", "n4"):
        add_node(chain, name, NodeType.LEAF, "n1")

    def hook(name: str) -> None:
        if name == "takeover.orphan_led":  # n3 is led, n4 is next
            set_hook(None)
            _allow([chain["n4"]], False)

    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain) as life:
            life.stop("n4")
            set_hook(hook)
            try:
                assert move(chain, "n1", "n2", dead_root=True) is Verdict.NODES_LEFT
            finally:
                set_hook(None)
                _allow([chain["n4"]], True)
            life.start(chain["n4"])
            move(chain, "n1", "n2", dead_root=True)
            assert [provider(chain, n) for n in ("n3", "n4")] == ["n2", "n2"]


def test_a_node_that_is_silent_must_be_named(make_chain: MakeChain) -> None:
    """It may have more than all others."""
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    with alive(chain) as life:
        for name in ("n1", "n3"):
            life.stop(name)
        with gone(chain, "n1", "n3"):
            with pytest.raises(StateError, match="nodes do not answer: n3"):
                move(chain, "n1", "n2", dead_root=True)
            move(chain, "n1", "n2", dead_root=True, dead=("n3",))
            assert chain["n2"].db.value("select vedur.is_root()")


def test_a_node_that_is_back_is_asked_although_it_is_tagged(make_chain: MakeChain) -> None:
    """It may have more than all others, and the tag is of an earlier failover."""
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    tag = "select * from pgq_node.register_location(%s, 'n3', null, true)"
    chain["n2"].db.query(tag, [QUEUE])
    with gone(chain, "n1"):
        said = r'"n3" is tagged as dead, and answers.*run "tag-alive n3".*--dead'
        with pytest.raises(StateError, match=said):
            move(chain, "n1", "n2", dead_root=True)
        assert not chain["n2"].db.value("select vedur.is_root()")


@pytest.mark.draw("takeovers")
def test_a_branch_is_gone(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n2")
    add_node(chain, "n4", NodeType.LEAF, "n2")
    with alive(chain) as life:
        settle(chain)
        life.stop("n2")
        with gone(chain, "n2"):
            with killed_at("takeover.orphan_moved"):
                move(chain, "n2", "n3", dead_branch=True, everybody=True)
            move(chain, "n2", "n3", dead_branch=True, everybody=True)
            assert (provider(chain, "n3"), provider(chain, "n4")) == ("n1", "n3")
            chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
            newest = "select last_tick_id from pgq.get_queue_info(%s)"
            tick = int(chain["n1"].db.value(newest, [QUEUE])) + 2
            for name in ("n3", "n4"):
                assert until(lambda name=name: chain[name].position >= tick, PATIENCE), name
            require_equal(chain, "n1", "n3", "n4")


# -- roots that must not be believed ---------------------------------------------------------------


def depose(chain: Chain) -> None:
    """n1 was root, wrote what nobody got, went away; n2 is root; n1 is back."""
    chain["n1"].db.execute("update acct set n = n + 1000 where id = 1")
    with gone(chain, "n1"):
        others = chain.nodes[1:]
        whole, chain.nodes = chain.nodes, others
        with alive(chain):
            move(chain, "n1", "n2", dead_root=True)
        chain.nodes = whole


def test_a_deposed_root_that_comes_back_is_closed_and_says_so(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    depose(chain)
    n1 = chain["n1"]
    assert n1.db.value("select vedur.is_root()")  # it does not know yet
    with pytest.raises(OtherEpoch, match='this root was deposed: "n2" has taken over at tick'):
        n1.worker.work()
    assert not n1.db.value("select vedur.is_root()")
    with pytest.raises(Exception, match="Insert into queue disallowed"):
        n1.db.execute("update acct set n = 0 where id = 2")
    n1.worker._close_connections(doubtful=True)
    with pytest.raises(OtherEpoch, match="resurrect"):
        n1.worker.work()
    assert roots(chain) == ["n2"]


@pytest.mark.draw("takeovers")
@pytest.mark.parametrize("point", REIGN)
def test_a_root_that_is_killed_when_it_learns_it_learns_it_again(
    make_chain: MakeChain, point: str
) -> None:
    chain = make_bank(make_chain, 3)
    if point == "deposed":
        depose(chain)
    else:
        chain["n1"].db.execute("update vedur.reign set root_node = 'n9'")

    def hook(name: str) -> None:
        if name == f"reign.{point}":
            set_hook(None)
            raise Killed(name)

    n1 = chain["n1"]
    set_hook(hook)
    try:
        with pytest.raises(Killed):
            n1.worker.work()
    finally:
        set_hook(None)
    n1.renew()
    if point == "deposed":
        with pytest.raises(OtherEpoch, match="was deposed"):
            n1.worker.work()
    else:
        n1.worker.work()
        found = n1.db.query("select kind, root_node from vedur.reign order by serial")
        assert [tuple(row) for row in found] == [("created", "n9"), ("adopted", "n1")]


def test_status_is_red_for_a_deposed_root_and_names_the_way_out(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    depose(chain)
    n1 = chain["n1"]
    with pytest.raises(OtherEpoch) as refused:
        n1.worker.work()
    n1.worker._recovery.report(n1.settings, refused.value)
    reader = open_reader(n1.settings, "test")
    try:
        found = [p for p in problems(reader.read()) if p.kind is Kind.WORKER and p.node == "n1"]
    finally:
        reader.close()
    assert [p.severity for p in found] == [Severity.FAIL]
    assert "was deposed" in found[0].what
    assert "resurrect" in found[0].action


def test_nobody_reads_from_a_deposed_root(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    depose(chain)
    with alive(chain) as life:
        assert until(lambda: reign(chain, "n3").root == "n2", PATIENCE)
        life.stop("n3")
    n1, n3 = chain["n1"], chain["n3"]
    tick = n3.position
    n3.db.execute("update pgq_node.local_state set provider_node = 'n1'")
    top = n1.db.value("select max(tick_id) from pgq.tick")
    n1.db.query("select * from pgq_node.register_subscriber(%s, 'n3', 'n3_job', %s)", [QUEUE, top])
    n3.renew()
    with pytest.raises(OtherEpoch, match='provider "n1" follows root "n1"'):
        n3.worker.work()
    assert n3.position == tick


@pytest.mark.draw("takeovers")
def test_two_promotions_are_not_believed(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    add_node(chain, "n3", NodeType.BRANCH, "n1")
    add_node(chain, "n4", NodeType.LEAF, "n2")
    chain.catch_up()
    promote = "select * from vedur.promote(%s, gen_random_uuid(), 'failover', %s)"
    for name in ("n2", "n3"):
        assert chain[name].db.one(promote, [QUEUE, chain[name].position]).ret_code == 200
    n4 = chain["n4"]
    chain["n2"].db.execute("update acct set n = n + (-1) ^ id")
    chain["n2"].db.value("select pgq.force_tick(%s)", [QUEUE])
    chain["n2"].db.value("select pgq.ticker(%s)", [QUEUE])
    while n4.worker.work():
        pass
    assert reign(chain, "n4").root == "n2"
    tick = n4.position
    n4.db.execute("update pgq_node.local_state set provider_node = 'n3'")
    for _ in range(3):
        chain["n3"].db.value("select pgq.force_tick(%s)", [QUEUE])
        chain["n3"].db.value("select pgq.ticker(%s)", [QUEUE])
    chain["n3"].db.query("select * from pgq_node.register_location(%s, 'n4', %s, false)",
                         [QUEUE, n4.settings.db])  # fmt: skip
    chain["n3"].db.query(
        "select * from pgq_node.register_subscriber(%s, 'n4', 'n4_job', %s)", [QUEUE, tick]
    )
    n4.renew()
    with pytest.raises(OtherEpoch, match="two nodes were made root"):
        n4.worker.work()
    assert n4.position == tick
    for name in ("n2", "n3"):
        node = chain[name]
        with pytest.raises(OtherEpoch, match="two nodes were made root"):
            node.worker.work()


def test_a_root_that_was_restored_says_so(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    chain.catch_up()
    n1 = chain["n1"]
    newest = n1.db.value("select max(tick_id) from pgq.tick")
    n1.db.execute("delete from pgq.tick where tick_id = %s", [newest])  # as an older backup has it
    with pytest.raises(StateError, match="this database was restored from an older backup"):
        n1.worker.work()


def test_a_set_without_epoch_works_and_gets_one_with_its_first_takeover(
    make_chain: MakeChain,
) -> None:
    chain = make_bank(make_chain, 3)
    for node in chain.nodes:
        node.db.execute("delete from vedur.reign")
        assert node.db.value("select vedur.epoch()") is None
    with alive(chain) as life:
        settle(chain)
        move(chain, "n1", "n2")
        settle(chain)
        require_equal(chain)
        assert {node.db.value("select vedur.epoch()") for node in chain.nodes} != {None}
        assert len({node.db.value("select vedur.epoch()") for node in chain.nodes}) == 1
    assert life.errors == []


def test_a_promotion_by_another_program_gets_an_epoch(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain) as life:
        settle(chain)
        life.stop("n1")
        n1, n2 = chain["n1"].db, chain["n2"].db
        for step in (1, 2):
            n1.query("select * from pgq_node.demote_root(%s, %s, 'n2')", [QUEUE, step])
        top = n1.value("select max(tick_id) from pgq.tick")
        assert until(lambda: chain["n2"].position == top, PATIENCE)
        n2.query("select * from pgq_node.promote_branch(%s)", [QUEUE])
        n2.query("select * from pgq_node.register_subscriber(%s, 'n1', 'n1_job', %s)", [QUEUE, top])
        n1.query("select * from pgq_node.unregister_subscriber(%s, 'n2')", [QUEUE])
        n1.query("select * from pgq_node.demote_root(%s, 3, 'n2')", [QUEUE])
        life.start(chain["n1"])
        assert until(lambda: reign(chain, "n2").kind == "adopted", PATIENCE)
        settle(chain)
        assert {reign(chain, name).root for name in ("n1", "n2", "n3")} == {"n2"}


def test_a_new_node_knows_the_epoch_and_a_renamed_root_keeps_it(make_chain: MakeChain) -> None:
    from vedur.ops.rename_node import rename_node

    chain = make_bank(make_chain, 3)
    assert len({reign(chain, n).epoch for n in ("n1", "n2", "n3")}) == 1
    with alive(chain):
        with chain["n2"].session() as session:
            rename_node(session, "n1", "first")
        with chain["n2"].session() as session:
            assert read_members(session).members["first"].is_root
    state = chain["n1"].worker._read_state(chain["n1"].db)
    require_reign(chain["n1"].db, state, chain["n1"].settings)  # nothing to say, nothing adopted
    assert [r.serial for r in [reign(chain, "n1")]] == [1]
    assert reign(chain, "n1").root == "first"
