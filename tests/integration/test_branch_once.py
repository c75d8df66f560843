"""Every event once, whatever comes between the staging of a batch and its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.test_branch import TABLE, MakeChain, change, script
from tests.labs.chain import Node
from tests.labs.in_process import run_here
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.errors import StateError
from vedur.pipeline.replay import stage as replay
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker import loop

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(120)]


@contextmanager
def at(point: str, act: Callable[[int], None]) -> Iterator[list[int]]:
    """Call `act(n)` the n-th time that a failpoint is reached, but not while it is at it."""
    seen: list[int] = []
    busy: list[int] = []

    def hook(name: str) -> None:
        if name == point and not busy:
            seen.append(len(seen) + 1)
            busy.append(1)
            try:
                act(seen[-1])
            finally:
                busy.clear()

    failpoint.set_hook(hook)
    try:
        yield seen
    finally:
        failpoint.set_hook(None)


def run(node: Node) -> None:
    while node.worker._work_safely():
        pass


@pytest.mark.draw("branches")
def test_tasks_that_run_twice(make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs a task again whose answer it did not get; the first attempt has committed."""
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)

    def twice(spark: Any, do: Any, items: Sequence[Any], kept: Any = None) -> list[Any]:
        run_here(spark, do, items)
        return run_here(spark, do, items)

    monkeypatch.setattr(replay, "run_tasks", twice)
    chain = make_chain(3, max_batch_events=30)
    chain.table("public.t", TABLE)
    for step in range(6):
        change(chain, step)
        chain.tick()
    script(chain, "a.sql", "alter table t add w int default 7")
    change(chain, 6)
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 70


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", ["batch.staged", "branch.published", "batch.committed"])
def test_errors_that_the_worker_survives(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Every second time; the process goes on, with what it has in memory and in staging tables."""
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    chain = make_chain(3, max_batch_events=20)
    chain.table("public.t", TABLE)
    for step in range(6):
        change(chain, step)
        if step == 3:
            script(chain, "a.sql", "alter table t add w int default 7")
        chain.tick()

    def fail(n: int) -> None:
        if n % 2:
            raise StateError("a test")

    with at(point, fail) as seen:
        run(chain["n2"])
    assert len(seen) > 3
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 70


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", ["batch.taken", "batch.staged", "ahead.begun", "batch.committed"])
def test_a_second_worker_of_the_branch(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """It sweeps the staging tables of the first one, stages into them, and is quicker."""
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    chain = make_chain(3, max_batch_events=20)
    chain.table("public.t", TABLE)
    for step in range(6):
        change(chain, step)
        chain.tick()
    first = chain["n2"]
    second = Node("n2", first.kind, first.db, first.settings)

    def work(n: int) -> None:
        for _ in range(n % 3):
            second.worker._work_safely()
        change(chain, 10 + n)
        chain.tick()
        if n % 2:
            second.worker._close_connections(doubtful=True)

    with at(point, lambda n: work(n) if n < 8 else None) as seen:
        run(first)
    assert len(seen) > 3
    second.close()
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 70


def test_a_copy_of_upstream_begins_while_a_batch_is_staged(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch of several ticks is refused (40001) and comes again tick by tick."""
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    chain = make_chain(3, max_batch_events=40)
    chain.table("public.t", TABLE)
    mid = chain["n2"]
    for step in range(9):
        change(chain, step)
        chain.tick()

    def subscribe(n: int) -> None:
        if n == 2:
            mid.db.value("select pgq.register_consumer(%s, 'x.copy.t')", [QUEUE])
        if n == 5:
            mid.db.value("select pgq.unregister_consumer(%s, 'x.copy.t')", [QUEUE])

    with at("batch.staged", subscribe) as seen:
        while mid.worker.work():
            pass
    assert len(seen) > 5
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 70


def test_a_pause_that_comes_while_a_resume_is_accepted(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the worker has not seen it does not accept: `pause` promises that it stands still."""
    chain = make_chain(2)
    chain.table("public.t", TABLE)
    leaf = chain["n2"]
    chain.catch_up()
    position = leaf.position
    text = "select * from pgq_node.set_consumer_paused(%s, %s, %s)"
    for paused in (True, False):
        leaf.db.query(text, [QUEUE, "n2_job", paused])
    real = loop.get_worker_state
    seen: list[Any] = []

    def look(*args: Any) -> Any:
        state = real(*args)
        if not seen:
            assert state is not None and not state.uptodate and not state.paused
            leaf.db.query(text, [QUEUE, "n2_job", True])
        seen.append(state)
        return state

    monkeypatch.setattr(loop, "get_worker_state", look)
    change(chain, 0)
    chain.tick()
    leaf.worker.work()
    now = real(leaf.db, QUEUE)
    assert now is not None and now.paused
    assert leaf.position == position or not now.uptodate
    monkeypatch.setattr(loop, "get_worker_state", real)
    leaf.worker.work()
    now = real(leaf.db, QUEUE)
    assert now is not None and now.paused and now.uptodate
    leaf.db.query(text, [QUEUE, "n2_job", False])
    chain.catch_up()
    chain.require_same("t")


def test_a_node_that_is_moved_while_a_batch_is_staged(make_chain: MakeChain) -> None:
    """The batch was read from the old provider: the tick that is noted is not one of the new."""
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    leaf = chain["n3"]
    chain.catch_up()
    change(chain, 0)
    chain.tick()
    change(chain, 1)
    chain.catch_up("n2")

    def move(n: int) -> None:
        if n == 1:
            call(chain.root, "pgq_node.register_subscriber", QUEUE, "n3", "n3_job", leaf.position)
            call(leaf.db, "pgq_node.change_consumer_provider", QUEUE, "n3_job", "n1")

    call(chain.root, "pgq_node.register_location", QUEUE, "n3", leaf.db.connstr, False)
    call(leaf.db, "pgq_node.register_location", QUEUE, "n1", chain.root.connstr, False)
    with at("batch.staged", move) as seen:
        while leaf.worker.work():
            pass
    assert seen
    change(chain, 2)
    chain.catch_up()
    chain.require_same("t")


def test_a_range_that_is_completed_after_tables_were_altered(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parts are in one staging table, whose columns are counted: they must be the same."""
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    chain = make_chain(3)
    chain.table("public.t", "create table t (id int primary key, a text, b text)")
    chain.table("public.u", "create table u (id int primary key)")
    chain.root.execute("alter table u add n int")
    mid = chain["n2"]
    chain["n3"].db.execute("alter table u add n int")
    extended: list[int] = []
    real = SparkReplay.extend

    def extend(self: SparkReplay, db: Any, *args: Any) -> Any:
        if not extended:
            with mid.db.transaction():  # the columns of t change places
                mid.db.execute("set local session_replication_role = replica")
                mid.db.execute("alter table t add z text; update t set z = a")
                mid.db.execute("alter table t drop a; alter table t rename z to a")
            mid.db.execute("alter table u add n int")
        extended.append(1)
        return real(self, db, *args)

    monkeypatch.setattr(SparkReplay, "extend", extend)

    def write(low: int, high: int) -> None:
        rows = f"select i, 'a' || i, 'b' || i from generate_series({low}, {high}) i"
        chain.root.execute(f"insert into t {rows}")

    def more(name: str) -> None:
        """The second range is staged ahead, the third completes it: only there is the column that
        makes the tables be looked at again."""
        if name == "batch.taken" and chain.root.value("select count(*) from t") == 3:
            write(4, 9)
            chain.tick()
        if name == "ahead.begun" and chain.root.value("select count(*) from t") == 9:
            write(10, 10)
            chain.root.execute("insert into u values (1, 1)")
            chain.tick()

    write(1, 3)
    chain.tick()
    failpoint.set_hook(more)
    try:
        while mid.worker.work():
            pass
    finally:
        failpoint.set_hook(None)
    assert extended
    chain.catch_up()
    text = "select id, a, b from t order by id"
    assert mid.db.query(text) == chain.root.query(text)
    chain.require_queues()


def test_a_second_worker_starts_while_the_first_replays_row_by_row(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has read the log of its slot and waits for a task that writes there; the second
    one wants to drop it. No server sees that all three wait for each other."""
    chain = make_chain(2, on_error="quarantine-row")
    chain.table("public.t", TABLE)
    chain.table("public.u", "create table u (id int primary key, n int)")
    leaf = chain["n2"]
    chain.catch_up()
    second = Node("n2", leaf.kind, leaf.db, leaf.settings)
    runner = leaf.worker._role._runner  # type: ignore[union-attr]
    runner.applier.log_tables.add("public.u")
    leaf.db.execute("alter table t add constraint no_bad check (v <> 'bad')")
    waits = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and not granted"
    threads: list[threading.Thread] = []

    def start_second(spark: Any, do: Any, items: Sequence[Any], kept: Any = None) -> list[Any]:
        if do.log_tables == {"public.t"} and not threads:
            threads.append(threading.Thread(target=second.worker._work_safely))
            threads[0].start()
            while not leaf.db.value(waits):
                assert threads[0].is_alive()
        return run_here(spark, do, items)

    monkeypatch.setattr(replay, "run_tasks", start_second)
    chain.root.execute("insert into t values (1, 'good'), (2, 'bad')")
    chain.root.execute("insert into u values (1, 1)")
    chain.tick()
    run(leaf)
    threads[0].join(120)
    assert not threads[0].is_alive()
    second.close()
    assert leaf.db.query("select id from t") == [(1,)]
    assert leaf.db.value("select count(*) from vedur.quarantine") == 1
    chain.require_same("u")
