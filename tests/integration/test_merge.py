"""Tables of several sets in one table: no part ever takes the rows of another away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.labs.in_process import compare_here as compare_here
from tests.labs.in_process import without_spark  # noqa: F401
from tests.labs.merge import MergeLab, PartLab, make_merge
from tests.labs.pair import call
from vedur import db as vdb
from vedur import failpoint
from vedur.catalog.tables import change_table_attr
from vedur.config import LondisteSettings
from vedur.errors import ConnectError, RefusedError, StateError, VedurError
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.execute.run import execute
from vedur.ops.remove_table import remove_table
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.resync import resync
from vedur.ops.session import Session
from vedur.pipeline.copy import Budget
from vedur.pipeline.replay.stage import SparkReplay
from vedur.status.snapshot import read_node
from vedur.tables.indexes import NOTHING_GONE, TableDdl
from vedur.worker.first_copy.context import Step

__all__ = ["make_merge"]

MakeMerge = Callable[[int], MergeLab]

DDL = """
create table t (id int primary key, part int not null, v text);
create index t_v on t (v);
"""
STRUCTURE = "select array_agg(indexdef order by indexdef) from pg_indexes where tablename = 't'"


def fill(lab: MergeLab, rows: int = 50) -> None:
    for number, part in enumerate(lab.parts, 1):
        part.root.execute(
            "insert into t select g * 10 + %s, %s, 'x' || g from generate_series(1, %s) g",
            [number, number, rows],
        )


def add(lab: MergeLab, number: int = 1, **options: Any) -> None:
    with lab.parts[number - 1].session() as session:
        add_table(session, AddTable(tables=["t"], **options))


def add_parts(lab: MergeLab, **options: Any) -> None:
    """Each part with a condition of its own."""
    for number in range(1, len(lab.parts) + 1):
        add(lab, number, no_merge=True, copy_condition=f"part = {number}", **options)


def test_all_parts_come_together(make_merge: MakeMerge) -> None:
    """One command for all; old rows go, changes meanwhile and after come, the structure is back."""
    lab = make_merge(3)
    lab.make(DDL, "public.t")
    lab.leaf.execute("insert into t values (-1, 0, 'old')")
    fill(lab)
    before = lab.leaf.value(STRUCTURE)
    add(lab, merge_all=True)
    assert [part.state for part in lab.parts] == [{"public.t": None}] * 3
    stripped: list[Any] = []

    def hook(place: str) -> None:
        if place == "copy.joined":
            stripped.append(lab.parts[0].leaf.connstr)

    failpoint.set_hook(hook)
    lab.start()
    lab.parts[1].root.execute("update t set v = 'changed' where id = 12")
    lab.wait_ok()
    lab.parts[2].root.execute("delete from t where id = 13; insert into t values (3, 3, 'new')")
    lab.settle()
    assert lab.merged() == lab.union()
    assert lab.leaf.value(STRUCTURE) == before
    assert len(stripped) == 3
    lab.wait(lambda: lab.debris() == [])


PLACES = ("copy.announced", "copy.snapshot", "copy.led", "copy.emptied", "copy.load",
          "copy.loaded", "copy.joined", "copy.rebuild", "copy.restored", "copy.replayed",
          "copy.ok")  # fmt: skip


@pytest.mark.draw(2)
@pytest.mark.parametrize("place", PLACES)
def test_a_part_that_dies_anywhere_is_taken_up_again(make_merge: MakeMerge, place: str) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab)
    before = lab.leaf.value(STRUCTURE)
    lab.start()
    died: list[str] = []

    def hook(name: str) -> None:
        if name == place and len(died) < 2:
            died.append(name)
            raise ConnectError("the process died here")

    failpoint.set_hook(hook)
    add(lab, merge_all=True)
    lab.parts[0].root.execute("update t set v = 'again ' || v")
    lab.parts[1].root.execute("delete from t where id = (select max(id) from t)")
    lab.wait_ok()
    assert died
    failpoint.set_hook(None)
    lab.settle()
    assert lab.merged() == lab.union()
    assert lab.leaf.value(STRUCTURE) == before
    lab.wait(lambda: lab.debris() == [])


def test_a_lead_that_is_gone_for_long_keeps_what_others_have_loaded(
    make_merge: MakeMerge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vedur")
    lab = make_merge(3)
    lab.make(DDL, "public.t")
    fill(lab)
    before = lab.leaf.value(STRUCTURE)
    add(lab, merge_all=True)
    lead, *others = lab.parts
    lead.retry_sleep = 3600.0

    def dies(table: str, step: Step) -> None:
        if step is Step.LOAD:
            raise ConnectError("the process died here")

    for part in others:
        part.start()
    lab.wait(lambda: all(part.state == {"public.t": "in-copy"} for part in others))
    said = 'its copy waits until table "public.t" of queue "s1" (node "s1_root"), the first of'
    lab.wait(lambda: sum(said in line for line in caplog.messages) == len(others))
    lead_named = 'wait for table "public.t" of queue "s1" (node "s1_root")'
    lab.wait(lambda: [_waits(lab, part) for part in others] == [lead_named] * 2)
    lead.start(dies)
    lab.wait(lambda: "died here" in lead.error())
    lead.stop()
    # stripped and empty by now: the others load, and wait for the lead with their changes
    others[0].root.execute("update t set v = 'meanwhile' where id = 12")
    lab.wait(lambda: all(part.state == {"public.t": "catching-up"} for part in others))
    assert lab.leaf.value("select count(*) from t") == 100
    assert lab.leaf.value(STRUCTURE) is None
    for part in others:
        lab.wait(lambda p=part: _waits(lab, p) == "wait for the other parts of public.t")  # type: ignore[misc]
    lab.start()
    lab.wait_ok()
    lab.settle()
    assert [_waits(lab, part) for part in lab.parts] == [""] * 3
    assert lab.merged() == lab.union()
    assert lab.leaf.value(STRUCTURE) == before


def _waits(lab: MergeLab, part: PartLab) -> str:
    """What `status` says that its copy waits for."""
    return ", ".join(c.waits for c in read_node(lab.leaf, part.queue, "full").copy_waits)


def test_a_part_that_is_removed_while_it_waits_leaves_nothing(make_merge: MakeMerge) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab)
    add(lab, merge_all=True)
    two = lab.parts[1]
    two.start()
    lab.wait(lambda: "of queue" in _waits(lab, two))
    with two.session() as session:
        remove_table(session, ["t"])
    text = "select count(*) from vedur.copy_progress where queue_name = 's2'"
    lab.wait(lambda: lab.leaf.value(text) == 0)


def test_a_copy_that_waits_for_connections_of_others_ends_with_its_worker(
    make_merge: MakeMerge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other queues of the process may hold them for hours; the next run takes the copy up."""
    monkeypatch.setattr("vedur.pipeline.copy.load.parallelism", lambda _spark: 99)
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab)
    add(lab, merge_all=True)
    common = Budget(1)
    mine = Budget(1, common)
    lab.parts[1].budget = mine
    with common.take(1):
        lab.start()
        lab.wait(lambda: mine._used == 1)  # of its own: it waits for one of all
        lab.parts[1].stop()
        assert mine._used == mine._loads == 0
        assert lab.parts[1].state == {"public.t": "in-copy"}
    lab.start()
    lab.wait_ok()
    assert lab.merged() == lab.union()


