"""Who is root, and what has it: a takeover that was begun and a failover on top of it, a successor
that is lost, a root that was restored, sequences, and everything that must be so at the promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.integration.test_failover import gone
from tests.integration.test_takeover import Killed, actions, no_cleaning
from tests.labs.backup import Backup
from tests.labs.chain import Chain, Node
from tests.labs.moving_root import (
    PATIENCE,
    alive,
    make_bank,
    move,
    provider,
    reign,
    roots,
    settle,
)
from tests.labs.pair import QUEUE
from vedur.catalog.lost_events import get_lost_events
from vedur.db.conninfo import with_params
from vedur.errors import OtherEpoch, RefusedError, StateError
from vedur.failpoint import set_hook
from vedur.node.state import set_consumer_paused
from vedur.ops.members import read_members
from vedur.ops.resurrect.run import ResurrectOptions, resurrect
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import _Live, check_switchover, takeover

__all__ = ["no_cleaning"]

MakeChain = Callable[..., Chain]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]

#: Steps at which the command is killed here; see tests/torture/test_short.py.
KILLED = frozenset({"takeover.kept"})

NEWEST = "select last_tick_id from pgq.get_queue_info(%s)"


@contextmanager
def at(**doing: Callable[[], None]) -> Iterator[None]:
    """Do something at steps of a takeover."""

    def hook(name: str) -> None:
        step = doing.get(name.removeprefix("takeover."))
        if step is not None:
            step()

    set_hook(hook)
    try:
        yield
    finally:
        set_hook(None)


def die() -> None:
    """The command ends here."""
    set_hook(None)
    raise Killed("planted")


def abort(node: Node, old: str, *dead: str) -> None:
    """Run takeover --abort with the ini of a node."""
    with node.session() as session:
        takeover(session, old, TakeoverOptions(abort=True, dead=dead, compare=False))


def bring_back(node: Node) -> int:
    """Run resurrect with the ini of a node; returns how many events it keeps."""
    with node.session() as session:
        return resurrect(session, ResurrectOptions(keep_rows=True, timeout=PATIENCE)).events


def test_a_failover_into_a_takeover_that_was_begun(
    make_chain: MakeChain, no_cleaning: None
) -> None:
    """n1 is closed for n2, which has not got its last events; n1 is lost, and n2 replaces it. The
    note on n1 names n2, and n2 is root: even so that takeover must not be finished, nor undone."""
    chain = make_bank(make_chain, 3)
    n1, n2 = chain["n1"], chain["n2"]
    with alive(chain) as life:

        def write_what_nobody_gets() -> None:
            life.stop("n2")
            n1.db.execute("update acct set n = n + 1000 where id = 1")

        with at(caught_up=write_what_nobody_gets, ticked=die), pytest.raises(Killed):
            move(chain, "n1", "n2")
        life.stop("n1")
    last = int(n1.db.value(NEWEST, [QUEUE]))
    assert n2.position < last
    with gone(chain, "n1"):
        chain.nodes.remove(n1)
        with alive(chain):
            move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
            while int(n2.db.value(NEWEST, [QUEUE])) <= last:  # it has a tick of that number, too
                settle(chain)
            n2.db.execute("update pgq.queue set queue_disable_insert = true")
            with pytest.raises(StateError, match=r'"n2" is closed for a takeover.*--abort'):
                move(chain, "n1", "n2", dead_root=True)
            n2.db.execute("update pgq.queue set queue_disable_insert = false")
    with alive(chain) as life:
        chain.nodes.insert(0, n1)  # it is back, and its worker does not run yet
        said = r'in place of "n1".*run "resurrect"'
        with n1.session() as session, pytest.raises(StateError, match=said):
            takeover(session, "n1", TakeoverOptions(node="n2", compare=False))
        with pytest.raises(StateError, match=said):
            abort(n1, "n1")
        barred = n2.db.one("select * from vedur.bar_epoch(%s, gen_random_uuid())", [QUEUE])
        assert barred.ret_code == 409
        assert (roots(chain), n1.db.value("select node_type from pgq_node.node_info")) == (
            ["n2"], "root")  # fmt: skip
        # its worker learns it although it is paused, and the others are tagged as dead there
        n1.db.execute("update pgq_node.node_location set dead = node_name <> 'n1'")
        set_consumer_paused(n1.db, QUEUE, "n1_job", True)
        n1.renew()
        with pytest.raises(OtherEpoch, match='this root was deposed: "n2"') as refused:
            n1.worker.work()
        n1.worker._recovery.report(n1.settings, refused.value)
        assert any("resurrect" in action for action in actions(chain, "n1"))
        set_consumer_paused(n1.db, QUEUE, "n1_job", False)
        n1.db.execute("update pgq_node.node_location set dead = false")
        n1.renew()
        life.start(n1)
        assert bring_back(n1) >= 1
        kept = [event.ev_data for event in get_lost_events(n1.db, QUEUE)]
        assert any("1100" in (data or "") for data in kept), kept
        assert provider(chain, "n1") == "n2"


@pytest.mark.draw("takeovers")
def test_a_third_node_was_made_root_meanwhile(make_chain: MakeChain, no_cleaning: None) -> None:
    """The takeover by n2 goes on until it times out, and must not open n1 again: n3 is root."""
    chain = make_bank(make_chain, 3, leaf=False)
    n1, n3 = chain["n1"], chain["n3"]
    with alive(chain) as life:
        with at(closed=die), pytest.raises(Killed):
            move(chain, "n1", "n2")
        life.stop("n1")
        life.stop("n3")
        promote = "select * from vedur.promote(%s, gen_random_uuid(), 'failover', %s)"
        fails = lambda: n3.db.one(promote, [QUEUE, n3.position])  # noqa: E731
        assert until(lambda: fails().ret_code == 200, PATIENCE), fails()
        with pytest.raises(StateError, match=r'"n3" was made root in place of "n1"'):
            move(chain, "n1", "n2")
        with pytest.raises(StateError, match=r'"n3" was made root in place of "n1"'):
            abort(n1, "n1")
        assert roots(chain) == ["n3"]
        # the same where it is found out only when the command fails
        with n1.session() as session:
            live = _Live(session, read_members(session), "n1", "n2", TakeoverOptions())
            live._undo(StateError("planted"))
        assert roots(chain) == ["n3"]


def test_a_root_is_kept_whose_successor_is_lost(make_chain: MakeChain, no_cleaning: None) -> None:
    chain = make_bank(make_chain, 3)
    n1, n2, n3 = chain.nodes
    with alive(chain) as life:
        with at(promoted=die), pytest.raises(Killed):
            move(chain, "n1", "n2")
        assert until(lambda: reign(chain, "n3").root == "n2", PATIENCE)
        for name in ("n1", "n2", "n3"):
            life.stop(name)
    with gone(chain, "n2"):
        with pytest.raises(StateError, match=r'"n2" does not answer, and may be root.*--dead=n2'):
            abort(n1, "n1")
        assert not n1.db.value("select vedur.is_root()")
        with at(kept=die), pytest.raises(Killed):
            abort(n1, "n1", "n2")
        with pytest.raises(StateError, match="there is nothing to undo"):
            abort(n1, "n1", "n2")
        kept = reign(chain, "n1")
        assert (kept.kind, kept.root, kept.serial) == ("kept", "n1", 2)
        dead = "select dead from pgq_node.node_location where node_name = 'n2'"
        assert n1.db.value(dead) is True
        n1.renew()
        # n3 has read of the reign of n2, and that does not depose this root any more
        with pytest.raises(OtherEpoch, match=r'"n3" follows root "n2".*two nodes were made root'):
            n1.worker.work()
        assert n1.db.value("select vedur.is_root()")
        # the same for one that was deposed, and whose successor was lost then
        depose = "select * from vedur.depose(%s, gen_random_uuid(), 'n2', %s)"
        n1.db.one(depose, [QUEUE, n1.position])
        assert not n1.db.value("select vedur.is_root()")
        abort(n1, "n1", "n2")
        assert n1.db.value("select vedur.is_root()")
    for node in (n1, n2):  # the lost one is back: neither closes the other
        node.renew()
        with pytest.raises(OtherEpoch, match="two nodes were made root"):
            node.worker.work()
    assert roots(chain) == ["n1", "n2"]
    n1.db.one(depose, [QUEUE, n1.position])
    with pytest.raises(StateError, match='"n2" was made root in place of "n1"'):
        abort(n1, "n1", "n2")  # it is called dead, and answers
    n1.db.execute("delete from vedur.deposed")
    n1.db.execute("select vedur.reopen_root(%s)", [QUEUE])
    n1.db.execute("update pgq_node.node_location set dead = false")
    chain.nodes.remove(n3)
    with alive(chain):
        bring_back(n2)
        assert (roots(chain), provider(chain, "n2")) == (["n1"], "n1")
        settle(chain)


def test_a_restored_root_is_not_taken_over_by_numbers(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    n1, n2 = chain["n1"], chain["n2"]
    n2.worker._close_connections(doubtful=True)
    backup = Backup(n1, n1.db)
    for _ in range(3):
        n1.db.execute("update acct set n = n + (-1) ^ id")
        chain.catch_up()
    n2.worker._close_connections(doubtful=True)
    backup.restore()
    n1.db.execute("update acct set n = n + (-1) ^ id where id < 4")  # on n1 only
    ticker = with_params(n2.settings.db, application_name="pgqd")
    options = TakeoverOptions(max_lag=1.0)
    with psycopg.connect(ticker), n2.session() as session:
        reasons = check_switchover(session, options)[2]
        assert any('"n1" was restored from a backup; run "rejoin" on "n2"' in r for r in reasons)
        while int(n1.db.value(NEWEST, [QUEUE])) < n2.position - 2:
            chain.tick()
        live = _Live(session, read_members(session), "n1", "n2", options)
        with pytest.raises(StateError, match=r'is not tick .*run "rejoin" on "n2"'):
            live.catch_up()
        # nobody has looked, and its last tick has the number of the one that n2 stands at
        note = live._write_last_tick(live._close())
        assert note.tick == n2.position
        live._follow(note)
        with pytest.raises(StateError, match=f"tick {note.tick} .* is not tick {note.tick}"):
            live._promote(note)
        assert not n2.db.value("select vedur.is_root()")
        live._undo(StateError("planted"))
        assert roots(chain) == ["n1"]
        with pytest.raises(StateError, match="was undone meanwhile"):
            live._promote(note)  # one that was asleep since
        with pytest.raises(StateError, match="takeover n1 --dead-root --node=n2"):
            n1.db.execute("delete from pgq.tick where tick_id = %s", [note.tick])
            n1.renew()
            n1.worker.work()


QUARANTINE = """
insert into vedur.quarantine
    (queue_name, consumer_name, prev_tick, tick_id, ev_id, ev_txid, ev_type, holds, cause)
