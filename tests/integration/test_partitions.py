"""Partitioned tables on two nodes: created, compared, changed by scripts and by hand."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import TestServer
from tests.fixtures.wait import until
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE as LEAF_QUEUE
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.errors import StateError
from vedur.node.info import NodeType
from vedur.ops import check as check_op
from vedur.ops import show
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.doctor.run import doctor
from vedur.ops.execute.run import execute
from vedur.ops.quarantine.list_errors import errors
from vedur.ops.session import Session
from vedur.ops.wait_sync import wait_sync
from vedur.status.tree import tree_lines
from vedur.worker.watch import look_for_changes

TREE = """
create schema parts;
create table m (d date, id int, v text not null default 'x', check (id > 0),
    primary key (d, id, v)) partition by range (d);
create index m_v on m (v);
create table m_2026_01 partition of m for values from ('2026-01-01') to ('2026-02-01')
    with (fillfactor = 70);
create unique index own on m_2026_01 (id);
alter table m_2026_01 add constraint own_check check (id < 1000);
create table parts.rest partition of m default partition by list (v);
create table parts.rest_a partition of parts.rest for values in ('a', 'it''s')
    partition by hash (id);
create table parts.rest_a0 partition of parts.rest_a for values with (modulus 2, remainder 0);
create table parts.rest_a1 partition of parts.rest_a for values with (modulus 2, remainder 1);
create table parts.rest_z partition of parts.rest default;
"""


@dataclasses.dataclass
class Lab:
    """A root with a partitioned table, and a leaf without."""

    root: Session
    leaf: Session


@pytest.fixture
def lab(
    oldest: TestServer, newest: TestServer, make_db_on: Callable[..., vdb.Database]
) -> Iterator[Lab]:
    dbs = [make_db_on(server, "ours", autocommit=True) for server in (oldest, newest)]
    dbs[0].execute(TREE)
    inis = [
        LondisteSettings(
            db=db.connstr, queue_name="replika", job_name=name, config_file=f"/{name}.ini"
        )
        for db, name in zip(dbs, ("src", "dst"), strict=True)
    ]
    with Session(inis[0]) as root, Session(inis[1]) as leaf:
        create_node(root, plan_node(root, NodeType.ROOT, "src", dbs[0].connstr))
        plan = plan_node(leaf, NodeType.LEAF, "dst", dbs[1].connstr, dbs[0].connstr)
        create_node(leaf, plan)
        add_table(root, AddTable(tables=["m"]))
        yield Lab(root, leaf)


def layout(db: vdb.Database) -> list[tuple[object, ...]]:
    """Partitions with their bounds, and how many indexes and checks each has."""
    rows = db.query(
        "select c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid),"
        " pg_get_partkeydef(c.oid),"
        " (select count(*) from pg_index i where i.indrelid = c.oid) as indexes,"
        " (select count(*) from pg_constraint k where k.conrelid = c.oid and k.contype = 'c')"
        " as checks,"
        " c.reloptions"
        " from pg_class c where c.oid in (select relid from pg_partition_tree('m')) order by 1"
    )
    return [tuple(row) for row in rows]


def test_create_full_makes_the_partitions(lab: Lab) -> None:
    add_table(lab.leaf, AddTable(tables=["m"], create_full=True))
    assert layout(lab.leaf.db) == layout(lab.root.db)
    assert len(layout(lab.leaf.db)) == 7
    (found,) = check_op.check(lab.leaf)
    assert (found.differences, found.notes) == ((), ())
    lab.leaf.db.execute("drop table m_2026_01, parts.rest")
    (found,) = check_op.check(lab.leaf)
    assert found.differences == (
        "partition public.m_2026_01 (FOR VALUES FROM ('2026-01-01') TO ('2026-02-01'))"
        " is missing here",
        "partition parts.rest (DEFAULT) is missing here",
    )
    said = {f.check: (f.verdict, f.found) for f in doctor(lab.leaf.settings)}
    assert said["structure"][0] == "warn" and "m_2026_01" in said["structure"][1]


def test_create_makes_the_partitions_under_another_name(lab: Lab) -> None:
    add_table(lab.leaf, AddTable(tables=["m"], create=True, dest_table="n"))
    tree = "select relid::regclass::text from pg_partition_tree(%s) where isleaf order by 1"
    names = [row[0] for row in lab.root.db.query(tree, ["m"])]
    assert [row[0] for row in lab.leaf.db.query(tree, ["n"])] == names


def test_names_of_partitions_may_be_taken(lab: Lab) -> None:
    lab.leaf.db.execute("create table m_2026_01 (x int)")
    with pytest.raises(StateError, match=r"their names are taken: public\.m_2026_01"):
        add_table(lab.leaf, AddTable(tables=["m"], create_full=True))
    assert lab.leaf.db.value("select to_regclass('m')") is None


def test_other_layouts_are_allowed_and_said(lab: Lab) -> None:
    lab.leaf.db.execute("create table m (d date, id int, v text not null, primary key (d, id, v))")
    add_table(lab.leaf, AddTable(tables=["m"], create_full=True, expect_sync=True))
    (found,) = check_op.check(lab.leaf)
    assert found.differences == ()
    assert found.notes == (
        "the layout is other: partitioned by RANGE (d) on provider, not partitioned here",
    )


def test_wait_sync_tells_why_a_copy_fails(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vedur")
    add_table(lab.leaf, AddTable(tables=["m"], create_full=True))
    with Session(lab.leaf.settings) as other:
        waiting = threading.Thread(target=wait_sync, args=(other,))
        waiting.start()
        why = 'no partition of relation "m" found for row'
        lab.leaf.db.execute(
            "insert into vedur.copy_progress (queue_name, table_name, dest_table, step, step_name,"
            " error) values ('replika', 'public.m', 'public.m', 3, 'load', %s)",
            [why],
        )
        line = f"public.m: copy failed, it is tried again: {why}"
        assert until(lambda: line in caplog.messages)
        lab.leaf.db.execute("update londiste.table_info set merge_state = 'ok'")
        waiting.join(120)
    assert caplog.messages.count(line) == 1


def test_changes_by_hand_are_in_status_and_doctor(lab: Lab) -> None:
    lab.root.db.execute("insert into m values ('2026-01-05', 1, 'x'), ('2020-01-01', 2, 'a')")
    lab.root.db.execute("drop table m_2026_01")
    lab.root.db.value("select vedur.watch_tables('replika')")
    what = "partition public.m_2026_01 was dropped: its rows are still on the other nodes"
    line = f"ERR: public.m: {what} (not repaired yet: dst)"
    status = show.status(lab.leaf)
    assert any(line in text for text in tree_lines(status))
    said = [f for f in doctor(lab.root.settings) if f.check == "ddl" and f.verdict == "fail"]
    assert [(f.found, f.remedy) for f in said] == [
        (
            f"src: public.m: {what} (not repaired yet: dst)",
            'run "repair public.m --apply" on every node that has the table',
        )
    ]


def test_an_altered_queue_is_told_and_set_right(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    add_table(lab.leaf, AddTable(tables=["m"], create_full=True, expect_sync=True))
    lab.root.db.execute("alter sequence pgq.event_1_id_seq cache 50")
    said = [f for f in doctor(lab.root.settings) if f.check == "ddl" and f.verdict == "fail"]
    assert [f.found for f in said] == [
        "src: pgq.event_1_id_seq: the sequence has another order than events and ticks need:"
        " CACHE 50"
    ]
    assert said[0].remedy.endswith("alter sequence pgq.event_1_id_seq cache 1")
    look_for_changes(lab.root.db, "replika")
    assert "sequences of the queue were altered by hand, see status or doctor" in caplog.messages
    cache = "select seqcache from pg_sequence where seqrelid = 'pgq.event_1_id_seq'::regclass"
    assert lab.root.db.value(cache) == 1
    (report,) = errors(lab.root)
    assert (report.kind, report.table) == ("table", "public.m")
    assert report.actions == ('run "repair public.m --apply" on every node that has the table',)
    (found,) = check_op.check(lab.leaf)
    assert [text[:44] for text in found.differences] == [
        "on provider: events had numbers that do not "
    ]


@pytest.mark.parametrize(
    "change", ["alter table m detach partition m_2026_01", "drop table m_2026_01"]
)
def test_changes_by_hand_are_in_errors_and_check(lab: Lab, change: str) -> None:
    add_table(lab.leaf, AddTable(tables=["m"], create_full=True, expect_sync=True))
    assert errors(lab.root) == []
    lab.root.db.execute("insert into m values ('2026-01-05', 1, 'x')")
    lab.root.db.value("select vedur.watch_tables('replika')")
    (found,) = check_op.check(lab.leaf)
    assert found.differences == ()
    lab.root.db.execute(change)
    lab.root.db.value("select vedur.watch_tables('replika')")
    (report,) = errors(lab.root)
    assert (report.kind, report.table) == ("table", "public.m")
    assert "partition public.m_2026_01 was" in report.what
    assert report.actions == ('run "repair public.m --apply" on every node that has the table',)
    (found,) = check_op.check(lab.leaf)
    assert found.differences == (f"on provider: {report.what}: {report.actions[0]}",)
    lab.root.db.value("select vedur.forget_table_changes('replika', 'public.m')")
    assert errors(lab.root) == []
    (found,) = check_op.check(lab.leaf)
    assert found.differences == ()


def run_script(leaf: Leaf, path: Path, name: str, script: str) -> None:
    """`execute` on the root of a pair."""
    (path / name).write_text(script)
    settings = LondisteSettings(db=leaf.root.connstr, queue_name=LEAF_QUEUE, job_name="root")
    with Session(settings) as session:
        execute(session, [str(path / name)])


PARTS = """
create table {0} (id int primary key, v text) partition by range (id);
create table p1 partition of {0} for values from (0) to (10);
create table p2 partition of {0} for values from (10) to (20);
"""


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_partitions_of_a_renamed_table_by_script(
    make_leaf: Callable[..., Leaf], tmp_path: Path
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.p", PARTS.format("p"), dest="public.n", dest_ddl=PARTS.format("n"))
    leaf.root.execute("insert into p values (1, 'a'), (2, 'b'), (11, 'c')")
    leaf.catch_up()
    leaf.root.execute("truncate p1; insert into p values (3, 'again')")
    leaf.catch_up()
    assert leaf.same("p", "n") == ["(11,c)", "(3,again)"]
    run_script(
        leaf,
        tmp_path,
        "one.sql",
        "truncate p1;"
        "create table p3 (like p including all); insert into p3 values (21, 'attached');"
        "alter table p attach partition p3 for values from (20) to (30);"
        "alter table p detach partition p2;",
    )
    leaf.root.execute("insert into p values (22, 'after')")
    leaf.catch_up()
    assert leaf.same("p", "n") == ["(21,attached)", "(22,after)"]
    run_script(leaf, tmp_path, "two.sql", "drop table p1; truncate p3; drop table p2")
    leaf.root.execute("insert into p values (23, 'last')")
    leaf.catch_up()
    assert leaf.same("p", "n") == ["(23,last)"]
    for db in (leaf.root, leaf.leaf):
        db.value("select vedur.watch_tables('q')")
        assert db.query("select * from vedur.table_problems('q')") == []


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_names_changed_by_hand_and_by_script(
    make_leaf: Callable[..., Leaf], tmp_path: Path
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, a text)")
    leaf.root.execute("insert into t values (1, 'a')")
    leaf.catch_up()
    leaf.root.execute("alter table t rename to t2; insert into t2 values (2, 'b')")
    leaf.root.value("select vedur.watch_tables('q')")
    leaf.root.execute("update t2 set a = 'x' where id = 1")
    leaf.catch_up()
    assert leaf.same("t2", "t") == ["(1,x)", "(2,b)"]
    leaf.root.execute("insert into t2 values (3, 'old')")
    leaf.root.execute("alter table t2 rename column a to b; insert into t2 values (4, 'new')")
    with pytest.raises(
        StateError,
        match=r'column "b" is missing .* lacks its column "a": .*"a" to "b"; else add "b"',
    ):
        leaf.catch_up()
    assert [r[0] for r in leaf.leaf.query("select id from t order by 1")] == [1, 2]
    leaf.leaf.execute("alter table t add column b text")
    leaf.catch_up()
    assert [tuple(r) for r in leaf.leaf.query("select * from t where id > 2 order by 1")] == [
        (3, "old", None),
        (4, None, "new"),
    ]
    leaf.leaf.execute(
        "begin; set local session_replication_role = 'replica';"
        "update t set b = coalesce(b, a); alter table t drop column a; commit"
    )
    leaf.root.execute("select vedur.forget_table_changes('q')")
    run_script(leaf, tmp_path, "back.sql", "alter table public.t rename to t3")
    leaf.root.execute("insert into t3 values (5, 'both')")
    leaf.catch_up()
    assert len(leaf.same("t3", "t3")) == 5
    # what was done by hand before the script is told, what the script did is not
    told = [row.what for row in leaf.root.query("select what from vedur.table_problems('q')")]
    assert told == ['column "a" was renamed to "b" by hand']
