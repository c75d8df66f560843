"""resurrect: a root that was replaced comes back; nothing that only it had is forgotten."""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.integration.test_dead_subsets import allow
from tests.integration.test_other_history import rest
from tests.labs.backup import Backup
from tests.labs.chain import Chain, Node, make_chain
from tests.labs.five import require_same_queue
from tests.labs.in_process import without_spark
from tests.labs.moving_root import PATIENCE, Life, alive, move, provider, reign, roots
from tests.labs.pair import QUEUE
from vedur.catalog.lost_events import get_lost_events
from vedur.change.event import parse_type
from vedur.cli.grammar import Call
from vedur.cli.resurrect import lost_events
from vedur.errors import StateError, UsageError
from vedur.failpoint import POINTS, set_hook
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.drop_node import drop_node
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.ops.resurrect.run import Resurrected, ResurrectOptions, resurrect
from vedur.sql import query

__all__ = ["make_chain", "without_spark"]

MakeChain = Callable[..., Chain]

#: Steps at which the command is killed here; see tests/torture/test_short.py.
KILLED = frozenset(f"resurrect.{what}" for what in POINTS["resurrect"])


class Killed(BaseException):
    """The command ends here."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    def hook(name: str) -> None:
        if name == point:
            raise Killed(point)

    set_hook(hook)
    try:
        with pytest.raises(Killed, match=point):
            yield
    finally:
        set_hook(None)


def make_set(make_chain: MakeChain, **more: object) -> Chain:
    """n1 root, n2 branch, n3 leaf; row 1 is everywhere, what comes later on n1 only."""
    chain = make_chain(3, **more)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.table("public.u", "create table u (id int primary key, v text)")
    chain.root.execute("insert into t values (1, 'all'); insert into u values (1, 'all')")
    chain.catch_up()
    chain.root.execute("insert into t values (2, 'lost: it''s')")
    chain.tick()
    chain.root.execute("update t set v = 'lost' where id = 1")
    return chain


@contextmanager
def replaced(chain: Chain) -> Iterator[Life]:
    """n2 is root; n1 is there again, with a worker that runs, and has not been told."""
    old = chain["n1"]
    chain.nodes.remove(old)
    allow(old, False)
    with alive(chain) as life:
        move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
        chain["n2"].db.execute("insert into t values (3, 'new'); delete from u where id = 1")
        allow(old, True)
        chain.nodes.append(old)
        life.start(old)
        yield life


def run(node: Node, **options: object) -> Resurrected:
    with node.session() as session:
        return resurrect(session, ResurrectOptions(**options), node.spark)  # type: ignore[arg-type]


def rows(node: Node, table: str = "t") -> list[tuple[int, str]]:
    return [tuple(row) for row in node.db.query(f"select id, v from {table} order by 1")]


def kept(node: Node) -> list[tuple[str, object]]:
    return [_short(e.ev_type, e.ev_data) for e in get_lost_events(node.db, QUEUE)]


def _short(ev_type: str | None, data: str | None) -> tuple[str, object]:
    return parse_type(ev_type).op, json.loads(data or "null")


LOST = [("I", {"id": 2, "v": "lost: it's"}), ("U", {"id": 1, "v": "lost"})]


@pytest.mark.draw("takeovers")
@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_it_goes_on_after_a_kill_at_each_step_and_keeps_everything_once(
    make_chain: MakeChain,
) -> None:
    chain = make_set(make_chain)
    with replaced(chain) as life:
        old = chain["n1"]
        seen = run(old, dry_run=True)
        assert (seen.root, seen.lost, seen.done) == ("n2", {"public.t": 2}, False)
        assert kept(old) == []
        points = [f"resurrect.{what}" for what in POINTS["resurrect"] if what != "saved"]
        for point in points[:-1]:
            with killed_at(point):
                run(old, keep_rows=True)
            turned = point in ("resurrect.turned", "resurrect.subscribed")
            assert (provider(chain, "n1") == "n2") is turned, point
            assert kept(old) == (LOST if turned else []), point
        with killed_at("resurrect.finished"):
            chain["n2"].db.execute(
                "select pgq.register_consumer(%s, 'n1.gravestone')", [QUEUE]
            )  # as if the kill before had come earlier
            run(old, keep_rows=True)
        assert run(old, keep_rows=True).tick is None
        assert kept(old) == LOST
        assert until(lambda: (3, "new") in rows(old), PATIENCE), life.errors
        assert roots(chain) == ["n2"]
        # rows of lost events stay with --keep-rows, and nothing else differs
        assert rows(old) == [(1, "lost"), (2, "lost: it's"), (3, "new")]
        assert rows(old, "u") == []
        with pytest.raises(psycopg.errors.RaiseException), psycopg.connect(old.settings.db) as db:
            db.execute("insert into t values (99, 'nobody would get it')")
        grave = (
            "select count(*) from pgq.get_consumer_info(%s) where consumer_name like '%%grave%%'"
        )
        assert chain["n2"].db.value(grave, [QUEUE]) == 0
        assert not old.db.value("select exists (select from vedur.deposed)")
        assert until(lambda: old.position == chain["n3"].position, PATIENCE)
        first = int(old.db.value("select max(first_tick) from vedur.reign"))
        require_same_queue(chain, old, chain["n2"], first)


@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_a_writer_with_an_old_snapshot_is_waited_for_and_its_event_kept(
    make_chain: MakeChain,
) -> None:
    chain = make_set(make_chain)
    old = chain["n1"]
    with replaced(chain):
        # the root's worker has closed the queue when it saw the other one; open it to let a writer
        # in who has not noticed
        assert until(
            lambda: bool(old.db.value("select exists (select from vedur.deposed)")), PATIENCE
        )
        with psycopg.connect(old.settings.db) as writer:

            def gets_in() -> bool:
                """The new root's worker closes the old one, too, and may do so in between."""
                writer.rollback()
                old.db.execute("update pgq.queue set queue_disable_insert = false")
                writer.execute("begin isolation level repeatable read")
                closed = "select bool_or(queue_disable_insert) from pgq.queue"
                return writer.execute(closed).fetchone() == (False,)

            assert until(gets_in, PATIENCE)
            with pytest.raises(StateError, match=f"pid {writer.info.backend_pid}"):
                run(old, keep_rows=True, timeout=0.5)
            assert kept(old) == []
            done: list[Resurrected] = []
            thread = threading.Thread(target=lambda: done.append(run(old, keep_rows=True)))
            thread.start()
            writer.execute("insert into t values (50, 'late')")
            writer.commit()
            thread.join(PATIENCE)
        assert done and done[0].tick is not None
        assert kept(old)[-1] == ("I", {"id": 50, "v": "late"})


