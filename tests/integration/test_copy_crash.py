"""A worker that dies at any step of a first copy, and what the next one makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Lab
from vedur import db as vdb
from vedur.errors import ConnectError
from vedur.pipeline.copy import SparkLoader
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DDL = """
create table parent (id int primary key, a text);
create table t (id int primary key, a text unique, n int, p int references parent);
create index t_n on t (n) where n > 0;
"""


@pytest.fixture
def lab(
    oldest: Any,
    newest: Any,
    make_db_on: Callable[..., vdb.Database],
    request: pytest.FixtureRequest,
) -> Iterator[Lab]:
    """On Spark, but for a test of one step in which Spark has no part."""
    found = getattr(request.node, "callspec", None)
    step = found.params.get("step") if found else None
    on_spark = step is None or step in ON_SPARK
    spark = request.getfixturevalue("spark" if on_spark else "without_spark")
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


#: The steps in which tasks run.
ON_SPARK = (Step.LOAD, Step.CATCH_UP)


class Dies:
    """Ends a copy at a step; after that every step fails, as in a process that is gone."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.dead = threading.Event()

    def __call__(self, table: str, step: Step) -> None:
        if self.dead.is_set() or (table == "public.t" and step is self.step):
            self.dead.set()
            raise ConnectError("the process died here")


@pytest.mark.draw(2)
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


@pytest.mark.draw("copies")
def test_spark_fails_and_other_errors_are_shown_and_tried_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SparkLoader.load
    failures = iter(["job aborted\nlong Java story"])

    def load(self: SparkLoader, *args: Any) -> int:
        for text in failures:
            raise RuntimeError(text)
        return real(self, *args)

    monkeypatch.setattr(SparkLoader, "load", load)
    lab.retry_sleep = 2.0
    lab.start()
    error = "select error from vedur.copy_progress where table_name = 'public.parent'"
    lab.wait_until(lambda: lab.leaf.value(error) == "job aborted")
    lab.wait_ok()
    lab.same("parent")
    lab.same("t")
    assert lab.leaf.value(error) is None


@pytest.mark.draw("copies")
def test_a_table_removed_before_its_turn_leaves_nothing(lab: Lab) -> None:
    def hook(table: str, step: Step) -> None:
        if table == "public.parent" and step is Step.LOAD:
            with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
                db.execute("select * from londiste.local_remove_table('q', 'public.t')")
            assert lab.copying is not None
            lab.wait_until(lambda: lab.copying is not None and _cancelled(lab))

    def _cancelled(lab: Lab) -> bool:
        job = lab.copying.schedule.find("public.t") if lab.copying else None
        return job is None or job.cancelled

    lab.start(hook)
    lab.wait_ok()
    lab.same("parent")
    lab.wait_until(lambda: lab.debris() == [])
    assert lab.leaf.value("select count(*) from t") == 0


@pytest.mark.draw("copies")
def test_timeouts_of_the_servers_do_not_end_a_copy(lab: Lab) -> None:
    names = ["statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"]
    for db in (lab.root, lab.leaf):
        base = db.value("select quote_ident(current_database())")
        late = ["transaction_timeout"] if db.server_version >= 170000 else []
        for name in names + late:
            db.execute(f"alter database {base} set {name} = '300ms'")
    failed: list[str | None] = []

    def hook(table: str, step: Step) -> None:
        if step in (Step.IN_COPY, Step.LOAD, Step.REBUILD, Step.HAND_OVER):
            time.sleep(0.7)
        with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
            failed.extend(
                r.error for r in db.query("select error from vedur.copy_progress") if r.error
            )
        steps.append((table, step))

    steps: list[tuple[str, Step]] = []
    lab.start(hook)
    lab.wait_ok()
    lab.same("parent")
    lab.same("t")
    assert failed == []
    assert steps.count(("public.t", Step.LOAD)) == 1


class Once:
    """Does something to the leaf when a table comes to a step for the first time."""

    def __init__(self, lab: Lab, step: Step, script: str) -> None:
        self.lab, self.step, self.script = lab, step, script
        self.done = threading.Event()
        self.states: list[tuple[str, str | None]] = []

    def __call__(self, table: str, step: Step) -> None:
        if table != "public.t":
            return
        with vdb.connect(self.lab.leaf.connstr, autocommit=True) as db:
            if step is self.step and not self.done.is_set():
                self.done.set()
                db.execute(self.script)
            if self.done.is_set():
                state = "select merge_state from londiste.table_info where table_name = %s"
                self.states.append((step.name, db.value(state, [table])))


RESYNC = "select * from londiste.local_set_table_state('q', 'public.t', null, null)"
ADD_ANEW = """
select * from londiste.local_remove_table('q', 'public.t');
select * from londiste.local_add_table(
    'q', 'public.t', '{}', 'copy_condition=id%3c%3d500', 'other.t2')
"""


@pytest.mark.draw(1)
@pytest.mark.parametrize("step", [Step.STRIP, Step.LOAD, Step.REBUILD, Step.HAND_OVER])
def test_resync_during_a_copy_begins_another(lab: Lab, step: Step) -> None:
    before = lab.structure("parent", "t")
    resync = Once(lab, step, RESYNC)
    lab.start(resync)
    lab.wait_until(resync.done.is_set)
    lab.wait_ok()
    lab.wait_until(lambda: lab.leaf.value("select count(*) from londiste.pending_fkeys") == 0)
    lab.settle()
    lab.same("t")
    assert lab.structure("parent", "t") == before
    lab.wait_until(lambda: lab.debris() == [])
    steps = [name for name, _ in resync.states]
    assert "REGISTER" in steps
    following = steps[: steps.index("REGISTER")]
    assert "CATCH_UP" not in following
    assert "FOREIGN_KEYS" not in following


@pytest.mark.draw(1)
@pytest.mark.parametrize("step", [Step.STRIP, Step.REBUILD, Step.HAND_OVER])
def test_a_copy_does_not_finish_over_a_newer_registration(lab: Lab, step: Step) -> None:
    lab.leaf.execute("create schema other; create table other.t2 (like t including all)")
    before = lab.structure("parent", "t", "other.t2")
    lab.leaf.execute(
        """set session_replication_role = replica; insert into t (id, a) values (-1, 'kept');
        reset session_replication_role"""
    )
    anew = Once(lab, step, ADD_ANEW)
    lab.start(anew)
    lab.wait_until(anew.done.is_set)
    lab.wait_ok()
    lab.wait_until(lambda: lab.leaf.value("select count(*) from londiste.pending_fkeys") == 0)
    lab.settle()
    lab.same("t", "other.t2", "id <= 500")
    assert lab.leaf.value("select count(*) from other.t2") == 500
    if step is Step.STRIP:  # no longer a table of the set: nobody may empty it
        assert lab.leaf.value("select count(*) from t") == 1
    assert lab.structure("parent", "t", "other.t2") == before
    lab.wait_until(lambda: lab.debris() == [])
    steps = [name for name, _ in anew.states]
    assert "CATCH_UP" not in steps[: steps.index("REGISTER")]