def test_so_many_parts_are_loaded_at_a_time(make_merge: MakeMerge) -> None:
    lab = make_merge(3)
    lab.make(DDL, "public.t")
    fill(lab)
    add(lab, merge_all=True, max_parallel_copy=1)
    lock, loading, most = threading.Lock(), set[str](), list[int]()

    def hook(place: str) -> None:
        with lock:
            me = threading.current_thread().name
            if place == "copy.load":
                loading.add(me + str(threading.get_ident()))
                most.append(len(loading))
            elif place == "copy.joined":
                loading.discard(me + str(threading.get_ident()))

    failpoint.set_hook(hook)
    lab.start()
    lab.wait_ok()
    assert most == [1, 1, 1]
    assert lab.merged() == lab.union()


def test_one_part_is_copied_anew_removed_and_added_later(make_merge: MakeMerge) -> None:
    """With conditions each part is its own: its rows go and come, and nobody else's."""
    lab = make_merge(3)
    lab.make(DDL, "public.t")
    fill(lab)
    for number in (1, 2):
        add(lab, number, no_merge=True, copy_condition=f"part = {number}")
    lab.start()
    two = lab.parts[:2]
    lab.wait(lambda: all(part.state == {"public.t": "ok"} for part in two))
    before = lab.leaf.value(STRUCTURE)
    # a third part, while the others are replayed
    add(lab, 3, no_merge=True, copy_condition="part = 3", wait_sync=True)
    lab.settle()
    assert lab.merged() == lab.union()
    # copied anew: what is wrong in the part is mended, what is wrong elsewhere is not its business
    lab.by_hand("delete from t where id in (11, 12)", "insert into t values (992, 2, 'stray')")
    with lab.parts[1].session() as session:
        resync(session, ["t"])
    lab.wait_ok()
    lab.settle()
    missing = [row for row in lab.union() if row.startswith("(11,")]
    assert lab.merged() == sorted(set(lab.union()) - set(missing))
    assert lab.leaf.value(STRUCTURE) == before
    # removed: rows stay, the others go on
    with lab.parts[1].session() as session:
        remove_table(session, ["t"])
    lab.parts[0].root.execute("insert into t values (11, 1, 'once more') on conflict do nothing")
    lab.parts[0].root.execute("update t set v = 'after' where id = 21")
    lab.parts[2].root.execute("delete from t where id = 23")
    lab.settle()
    ids = "select count(*) from t where part = 2"
    assert lab.leaf.value(ids) == 50
    assert lab.leaf.value("select v from t where id = 21") == "after"
    assert lab.leaf.value("select count(*) from t where id = 23") == 0


