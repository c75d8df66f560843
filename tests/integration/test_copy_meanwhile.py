"""What happens to a table while it is copied: other policies, scripts, other workers, odd events.

The tasks run in this process: Spark only carries them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur import failpoint
from vedur.catalog.tables import change_table_attr
from vedur.pipeline.copy import SparkLoader
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.timeout(400)]


@pytest.fixture
def lab(quick_lab: Lab) -> Lab:
    quick_lab.root.execute("create table t (id int primary key, a text)")
    quick_lab.leaf.execute("create table t (id int primary key, a text)")
    quick_lab.root.execute("insert into t select g, 'x' || g from generate_series(1, 100) g")
    return quick_lab


def add(lab: Lab, attrs: str | None = None) -> None:
    """Without a key on the leaf, so that what comes twice is seen."""
    lab.add("public.t", attrs=attrs)
    lab.leaf.execute("alter table t drop constraint t_pkey")


def once(step: Step, do: Callable[[], None], seen: list[Step]) -> Callable[[str, Step], None]:
    """A hook that does something at the first time of a step, and notes all steps."""

    def hook(_table: str, now: Step) -> None:
        first = now is step and step not in seen
        seen.append(now)
        if first:
            do()

    return hook


@pytest.mark.parametrize("step", [Step.STRIP, Step.LOAD, Step.REBUILD, Step.HAND_OVER])
def test_another_policy_does_not_begin_a_copy_anew(lab: Lab, step: Step) -> None:
    def other_policy() -> None:
        with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
            change_table_attr(db, QUEUE, "public.t", "on_error", "quarantine-row")

    seen: list[Step] = []
    add(lab, "skip_truncate=1")
    lab.start(once(step, other_policy, seen))
    lab.wait_ok()
    lab.settle()
    lab.same("t")
    assert seen.count(Step.REGISTER) == seen.count(Step.LOAD) == 1
    attrs = lab.leaf.value("select table_attrs from londiste.table_info")
    assert attrs == "skip_truncate=1&on_error=quarantine-row"


def test_a_column_that_a_script_is_about_to_bring_is_copied(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is later than the script, the worker is not there yet."""
    planned = threading.Event()
    real = SparkLoader.plan

    def plan(self: SparkLoader, *args: Any, **named: Any) -> Any:
        made = real(self, *args, **named)
        planned.set()
        return made

    def hold_worker(place: str) -> None:
        if place == "batch.taken":
            assert planned.wait(120)

    monkeypatch.setattr(SparkLoader, "plan", plan)
    add(lab)
    script = "alter table t add c text default 'old'"
    with lab.root.transaction():
        call(lab.root, "londiste.execute_start", QUEUE, "f.sql", script, True)
        lab.root.execute(script)
        call(lab.root, "londiste.execute_finish", QUEUE, "f.sql")
    lab.root.execute("update t set c = 'c' || id")
    failpoint.set_hook(hold_worker)
    lab.start()
    lab.wait_ok()
    lab.settle()
    lab.same("t")
    assert lab.leaf.value("select count(*) from t where c = 'c' || id") == 100
    assert lab.debris() == []


def test_a_column_that_nothing_brings_stops_the_copy_if_asked_for(lab: Lab) -> None:
    lab.root.execute("alter table t add c text default 'c'")
    lab.missing_columns = "stop"
    add(lab)
    lab.start()
    error = "select error from vedur.copy_progress"
    lab.wait_until(lambda: "columns c are only on the provider" in str(lab.leaf.value(error)))
    assert lab.leaf.value("select count(*) from t") == 0
    lab.leaf.execute("alter table t add c text")
    lab.wait_ok()
    lab.settle()
    lab.same("t")


def test_a_column_that_nothing_brings_is_left_out(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.root.execute("alter table t add c text default 'c'")
    add(lab)
    lab.start()
    lab.wait_ok()
    lab.settle()
    lab.same("(select id, a from t) s", "t")
    assert "public.t: columns c are only on the provider, not copied" in caplog.text


def test_changes_that_another_worker_has_replayed_are_not_replayed_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SparkReplay.stage
    times: list[int] = []

    def stage(self: SparkReplay, *args: Any, **named: Any) -> Any:
        made = real(self, *args, **named)
        if " copy " in self.queue and not times:
            times.append(made.events)
            with vdb.connect(lab.leaf.connstr, autocommit=True) as db, db.transaction():
                db.execute("set local session_replication_role = replica")
                db.execute("insert into t values (5000, 'once')")
                db.execute(
                    "update pgq_node.local_state set last_tick_id = %s"
                    " where consumer_name like '%%.copy.%%'",
                    [lab.root.value("select max(tick_id) from pgq.tick")],
                )
        return made

    monkeypatch.setattr(SparkReplay, "stage", stage)

    def write() -> None:
        lab.write("insert into t values (5000, 'once')")

    add(lab)
    lab.start(once(Step.CATCH_UP, write, []))
    lab.wait_ok()
    lab.settle()
    assert times == [1]
    lab.same("t")


def test_an_event_that_names_its_table_in_its_type_only(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"op": "INSERT", "table": ["public", "t"], "pkey": ["id"]}
    real = SparkReplay.stage
    by_copy: list[int] = []

    def stage(self: SparkReplay, *args: Any, **named: Any) -> Any:
        made = real(self, *args, **named)
        if " copy " in self.queue:
            by_copy.append(made.events)
        return made

    monkeypatch.setattr(SparkReplay, "stage", stage)

    def write() -> None:
        with vdb.connect(lab.root.connstr, autocommit=True) as db:
            db.execute("set session_replication_role = replica")  # no trigger logs it
            with db.transaction():
                db.execute("insert into t values (5000, 'json')")
                data = json.dumps({"id": 5000, "a": "json"})
                text = "select pgq.insert_event(%s, %s, %s)"
                db.query(text, [QUEUE, json.dumps(kind), data])
        lab.write()

    add(lab)
    lab.start(once(Step.CATCH_UP, write, []))
    lab.wait_ok()
    lab.settle()
    assert by_copy == [1]
    lab.same("t")


def test_a_table_that_is_altered_between_staging_and_merge(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SparkReplay.stage
    times: list[str] = []

    def stage(self: SparkReplay, *args: Any, **named: Any) -> Any:
        made = real(self, *args, **named)
        if " copy " in self.queue:
            if not times:
                with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
                    db.execute("alter table t alter a type varchar(20)")
            times.append(self.queue)
        return made

    monkeypatch.setattr(SparkReplay, "stage", stage)

    def write() -> None:
        lab.write("insert into t values (5000, 'once')")

    lab.retry_sleep = 3600
    lab.add("public.t")
    lab.start(once(Step.CATCH_UP, write, []))
    lab.wait_ok()
    lab.settle()
    assert len(times) == 2
    lab.same("t")