@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_what_is_refused(make_chain: MakeChain) -> None:
    chain = make_set(make_chain)
    with pytest.raises(StateError, match='no node has taken over from "n1"'):
        run(chain["n1"])
    with pytest.raises(StateError, match='"n3" is a leaf: "rejoin"'):
        run(chain["n3"])
    assert run(chain["n2"]).done, "a branch that is where it should be has nothing to do"
    with replaced(chain) as life:
        old, tick = chain["n1"], "delete from pgq.tick where tick_id <= %s"
        first = chain["n2"].db.value("select max(first_tick) from vedur.reign")
        with chain["n2"].db.transaction():
            before = chain["n2"].db.query("select * from pgq.tick where tick_id <= %s", [first])
            chain["n2"].db.execute(tick, [first])
        assert before
        assert not run(old, dry_run=True).done
        assert kept(old) == []
        with killed_at("resurrect.saved"):
            run(old)
        for _ in range(2):
            with pytest.raises(StateError, match=f'root "n2" no longer has tick {first}, nor'):
                run(old)
            # the node must be made anew: what its queue alone has must outlive that
            assert kept(old) == LOST
        assert provider(chain, "n1") == "n1"
        life.stop("n1")
        old.db.execute("select pgq_node.drop_node(%s, 'n1')", [QUEUE])
        assert kept(old) == LOST


