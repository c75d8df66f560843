"""Tables of combined queues: first copies below the combined root, and what commands refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.labs.combined import COMBINED, TABLE, Combined, write
from tests.labs.pair import call
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.combined import require_nobody_below
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.compare_tables import warn_below
from vedur.ops.drop_node import drop_node
from vedur.ops.move_position import MoveTo, move_position
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.ops.remove_table import remove_table
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.resync import resync

MakeCombined = Callable[..., Combined]

pytestmark = pytest.mark.usefixtures("without_spark")


def state(lab: Combined, queue: str, place: str, table: str = "public.t") -> str | None:
    text = "select merge_state from londiste.get_table_list(%s) where table_name = %s and local"
    return lab.dbs[place].value(text, [queue, table])  # type: ignore[no-any-return]


def add(lab: Combined, queue: str, place: str, **options: object) -> None:
    with lab[queue, place].session() as session:
        add_table(session, AddTable(**{"tables": ["t"], **options}))  # type: ignore[arg-type]


def filled(make_combined: MakeCombined, parts: int = 1) -> Combined:
    """Parts whose table t has rows, a combined root, and a branch and a leaf below it; the table is
    everywhere, in the sets of the parts alone."""
    lab = make_combined(parts=parts)
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    lab.add(COMBINED, "d1", NodeType.LEAF, "c2")
    for db in lab.dbs.values():
        db.execute(TABLE)
    for at, part in enumerate(lab.parts):
        call(lab.dbs[part], "londiste.local_add_table", part, "t")
        write(lab, part, range(1000 * (at + 1), 1000 * (at + 1) + 50))
    for part in lab.parts:
        lab.tick(part)
        lab.work(part, "c1")
    return lab


def test_first_copies_go_down_from_the_parts_to_the_last_leaf(make_combined: MakeCombined) -> None:
    """A node below copies when the combined root has the table of all parts: what their copies
    bring is in no queue."""
    lab = filled(make_combined)
    lab.merge("c2")
    add(lab, "p1", "c1")
    assert state(lab, COMBINED, "c1") == "ok"  # it is the root's
    lab.tick(COMBINED)
    for place in ("c2", "d1"):
        lab.work(COMBINED, place)
    add(lab, COMBINED, "c2")
    add(lab, COMBINED, "d1")
    for _ in range(3):
        lab.tick(COMBINED)
        lab[COMBINED, "c2"].worker.work()
    assert state(lab, COMBINED, "c2") != "ok"
    assert lab.rows("c2") == []  # it would have copied an empty table
    write(lab, "p1", range(2000, 2010))
    done = lambda: state(lab, COMBINED, "d1") == state(lab, COMBINED, "c2") == "ok"  # noqa: E731
    lab.work_until(done)
    write(lab, "p1", range(3000, 3010))
    lab.flow("c2", "d1")
    assert lab.require_union("c1", "c2", "d1")
    with lab[COMBINED, "d1"].session() as session:
        assert session.require_node().node_type is NodeType.LEAF


def test_a_table_of_a_waiting_part_is_copied_by_the_combined_queue(
    make_combined: MakeCombined,
) -> None:
    """The same command as for a combined root, on the part of a branch."""
    lab = filled(make_combined)
    lab.merge("c2")
    add(lab, "p1", "c1")
    lab.work_until(lambda: state(lab, "p1", "c1") == "ok")
    lab.flow("c2")
    add(lab, "p1", "c2")
    assert state(lab, "p1", "c2") == "ok"
    assert state(lab, COMBINED, "c2") is None
    lab.work_until(lambda: state(lab, COMBINED, "c2") == "ok")
    lab.flow("c2")
    assert lab.require_union("c1", "c2")


def test_a_waiting_part_takes_a_table_that_the_combined_queue_has(
    make_combined: MakeCombined,
) -> None:
    """In either order, and for every part that brings it: none of them copies."""
    lab = filled(make_combined, parts=2)
    lab.merge("c2")
    add(lab, "p1", "c1", merge_all=True)
    lab.work_until(lambda: state(lab, "p1", "c1") == state(lab, "p2", "c1") == "ok")
    lab.flow("c2")
    attrs = "select table_attrs from londiste.table_info where queue_name = %s"
    assert lab.dbs["c1"].value(attrs, ["p1"]) == "merge=1"
    assert lab.dbs["c1"].value(attrs, [COMBINED]) is None
    add(lab, "p1", "c2", merge_all=True, max_parallel_copy=1)
    assert state(lab, "p1", "c2") == state(lab, "p2", "c2") == "ok"
    assert lab.dbs["c2"].value(attrs, [COMBINED]) is None  # nothing is merged there
    lab.work_until(lambda: state(lab, COMBINED, "c2") == "ok")
    lab.flow("c2")
    assert lab.require_union("c1", "c2")
    for part in lab.parts:
        with lab[part, "c2"].session() as session:
            remove_table(session, ["t"])
    assert state(lab, COMBINED, "c2") == "ok"
    for part in lab.parts:
        add(lab, part, "c2")
        assert state(lab, part, "c2") == "ok"


def test_a_copy_that_nodes_below_would_miss_is_refused(make_combined: MakeCombined) -> None:
    lab = filled(make_combined, parts=2)
    add(lab, "p1", "c1", no_merge=True)
    lab.work_until(lambda: state(lab, "p1", "c1") == "ok")
    lab.flow("c2")
    add(lab, COMBINED, "c2")
    has_it = r'node "c2" of combined queue "all" has public\.t'
    with lab["p1", "c1"].session() as session, pytest.raises(StateError, match=has_it):
        resync(session, ["t"])
    # nor do rows that repair changes get into the queue
    with lab["p1", "c1"].session() as session, pytest.raises(StateError, match=has_it):
        repair(session, RepairOptions(tables=("t",), apply=True))
    assert state(lab, "p1", "c1") == "ok"
    # the node of the part has a name in the part's queue, which says nothing in the combined one
    with lab["p1", "c1"].session() as session:
        info = session.require_node()
        with pytest.raises(StateError, match=has_it):
            require_nobody_below(session, replace(info, node_name="c2"), ["public.t"])
        require_nobody_below(session, replace(info, node_name="x"), ["public.other"])
        with lab[COMBINED, "c2"].session() as below:
            remove_table(below, ["t"])
        require_nobody_below(session, replace(info, node_name="x"), ["public.t"])


def test_a_copy_below_waits_for_the_quarantine_of_a_part(
    make_combined: MakeCombined, caplog: pytest.LogCaptureFixture
) -> None:
    """What is in quarantine on the combined root has gone on already: a copy made now would have it
    neither in its rows nor behind them."""
    lab = make_combined(parts=1, on_error="quarantine-row")
    lab.table()
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    lab.dbs["c2"].execute(TABLE)
    lab.dbs["c1"].execute("alter table t add constraint few check (id < 100) not valid")
    write(lab, "p1", range(10, 20))
    lab.dbs["p1"].execute("insert into t values (200, 'p1')")
    lab.flow("c2")
    assert "(200,p1,0)" in lab.rows("p1")
    assert lab.dbs["c1"].value("select count(*) from vedur.quarantine where queue_name = 'p1'") == 1
    waits = r"events of it wait in quarantine there \(parts p1\)"
    with pytest.raises(StateError, match=waits):
        add(lab, COMBINED, "c2")
    add(lab, COMBINED, "c2", force=True)
    lab.work_until(lambda: "has events of part(s) p1 in quarantine on" in caplog.text)
    assert lab.rows("c2") == []
    lab.dbs["c1"].execute("delete from vedur.quarantine")
    lab.work_until(lambda: state(lab, COMBINED, "c2") == "ok")
    assert lab.rows("c2") == lab.rows("c1")


def test_who_changes_rows_of_a_branch_is_told_of_the_nodes_below(
    make_combined: MakeCombined, caplog: pytest.LogCaptureFixture
) -> None:
    lab = make_combined(parts=1)
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    for queue, place in (("p1", "c1"), (COMBINED, "c2")):
        with lab[queue, place].session() as session:
            warn_below(session.require_node(), "are not repaired", "repair")
    said = [record.message for record in caplog.records if "nodes below" in record.message]
    assert said == ["nodes below this one are not repaired with it: run repair on each of them"]


def test_commands_about_rows_are_not_for_a_waiting_part(make_combined: MakeCombined) -> None:
    lab = make_combined(parts=1)
    lab.add(COMBINED, "c2", NodeType.BRANCH, "c1")
    lab.merge("c2")
    lab.table()
    with lab["p1", "c2"].session() as waiting:
        for act in (
            lambda: resync(waiting, ["t"]),
            lambda: compare(waiting, CompareOptions(tables=("t",))),
        ):
            with pytest.raises(StateError, match='rows come through combined queue "all"'):
                act()
    for place in ("c1", "c2"):
        with lab["p1", place].session() as part:
            with pytest.raises(StateError, match="merged into combined queue"):
                move_position(part, MoveTo(rewind=True), lambda text: True)
            with pytest.raises(StateError, match="merged into combined queue"):
                rejoin(part, RejoinOptions())
            with pytest.raises(StateError, match="all changes of a table go on there"):
                change_handler(part, ChangeHandler(table="t", handler="nop"))
            with pytest.raises(StateError, match="all changes of a table go on there"):
                add_table(part, AddTable(tables=["x"], copy_condition="id > 1"))
            with pytest.raises(StateError, match="all changes of a table go on there"):
                args = ["ignore_truncate=1"]
                add_table(part, AddTable(tables=["x"], handler="londiste", handler_args=args))
    with lab[COMBINED, "c2"].session() as session:
        with pytest.raises(StateError, match="while parts are merged into it"):
            rejoin(session, RejoinOptions())
        with pytest.raises(StateError, match=r'parts are merged into "c2" \(p1\)'):
            drop_node(session, "c2")
    assert get_node_info(lab.dbs["c2"], COMBINED) is not None
    with lab["p1", "c2"].session() as session:
        drop_node(session, "c2")
    with lab[COMBINED, "c2"].session() as session:
        drop_node(session, "c2")
    assert get_node_info(lab.dbs["c2"], COMBINED) is None


def test_a_condition_or_a_handler_on_a_part_stops_its_worker(make_combined: MakeCombined) -> None:
    """Another program can have written it; changes that it leaves out would go on."""
    lab = make_combined(parts=1)
    lab.table()
    text = "update londiste.table_info set table_attrs = %s where queue_name = 'p1'"
    for attrs, said in (
        ("copy_condition=id+%3E+1", r'this node has only some rows of table "public\.t"'),
        ("handler=londiste%28ignore_truncate%3D1%29", r'"public\.t" has handler "londiste\('),
        ("part_column=part", r'table "public\.t" has part column "part" here'),
    ):
        lab.dbs["c1"].execute(text, [attrs])
        with pytest.raises(StateError, match=said):
            lab.work("p1", "c1")
    lab.dbs["c1"].execute(text, ["handler=londiste"])
    lab.work("p1", "c1")