def test_a_part_is_not_added_while_the_key_is_away(make_merge: MakeMerge) -> None:
    """Another part's first copy has taken the indexes away: the reason says so."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 5)
    one = lab.parts[0]
    one.retry_sleep = 3600.0

    def dies(table: str, step: Step) -> None:
        if step is Step.LOAD:
            raise ConnectError("the process died here")

    add(lab, 1, no_merge=True, copy_condition="part = 1")
    one.start(dies)
    lab.wait(lambda: "died here" in one.error())
    with pytest.raises(StateError, match="has taken the key of that away until its rows are there"):
        add(lab, 2, no_merge=True, copy_condition="part = 2")
    one.stop()
    one.start()
    lab.wait(lambda: one.state == {"public.t": "ok"})
    add(lab, 2, no_merge=True, copy_condition="part = 2")
    lab.start()
    lab.wait_ok()
    assert lab.merged() == lab.union()


def test_a_part_that_leaves_in_the_middle_of_its_copy_takes_no_rows_away(
    make_merge: MakeMerge,
) -> None:
    """Whether the shard's root removes it or a command does; the other part is in sync."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 5)
    one, two = lab.parts
    lab.leaf.execute("insert into t values (11, 1, 'x1')")
    add(lab, 1, no_merge=True, copy_condition="part = 1", expect_sync=True)
    before = lab.leaf.value(STRUCTURE)
    for state in ("in-copy", "catching-up"):
        add(lab, 2, no_merge=True, copy_condition="part = 2")
        # what a part has stored that leads while the other is in sync
        lab.leaf.execute(
            "update londiste.table_info set merge_state = %s, dropped_ddl = %s"
            " where queue_name = 's2'",
            [state, TableDdl((NOTHING_GONE,)).script()],
        )
        if state == "in-copy":
            with two.session() as session:
                remove_table(session, ["t"])
        else:
            # as a worker replays the event: no trigger stands in the way
            lab.by_hand("select londiste.global_remove_table('s2', 'public.t')")
        assert lab.merged() == ["(11,1,x1)"], state
        assert two.state == {} and one.state == {"public.t": "ok"}
        assert lab.leaf.value(STRUCTURE) == before