@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", ["fewer ticks", "more ticks", "no common tick"])
def test_a_root_that_was_restored_keeps_what_it_has_written_since(
    make_chain: MakeChain, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own ticks have numbers that other nodes know as those of other ticks."""
    chain = make_chain(3)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.table("public.u", "create table u (id int primary key, v text)")
    chain.root.execute("insert into u values (1, 'all')")
    chain.catch_up()
    old = chain["n1"]
    rest(chain)
    backup, before = Backup(old, old.db), int(old.db.value("select max(tick_id) from pgq.tick"))
    for number in (10, 11, 12):
        chain.root.execute("insert into t values (%s, 'forgotten')", [number])
        chain.tick()
        chain.catch_up()
    rest(chain)
    backup.restore()
    old.db.execute("insert into t values (20, 'only here')")
    chain.tick()
    for _ in range(0 if case == "fewer ticks" else 9):
        chain.tick()
    old.db.execute("insert into t values (21, 'only here')")
    with replaced(chain) as life:
        first = int(chain["n2"].db.value("select max(first_tick) from vedur.reign"))
        reached = int(old.db.value("select max(tick_id) from pgq.tick"))
        assert before < first
        assert (reached < first) is (case == "fewer ticks")
        mine = [("I", {"id": 20, "v": "only here"}), ("I", {"id": 21, "v": "only here"})]
        assert run(old, dry_run=True).lost == {"public.t": 2}
        if case == "no common tick":
            chain["n2"].db.execute("delete from pgq.tick where tick_id <= %s", [before])
            with pytest.raises(StateError, match="all that are there, are kept now"):
                run(old)
            newest = list(get_lost_events(old.db, QUEUE))[-2:]
            assert [_short(e.ev_type, e.ev_data) for e in newest] == mine
            return
        done = run(old, keep_rows=True)
        assert (done.root, done.tick, done.lost) == ("n2", before, {"public.t": 2})
        assert "This node was set back" in caplog.text
        assert kept(old) == mine
        assert until(lambda: (3, "new") in rows(old), PATIENCE), life.errors
        assert {10, 11, 12} <= {number for number, _ in rows(old)}, "what the backup did not have"
        assert rows(old, "u") == []


@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_a_new_root_that_was_restored_does_not_know_that_it_is_root(make_chain: MakeChain) -> None:
    """Everybody names the one way out, and it works."""
    chain = make_chain(2, leaf=False)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.root.execute("insert into t values (1, 'all')")
    chain.catch_up()
    n1, n2 = chain["n1"], chain["n2"]
    rest(chain)
    backup = Backup(n2, n2.db)
    with alive(chain):
        move(chain, "n1", "n2", timeout=PATIENCE)
        n2.db.execute("insert into t values (2, 'new')")
        assert until(lambda: (2, "new") in rows(n1), PATIENCE)
    rest(chain)
    backup.restore()
    said = r'node "n2" is root since .* takeover n2 --dead-root --node=NODE .*"resurrect" on it'
    n1.renew()
    with pytest.raises(StateError, match='run "rejoin" on this node, it says what'):
        n1.worker.work()
    for node in chain.nodes:
        with pytest.raises(StateError, match=said), node.session() as session:
            rejoin(session, RejoinOptions())
        with pytest.raises(StateError, match=said):
            run(node)
    chain.nodes.remove(n2)
    allow(n2, False)
    with alive(chain) as life:
        move(chain, "n2", "n1", dead_root=True, timeout=PATIENCE)
        n1.db.execute("insert into t values (3, 'newest')")
        allow(n2, True)
        chain.nodes.append(n2)
        life.start(n2)
        assert run(n2, keep_rows=True).root == "n1"
        want = [(1, "all"), (2, "new"), (3, "newest")]
        assert until(lambda: rows(n2) == want, PATIENCE), life.errors
        assert (roots(chain), graves(chain)) == (["n1"], {"n1": [], "n2": []})


GRAVES = "select consumer_name from pgq.get_consumer_info(%s) where consumer_name like '%%grave%%'"


def graves(chain: Chain) -> dict[str, list[str]]:
    """The gravestones of each node."""
    return {n.name: sorted(r[0] for r in n.db.query(GRAVES, [QUEUE])) for n in chain.nodes}


@pytest.mark.draw("takeovers")
@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_a_root_that_comes_back_after_the_next_takeover_leaves_no_gravestone(
    make_chain: MakeChain,
) -> None:
    """The root that has kept events for it is a branch by then."""
    chain = make_set(make_chain, leaf=False)
    # a first copy of n3 was under way; nobody else knows of the other consumer
    for consumer in ("n3_job.copy.public.t", "other.copy.public.t"):
        chain.root.call("pgq.register_consumer", QUEUE, consumer)
    with replaced(chain):
        move(chain, "n2", "n3", timeout=PATIENCE)
        assert graves(chain)["n2"] == ["n1.gravestone"]
        done = run(chain["n1"], keep_rows=True)
        assert (done.root, done.events) == ("n3", 2)
        assert graves(chain) == {"n1": [], "n2": [], "n3": []}
        copies = chain["n1"].db.query(query("resurrect", "copies"), [QUEUE])
        assert [row.consumer for row in copies] == ["other.copy.public.t"]
        assert until(lambda: (3, "new") in rows(chain["n1"]), PATIENCE)


@pytest.mark.draw("takeovers")
@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_two_roots_that_were_lost_one_after_the_other_come_back(make_chain: MakeChain) -> None:
    chain = make_set(make_chain, leaf=False)
    first, second = chain["n1"], chain["n2"]
    for node, new in ((first, "n2"), (second, "n3")):
        chain.nodes.remove(node)
        allow(node, False)
        with alive(chain):
            move(chain, node.name, new, dead_root=True, timeout=PATIENCE)
            assert until(lambda new=new: reign(chain, "n3").root == new, PATIENCE)
    assert graves(chain) == {"n3": ["n1.gravestone", "n2.gravestone"]}
    for node in (second, first):
        allow(node, True)
        chain.nodes.append(node)
    with alive(chain):
        chain["n3"].db.execute("insert into t values (4, 'newest')")
        # n2 comes back first: what it has kept for n1, which is still away, is no use to anybody
        # once n1 is back, too
        for node in (second, first):
            assert run(node, keep_rows=True).root == "n3"
        assert kept(first) == LOST
        assert graves(chain)["n3"] == graves(chain)["n2"] == []
        for node in (second, first):
            assert until(lambda node=node: (4, "newest") in rows(node), PATIENCE), node.name


@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_a_root_that_is_dropped_leaves_no_gravestone(make_chain: MakeChain) -> None:
    chain = make_set(make_chain)
    with replaced(chain) as life:
        life.stop("n1")
        chain.nodes.remove(chain["n1"])
        consumers = "select consumer_name from pgq.get_consumer_info(%s)"
        for kept_for_it in (True, False):
            names = {row.consumer_name for row in chain["n2"].db.query(consumers, [QUEUE])}
            assert ("n1.gravestone" in names) is kept_for_it
            if kept_for_it:
                with chain["n3"].session() as session:
                    drop_node(session, "n1")


def listed(node: Node, capsys: pytest.CaptureFixture[str], **options: object) -> tuple[int, str]:
    given = {"format": None, "forget": False, "yes": False, **options}
    call = Call("londiste3", "n1.ini", None, (), Namespace(**given))
    code = lost_events(call, node.settings)
    return code, capsys.readouterr().out


@pytest.mark.usefixtures("without_spark")
@pytest.mark.timeout(600)
def test_lost_events_are_listed_exported_and_forgotten(
    make_chain: MakeChain, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = make_set(make_chain)
    with replaced(chain):
        old = chain["n1"]
        assert listed(old, capsys) == (0, "")
        run(old, keep_rows=True)
        capsys.readouterr()
        code, text = listed(old, capsys)
        assert code == 1
        assert "insert into" in text.splitlines()[0]
        _, text = listed(old, capsys, format="json")
        found = [json.loads(line) for line in text.splitlines()]
        assert [_short(e["ev_type"], e["ev_data"]) for e in found] == LOST
        assert all(e["tick_id"] is None or e["tick_id"] > e["first_tick"] for e in found)
        assert found[0]["tick_id"] is not None
        _, text = listed(old, capsys, format="sql")
        with psycopg.connect(chain["n2"].settings.db) as new:
            new.execute(text)  # type: ignore[arg-type]
        assert rows(chain["n2"])[:2] == [(1, "lost"), (2, "lost: it's")]
        with pytest.raises(UsageError, match="say --yes"):
            listed(old, capsys, forget=True)
        with pytest.raises(UsageError, match="text, json, sql"):
            listed(old, capsys, format="xml")
        listed(old, capsys, forget=True, yes=True)
        assert kept(old) == []


@pytest.mark.draw("takeovers")
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_tables_are_made_equal_without_a_copy(make_chain: MakeChain, spark: object) -> None:
    chain = make_set(make_chain, spark=spark)
    with replaced(chain):
        old = chain["n1"]
        with killed_at("rejoin.repaired"):
            run(old)
        assert None in chain.states("n1").values(), "one table is left"
        done = run(old)
        assert len(done.tables) == 1
        assert set(chain.states("n1").values()) == {"ok"}
        assert kept(old) == LOST
        chain["n2"].db.execute("insert into t values (4, 'after')")
        assert until(lambda: (4, "after") in rows(old), PATIENCE)
        for table in ("t", "u"):
            assert rows(old, table) == rows(chain["n2"], table)
        with old.session() as session:
            assert compare(session, CompareOptions(), spark).bad == 0  # type: ignore[arg-type]
        removed = "select old_row ->> 'v' from vedur.repair_log where action = 'delete'"
        assert [row[0] for row in old.db.query(removed)] == ["lost: it's"] or len(
            old.db.query(removed)
        ) == 2
