"""A bad event while a first copy catches up: the table waits, others go on, and it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE, WORKER
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.ops.quarantine.list_errors import errors
from vedur.ops.session import Session
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

#: Seconds; a busy machine takes minutes for what takes seconds on a quiet one.
PATIENCE = 400.0


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    yield made
    made.close()


def test_a_copy_that_meets_a_bad_event_stops_by_name(lab: Lab) -> None:
    for db in (lab.root, lab.leaf):
        db.execute(
            "create table t (id int primary key, v text);"
            "create table other (id int primary key, v text)"
        )
    lab.leaf.execute("alter table t alter v type varchar(6)")
    lab.root.execute("insert into t select i, 'v' || i from generate_series(1, 500) i")
    planted = False

    def hook(table: str, step: Step) -> None:
        nonlocal planted
        if table == "public.t" and step is Step.REBUILD and not planted:
            planted = True
            with vdb.connect(lab.root.connstr, autocommit=True) as db:
                db.execute("update t set v = 'much too long' where id = 13")
                for _ in range(2):  # one that began before the update may have come between
                    db.execute("select pgq.force_tick(%s)", [QUEUE])
                    db.execute("select pgq.ticker(%s)", [QUEUE])
                tick = db.value("select max(tick_id) from pgq.tick")
            passed(tick)

    def passed(tick: int) -> None:
        """Wait until the worker has gone past the bad event: the copy must then apply it."""
        with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
            last = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
            assert until(lambda: db.value(last, [WORKER]) >= tick, PATIENCE)

    lab.add("public.t", "public.other")
    lab.start(hook)
    found = "select error from vedur.copy_progress where table_name = 'public.t'"
    lab.wait_until(lambda: "[ev_id=" in (lab.leaf.value(found) or ""), PATIENCE)
    assert 'table "public.t": value too long' in lab.leaf.value(found)
    lab.root.execute("insert into other values (1, 'goes on')")
    lab.wait_until(lambda: lab.leaf.value("select count(*) from other") == 1, PATIENCE)
    seen: list[tuple[str, str | None]] = []

    def shown() -> bool:  # each attempt begins with a clean slate
        with Session(settings) as session:
            seen[:] = [(report.kind, report.table) for report in errors(session)]
        return ("event", "public.t") in seen

    settings = LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf")
    lab.wait_until(shown, PATIENCE)
    assert seen == [("event", "public.t")]
    lab.leaf.execute("alter table t alter v type text")
    lab.wait_ok(PATIENCE)
    lab.settle()
    lab.same("t")
    lab.same("other")
