"""Many small tables are loaded together, and each fails, waits and is taken up again by itself.

The tasks run in this process: Spark only carries them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.first_copy import Crash, Lab
from tests.labs.in_process import try_here
from vedur import failpoint
from vedur.errors import ConnectError
from vedur.pipeline.copy import load

pytestmark = [pytest.mark.timeout(400)]

COUNT = 12
DDL = "create table {t} (id int primary key, a text); create index {t}_a on {t} (a)"
INDEXES = "select string_agg(oid::text, ' ' order by oid) from pg_class where relname like 's%'"


@pytest.fixture
def lab(quick_lab: Lab) -> Iterator[Lab]:
    quick_lab.slice_bytes = 8 << 20  # tables of up to 256 kB are small
    for i in range(COUNT):
        for db in (quick_lab.root, quick_lab.leaf):
            db.execute(DDL.format(t=f"s{i}"))
        if i % 2:
            quick_lab.root.execute(f"insert into s{i} select g, g from generate_series(1, {i}) g")
    yield quick_lab


def names() -> list[str]:
    return [f"public.s{i}" for i in range(COUNT)]


def check(lab: Lab, *tables: str) -> None:
    for table in tables:
        lab.same(table)
    assert until(lambda: not lab.debris()), lab.debris()


@pytest.mark.draw("copies")
def test_small_tables_share_a_job_and_keep_their_indexes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[str] = []

    def count(spark: Any, do: Any, items: Any) -> Any:
        jobs.append(repr(items[0]))
        return try_here(spark, do, items)

    monkeypatch.setattr(load, "try_tasks", count)
    odd = {
        "big": "create table big (id int primary key, a text)",
        "bad": "create table bad (id int primary key, a text)",
        "wide": "create table wide (id int primary key, a text, c int)",
    }
    for ddl in odd.values():
        lab.root.execute(ddl)
    lab.leaf.execute(odd["big"])
    lab.leaf.execute("create table bad (id int primary key, a int)")
    lab.leaf.execute("create table wide (id int primary key, a text)")
    lab.root.execute("insert into big select g, repeat('x', 500) from generate_series(1, 2000) g")
    lab.root.execute("insert into bad values (1, 'no number')")
    lab.root.execute("insert into wide values (1, 'x', 7)")
    before = lab.leaf.value(INDEXES)
    lab.add(*names(), "public.big", "public.bad", "public.wide")
    lab.start()
    lab.wait_until(lambda: sorted(map(str, lab.states().values())).count("ok") == COUNT + 2)
    assert lab.states()["public.bad"] == "in-copy"
    error = "select error from vedur.copy_progress where table_name = 'public.bad'"
    lab.wait_until(lambda: "invalid input syntax" in str(lab.leaf.value(error)))
    together = [job for job in jobs if "Together" in job]
    alone = {job for job in jobs if "Together" not in job}
    assert together == [f"LoadTogether({COUNT + 1} tables)"]
    assert alone == {f"LoadTask(public.{name})" for name in odd}
    assert lab.leaf.value(INDEXES) == before
    lab.leaf.execute("alter table bad alter a type text")
    lab.wait_ok()
    lab.settle()
    lab.same("(select id, a from wide) w", "wide")
    check(lab, "big", "bad", *(f"s{i}" for i in range(COUNT)))


INSIDE = ("in_copy", "strip", "truncate", "emptied", "load", "loaded", "rebuild", "rebuilt")


@pytest.mark.draw("copies")
def test_each_step_may_fail_for_a_table_among_others(lab: Lab) -> None:
    left = [f"copy.{name}" for name in INSIDE]

    def hook(place: str) -> None:
        if place in left:
            left.remove(place)
            raise ConnectError("the connection broke here")

    failpoint.set_hook(hook)
    lab.add(*names())
    lab.start()
    lab.wait_ok()
    lab.settle()
    assert left == []
    check(lab, *(f"s{i}" for i in range(COUNT)))


@pytest.mark.draw(1)
@pytest.mark.parametrize("place", ["copy.emptied", "copy.loaded", "copy.rebuilt"])
def test_a_worker_that_dies_among_small_tables(lab: Lab, place: str) -> None:
    """Some are done, some half: the next worker finds each in its own state."""
    seen: list[str] = []

    def hook(now: str) -> None:
        if now == place:
            seen.append(now)
            if len(seen) == 4:
                raise Crash

    failpoint.set_hook(hook)
    lab.add(*names())
    lab.start()
    lab.wait_until(lambda: len(seen) == 4)
    lab.stop()
    lab.root.execute("update s1 set a = 'later'; insert into s2 values (1, 'later')")
    lab.start()
    lab.wait_ok()
    lab.settle()
    check(lab, *(f"s{i}" for i in range(COUNT)))
