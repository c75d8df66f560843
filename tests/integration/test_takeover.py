"""The root moves: nothing is lost, writers are told where to go, and it can be killed anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.labs.chain import Chain
from tests.labs.moving_root import (
    PATIENCE,
    TABLE,
    Bank,
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
from vedur.catalog.watch import read_lacks_of_dead
from vedur.errors import RefusedError, StateError, UsageError
from vedur.failpoint import set_hook
from vedur.node.info import NodeType, get_subscriber_info
from vedur.ops.change_provider import change_provider
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import check_switchover
from vedur.status.overview import open_reader
from vedur.status.problems import Kind, problems

MakeChain = Callable[..., Chain]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]

BEFORE = ("checked", "caught_up", "closed", "drained", "ticked", "followed")
AFTER = ("promoted", "turned", "finished")
UNDOING = ("barred", "reopened")
#: Steps at which the command is killed here; see tests/torture/test_short.py.
KILLED = frozenset(
    f"takeover.{point}"
    for point in (*BEFORE, *AFTER, *UNDOING, "moved", "hooked", "branch_moved", "left")
)


class Killed(BaseException):
    """The command ends here, as by kill -9: nobody cleans up."""


@pytest.fixture
def kill_at() -> Iterator[Callable[[str], None]]:
    """kill_at(point): whoever reaches it next ends there."""

    def arm(point: str) -> None:
        def hook(name: str) -> None:
            if name == point:
                set_hook(None)
                raise Killed(name)

        set_hook(hook)

    yield arm
    set_hook(None)


@pytest.fixture
def no_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is killed undoes nothing."""
    from vedur.ops.takeover import run

    undo = run._Live._undo

    def killed(self: run._Live, error: BaseException) -> None:
        if not isinstance(error, Killed):
            undo(self, error)

    monkeypatch.setattr(run._Live, "_undo", killed)


def told(chain: Chain, name: str) -> str:
    """What status and doctor say of the tree."""
    reader = open_reader(chain[name].settings, "test")
    try:
        return "\n".join(p.what for p in problems(reader.read()) if p.kind is Kind.TREE)
    finally:
        reader.close()


def actions(chain: Chain, name: str) -> list[str]:
    """What status and doctor advise about the tree."""
    reader = open_reader(chain[name].settings, "test")
    try:
        return [p.action for p in problems(reader.read()) if p.kind is Kind.TREE]
    finally:
        reader.close()


