"""Branches: what a node applies it passes on, events and ticks whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.killed import Killed, killed_at
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.change.attrs import encode_attrs
from vedur.db import Database, connect
from vedur.errors import UsageError
from vedur.node.info import NodeType, get_node_info
from vedur.ops.change_provider import change_provider
from vedur.ops.quarantine.skip import SkipOptions, skip
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker.batch import BatchRun

MakeChain = Callable[..., Chain]

TABLE = "create table t (id int primary key, v text)"

pytestmark = pytest.mark.usefixtures("without_spark")


def change(chain: Chain, step: int) -> None:
    """Some of everything, in a few transactions."""
    low = step * 100
    chain.root.execute(f"insert into t select i, 'x' || i from generate_series({low}, {low + 9}) i")
    chain.root.execute(f"update t set v = e'new\\t\\n\\\\ é {step}' where id % 3 = 0")
    chain.root.execute(f"delete from t where id = {low + 5}")


def script(chain: Chain, name: str, text: str) -> None:
    with chain.root.transaction():
        chain.root.execute("set local session_replication_role = local")
        call(chain.root, "londiste.execute_start", QUEUE, name, text, True)
        chain.root.execute(text)
        call(chain.root, "londiste.execute_finish", QUEUE, name)


def another(db: Database) -> Database:
    return connect(db.connstr, autocommit=False)


# -- what is passed on ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ours", "upstream"])
def test_a_branch_passes_everything_on(make_chain: MakeChain, kind: str) -> None:
    """With our schemas, and over those of upstream."""
    chain = make_chain(3, kind=kind)
    chain.table("public.t", TABLE)
    for step in range(4):
        change(chain, step)
        chain.tick()
        chain.tick()  # an empty one
    chain.catch_up()
    assert len(chain.require_same("t")) == 36
    assert chain.require_queues() >= 4 * (10 + 1 + 1)
    chain.catch_up()
    chain.catch_up()  # empty ranges
    chain.require_queues()


@pytest.mark.parametrize("limit", [1, 30, 100_000])
def test_late_transactions_truncates_and_scripts(make_chain: MakeChain, limit: int) -> None:
    """With batches of one tick, of some, and of all."""
    chain = make_chain(3, max_batch_events=limit)
    chain.table("public.t", TABLE)
    chain.table("public.u", "create table u (id int primary key, n int)")
    late, later = another(chain.root), another(chain.root)
    for step, db in enumerate((late, later)):
        db.execute(f"insert into u values ({1000 + step}, 1)")
    for step in range(6):
        change(chain, step)
        with chain.root.transaction():
            chain.root.execute(f"insert into u values ({step}, {step})")
            try:
                with chain.root.transaction():
                    chain.root.execute(f"insert into u values ({step + 500}, 0)")
                    raise UsageError("given up")  # a savepoint that is rolled back
            except UsageError:
                pass
        chain.tick()
        if step == 2:
            chain.root.execute("truncate t")
            late.execute("update u set n = n + 1 where id < 3")
            late.commit()
            script(chain, "a.sql", "alter table t add w int default 7")
        if step == 4:
            later.commit()
            chain.root.execute("truncate u")
    chain.catch_up()
    chain.require_same("t")
    chain.require_same("u")
    assert chain.require_queues() > 60
    for db in (late, later):
        db.close()


def test_a_giant_tick_in_many_slices(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedur.queue.batches.EVENTS_PER_SLICE", 50)
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    for node in chain.followers:
        node.parallel = 3
    change(chain, 0)
    chain.tick()
    chain.root.execute("insert into t select i, 'g' from generate_series(1000, 3000) i")
    chain.tick()
    change(chain, 1)
    chain.catch_up()
    assert len(chain.require_same("t")) > 2000
    assert chain.require_queues() > 2000


def test_a_chain_of_four(make_chain: MakeChain) -> None:
    chain = make_chain(4)
    chain.table("public.t", TABLE)
    for step in range(3):
        change(chain, step)
        chain.tick()
        change(chain, step + 10)
        chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 100


def test_events_of_tables_that_the_branch_does_not_have(make_chain: MakeChain) -> None:
    """It lacks one table, has some rows of another and some columns of a third."""
    chain = make_chain(3)
    chain.table("public.t", TABLE, on=["n3"])
    chain.table("public.f", "create table f (id int primary key, n int)", on=["n3"])
    chain.table("public.c", "create table c (id int primary key, n int)", on=["n3"])
    mid = chain["n2"].db
    for name, attrs in (
        ("public.f", {"copy_condition": "n < 3"}),
        ("public.c", {"columns": "id"}),
    ):
        args = (QUEUE, name, ["expect_sync"], encode_attrs(attrs), name)
        call(mid, "londiste.local_add_table", *args)
    change(chain, 0)
    for table in "fc":
        chain.root.execute(f"insert into {table} select i, i from generate_series(1, 5) i")
        chain.root.execute(f"update {table} set n = 6 - n")
    chain.catch_up()
    for table in "tfc":
        chain.require_same(table, "n3")
    assert chain.require_queues() > 20
    assert mid.value("select count(*) from t") == 0
    assert mid.query("select id from f order by 1") == [(4,), (5,)]
    assert mid.value("select count(n) from c") == 0


def test_events_that_the_branch_puts_into_quarantine_or_skips(make_chain: MakeChain) -> None:
    chain = make_chain(3, on_error="quarantine-row")
    chain.table("public.t", TABLE)
    mid = chain["n2"]
    mid.db.execute("alter table t add constraint no_bad check (v <> 'bad')")
    change(chain, 0)
    chain.root.execute("insert into t values (50, 'bad'), (51, 'good')")
    chain.catch_up()
    chain.root.execute("update t set v = 'later' where id = 50")
    chain.catch_up()
    chain.require_same("t", "n3")
    assert mid.db.value("select count(*) from t where id in (50, 51)") == 1
    assert mid.db.value("select count(*) from vedur.quarantine") == 2
    chain.require_queues()
    chain.tick()
    chain.root.execute("insert into t values (60, 'skipped')")
    tick = chain.tick()
    with mid.session() as session:
        skip(session, SkipOptions(tick=tick, reason="a test", force=True))
    chain.root.execute("insert into t values (61, 'not')")
    chain.catch_up()
    chain.require_same("t", "n3")
    assert mid.db.query("select id from t where id >= 60") == [(61,)]
    assert chain.require_queues() > 10


def test_a_batch_that_is_staged_ahead_and_got_longer(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw events of both parts are passed on once, however the net changes are staged."""
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    chain.table("public.u", "create table u (id int primary key, n int)")
    restaged: list[bool] = []
    real = SparkReplay.extend

    def extend(self: SparkReplay, db: Any, staged: Any, *args: Any) -> Any:
        both = real(self, db, staged, *args)
        restaged.append(both.slices[0] != staged.slices[0])
        return both

    monkeypatch.setattr(SparkReplay, "extend", extend)
    steps = iter(range(1, 12))

    def write(name: str) -> None:
        """Ticks come while a batch is staged, and again before the next one is asked for."""
        if name in ("batch.taken", "batch.committed") and (step := next(steps, None)):
            change(chain, step)
            if step in (4, 8):  # a script behind net changes makes both parts be staged again
                script(chain, f"{step}.sql", f"insert into u values ({step}, 1)")
            chain.tick()

    change(chain, 0)
    chain.tick()
    failpoint.set_hook(write)
    try:
        while chain["n2"].worker.work():
            pass
    finally:
        failpoint.set_hook(None)
    assert next(steps, None) is None
    chain.catch_up()
    chain.require_same("t")
    assert {True, False} <= set(restaged), restaged
    assert chain.require_queues() > 150


