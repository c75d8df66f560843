"""Combined queues: what parts bring is a queue of its own, for the nodes below it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.killed import Killed, killed_at
from tests.labs.combined import COMBINED, Combined, write
from tests.labs.pair import call
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info
from vedur.ops.quarantine.skip import SkipOptions, skip

MakeCombined = Callable[..., Combined]

pytestmark = pytest.mark.usefixtures("without_spark")


def with_leaf(make_combined: MakeCombined, **settings: object) -> Combined:
    """Two parts, the combined root `c1`, and a leaf `d1` below it; table t is everywhere."""
    lab = make_combined(**settings)
    lab.add(COMBINED, "d1", NodeType.LEAF, "c1")
    lab.table()
    return lab


def test_what_parts_write_is_in_the_combined_queue_once_and_in_order(
    make_combined: MakeCombined,
) -> None:
    lab = with_leaf(make_combined)
    for step in range(3):
        write(lab, "p1", range(100 + 10 * step, 105 + 10 * step))
        write(lab, "p2", range(200 + 10 * step, 205 + 10 * step))
        lab.flow("d1")
    assert lab.require_union("c1", "d1")
    events = lab.events()
    for part in lab.parts:
        table = lab.dbs[part].value("select queue_data_pfx from pgq.queue")
        text = (
            f"select ev_type, ev_data, ev_extra1, ev_time from {table}"
            " where ev_type not like 'pgq.%' and ev_type not like 'londiste.%' order by ev_id"
        )
        there = [tuple(row) for row in lab.dbs[part].query(text)]
        mine = [(e.ev_type, e.ev_data, e.ev_extra1, e.ev_time) for e in events]
        assert [e for e in mine if e in there] == there  # keys of parts do not meet
    assert len(events) == len({e.ev_id for e in events})


@pytest.mark.parametrize(
    "point", ["batch.staged", "combined.published", "batch.merged", "batch.committed"]
)
def test_a_crash_of_a_part_brings_nothing_twice(make_combined: MakeCombined, point: str) -> None:
    lab = with_leaf(make_combined)
    write(lab, "p1", range(100, 105))
    lab.flow("d1")
    before = len(lab.events())
    write(lab, "p1", range(110, 115))
    lab.tick("p1")
    with killed_at(point) as reached, pytest.raises(Killed):
        lab.work("p1", "c1")
    assert reached
    lab["p1", "c1"].worker._close_connections(doubtful=True)
    lab["p1", "c1"].renew()
    lab.flow("d1")
    assert len(lab.events()) - before == 11
    lab.require_union("c1", "d1")


def test_scripts_truncates_and_foreign_tables_go_on_as_they_should(
    make_combined: MakeCombined,
) -> None:
    lab = with_leaf(make_combined)
    for place in ("p1", "d1"):
        lab.dbs[place].execute("create table only_below (id int primary key)")
    call(lab.dbs["p1"], "londiste.local_add_table", "p1", "only_below")
    for place, queue in (("c1", COMBINED), ("d1", COMBINED)):
        call(lab.dbs[place], "londiste.global_add_table", queue, "only_below")
    call(lab.dbs["d1"], "londiste.local_add_table", COMBINED, "only_below", ["expect_sync"])
    lab.dbs["p1"].execute("insert into only_below values (1)")
    for place in ("c1", "d1"):
        lab.dbs[place].execute("create table notes (note text)")
    for part in lab.parts:  # each part has run it; below it arrives twice and is run once
        lab.dbs[part].execute("alter table t add column more text default 'x'")
        said = ("add-more.sql", "alter table t add column more text default 'x'", True)
        call(lab.dbs[part], "londiste.execute_start", part, *said)
        call(lab.dbs[part], "londiste.execute_finish", part, "add-more.sql")
        # this one is meant for each part, below the combined root as well
        each = ("each.sql", "insert into notes values ('each')", True, "per-part=yes")
        call(lab.dbs[part], "londiste.execute_start", part, *each)
        call(lab.dbs[part], "londiste.execute_finish", part, "each.sql")
    for part, note in (("p1", "A"), ("p2", "B"), ("p1", "B"), ("p2", "A")):
        text = f"insert into notes values ('{note}')"
        lab.dbs[part].execute("delete from londiste.applied_execute where execute_file = 'fix.sql'")
        call(lab.dbs[part], "londiste.execute_start", part, "fix.sql", text, True)
        call(lab.dbs[part], "londiste.execute_finish", part, "fix.sql")
        lab.flow("d1")
    for place in ("c1", "d1"):
        assert lab.rows(place, table="notes") == ["(A)", "(B)", "(each)", "(each)"], place
        lab.dbs[place].execute("delete from notes where note <> 'each'")
    write(lab, "p1", range(100, 105))
    write(lab, "p2", range(200, 205))
    lab.flow("d1")
    assert lab.require_union("c1", "d1")
    assert [e.ev_type for e in lab.events()].count("EXECUTE") == 8
    assert len(lab.rows("c1", table="notes")) == len(lab.rows("d1", table="notes")) == 2
    # the combined root does not have the table: it is for the nodes below, as with Londiste
    assert lab.rows("d1", table="only_below") == ["(1)"]
    # one part alone brings this one: a TRUNCATE of it is whole
    for place in ("p1", "c1", "d1"):
        lab.dbs[place].execute("create table single (id int primary key)")
    call(lab.dbs["p1"], "londiste.local_add_table", "p1", "single")
    call(lab.dbs["c1"], "londiste.global_add_table", "p1", "single")
    call(lab.dbs["c1"], "londiste.local_add_table", "p1", "single", ["expect_sync", "no_merge"])
    call(lab.dbs["d1"], "londiste.global_add_table", COMBINED, "single")
    call(lab.dbs["d1"], "londiste.local_add_table", COMBINED, "single", ["expect_sync"])
    lab.dbs["p1"].execute("insert into single select generate_series(1, 5)")
    lab.flow("d1")
    assert len(lab.rows("d1", table="single")) == 5
    lab.dbs["p1"].execute("truncate single")
    lab.dbs["p1"].execute("insert into single values (7)")
    lab.flow("d1")
    assert lab.rows("c1", table="single") == lab.rows("d1", table="single") == ["(7)"]


def test_a_table_that_a_part_does_not_bring_here_is_not_passed_on(
    make_combined: MakeCombined,
) -> None:
    lab = with_leaf(make_combined)
    call(lab.dbs["c1"], "londiste.local_remove_table", "p2", "t")
    write(lab, "p1", range(100, 105))
    write(lab, "p2", range(200, 205))
    lab.flow("d1")
    assert lab.rows("c1") == lab.rows("d1") == lab.rows("p1")


def test_a_truncate_of_a_table_of_several_parts_stops_the_part_and_is_not_passed_on(
    make_combined: MakeCombined,
) -> None:
    """It does not say whose rows are meant; skipped on the combined root, it is not applied below
    either."""
    lab = with_leaf(make_combined)
    write(lab, "p1", range(100, 105))
    write(lab, "p2", range(200, 205))
    lab.flow("d1")
    rows = lab.rows("c1")
    lab.dbs["p1"].execute("truncate t")
    lab.tick("p1")
    said = r'which has rows of other tables, too.* on every node below combined queue "all"'
    with pytest.raises(StateError, match=said):
        lab.work("p1", "c1")
    lab["p1", "c1"].worker._close_connections(doubtful=True)
    with lab["p1", "c1"].session() as session:
        event = session.db.value("select ev_id from vedur.replay_error")
        skip(session, SkipOptions(event=event, reason="theirs"))
    lab.dbs["p1"].execute("insert into t values (190, 'p1')")
    lab.flow("d1")
    assert "R" not in [e.ev_type for e in lab.events()]
    # what comes behind it waits in quarantine on the combined root, and goes on all the same
    assert lab.rows("c1") == rows
    assert lab.rows("d1") == sorted([*rows, "(190,p1,0)"])


def test_what_cannot_be_merged_is_refused(make_combined: MakeCombined) -> None:
    lab = make_combined(parts=1)
    p2 = lab.add("p2", "p2", NodeType.ROOT)
    with pytest.raises(StateError, match='this database is no node of queue "none"'):
        lab.add("p2", "c1", NodeType.LEAF, "p2", combined="none")
    assert get_node_info(lab.dbs["c1"], "p2") is None
    with pytest.raises(StateError, match="cannot be merged into itself"):
        lab.add("p2", "c2", NodeType.LEAF, "p2", combined="p2")
    lab.add(COMBINED, "d1", NodeType.LEAF, "c1")
    with pytest.raises(StateError, match=f'this database is a leaf of queue "{COMBINED}"'):
        lab.add("p2", "d1", NodeType.LEAF, "p2", combined=COMBINED)
    with pytest.raises(StateError, match=f'already initialized and merged into "{COMBINED}"'):
        lab.add("p1", "c1", NodeType.LEAF, "p1", combined="other")
    assert len(p2.db.query("select * from pgq_node.get_queue_locations('p2')")) == 1