values (%s, 'n2_job', 1, 2, 1, 1, 'I', 'nothing', 'skipped')
"""
PROMOTE = "select * from vedur.promote(%s, gen_random_uuid(), 'takeover', %s)"
PROMOTES = "vedur.promote(text, uuid, text, bigint)"
STATE = "update londiste.table_info set merge_state = %s where table_name = 'public.acct'"


def test_every_check_is_provoked(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    n1, n2, n3 = (node.db for node in chain.nodes)
    chain.catch_up()
    for spoil, mend, said in (  # what the promotion itself looks at
        ((QUARANTINE, [QUEUE]), ("delete from vedur.quarantine", []), "in quarantine"),
        ((STATE, ["in-copy"]), (STATE, ["ok"]), 'is in state "in-copy"'),
    ):
        n2.execute(*spoil)
        refused = n2.one(PROMOTE, [QUEUE, chain["n2"].position])
        assert refused.ret_code == 409 and said in refused.ret_note
        n2.execute(*mend)
    chain.tick()
    role = f"plain_{n1.value('select pg_backend_pid()')}"
    n1.execute(f"create role {role} login in role pgq_admin, londiste_writer")
    attrs = "update londiste.table_info set table_attrs = %s where table_name = 'public.acct'"
    error = "update pgq_node.local_state set cur_error = %s where consumer_name = 'n2_job'"
    place = "update pgq_node.node_location set node_location = %s where node_name = 'n1'"
    here, plain = n1.connstr, with_params(n1.connstr, user=role)
    cases: tuple[tuple[Any, str, Any, Any, str], ...] = (
        (n2, "update pgq_node.local_state set paused = %s", True, False, "is paused: run resume"),
        (n3, STATE, "in-copy", "ok", 'of node "n3" are being copied'),
        (n2, attrs, "handler=noop", None, '"n2" has only what handler noop makes'),
        (n2, error, 'Lost position: run "rejoin"', None, 'worker of "n2" stands still'),
        (n2, place, plain, here, "grant pg_read_all_stats to it"),
        (n2, STATE, "catching-up", "ok", 'is in state "catching-up"'),
    )
    ticker = with_params(chain["n2"].settings.db, application_name="pgqd")

    def reasons(max_lag: float = 1.0) -> str:
        with chain["n2"].session() as session:
            return "\n".join(check_switchover(session, TakeoverOptions(max_lag=max_lag))[2])

    try:
        assert 'no ticker is connected to "n2"' in reasons()
        with psycopg.connect(ticker):
            for db, text, wrong, right, said in cases:
                db.execute(text, [wrong])
                assert said in reasons(), said
                db.execute(text, [right])
            assert '"n2" is behind by' in reasons(max_lag=0.0)
            n2.execute(f"alter function {PROMOTES} rename to elsewhere")
            assert '"n2" has no function vedur.promote' in reasons()
            n2.execute(
                f"alter function {PROMOTES.replace('promote', 'elsewhere')} rename to promote"
            )
            n1.execute(
                f"revoke pgq_admin, londiste_writer from {role}; grant londiste_reader to {role}"
            )
            n2.execute(place, [plain])
            assert "may not run pgq_node.demote_root: grant pgq_admin to it" in reasons()
            n2.execute(place, [here])
            n1.execute(f"grant pgq_admin, londiste_writer to {role}")
        old = chain["n1"]
        old.settings = replace(old.settings, db=plain)
        with pytest.raises(StateError, match="does not see transactions of others"):
            bring_back(old)
    finally:
        n1.execute(f"drop role {role}")
    chain["n1"].settings = replace(chain["n1"].settings, db=here)
    said = '"n1" is root already, and did not replace "n2"'
    with gone(chain, "n2"), pytest.raises(StateError, match=said):
        move(chain, "n2", "n1", dead_root=True)  # it has replaced nobody


TABLES = """
create table item (id serial primary key, v text);
create table small (id smallserial primary key, v text);
create sequence down_seq increment -1;
create table down (id int primary key default nextval('down_seq'), v text)
"""
SEQUENCES = {"item": "item_id_seq", "small": "small_id_seq", "down": "down_seq"}


def make_sequences(make_chain: MakeChain) -> Chain:
    """n1 and branch n2, with sequences of all kinds."""
    chain = make_bank(make_chain, 2, leaf=False)
    n1, n2 = chain["n1"].db, chain["n2"].db
    for db in (n1, n2):
        db.execute(TABLES)
    add = "select * from londiste.{}(%s, %s)"
    synced = "select * from londiste.local_add_table(%s, %s, array['expect_sync'])"
    for table, sequence in SEQUENCES.items():
        n1.query(synced, [QUEUE, f"public.{table}"])
        n1.query(add.format("local_add_seq"), [QUEUE, f"public.{sequence}"])
    chain.catch_up()
    for table, sequence in SEQUENCES.items():
        n2.query(synced, [QUEUE, f"public.{table}"])
        n2.query(add.format("local_add_seq"), [QUEUE, f"public.{sequence}"])
    return chain


def insert(node: Node, table: str) -> int:
    return int(node.db.value(f"insert into {table} (v) values ('x') returning id"))


def test_sequences_meet_no_bound_and_no_row(make_chain: MakeChain, no_cleaning: None) -> None:
    chain = make_sequences(make_chain)
    n1, n2 = chain["n1"], chain["n2"]
    n1.db.execute("select setval('small_id_seq', 25000)")
    before = {table: [insert(n1, table) for _ in range(3)] for table in SEQUENCES}
    n1.db.query("select * from londiste.root_check_seqs(%s)", [QUEUE])
    published = "select last_value from londiste.seq_info where seq_name = 'public.small_id_seq'"
    assert n1.db.value(published) == 32767
    chain.catch_up()  # n2 follows
    assert n2.db.value("select last_value from small_id_seq") == 32767
    assert n2.db.value("select last_value from down_seq") < before["down"][-1] - 10000
    events = "select pgq.seq_getval(queue_event_seq) from pgq.queue"
    top = n1.db.value(events)
    n1.db.query("select * from londiste.root_check_seqs(%s)", [QUEUE])
    assert n1.db.value(events) == top  # what was published is not published again
    with alive(chain) as life:
        with at(ticked=die), pytest.raises(Killed):
            move(chain, "n1", "n2")
        with n2.session() as session:
            late = _Live(session, read_members(session), "n1", "n2", TakeoverOptions())
            with (
                at(followed=lambda: n2.db.execute(QUARANTINE, [QUEUE])),
                pytest.raises((StateError, RefusedError), match="quarantine"),
            ):
                move(chain, "n1", "n2")
            assert roots(chain) == ["n1"]
            n2.db.execute("delete from vedur.quarantine")
            move(chain, "n1", "n2")
            late.run()  # it had read that n1 is closed, and n2 is root meanwhile
        assert (roots(chain), provider(chain, "n1")) == (["n2"], "n2")
        for table, given in before.items():
            step = -1 if table == "down" else 1
            assert (insert(n2, table) - given[-1]) * step > 0, table
        settle(chain)
        life.stop("n2")
        # faster than its worker looks, and then it is lost
        n2.db.execute("select setval('item_id_seq', 900000)")
        n2.db.execute("select setval('down_seq', -900000)")
        given = {table: insert(n2, table) for table in SEQUENCES}
        n2.db.value("select pgq.force_tick(%s)", [QUEUE])
        n2.db.value("select pgq.ticker(%s)", [QUEUE])
        tick = n2.db.value(NEWEST, [QUEUE])
        assert until(lambda: n1.position >= tick, PATIENCE)
        with gone(chain, "n2"):
            chain.nodes.remove(n2)
            move(chain, "n2", "n1", dead_root=True, timeout=PATIENCE)
            for table, last in given.items():
                step = -1 if table == "down" else 1
                assert (insert(n1, table) - last) * step > 0, table
        chain.nodes.append(n2)