def test_raw_events_that_are_gone_are_staged_again(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash of the server, which empties unlogged tables."""
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    lock = BatchRun.lock
    seen: list[int] = []

    def emptied(self: BatchRun[Any], staged: Any) -> Any:
        if self.runner.own_queue is not None and not seen:
            seen.append(1)
            for row in self.db.query("select oid::regclass from pg_class where relname ~ '^raw_'"):
                self.db.execute(f"truncate {row[0]}")
        return lock(self, staged)

    monkeypatch.setattr(BatchRun, "lock", emptied)
    change(chain, 0)
    chain.catch_up()
    assert seen
    chain.require_same("t")
    assert chain.require_queues() >= 12


# -- crashes --------------------------------------------------------------------------------------

POINTS = [
    "batch.taken",
    "batch.staged",
    "ahead.begun",
    "ahead.taken",
    "branch.published",
    "batch.merged",
    "batch.committed",
    "batch.finished",
    "branch.reported",
    "quarantine.written",
]


@pytest.mark.draw(2)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_loses_nothing_and_doubles_nothing(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    chain = make_chain(3, max_batch_events=20, on_error="quarantine-row")
    chain.table("public.t", TABLE)
    mid = chain["n2"]
    mid.db.execute("alter table t add constraint no_bad check (v <> 'bad')")
    for step in range(4):
        change(chain, step)
        chain.root.execute(f"insert into t values ({-3 * step - 1}, 'bad')")  # not updated later
        chain.tick()
    with killed_at(point) as reached:
        try:
            while mid.worker.work():
                pass
        except Killed:
            pass
    assert reached, "the failpoint was not reached"
    mid.worker._close()
    mid.renew()
    change(chain, 4)
    chain.catch_up()
    chain.require_same("t", "n3")
    chain.require_same("t", where="v not in ('bad')")
    assert chain.require_queues() > 48
    assert mid.db.value("select count(*) from vedur.quarantine") == 4


@contextmanager
def working(node: Node) -> Iterator[None]:
    """The worker of a node does round after round."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            node.worker.work()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)


# -- positions ------------------------------------------------------------------------------------


def test_a_node_between_two_merged_ticks_can_be_moved_to_the_branch(
    make_chain: MakeChain,
) -> None:
    chain = make_chain(2, leaf=False)
    chain.table("public.t", TABLE)
    db = chain.make_db()
    low = chain.add("low", NodeType.LEAF, db, provider="n1")
    db.execute(TABLE)
    call(db, "londiste.local_add_table", QUEUE, "public.t", ["expect_sync"])
    ticks = []
    for step in range(4):
        change(chain, step)
        ticks.append(chain.tick())
        if step == 1:
            while low.worker.work():
                pass
    while chain["n2"].worker.work():
        pass
    assert low.position == ticks[1] < chain["n2"].position == ticks[3]
    with working(low), low.session() as session:
        change_provider(session, "n2")
    info = get_node_info(low.db, QUEUE)
    assert info is not None and info.provider_node == "n2"
    change(chain, 5)
    chain.catch_up()
    chain.require_same("t")
