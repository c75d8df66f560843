"""A Spark task that stays: it does small batches, and nothing is lost where it is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wait import until
from tests.integration.test_replay_histories import HISTORY, TABLES, Session, of_oracle
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER
from tests.oracle import plain
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.failpoint import set_hook
from vedur.pipeline.replay.stage import SparkReplay
from vedur.pipeline.spark import resident, tasks
from vedur.pipeline.spark.resident import Residence, ResidentTask
from vedur.status.snapshot import read_node
from vedur.tables.stages import stage_prefix

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TABLE = "create table t (id int primary key, v int)"


def attach(leaf: Leaf) -> Residence:
    """Let the applier of a worker use a resident task."""
    applier = leaf.runner.applier
    assert isinstance(applier, SparkReplay)
    applier.residence = Residence(leaf.spark, leaf.settings.db, QUEUE, stage_prefix(QUEUE))
    return applier.residence


def wait_for_task(residence: Residence) -> ResidentTask:
    """Wait until the task that was begun is there."""
    task = residence._task
    assert task is not None
    assert until(task.is_ready, 60.0), task.failure
    return task


def sessions(db: Database) -> list[int]:
    """The sessions of resident tasks in this database."""
    text = (
        "select pid from pg_stat_activity where application_name = 'vedur resident task'"
        " and datname = current_database()"
    )
    return [row.pid for row in db.query(text)]


def is_idle(spark: Any) -> bool:
    """Does Spark come to run no job any more, so that all slots are free?"""
    tracker = spark.sparkContext.statusTracker()
    return until(lambda: not tracker.getActiveJobsIds(), 30.0)


class Live:
    """A leaf whose small batches may be done by a resident task."""

    def __init__(self, leaf: Leaf) -> None:
        self.worker, self.root, self.db = leaf, leaf.root, leaf.leaf
        leaf.pair.table("public.t", TABLE, flags="AIUDJ")
        leaf.catch_up()
        self.residence = attach(leaf)
        self.count = 0
        self.reached: list[str] = []

    def reattach(self) -> None:
        """Let another runner use a resident task, too: reconnecting makes a new one."""
        self.residence = attach(self.worker)

    def change(self) -> None:
        """Write a row, apply the batch and compare."""
        self.reached.clear()
        self.count += 1
        self.root.execute("insert into t (id, v) values (%s, %s)", [self.count, self.count])
        self.worker.catch_up()
        assert len(self.worker.same("t")) == self.count

    def settle(self) -> ResidentTask:
        """Make changes until a resident task does them."""
        self.residence._not_before = 0.0
        for _ in range(resident._OFTEN):
            self.change()
        task = wait_for_task(self.residence)
        self.change()
        assert self.was_resident()
        return task

    def was_resident(self) -> bool:
        """Was the last change done by the resident task?"""
        return "resident.answered" in self.reached and "resident.lost" not in self.reached

    def tables(self) -> list[str]:
        """The tables of orders that are there."""
        text = "select relname from pg_class where relname ~ 'orders_[0-9a-f]{16}$'"
        return [row.relname for row in self.db.query(text)]

    def loss(self) -> str | None:
        """What status says."""
        said = read_node(self.db, QUEUE, "leaf").resident_loss
        return None if said is None else said.reason


@pytest.fixture
def live(make_leaf: Callable[..., Leaf]) -> Iterator[Live]:
    found = Live(make_leaf())
    set_hook(found.reached.append)
    yield found
    set_hook(None)


def test_it_is_there_while_batches_follow_each_other(live: Live) -> None:
    live.change()
    assert live.residence._task is None  # one change now and then is not worth it
    live.settle()
    assert len(live.tables()) == len(sessions(live.db)) == 1
    for _ in range(3):
        live.change()
        assert live.was_resident()
    kept = f"select count(*) from vedur_work.{live.tables()[0]}"
    assert live.db.value(kept) == 2  # what is done does not pile up
    pause = f"select pgq_node.set_consumer_paused('{QUEUE}', '{WORKER}', true)"
    for end in (lambda: live.db.execute(pause), live.worker.role.disconnect):
        live.settle()
        end()
        live.worker.worker.work()
        assert live.tables() == []
        live.db.execute(pause.replace("true", "false"))
        live.worker.worker.work()
        live.reattach()
    assert until(lambda: sessions(live.db) == [], 10.0)
    assert is_idle(live.worker.spark)


@pytest.mark.long
def test_another_task_takes_its_place_in_time(live: Live) -> None:
    task = live.settle()
    for old in ("opened", "used"):
        setattr(task, old, -2 * resident._LIFETIME)
        live.change()
        assert "resident.closed" in live.reached and "resident.lost" not in live.reached
        task = live.settle()
    assert is_idle_but_for(live, task)


def is_idle_but_for(live: Live, _task: ResidentTask) -> bool:
    """Is there one session, and one job, of the task that there is?"""
    tracker = live.worker.spark.sparkContext.statusTracker()
    return until(lambda: len(sessions(live.db)) == len(tracker.getActiveJobsIds()) == 1, 30.0)


def test_altered_tables_get_another_task(live: Live) -> None:
    before = live.settle()
    for side in (live.root, live.db):
        side.execute("alter table t add column w text default 'x'")
    live.change()  # whatever was learnt of the table before, the rows are right
    assert live.settle() is not before


def test_a_killed_process_is_done_without(live: Live) -> None:
    """Whether the kill comes before an order or with it."""
    for moment in ("", "resident.ordered"):
        pid = live.settle().said["pid"]

        def kill(name: str, pid: int = pid, moment: str = moment) -> None:
            live.reached.append(name)
            if name == moment:
                os.kill(pid, signal.SIGKILL)

        if moment:
            os.kill(pid, signal.SIGSTOP)
            set_hook(kill)
        else:
            os.kill(pid, signal.SIGKILL)
        live.change()
        set_hook(live.reached.append)
        live.change()
    live.settle()
    assert live.loss() is None


def test_an_error_at_each_step_is_done_without(live: Live) -> None:
    for step in ("resident.ordered", "resident.answered"):
        live.settle()

        def fail(name: str, step: str = step) -> None:
            live.reached.append(name)
            if name == step:
                raise RuntimeError("planted")

        set_hook(fail)
        live.change()
        assert "resident.lost" in live.reached
        assert live.loss() == "planted"
        set_hook(live.reached.append)
    live.settle()
    assert live.loss() is None


def test_what_is_too_slow_is_given_up_and_never_merged(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = live.settle().said["pid"]
    monkeypatch.setattr(resident, "_PATIENCE", 1.0)
    os.kill(pid, signal.SIGSTOP)
    live.change()
    assert live.loss() == "it has not answered for 1 s"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)  # it may still do what it was told
    assert until(lambda: sessions(live.db) == [], 10.0)
    monkeypatch.undo()
    live.change()
    live.settle()
    assert live.loss() is None


def test_a_forged_order_is_not_followed(live: Live) -> None:
    live.settle()
    live.root.execute("create table followed ()")
    forged = json.dumps({"slot": 0, "raw": None, "slice": "true"})
    live.db.execute(
        f"insert into vedur_work.{live.tables()[0]} values (1000, false, %s)",
        [f"{'0' * 64} {forged}"],
    )
    live.change()
    assert "resident.lost" in live.reached and live.loss()


def test_others_may_not_write_orders(live: Live) -> None:
    live.settle()
    table = live.tables()[0]
    text = "select relacl from pg_class where relname = %s"
    assert live.db.value(text, [table]) is None  # its owner alone


@pytest.mark.long
def test_a_task_without_a_driver_ends(live: Live) -> None:
    """A driver that was killed tells its task nothing; the server frees its lock."""
    task = live.settle()
    assert task._end is not None
    task._end.db.close()
    assert until(lambda: sessions(live.db) == [], resident._LOOK + 30.0)
    assert is_idle(live.worker.spark)
    live.change()
    live.settle()


@pytest.mark.long
def test_sessions_that_the_server_ends_are_done_without(live: Live) -> None:
    for of_driver in (False, True):
        task = live.settle()
        assert task._end is not None
        pid = task._end.db.backend_pid if of_driver else task.said["backend"]
        live.db.execute("select pg_terminate_backend(%s)", [pid])
        live.change()
        live.change()
    live.settle()


def test_an_answer_may_be_an_error(live: Live) -> None:
    """It is the error that an ordinary job would have had, and no reason to do without the task."""
    live.root.execute("alter table t alter column v type text")
    live.settle()
    live.reached.clear()
    live.root.execute("insert into t values (1000, 'no number')")
    live.worker.pair.tick()
    with pytest.raises(DatabaseError, match="no number"):
        while live.worker.worker.work():
            pass
    assert live.was_resident()


def test_a_slot_is_kept_where_two_are_left(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = tasks.parallelism(spark)
    assert slots == 2 and not tasks.keep_slot(spark)
    assert tasks.parallelism(spark) == 2
    monkeypatch.setattr(tasks, "_slots", lambda _spark: 3)
    try:
        assert tasks.keep_slot(spark) and tasks.has_slot_kept(spark)
        assert tasks.parallelism(spark) == 2  # jobs are planned as if it were not there
    finally:
        tasks._with_resident.discard(spark)


# -- histories ------------------------------------------------------------------------------------

#: Begins a task, has it answer, loses an answer: eight histories that are drawn may do none of it.
ALL_WAYS = ["order", "order", "lost"]
INSERTS = [
    [(0, ("insert into c values (%s, 'x', true, 1.5)", (number,)))]
    for number in range(len(ALL_WAYS))
]


@pytest.mark.hypothesis
def test_histories_with_a_task_that_comes_and_goes(
    make_leaf: Callable[..., Leaf],
    make_db_on: Callable[..., Database],
    servers: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch is a job, an order, or an order that is lost: the rows are those of the oracle."""
    monkeypatch.setattr(resident, "_OFTEN", 1)
    leaf = make_leaf("ours")
    oracle = make_db_on(servers.get(15), "bare", autocommit=True)
    for name, ddl in TABLES.items():
        leaf.pair.table(name, ddl, flags="AIUDJ")
        oracle.execute(of_oracle(ddl))
    leaf.catch_up()
    writers = [Session(leaf.root.connstr) for _ in range(2)]
    position = leaf.pair.tick()
    leaf.catch_up()
    residence = attach(leaf)
    kinds: set[str] = set()

    @settings(
        max_examples=examples(8, 60),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(
        histories=st.lists(HISTORY, min_size=2, max_size=3),
        ways=st.lists(st.sampled_from(["order", "order", "job", "lost"]), min_size=3, max_size=3),
        flush=st.sampled_from([1, 600, 1 << 20]),
    )
    @example(histories=INSERTS, ways=ALL_WAYS, flush=1 << 20)
    def run(
        histories: list[list[tuple[int, tuple[str, tuple[Any, ...]]]]], ways: list[str], flush: int
    ) -> None:
        nonlocal position
        for history, way in zip(histories, ways, strict=False):
            for number, (text, params) in history:
                writers[number].run(text, params)
            for writer in writers:
                writer.run("commit", ())
            end = leaf.pair.tick()
            plain.apply(oracle, plain.events(leaf.root, QUEUE, position, end))
            position = end
            applier = leaf.runner.applier
            assert isinstance(applier, SparkReplay)
            applier.flush_bytes = flush
            applier.residence = None if way == "job" else residence
            residence._not_before = 0.0
            if residence._task is not None:
                until(residence._task.is_ready, 60.0)
            with lost(kinds, way == "lost"):
                while leaf.worker.work():
                    pass
        for name in TABLES:
            want = oracle.query(f"select t::text from {name} t order by 1")
            got = leaf.leaf.query(f"select t::text from {name} t order by 1")
            assert got == want, name

    run()
    assert {"resident.answered", "resident.lost"} <= kinds
    residence.close()
    for writer in writers:
        writer.db.close()


@contextlib.contextmanager
def lost(kinds: set[str], at_answer: bool) -> Iterator[None]:
    """Note the places that are reached; `at_answer`: what the task answers does not arrive."""

    def hook(name: str) -> None:
        kinds.add(name)
        if at_answer and name == "resident.answered":
            raise RuntimeError("planted")

    set_hook(hook)
    try:
        yield
    finally:
        set_hook(None)
