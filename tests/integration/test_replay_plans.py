"""What is kept from batch to batch, Spark's plan and staging tables, and when it is made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER
from vedur.errors import StateError
from vedur.pipeline.spark import tasks as spark_tasks

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks for which plans are made."""
    tasks: list[Any] = []
    plan = spark_tasks._make_plan

    def noted(spark: Any, task: Any, items: Any, count: int) -> Any:
        tasks.append(task)
        return plan(spark, task, items, count)

    monkeypatch.setattr(spark_tasks, "_make_plan", noted)
    return tasks


def test_a_plan_is_kept_while_only_slices_differ(
    make_leaf: Callable[..., Leaf], made: list[Any], spark: Any
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v int)", flags="AIUDJ")
    leaf.catch_up()
    made.clear()
    for i in range(5):
        leaf.root.execute(f"insert into t values ({i}, {i})")
        leaf.root.execute(f"update t set v = v + 1 where id < {i}")
        leaf.catch_up()
    assert len(leaf.same("t")) == 5
    assert len(made) <= 1  # the tables may have been looked at before
    # What travels as a property can be seen in Spark's logs and pages.
    said = spark.sparkContext.getLocalProperty("vedur.items")
    assert "ev_txid" in said
    for secret in ("host=", "port=", "dbname=", "password"):
        assert secret not in said
    leaf.leaf.execute("alter table t add column w text")
    leaf.root.execute("alter table t add column w text")
    made.clear()
    for i in range(5, 8):
        leaf.root.execute(f"insert into t values ({i}, {i}, 'new')")
        leaf.catch_up()
    assert len(leaf.same("t")) == 8
    assert made
    assert made[-1].tables["public.t"].by_name.keys() == {"id", "v", "w"}
    assert len(made) < 3


def test_staging_tables_outlive_a_pause_but_not_an_error(make_leaf: Callable[..., Leaf]) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v int)", flags="AIUDJ")

    def tables_after_a_change() -> set[int]:
        leaf.root.execute("insert into t select count(*), 1 from t")
        leaf.catch_up()
        leaf.same("t")
        rows = leaf.leaf.query(
            "select oid from pg_class where relname like 'stage%' and relkind = 'r'"
        )
        return {row.oid for row in rows}

    before = tables_after_a_change()
    assert before
    for paused in (True, False):
        leaf.leaf.execute(f"select pgq_node.set_consumer_paused('{QUEUE}', '{WORKER}', {paused})")
        leaf.worker.work()
    assert tables_after_a_change() >= before
    leaf.worker._recover(StateError("whatever it was"))
    assert not tables_after_a_change() & before
