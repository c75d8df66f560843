"""Copies that do not come to the meeting, and tables that go while nobody looks after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.test_copy_crash import Dies
from tests.labs.first_copy import Lab
from vedur import db as vdb
from vedur.tables.mapping import TableMap
from vedur.tables.stages import stage_prefix
from vedur.worker.first_copy.catch_up import CatchUp
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.spark]

DDL = "create table t (id int primary key, a text); create table other (id int primary key)"


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    made.root.execute(DDL)
    made.leaf.execute(DDL)
    made.root.execute("insert into t select g, 'x' || g from generate_series(1, 500) g")
    yield made
    made.close()


@pytest.mark.draw("copies")
def test_other_tables_go_on_without_a_copy_that_fails_at_the_hand_over(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CatchUp._hand_over
    broken, met = threading.Event(), threading.Event()
    broken.set()

    def meet(self: CatchUp, *args: Any) -> bool:
        if self.job.name == "public.t" and broken.is_set():
            met.set()
            raise RuntimeError("cannot come")
        return real(self, *args)

    monkeypatch.setattr(CatchUp, "_hand_over", meet)
    lab.retry_sleep = 3600
    lab.add("public.other")
    lab.start()
    lab.wait_ok()
    assert lab.copying is not None
    lab.copying._hand_over.setup = replace(lab.copying.setup, hand_over_wait=1.0)
    lab.add("public.t")
    lab.wait_until(met.is_set)
    lab.root.execute("insert into other values (1); update t set a = 'late' where id <= 10")
    lab.wait_until(lambda: lab.leaf.value("select count(*) from other") == 1)
    assert lab.states()["public.t"] == "catching-up"
    broken.clear()
    lab.copying.schedule.retry_at_once()
    lab.wait_ok()
    lab.settle()
    lab.same("t")


def test_a_table_removed_after_a_crash_leaves_nothing(lab: Lab) -> None:
    dies = Dies(Step.CATCH_UP)
    lab.retry_sleep = 3600
    lab.add("public.t")
    lab.start(dies)
    lab.wait_until(dies.dead.is_set)
    lab.stop()
    name = "q copy public.t"
    wanted = [TableMap("public.t", "public.t", None, None)]
    lab._applier(name, lab.provider).specs(lab.leaf, wanted, slot=0)
    staged = "select count(*) from pg_class where starts_with(relname, %s) and relkind = 'r'"
    assert lab.leaf.value(staged, [stage_prefix(name)]) > 0
    assert lab.debris() != []
    lab.leaf.execute("select * from londiste.local_remove_table('q', 'public.t')")
    lab.start()
    lab.wait_until(lambda: lab.debris() == [])
    lab.wait_until(lambda: lab.leaf.value(staged, [stage_prefix(name)]) == 0)
    lab.wait_until(lambda: lab.leaf.value("select count(*) from vedur.copy_progress") == 0)