def test_a_part_alone_is_copied_anew_in_the_middle_of_its_copy(make_merge: MakeMerge) -> None:
    """Its rows are loaded and the indexes are gone: they do not come twice. Rows that a removed
    part has left stay, then and when the last part is copied anew."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 5)
    one, two = lab.parts
    before = lab.leaf.value(STRUCTURE)
    add(lab, 2, no_merge=True, copy_condition="part = 2")
    two.start()
    lab.wait(lambda: two.state == {"public.t": "ok"})
    with two.session() as session:
        remove_table(session, ["t"])
    two.stop()
    add(lab, 1, no_merge=True, copy_condition="part = 1")
    reached: list[str] = []

    def hook(place: str) -> None:
        if place == "copy.rebuild" and len(reached) < 1:
            reached.append(place)
            with one.session() as session:
                resync(session, ["t"])
            raise ConnectError("the process died here")

    failpoint.set_hook(hook)
    one.start()
    lab.wait(lambda: one.state == {"public.t": "ok"})
    assert reached
    assert lab.merged() == lab.union()
    lab.by_hand("update t set v = 'wrong' where part = 1")
    with one.session() as session:
        resync(session, ["t"])
    lab.wait(lambda: one.state == {"public.t": "ok"})
    assert lab.merged() == lab.union()
    assert lab.leaf.value(STRUCTURE) == before
    lab.wait(lambda: lab.debris() == [])


def test_a_loaded_part_without_a_condition_does_not_load_again(make_merge: MakeMerge) -> None:
    """Its copy is set back, as a failover does: its rows are there, and nothing tells them."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 5)
    one, two = lab.parts
    add(lab, merge_all=True)
    one.start()
    lab.wait(lambda: one.state == {"public.t": "catching-up"})
    one.stop()
    lab.leaf.execute("select londiste.local_set_table_state('s1', 'public.t', null, null)")
    lab.start()
    lab.wait(lambda: "its rows are in" in one.error())
    lab.wait(lambda: two.state == {"public.t": "catching-up"})
    assert "--merge-all" in one.error()
    assert lab.merged() == lab.union()
    # what the message says, while no worker sees it
    lab.stop()
    for part in lab.parts:
        with part.session() as session:
            remove_table(session, ["t"])
    add(lab, merge_all=True)
    lab.start()
    lab.wait_ok()
    lab.settle()
    assert lab.merged() == lab.union()
    lab.wait(lambda: lab.debris() == [])


def test_truncate_takes_the_rows_of_one_part(make_merge: MakeMerge) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab)
    add_parts(lab)
    lab.start()
    lab.wait_ok()
    lab.parts[0].root.execute("truncate t; insert into t values (1, 1, 'first of the new')")
    lab.settle()
    assert lab.merged() == lab.union()
    assert lab.leaf.value("select count(*) from t") == 51


