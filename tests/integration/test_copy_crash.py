"""A worker that dies at any step of a first copy, and what the next one makes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.copy_lab import Lab
from vedur import db as vdb
from vedur.errors import ConnectError
from vedur.worker.copying_steps import Step

pytestmark = [pytest.mark.spark]

DDL = """
create table parent (id int primary key, a text);
create table t (id int primary key, a text unique, n int, p int references parent);
create index t_n on t (n) where n > 0;
"""


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    made.root.execute(DDL)
    made.leaf.execute(DDL)
    made.root.execute("insert into parent select g, 'p' from generate_series(1, 100) g")
    made.root.execute(
        "insert into t select g, 'x' || g, g, g % 100 + 1 from generate_series(1, 20000) g"
    )
    made.add("public.parent", "public.t")
    yield made
    made.close()


class Dies:
    """Ends a copy at a step; after that every step fails, as in a process that is gone."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.dead = threading.Event()

    def __call__(self, table: str, step: Step) -> None:
        if self.dead.is_set() or (table == "public.t" and step is self.step):
            self.dead.set()
            raise ConnectError("the process died here")


@pytest.mark.parametrize("step", list(Step), ids=lambda s: s.name.lower())
def test_a_copy_that_died_is_taken_up_again(lab: Lab, step: Step) -> None:
    before = lab.structure("parent", "t")
    dies = Dies(step)
    lab.retry_sleep = 3600
    lab.start(dies)
    lab.wait_until(dies.dead.is_set)
    lab.root.execute("update t set n = -n where id % 3 = 0; delete from t where id % 7 = 0")
    lab.stop()
    lab.retry_sleep = 0.2
    lab.start()
    lab.wait_ok()
    lab.wait_until(lambda: lab.leaf.value("select count(*) from londiste.pending_fkeys") == 0)
    lab.settle()
    lab.same("parent")
    lab.same("t")
    assert lab.structure("parent", "t") == before
    lab.wait_until(lambda: lab.debris() == [])
