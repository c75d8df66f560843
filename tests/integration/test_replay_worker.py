"""The worker end to end: queue, tick, Spark, staged commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.oracle.pair import QUEUE, WORKER, Pair
from vedur.config import LondisteSettings
from vedur.db import Database, connect
from vedur.errors import LostPosition
from vedur.pipeline.replay import SparkReplay
from vedur.queue.slices import Slice, Tick, whole
from vedur.worker.batch import BatchRunner, position_allows
from vedur.worker.loop import Worker

pytestmark = pytest.mark.spark

MakeDbOn = Callable[..., Database]


class Leaf:
    """A pair whose leaf worker is run round by round."""

    def __init__(self, pair: Pair, spark: Any, **settings: Any) -> None:
        self.pair = pair
        self.root, self.leaf = pair.root, pair.leaf
        self.appliers: list[SparkReplay] = []
        self.spark = spark
        self.parallel = 1
        self.flush_bytes = 32 << 20
        self.settings = LondisteSettings(
            db=pair.leaf.connstr, queue_name=QUEUE, job_name="leaf", exception_sleep=0.0, **settings
        )
        self.worker = Worker(self.settings, self._runner)

    def _runner(self, provider: str, _state: Any) -> BatchRunner:
        applier = SparkReplay(
            self.spark, QUEUE, provider, self.settings.db, flush_bytes=self.flush_bytes
        )
        self.appliers.append(applier)
        return BatchRunner(
            applier,
            QUEUE,
            WORKER,
            self.settings.db,
            max_batch_events=self.settings.max_batch_events,
            parallel=self.parallel,
        )

    def catch_up(self) -> None:
        """Apply all that the queue has."""
        self.pair.tick()
        while self.worker.work():
            pass

    def same(self, table: str, dest: str | None = None) -> list[str]:
        """Both sides hold the same rows; returns them."""
        here, there = self.pair.rows(table, dest)
        assert there == here
        return here

    def close(self) -> None:
        self.worker._close()


@pytest.fixture
def make_leaf(servers: Any, make_db_on: MakeDbOn, spark: Any) -> Iterator[Callable[..., Leaf]]:
    made: list[Leaf] = []

    def make(kind: str = "upstream", **settings: Any) -> Leaf:
        server = servers.get(15)
        pair = Pair.make(make_db_on(server, kind), make_db_on(server, kind))
        made.append(Leaf(pair, spark, **settings))
        return made[-1]

    yield make
    for leaf in made:
        leaf.close()


FORMATS = [pytest.param("", id="urlenc"), pytest.param("J", id="json"), pytest.param("Q", id="sql")]


@pytest.mark.parametrize("flags", FORMATS)
def test_a_row_changed_on_the_root_arrives_on_the_leaf(
    make_leaf: Callable[..., Leaf], flags: str
) -> None:
    leaf = make_leaf()
    leaf.pair.table(
        "public.t",
        "create table t (id int primary key, a text, n numeric)",
        flags=f"AIUD{flags}" if flags else None,
    )
    leaf.root.execute("insert into t select i, 'x' || i, i * 1.10 from generate_series(1, 100) i")
    leaf.catch_up()
    assert len(leaf.same("t")) == 100
    leaf.root.execute("update t set a = 'new\tline\n\\ & = % + ''' where id < 10")
    leaf.root.execute("update t set a = null where id = 11; delete from t where id > 90")
    leaf.root.execute("update t set a = 'null', n = 'NaN' where id = 12")
    leaf.catch_up()
    assert len(leaf.same("t")) == 90


def test_restart_rule() -> None:
    assert position_allows(4, 7, 4)
    assert not position_allows(4, 7, 7)
    with pytest.raises(LostPosition, match=r"^Lost position: batch 4\.\.7, dst has 5$"):
        position_allows(4, 7, 5)


def test_a_batch_committed_before_a_crash_is_not_applied_again(
    make_leaf: Callable[..., Leaf],
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, n int)")
    leaf.root.execute("insert into t values (1, 1)")
    leaf.catch_up()
    last = leaf.root.value(
        "select sub_last_tick from pgq.subscription s join pgq.consumer c "
        "on c.co_id = s.sub_consumer where co_name = %s",
        [WORKER],
    )
    leaf.root.execute("insert into t values (2, 2)")
    leaf.catch_up()
    # As if the worker had died between its commit and finish_batch.
    leaf.root.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, WORKER, last])
    while leaf.worker.work():
        pass
    assert len(leaf.same("t")) == 2
    leaf.root.execute("insert into t values (3, 3)")
    leaf.catch_up()
    assert len(leaf.same("t")) == 3


def test_an_old_transaction_that_writes_late_across_slices(
    make_leaf: Callable[..., Leaf],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="vedur")
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.root.execute("insert into t values (1, 'old'), (2, 'other')")
    leaf.catch_up()
    late, early = connect(leaf.root.connstr), connect(leaf.root.connstr)
    leaf.root.execute("delete from t where id = 1")
    late.execute("update t set v = 'x' where id = 2")
    early.execute("insert into t values (1, 'new')")
    border = early.value("select txid_current()")
    early.commit()
    late.execute("update t set v = 'late' where id = 1")
    late.commit()
    late.close()
    early.close()

    def cut_there(first: Tick, last: Tick, *_: object) -> list[Slice]:
        total = whole(first, last)
        return [
            dataclasses.replace(total, high=border),
            dataclasses.replace(total, low=border, also=()),
        ]

    monkeypatch.setattr("vedur.worker.batch.cut", cut_there)
    leaf.catch_up()
    assert leaf.same("t") == ["(1,late)", "(2,x)"]
    assert "public.t: replayed row by row" in caplog.messages