def test_changes_of_a_part_leave_the_others_rows_alone(make_merge: MakeMerge) -> None:
    """The roots have rows of each other's parts, too, under the same keys."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    for number, part in enumerate(lab.parts, 1):
        part.root.execute(
            "insert into t select g, 1 + g %% 2, 'root ' || %s from generate_series(1, 20) g",
            [number],
        )
    add_parts(lab)
    lab.start()
    lab.wait_ok()
    one, two = lab.parts

    def wanted() -> list[str]:
        rows = []
        for number, part in enumerate(lab.parts, 1):
            found = part.root.query("select t::text from t where part = %s", [number])
            rows += [row[0] for row in found]
        return sorted(rows)

    assert lab.merged() == wanted()
    # of rows that are not of its part a root tells nothing here
    one.root.execute("update t set v = 'not mine' where part = 2; delete from t where id = 3")
    two.root.execute("update t set v = 'not mine' where part = 1; delete from t where id = 6")
    lab.settle()
    assert lab.merged() == wanted()
    # into the part, and out of it, one by one and many at a time
    one.root.execute("delete from t where id = 8")
    two.root.execute("delete from t where id in (8, 10)")
    one.root.execute("insert into t values (8, 1, 'now here')")
    one.root.execute("update t set part = 2 where id = 4; update t set part = 1 where id = 10")
    lab.settle()
    assert lab.merged() == wanted()
    # a key of both: it is refused and named, and the events beside it are replayed one by one
    one.stop()
    one.on_error = "quarantine-row"
    one.root.execute("update t set part = 1, v = 'twice' where id = 5")
    one.root.execute("update t set v = 'not mine' where part = 2")
    one.root.execute("update t set part = 2, v = 'gone' where id = 14; delete from t where id = 7")
    one.start()
    lab.settle()
    assert lab.merged() == [row for row in wanted() if "twice" not in row]
    message = lab.leaf.value("select message from vedur.quarantine")
    assert "a key of one part is in another's way" in message
    assert '"s1" (node "s1_root"), "s2" (node "s2_root")' in message
    assert message.endswith('and the row that is there belongs to "s2" (node "s2_root")')
    # the row that is in quarantine keeps its later changes to itself
    one.root.execute("delete from t where id = 5")
    lab.settle()
    assert lab.merged() == wanted()
    assert lab.leaf.value("select v from t where id = 5") == "root 2"


def test_what_cannot_be_told_is_refused(make_merge: MakeMerge) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 5)
    add(lab, merge_all=True)
    lab.start()
    lab.wait_ok()
    one = lab.parts[0]
    with one.session() as session, pytest.raises(StateError, match="has no condition") as refused:
        resync(session, ["t"])
    assert "--merge-all" in str(refused.value)
    one.root.execute("truncate t")
    one.tick()
    lab.wait(lambda: bool(lab.leaf.query("select * from vedur.replay_error")))
    message = lab.leaf.value("select message from vedur.replay_error")
    assert "TRUNCATE would empty" in message and "ignore_truncate" in message
    assert lab.leaf.value("select count(*) from t") == 10
    # the policy that is asked for
    one.stop()
    with one.session() as session:
        change_handler(
            session,
            ChangeHandler(table="t", handler="londiste", handler_args=["ignore_truncate=1"]),
        )
    one.start()
    one.root.execute("insert into t values (1, 1, 'after')")
    lab.settle()
    assert lab.leaf.value("select count(*) from t") == 11


def test_options_that_cannot_be_meant(make_merge: MakeMerge) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    with pytest.raises(RefusedError, match="Found multiple sources"):
        add(lab)
    add(lab, no_merge=True)
    with pytest.raises(StateError, match="--merge-all takes all parts at once"):
        add(lab, 2, merge_all=True)
    with pytest.raises(StateError, match="to merge both, add this one with --no-merge"):
        add(lab, 2)
    # its copy empties the table, and does not expect anybody
    lab.leaf.execute("update londiste.table_info set merge_state = 'in-copy' where local")
    with pytest.raises(StateError, match="wait for it first"):
        add(lab, 2, no_merge=True)


def test_a_key_of_two_parts_stops_their_first_copy(make_merge: MakeMerge) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 5)
    lab.parts[1].root.execute("insert into t values (11, 2, 'of both')")
    add(lab, merge_all=True)
    lab.start()
    one, two = lab.parts
    lab.wait(lambda: "in another's way" in one.error())
    assert '"s1" (node "s1_root"), "s2" (node "s2_root")' in one.error()
    assert two.state == {"public.t": "catching-up"}
    assert lab.leaf.value("select count(*) from t") == 11
    # mended: the row that should not be there goes, and the copies go on by themselves
    lab.by_hand("delete from t where v = 'of both'")
    lab.wait_ok()
    assert lab.leaf.value("select count(*) from t") == 10
    # a part that comes later finds the row at once
    for part in lab.parts:
        with part.session() as session:
            remove_table(session, ["t"])
    for number in (1, 2):
        add(lab, number, no_merge=True, copy_condition=f"part = {number}", wait_sync=number < 2)
    lab.wait(lambda: "in another's way" in two.error())
    assert lab.leaf.value("select count(*) from t") == 5
    two.root.execute("delete from t where v = 'of both'")
    lab.wait_ok()
    lab.settle()
    assert lab.merged() == lab.union()


def test_a_script_arrives_once_or_for_each_part(make_merge: MakeMerge) -> None:
    lab = make_merge(2)
    lab.make(DDL + "create table notes (note text);", "public.t")
    add(lab, merge_all=True)
    lab.start()
    lab.wait_ok()
    scripts = {
        "add.sql": "alter table t add column w int;",
        "each.sql": "--*-- Per-Part: yes\ninsert into notes values ('each');",
    }
    for part in lab.parts:
        settings = LondisteSettings(
            db=part.root.connstr, queue_name=part.queue, job_name=f"{part.queue}_root"
        )
        with TemporaryDirectory() as folder:
            for name, text in scripts.items():
                Path(folder, name).write_text(text)
            with Session(settings) as session:
                execute(session, [str(Path(folder, name)) for name in scripts])
    for number, part in enumerate(lab.parts, 1):
        part.root.execute("insert into t values (%s, %s, 'x', 7)", [number, number])
    lab.settle()
    assert lab.merged() == lab.union()
    assert lab.leaf.value("select count(*) from notes") == 2
    assert [part.root.value("select count(*) from notes") for part in lab.parts] == [1, 1]


def test_each_text_of_a_script_runs_once_whichever_part_brings_it(make_merge: MakeMerge) -> None:
    lab = make_merge(3)
    lab.make(DDL + "create table notes (note text);", "public.t")
    add(lab, merge_all=True)
    lab.start()
    lab.wait_ok()

    def bring(number: int, note: str) -> None:
        part = lab.parts[number - 1]
        text = f"insert into notes values ('{note}')"
        # an operator who wants a root to run a name again takes it off the list there
        part.root.execute("delete from londiste.applied_execute")
        call(part.root, "londiste.execute_start", part.queue, "fix.sql", text, True)
        call(part.root, "londiste.execute_finish", part.queue, "fix.sql")
        lab.settle()

    notes = "select array_agg(note) from notes"
    for number, note in ((1, "A"), (2, "B"), (3, "A"), (2, "A"), (3, "B")):
        bring(number, note)
    assert lab.leaf.value(notes) == ["A", "B"]
    for note in ("B", "A"):  # the first part runs A a second time, which nobody else has
        bring(1, note)
    assert lab.leaf.value(notes) == ["A", "B", "A"]


def test_compare_counts_rows_that_are_of_no_part(
    make_merge: MakeMerge, compare_here: object
) -> None:
    """A row whose column its root changes leaves the merged table, and no part misses it."""
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 20)
    add_parts(lab)
    lab.start()
    lab.wait_ok()
    lab.parts[0].root.execute("update t set part = 2 where id = 31")
    lab.parts[0].root.execute("insert into t values (1001, 0, 'of none')")
    lab.settle()
    for number, rows, left_out in ((1, 19, 2), (2, 20, 0)):
        with lab.parts[number - 1].session() as session:
            for more in ({}, {"rows": True}, {"count_only": True}):
                ask = CompareOptions(tables=("t",), max_wait=300, **more)  # type: ignore[arg-type]
                result = compare(session, ask, compare_here)  # type: ignore[arg-type]
                (found,) = result.tables
                assert (result.exit_code, found.left_out) == (0, left_out), (number, more)
                assert found.source["cnt"] == found.target["cnt"] == rows


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.draw("compare")
def test_compare_and_repair_see_one_part(make_merge: MakeMerge, spark: Any) -> None:
    lab = make_merge(2)
    lab.make(DDL, "public.t")
    fill(lab, 20)
    add_parts(lab)
    lab.start()
    lab.wait_ok()
    lab.settle()
    one, two = lab.parts
    ask = CompareOptions(tables=("t",), max_wait=300)
    with one.session() as first, two.session() as second:
        assert compare(first, ask, spark).exit_code == 0
        assert compare(second, ask, spark).exit_code == 0
        lab.by_hand(
            "delete from t where id = 12",
            "update t set v = 'wrong' where id = 21",
            "update t set v = 'wrong' where id = 22",
            "insert into t values (991, 1, 'extra'), (992, 2, 'extra')",
        )
        assert compare(first, ask, spark).exit_code == 1
        repair(first, RepairOptions(tables=("t",), apply=True, max_wait=300), spark)
        assert compare(first, ask, spark).exit_code == 0
        assert lab.leaf.value("select count(*) from t where part = 1") == 20
        others = "select array_agg(t::text order by id) from t where part = 2 and id in (12,22,992)"
        assert lab.leaf.value(others) == ["(22,2,wrong)", "(992,2,extra)"]
        # a key that is taken by a row of the other part: refused, and nothing of it is touched
        lab.by_hand("insert into t values (12, 1, 'of one, by hand')")
        with pytest.raises(VedurError, match=r"duplicate key|t_pkey"):
            repair(second, RepairOptions(tables=("t",), apply=True, max_wait=300), spark)
        assert lab.leaf.value("select v from t where id = 12") == "of one, by hand"
        lab.by_hand("delete from t where id = 12")
        repair(second, RepairOptions(tables=("t",), apply=True, max_wait=300), spark)
        assert lab.merged() == lab.union()
        # conditions that overlap tell nothing
        change_table_attr(lab.leaf, "s2", "public.t", "copy_condition", "part > 0")
        with pytest.raises(StateError, match="a row fulfils the conditions of two of them"):
            repair(second, RepairOptions(tables=("t",), apply=True, max_wait=300), spark)
        with pytest.raises(StateError, match="a row fulfils the conditions of two of them"):
            resync(first, ["t"])


CHILD = """
create table child (id int primary key references t, part int not null);
"""
PENDING = "select count(*) from londiste.pending_fkeys"
FKEY = """
select oid from pg_constraint
where contype = 'f' and conrelid = 'child'::regclass and convalidated
"""


def test_a_foreign_key_comes_back_with_the_last_part(make_merge: MakeMerge) -> None:
    """The worker of the first queue brings it back, and is told by nobody that another part is in
    sync: neither when the parts are added, nor when one of them is copied anew."""
    lab = make_merge(2)
    lab.make(DDL + CHILD, "public.t", "public.child")
    fill(lab)
    for number, part in enumerate(lab.parts, 1):
        part.root.execute("insert into child select id, part from t")
        with part.session() as session:
            where = f"part = {number}"
            tables = ["t", "child"]
            add_table(session, AddTable(tables=tables, no_merge=True, copy_condition=where))
    lab.start()
    lab.wait_ok()
    lab.wait(lambda: lab.leaf.value(PENDING) == 0)
    before = lab.leaf.value(FKEY)
    assert before is not None
    with lab.parts[1].session() as session:
        resync(session, ["t"])
    lab.wait(lambda: lab.leaf.value(FKEY) not in (None, before))
    lab.wait_ok()
    lab.settle()
    assert lab.merged() == lab.union() and lab.merged("child") == lab.union("child")


def test_parts_that_put_one_foreign_key_aside_at_once_do_not_stumble(make_merge: MakeMerge) -> None:
    lab = make_merge(1)
    lab.leaf.execute(DDL + CHILD)
    drop = "select londiste.drop_table_fkey('public.child', 'child_id_fkey')"
    done: list[int] = []

    def second() -> None:
        with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
            done.append(db.value(drop))

    with vdb.connect(lab.leaf.connstr) as first:
        assert first.value(drop) == 1
        thread = threading.Thread(target=second)
        thread.start()
        waits = (
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock' and query like '%drop_table_fkey%'"
        )
        lab.wait(lambda: lab.leaf.value(waits) == 1)
        first.commit()
        thread.join(60)
    assert done == [1]
    assert lab.leaf.value(PENDING) == 1


def test_tables_that_catch_up_share_the_places_of_their_queue(
    make_merge: MakeMerge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of several queues in a process: all that catch up have the places that one would."""
    lab = make_merge(1)
    (part,) = lab.parts
    names = [f"t{n}" for n in range(4)]
    for name in names:
        lab.make(f"create table {name} (id int primary key, v text)", f"public.{name}")
    part.slots, part.worker_slots = Budget(2), Budget(1)
    lock, inside, most = threading.Lock(), [0], [0]
    stage = SparkReplay.stage

    def staged(self: SparkReplay, *words: Any) -> Any:
        if " copy " not in self.queue:
            return stage(self, *words)
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        try:
            threading.Event().wait(1.0)  # so long do others have to come in
            return stage(self, *words)
        finally:
            with lock:
                inside[0] -= 1

    monkeypatch.setattr(SparkReplay, "stage", staged)
    failpoint.set_hook(lambda place: _change(part, names) if place == "copy.loaded" else None)
    with part.session() as session:
        add_table(session, AddTable(tables=names))
    lab.start()
    lab.wait_ok()
    lab.settle()
    assert most[0] <= 3
    for name in names:
        assert lab.merged(name) == lab.union(name)


def _change(part: PartLab, names: list[str]) -> None:
    with vdb.connect(part.root.connstr, autocommit=True) as db:
        for name in names:
            db.execute(f"insert into {name} select coalesce(max(id), 0) + 1, 'x' from {name}")
            db.execute("select pgq.force_tick(%s)", [part.queue])
