"""Scripts (`execute`) while a table is copied: its rows are in the end what they are on the root.

A script runs once on the whole database of a node, at the worker's place in the stream. A table
under first copy is never at that place: its rows are older, or the script is in them already.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE, WORKER
from vedur import db as vdb
from vedur import failpoint
from vedur.config import LondisteSettings
from vedur.ops.execute.run import execute
from vedur.ops.remove_table import remove_table
from vedur.ops.session import Session
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.timeout(400)]

#: Scripts, each followed by changes that the queue brings.
REMOVES = "delete from public.t where a = 'done'"
COUNTS = "update public.t set n = n + 1"
ADDS = "alter table public.t add c text"
HIDDEN = "do $$ begin execute 'update ' || 'pub' || 'lic.t set n = n + 1'; end $$"
ELSEWHERE = "create table public.elsewhere (id int primary key); comment on table t is 'x'"
BEFORE = "insert into t select g, 'done', 1 from generate_series(501, 510) g"
AFTER = [
    "insert into t select g, 'done', 1 from generate_series(1001, 1010) g",
    "update t set a = 'later' where id % 10 = 0",
    "delete from t where id % 10 = 1",
]


@pytest.fixture
def lab(quick_lab: Lab) -> Lab:
    for db in (quick_lab.root, quick_lab.leaf):
        db.execute("create table t (id int primary key, a text, n int)")
    quick_lab.root.execute(
        "insert into t select g, case when g % 2 = 0 then 'done' else 'x' end, 0"
        " from generate_series(1, 100) g"
    )
    quick_lab.add("public.t")
    quick_lab.leaf.execute("alter table t drop constraint t_pkey")  # what comes twice is seen
    return quick_lab


def run(lab: Lab, tmp: Path, script: str, name: str = "s.sql") -> None:
    (tmp / name).write_text(script)
    settings = LondisteSettings(db=lab.root.connstr, queue_name=QUEUE, job_name="root")
    with Session(settings) as root:
        execute(root, [str(tmp / name)])


def change(lab: Lab, script: str) -> None:
    """Changes behind the script, whose events have the new column where it brings one."""
    also = ["update t set c = 'c' || id where id % 3 = 0"] if script == ADDS else []
    lab.write(*AFTER, *also)


def pass_all(lab: Lab) -> None:
    """Wait, in any thread, until the worker has applied what the root has now."""
    with (
        vdb.connect(lab.root.connstr, autocommit=True) as root,
        vdb.connect(lab.leaf.connstr, autocommit=True) as leaf,
    ):
        newest = root.value("select max(tick_id) from pgq.tick")
        text = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
        lab.wait_until(lambda: leaf.value(text, [WORKER]) >= newest)


def once(step: Step, do: Callable[[], None], seen: list[Step]) -> Callable[[str, Step], None]:
    def hook(_table: str, now: Step) -> None:
        first = now is step and step not in seen
        seen.append(now)
        if first:
            do()

    return hook


STEPS = [Step.SNAPSHOT, Step.IN_COPY, Step.LOAD, Step.REBUILD, Step.CATCH_UP, Step.HAND_OVER]


@pytest.mark.draw("copies")
@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.name.lower())
@pytest.mark.parametrize("script", [COUNTS, HIDDEN, ADDS], ids=["counts", "hidden", "adds"])
def test_the_worker_runs_a_script_while_the_copy_is_at_a_step(
    lab: Lab, tmp_path: Path, script: str, step: Step
) -> None:
    def script_comes() -> None:
        lab.write(BEFORE)
        run(lab, tmp_path, script)
        change(lab, script)
        pass_all(lab)

    seen: list[Step] = []
    lab.start(once(step, script_comes, seen))
    lab.wait_until(lambda: step in seen)
    lab.wait_ok()
    lab.settle()
    lab.same("t")
    assert lab.debris() == []


@pytest.mark.draw("copies")
@pytest.mark.parametrize("script", [REMOVES, ADDS], ids=["removes", "adds"])
def test_the_copy_is_ahead_of_a_script_that_its_snapshot_has_not(
    lab: Lab, tmp_path: Path, script: str
) -> None:
    """It replays what lies behind the script before the worker has run it."""
    _stop_worker_until(lab, "wanna-sync")
    seen: list[Step] = []

    def script_comes() -> None:
        lab.write(BEFORE)
        run(lab, tmp_path, script)
        change(lab, script)

    lab.start(once(Step.CATCH_UP, script_comes, seen))
    lab.wait_ok()
    lab.settle()
    lab.same("t")


@pytest.mark.draw("copies")
@pytest.mark.parametrize("script", [COUNTS, ADDS], ids=["counts", "adds"])
def test_the_snapshot_has_a_script_that_the_worker_has_yet_to_run(
    lab: Lab, tmp_path: Path, script: str
) -> None:
    run(lab, tmp_path, script)
    change(lab, script)
    _stop_worker_until(lab, "wanna-sync" if script != ADDS else "in-copy")
    lab.start()
    lab.wait_ok()
    lab.settle()
    lab.same("t")


def _stop_worker_until(lab: Lab, state: str) -> None:
    held = threading.Event()

    def hold(place: str) -> None:
        if place == "batch.staged" and not held.is_set():
            held.set()
            with vdb.connect(lab.leaf.connstr, autocommit=True) as leaf:
                text = "select merge_state from londiste.table_info"
                lab.wait_until(lambda: str(leaf.value(text)).startswith(state))

    failpoint.set_hook(hold)


def test_a_script_about_something_else_lets_the_copy_go_on(lab: Lab, tmp_path: Path) -> None:
    seen: list[Step] = []

    def script_comes() -> None:
        run(lab, tmp_path, ELSEWHERE)
        change(lab, ELSEWHERE)
        pass_all(lab)

    lab.start(once(Step.LOAD, script_comes, seen))
    lab.wait_ok()
    lab.settle()
    lab.same("t")
    assert seen.count(Step.REGISTER) == seen.count(Step.LOAD) == 1


@pytest.mark.draw("copies")
def test_a_copy_that_cannot_begin_anew_stops_the_script(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can tell what it has loaded from the rows that it was to leave there."""
    lab.leaf.execute("update londiste.table_info set table_attrs = 'skip_truncate=1'")
    mine = "insert into t values (9001, 'mine', 0)"
    lab.leaf.execute(f"set session_replication_role = replica; {mine}")
    seen: list[Step] = []
    _stop_worker_until(lab, "wanna-sync")

    def script_comes() -> None:
        run(lab, tmp_path, COUNTS)
        lab.write("update t set a = 'later' where id = 2")  # the copy goes on to behind the script

    lab.start(once(Step.CATCH_UP, script_comes, seen))
    lab.wait_until(lambda: "it cannot begin anew" in caplog.text)
    assert lab.leaf.value("select sum(n) from t where id <> 2") == 0
    with lab.session() as leaf:
        remove_table(leaf, ["t"])
    pass_all(lab)
    assert lab.leaf.value("select n from t where id = 9001") == 1
    assert seen.count(Step.REGISTER) == 1