def test_there_and_back(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    first = reign(chain, "n1").epoch
    with alive(chain) as life:
        move(chain, "n1", "n2")
        assert roots(chain) == ["n2"]
        assert (provider(chain, "n1"), provider(chain, "n3")) == ("n2", "n2")
        chain["n2"].db.execute("update acct set n = n + (-1) ^ id")
        settle(chain)
        require_equal(chain)
        epochs = {reign(chain, name).epoch for name in ("n1", "n2", "n3")}
        assert len(epochs) == 1 and first not in epochs
        move(chain, "n2", "n1")
        assert roots(chain) == ["n1"]
        chain["n1"].db.execute("update acct set n = n - (-1) ^ id")
        settle(chain)
        require_equal(chain)
        assert [reign(chain, n).serial for n in ("n1", "n2", "n3")] == [3, 3, 3]
    assert life.errors == []


WATERMARK = "select last_tick from pgq.get_consumer_info(%s, '.n1.watermark')"
ROTATE = """
do $$
begin
    update pgq.queue set queue_rotation_period = '0', queue_switch_time = '-infinity';
    for _ in 1..4 loop
        perform pgq.maint_rotate_tables_step1(queue_name) from pgq.queue;
        commit;
        perform pgq.maint_rotate_tables_step2();
        commit;
        update pgq.queue set queue_switch_time = '-infinity';
    end loop;
end $$
"""


def test_the_new_root_keeps_what_nodes_below_the_old_one_need(make_chain: MakeChain) -> None:
    """A leaf of the old root is behind the tick of the takeover. It can be moved to the new root:
    that one keeps events from the leaf's position on, not only from that tick."""
    chain = make_bank(make_chain, 2, leaf=False)
    leaf = chain.add("n3", NodeType.LEAF, chain.make_db(), provider="n1")
    leaf.db.execute(f"{TABLE}; insert into acct select i, 100 from generate_series(0, 39) i")
    text = "select * from londiste.local_add_table(%s, 'public.acct', array['expect_sync'])"
    leaf.db.query(text, [QUEUE])
    chain.catch_up()
    behind = leaf.position
    chain.nodes.remove(leaf)  # nobody works there
    n2 = chain["n2"].db
    with alive(chain) as life:
        for _ in range(3):
            chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
            settle(chain)
        move(chain, "n1", "n2")
        assert reign(chain, "n2").first_tick > behind
        assert n2.value(WATERMARK, [QUEUE]) <= behind
        settle(chain)  # the old root has reported what it keeps
        n2.execute(ROTATE)
        assert n2.value("select min(tick_id) from pgq.tick") <= behind
        chain.nodes.append(leaf)
        life.start(leaf)
        with leaf.session() as session:
            change_provider(session, "n2", max_wait=PATIENCE)
        assert provider(chain, "n3") == "n2"
        chain["n2"].db.execute("update acct set n = n - (-1) ^ id")
        settle(chain)
        require_equal(chain)


def test_a_writer_is_told_where_to_go(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        move(chain, "n1", "n2")
        settle(chain)
        with (
            psycopg.connect(chain["n1"].settings.db, autocommit=True) as db,
            pytest.raises(psycopg.Error, match="Insert into queue disallowed") as refused,
        ):
            db.execute("update acct set n = 0 where id = 1")
        hint = refused.value.diag.message_hint or ""
        assert 'is node "n2": connect to' in hint
        assert "password" not in hint


def test_under_load_several_times(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain) as life:
        bank = Bank(chain, "n1")
        try:
            for old, new in (("n1", "n2"), ("n2", "n1"), ("n1", "n2")):
                before = dict(bank.done)
                assert until(lambda b=before: all(bank.done[k] > b[k] for k in b), PATIENCE)
                move(chain, old, new)
                assert roots(chain) == [new]
            before = dict(bank.done)
            assert until(lambda: all(bank.done[k] > before[k] for k in before), PATIENCE)
        finally:
            bank.end()
        assert bank.unexpected == []
        assert bank.told > 0
        settle(chain)
        require_equal(chain)
        for name in ("n1", "n2", "n3"):
            bank.require_kept(name)
    assert life.errors == []


@pytest.mark.draw(2)
@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_killed_anywhere_the_same_command_goes_on(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None, point: str
) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        kill_at(f"takeover.{point}")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        assert len(roots(chain)) <= 1
        move(chain, "n1", "n2")
        assert roots(chain) == ["n2"]
        assert provider(chain, "n1") == "n2"
        chain["n2"].db.execute("update acct set n = n + (-1) ^ id")
        settle(chain)
        require_equal(chain)


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", ["closed", "drained", "ticked", "followed"])
def test_killed_before_the_promotion_it_can_be_undone(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None, point: str
) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        kill_at(f"takeover.{point}")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        assert roots(chain) == []
        assert 'a takeover by "n2" is under way' in told(chain, "n2")
        move(chain, "n1", "n2", abort=True)
        assert roots(chain) == ["n1"]
        assert "takeover" not in told(chain, "n2")
        chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
        settle(chain)
        require_equal(chain)
        move(chain, "n1", "n2")
        assert roots(chain) == ["n2"]


@pytest.mark.draw("takeovers")
def test_nobody_keeps_a_place_for_the_new_root(
    make_chain: MakeChain, kill_at: Callable[[str], None]
) -> None:
    """It was below a branch that is between it and the old root: what that one kept for it would
    hold back the queues of all nodes. Killed before that was ended, the same command ends it."""
    chain = make_bank(make_chain, 3, leaf=False)
    readers = "select consumer_name from pgq.get_consumer_info(%s)"
    with alive(chain):
        kill_at("takeover.turned")
        with pytest.raises(Killed):
            move(chain, "n1", "n3")
        assert "n3" in [item.node_name for item in get_subscriber_info(chain["n2"].db, QUEUE)]
        ends = 'takeover n1 --node=n3 --no-compare"'
        assert any(ends in action for action in actions(chain, "n2"))
        move(chain, "n1", "n3", dry_run=True)
        assert "n3" in [item.node_name for item in get_subscriber_info(chain["n2"].db, QUEUE)]
        kill_at("takeover.left")
        with pytest.raises(Killed):
            move(chain, "n1", "n3")
        move(chain, "n1", "n3")
        for name in ("n1", "n2"):
            found = {row[0] for row in chain[name].db.query(readers, [QUEUE])}
            assert not found & {"n3_job", ".n3.watermark"}
        settle(chain)
        require_equal(chain)


def test_after_the_promotion_it_is_not_undone(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None
) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        kill_at("takeover.promoted")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        with pytest.raises(StateError, match="is the root already"):
            move(chain, "n1", "n2", abort=True)
        assert roots(chain) == ["n2"]


def test_a_command_that_hangs_cannot_promote_after_an_abort(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None
) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        kill_at("takeover.followed")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        text = "select node_attrs from pgq_node.node_info"
        attrs = dict(p.split("=") for p in chain["n1"].db.value(text).split("&"))
        move(chain, "n1", "n1", abort=True)  # with the ini of the old root, which needs no --node
        asked = [QUEUE, attrs["takeover_epoch"], int(attrs["takeover_tick"])]
        row = chain["n2"].db.one("select * from vedur.promote(%s, %s, 'takeover', %s)", asked)
        assert (row.ret_code, row.ret_note) == (409, "the takeover was undone (--abort)")
        assert roots(chain) == ["n1"]


def test_an_old_snapshot_is_waited_for_and_named(make_chain: MakeChain) -> None:
    """A writer in repeatable read that began before still sees the queue open."""
    chain = make_bank(make_chain, 3)
    with alive(chain), psycopg.connect(chain["n1"].settings.db, autocommit=True) as db:
        db.execute("set application_name = 'old one'")
        db.execute("begin isolation level repeatable read")
        db.execute("select count(*) from acct")
        with pytest.raises(StateError, match=f'pid {db.info.backend_pid}.*"old one"'):
            move(chain, "n1", "n2", timeout=1.0)
        assert roots(chain) == ["n1"]  # it is open again
        closed = threading.Event()
        set_hook(lambda name: closed.set() if name == "takeover.closed" else None)
        try:
            thread = threading.Thread(target=move, args=(chain, "n1", "n2"))
            thread.start()
            assert closed.wait(PATIENCE)
            db.execute("update acct set n = n + (-1) ^ id")
            db.execute("commit")
            thread.join(PATIENCE)
        finally:
            set_hook(None)
        assert roots(chain) == ["n2"]
        settle(chain)
        require_equal(chain)
        assert chain["n2"].db.value("select count(*) from acct where n <> 100") > 0


def test_a_dry_run_and_a_check_change_nothing(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        move(chain, "n1", "n2", dry_run=True)
        assert roots(chain) == ["n1"]
        with chain["n2"].session() as session:
            assert check_switchover(session, TakeoverOptions()) == ("n1", "n2", [])
        with chain["n3"].session() as session:
            reasons = check_switchover(session, TakeoverOptions())[2]
        assert reasons == ['node "n3" is a leaf: only a branch can become root']
        assert roots(chain) == ["n1"]


def test_what_speaks_against_it_is_said_and_nothing_is_changed(
    make_chain: MakeChain, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_bank(make_chain, 3)
    n2 = chain["n2"].db
    for db in (chain["n1"].db, n2, chain["n3"].db):
        db.execute("create table extra (id serial primary key)")
    call = "select * from londiste.local_add_table(%s, 'public.extra')"
    chain["n1"].db.query(call, [QUEUE])
    chain.catch_up()
    with alive(chain), chain["n2"].session() as session:

        def reasons() -> str:
            return "\n".join(check_switchover(session, TakeoverOptions())[2])

        assert 'table "public.extra" is not replicated on "n2"' in reasons()
        n2.query("select * from londiste.local_add_table(%s, 'public.extra', array['expect_sync'])",
                 [QUEUE])  # fmt: skip
        assert 'sequence "public.extra_id_seq" gives values to table "public.extra"' in reasons()
        n2.execute("alter table acct disable trigger user")
        assert 'table "public.acct" on "n2" has no trigger' in reasons()
        n2.execute("alter table acct enable trigger user")
        n2.execute("alter table done drop constraint done_pkey")
        assert 'table "public.done" on "n2": it has no primary key' in reasons()
        n1 = chain["n1"].db
        n1.value("select vedur.watch_tables(%s)", [QUEUE])
        n1.execute("drop table extra")
        assert 'table "public.extra" on "n1": table public.extra was dropped; create' in reasons()
        n1.execute(
            "insert into vedur.table_change (queue_name, table_name, severity, what, action,"
            " pending) values (%s, 'public.acct', 'fail', 'a change', 'do', '{n3}')",
            [QUEUE],
        )
        dead = "select pgq_node.register_location(%s, 'n3', 'dbname=n3', true)"
        n1.query(dead, [QUEUE])
        assert "a change" not in reasons()
        assert "public.acct: a change; n3 (tagged as dead) has not got that" in caplog.text
        role = f"reader_{n1.value('select current_database()')}"
        n1.execute(f"create role {role}; grant pgq_reader to {role}; set role {role}")
        try:  # who may not read it is not told, and has no error
            assert read_lacks_of_dead(n1, QUEUE) == []
        finally:
            n1.execute(f"reset role; drop role {role}")
        with pytest.raises(StateError, match='"n2" cannot take over'):
            move(chain, "n1", "n2")
        assert roots(chain) == ["n1"]


@pytest.mark.draw("takeovers")
def test_sequences_go_on_behind_the_old_ones(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 3)
    for node in chain.nodes:
        node.db.execute("create table item (id serial primary key, v text)")
    for node in chain.nodes:
        db = node.db
        if node.name != "n1":
            db.query("select * from londiste.global_add_table(%s, 'public.item')", [QUEUE])
        add = "select * from londiste.local_add_table(%s, 'public.item', array['expect_sync'])"
        db.query(add, [QUEUE])
    chain["n1"].db.query("select * from londiste.local_add_seq(%s, 'public.item_id_seq')", [QUEUE])
    chain.catch_up()
    for name in ("n2", "n3"):
        text = "select * from londiste.local_add_seq(%s, 'public.item_id_seq')"
        chain[name].db.query(text, [QUEUE])
    insert = "insert into item (v) values ('x') returning id"
    with alive(chain):
        given = [chain["n1"].db.value(insert)]
        chain["n1"].db.execute("select setval('item_id_seq', 900000)")  # faster than it is told
        given.append(chain["n1"].db.value(insert))
        for old, new in (("n1", "n2"), ("n2", "n1")):
            move(chain, old, new)
            given += [chain[new].db.value(insert) for _ in range(3)]
        assert len(set(given)) == len(given)
        assert given == sorted(given)
        settle(chain)
        assert chain["n3"].db.value("select count(*) from item") == len(given)
        last = "select last_value from item_id_seq"
        for name in ("n2", "n3"):  # n2 gave numbers out itself in between
            db = chain[name].db
            assert until(lambda db=db: db.value(last) >= given[-1], 20.0), name


@pytest.mark.draw("takeovers")
def test_all_others_follow(make_chain: MakeChain, kill_at: Callable[[str], None]) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    leaf = chain.add("n3", NodeType.LEAF, chain.make_db(), provider="n1")
    for table, ddl in (("acct", "id int primary key, n int not null"),
                       ("done", "id int primary key, n int not null")):  # fmt: skip
        leaf.db.execute(f"create table {table} ({ddl})")
        if table == "acct":
            leaf.db.execute("insert into acct select i, 100 from generate_series(0, 39) i")
        text = "select * from londiste.local_add_table(%s, %s, array['expect_sync'])"
        leaf.db.query(text, [QUEUE, f"public.{table}"])
    with alive(chain):
        settle(chain)  # n2 has read of n3
        kill_at("takeover.moved")
        with pytest.raises(Killed):
            move(chain, "n1", "n2", everybody=True)
        assert (roots(chain), provider(chain, "n3")) == (["n1"], "n2")
        move(chain, "n1", "n2", everybody=True)
        assert [provider(chain, n) for n in ("n1", "n3")] == ["n2", "n2"]
        settle(chain)
        require_equal(chain)


@pytest.mark.parametrize("point", UNDOING)
def test_an_abort_that_is_killed_is_run_again(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None, point: str
) -> None:
    chain = make_bank(make_chain, 3)
    with alive(chain):
        kill_at("takeover.ticked")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        kill_at(f"takeover.{point}")
        with pytest.raises(Killed):
            move(chain, "n1", "n2", abort=True)
        if point == "barred":
            assert roots(chain) == []
            move(chain, "n1", "n2", abort=True)
        else:
            with pytest.raises(StateError, match="there is nothing to undo"):
                move(chain, "n1", "n2", abort=True)
        assert roots(chain) == ["n1"]
        move(chain, "n1", "n2")
        assert roots(chain) == ["n2"]


def test_a_barred_takeover_is_not_finished_but_undone(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None
) -> None:
    """Somebody has begun to undo it: whoever goes on with it must not promote."""
    chain = make_bank(make_chain, 3)
    with alive(chain):
        kill_at("takeover.ticked")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        kill_at("takeover.barred")
        with pytest.raises(Killed):
            move(chain, "n1", "n2", abort=True)
        with pytest.raises(RefusedError, match="was undone"):
            move(chain, "n1", "n2")
        assert roots(chain) == ["n1"]


def test_the_hook_is_told_and_can_say_no(
    make_chain: MakeChain, kill_at: Callable[[str], None], no_cleaning: None, tmp_path: Path
) -> None:
    said, hook = tmp_path / "said", tmp_path / "hook"
    hook.write_text(f'echo "$@ $VEDUR_ROOT_LOCATION" >> {said}; test ! -e {tmp_path}/no\n')
    chain = make_bank(make_chain, 3, takeover_hook=f"sh {hook}")
    with alive(chain):
        (tmp_path / "no").touch()
        with pytest.raises(StateError, match=r"exit code 1 \(before\)"):
            move(chain, "n1", "n2")
        assert roots(chain) == ["n1"]
        (tmp_path / "no").unlink()
        kill_at("takeover.hooked")
        with pytest.raises(Killed):
            move(chain, "n1", "n2")
        assert roots(chain) == ["n1"]
        move(chain, "n1", "n2")
        assert roots(chain) == ["n2"]
    words = [line.split()[:3] for line in said.read_text().splitlines()]
    moments = ["before", "abort", "before", "before", "after"]
    assert words == [[moment, "n1", "n2"] for moment in moments]
    assert "dbname=" in said.read_text()


@pytest.mark.draw("takeovers")
def test_what_the_hook_has_done_before_is_undone(
    make_chain: MakeChain,
    kill_at: Callable[[str], None],
    no_cleaning: None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Writers that it holds back are let go wherever the takeover ends; and where that fails, the
    root is open even so."""
    said, hook = tmp_path / "said", tmp_path / "hook"
    hook.write_text(f'echo "$1" >> {said}; test "$1" != abort -o ! -e {tmp_path}/no\n')
    chain = make_bank(make_chain, 3, takeover_hook=f"sh {hook}")

    def fail_at(point: str, error: type[BaseException]) -> list[str]:
        def there(name: str) -> None:
            if name == f"takeover.{point}":
                set_hook(None)
                raise error("planted")

        said.write_text("")
        caplog.clear()
        set_hook(there)
        with pytest.raises(error, match="planted"):
            move(chain, "n1", "n2")
        assert roots(chain) == ["n1"]
        return said.read_text().split()

    with alive(chain):
        assert fail_at("caught_up", StateError) == [], "it was not told anything"
        assert fail_at("hooked", KeyboardInterrupt) == ["before", "abort"]
        assert fail_at("closed", KeyboardInterrupt) == ["before", "abort"]
        (tmp_path / "no").touch()
        assert fail_at("ticked", StateError) == ["before", "abort"]
        assert "may be closed" not in caplog.text
        assert '"n1" takes writes, but its applications may still be held back' in caplog.text
        for point in ("hooked", "ticked"):
            kill_at(f"takeover.{point}")
            with pytest.raises(Killed):
                move(chain, "n1", "n2")
            said.write_text("")
            move(chain, "n1", "n2", abort=True, dry_run=True)
            assert said.read_text() == ""
            move(chain, "n1", "n2", abort=True)
            assert (said.read_text().split(), roots(chain)) == (["abort"], ["n1"])


@pytest.mark.draw("takeovers")
def test_the_place_of_a_branch_is_taken(
    make_chain: MakeChain, kill_at: Callable[[str], None]
) -> None:
    chain = make_bank(make_chain, 4)  # n1, branches n2 and n3, leaf n4
    with alive(chain) as life:
        for given in ({"compare": False}, {"compare": True, "max_lag": 5.0}):
            with pytest.raises(UsageError, match="--max-lag and --no-compare are for"):
                move(chain, "n2", "n3", **given)
        kill_at("takeover.branch_moved")
        with pytest.raises(Killed):
            move(chain, "n2", "n3", compare=True)
        move(chain, "n2", "n3", compare=True)
        assert [provider(chain, n) for n in ("n3", "n2", "n4")] == ["n1", "n3", "n3"]
        chain["n1"].db.execute("update acct set n = n + (-1) ^ id")
        settle(chain)
        require_equal(chain)
    assert life.errors == []
