"""Tables that cannot be added, keys that are no primary key, names in quotes, tables that share."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.wait import until
from tests.integration.test_ops_admin import QUEUE, Lab, installed, lab
from tests.labs.first_copy import Lab as CopyLab
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from vedur.cli.main import main
from vedur.errors import StateError, UsageError
from vedur.ops import show
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.check import check
from vedur.ops.resync import resync
from vedur.ops.session import Session, sync_tables
from vedur.sql import query

__all__ = ["installed", "lab", "quick_leaf"]


@pytest.fixture
def kind() -> str:
    """Our own SQL."""
    return "ours"


def names(session: Session) -> list[str]:
    return [table.table_name for table in show.tables(session)]


def reasons(lab: Lab) -> dict[str, str]:
    """table -> reason, of the warnings since the last call."""
    lines = [line.removeprefix("WARNING ") for line in lab.lines() if line.startswith("WARNING")]
    parts = [line.partition(" cannot be added: ") for line in lines]
    return {name: reason for name, found, reason in parts if found}


def test_all_names_every_table_that_cannot_be_added(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute(
        """
        create unlogged table s.fast (id int primary key);
        create foreign data wrapper nowhere; create server nowhere foreign data wrapper nowhere;
        create foreign table s.far (id int) server nowhere;
        create table s.part (id int primary key) partition by range (id);
        create table s.part1 partition of s.part for values from (0) to (10);
        create table s.maybe (a int unique, b int not null);
        create unique index on s.maybe (b) where b > 0;
        """
    )
    with pytest.raises(StateError, match=r"4 of 7 tables cannot be added.*--skip-unusable"):
        add_table(lab.root, AddTable(tables=[], all=True))
    told = reasons(lab)
    assert {name: text.split(":")[0].split(",")[0] for name, text in told.items()} == {
        "s.fast": "it is unlogged",
        "s.far": "it is a foreign table",
        "s.nopk": "it has no primary key",
        "s.maybe": "it has no primary key",
    }
    assert names(lab.root) == []
    with pytest.raises(StateError, match="1 of 2 tables"):
        add_table(lab.root, AddTable(tables=["s.a", "s.no*"]))
    assert names(lab.root) == []
    add_table(lab.root, AddTable(tables=[], all=True, skip_unusable=True))
    assert names(lab.root) == ["s.a", "s.b", "s.part"]
    lab.lines()
    for name, reason in (
        ("s.fast", "unlogged"),
        ("s.far", "foreign table"),
        ("s.part1", "add s.part"),
    ):
        with pytest.raises(UsageError, match="Cannot proceed"):
            add_table(lab.root, AddTable(tables=[name]))
        assert reason in lab.lines()[-1]
    # the leaf: what is not here, and what has no key here
    lab.leaf_db.execute("drop table s.b; alter table s.a drop constraint a_pkey")
    lab.log.clear()
    with pytest.raises(StateError, match="3 of 3 tables"):
        add_table(lab.leaf, AddTable(tables=[], all=True))
    told = reasons(lab)
    assert sorted(told) == ["s.a", "s.b", "s.part"]
    assert "does not exist here" in told["s.b"]
    assert told["s.a"].startswith("it has no primary key")
    with pytest.raises(StateError, match="1 of 3 tables"):
        add_table(lab.leaf, AddTable(tables=[], all=True, create=True))
    assert names(lab.leaf) == []
    add_table(lab.leaf, AddTable(tables=[], all=True, create=True, skip_unusable=True))
    assert names(lab.leaf) == ["s.b", "s.part"]


def test_a_table_that_a_crash_empties_is_refused_on_every_node(lab: Lab) -> None:
    lab.create_nodes()
    tree = (
        "create table s.tree (id int primary key) partition by range (id); {} partition of s.tree"
    )
    for db, kind in (
        (lab.root_db, "create table s.tree1"),
        (lab.leaf_db, "create unlogged table s.tree1"),
    ):
        db.execute(tree.format(kind) + " for values from (0) to (10)")
    lab.root_db.execute("create table s.fast (id int primary key)")
    lab.leaf_db.execute("create unlogged table s.fast (id int primary key)")
    lab.root_db.execute("create table s.grown (id int primary key) partition by range (id)")
    lab.root_db.execute(
        "create unlogged table s.g1 partition of s.grown for values from (0) to (1)"
    )
    add_table(lab.root, AddTable(tables=["s.fast", "s.tree"]))
    for session, table, part in (
        (lab.root, "s.grown", "s.g1"),
        (lab.leaf, "s.tree", "s.tree1"),
        (lab.leaf, "s.fast", "s.fast"),
    ):
        with pytest.raises(StateError, match=f"table {part} is unlogged: a crash of this server"):
            add_table(session, AddTable(tables=[table]))
    lab.leaf_db.execute("alter table s.tree1 set logged; alter table s.fast set logged")
    add_table(lab.leaf, AddTable(tables=["s.tree", "s.fast"]))
    assert names(lab.leaf) == ["s.fast", "s.tree"]


def test_missing_tells_what_cannot_be_added(
    lab: Lab,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab.create_nodes()
    lab.root_db.execute("create unlogged table s.fast (id int primary key)")
    ini = tmp_path / "src.ini"
    ini.write_text(f"[londiste3]\ndb = {lab.root_db.connstr}\nqueue_name = {QUEUE}\n")
    assert main("londiste3", [str(ini), "missing"]) == 0
    said = capsys.readouterr()
    assert "INFO s.fast cannot be added: it is unlogged" in said.err
    assert "INFO s.nopk cannot be added: it has no primary key" in said.err
    assert "s.fast" not in said.out
    assert main("londiste3", [str(ini), "missing", "--json"]) == 0
    rows = {row["obj_name"]: row["reason"] for row in json.loads(capsys.readouterr().out)}
    assert rows["s.a"] is None
    assert "unlogged" in rows["s.fast"]
    assert show.unusable(lab.leaf) == {}


QUOTED = 'create schema "Weird Schema"; create table "Weird Schema"."Order" (id int primary key)'


def test_a_type_that_does_not_keep_the_values_is_refused(lab: Lab) -> None:
    """Events bring timestamps with a T and in any time zone, copies do not."""
    lab.create_nodes()
    for db, kind in ((lab.root_db, "timestamptz"), (lab.leaf_db, "text")):
        db.execute(f"create table s.event (id int primary key, at {kind}, who text)")
    add_table(lab.root, AddTable(tables=["s.event"]))
    text = r'table "s.event" cannot be added: column "at" is timestamp with time zone on'
    for options in (
        AddTable(tables=["s.event"]),
        AddTable(tables=["s.event"], expect_sync=True),
        AddTable(tables=["s.event"], columns="id,at=at"),
    ):
        with pytest.raises(StateError, match=text):
            add_table(lab.leaf, options)
    lab.lines()
    with pytest.raises(StateError, match="1 of 1 tables cannot be added"):
        add_table(lab.leaf, AddTable(tables=["s.ev*"]))
    assert "depends on the time zone" in reasons(lab)["s.event"]
    assert "s.event" not in names(lab.leaf)
    add_table(lab.leaf, AddTable(tables=["s.event"], columns="id,who"))
    assert "s.event" in names(lab.leaf)


def test_names_in_quotes_mean_what_they_mean_in_sql(lab: Lab) -> None:
    lab.create_nodes()
    for db in (lab.root_db, lab.leaf_db):
        db.execute(QUOTED)
        db.execute('create table "Plain" (id int primary key); create schema "a.b"')
    add_table(lab.root, AddTable(tables=['"Weird Schema"."Order"', '"Plain"']))
    assert names(lab.root) == ["Weird Schema.Order", "public.Plain"]
    add_table(lab.leaf, AddTable(tables=['"Weird Schema".*', "Plain"], expect_sync=True))
    assert names(lab.leaf) == ["Weird Schema.Order", "public.Plain"]
    resync(lab.leaf, ['"Weird Schema"."Order"', 'public."Plain"'])
    assert [t.merge_state for t in show.tables(lab.leaf)] == [None, None]
    assert [f.table for f in check(lab.leaf, ['"Weird Schema"."Order"'])] == ["Weird Schema.Order"]
    with pytest.raises(UsageError, match="Cannot proceed"):
        resync(lab.leaf, ['"weird schema"."Order"'])
    with pytest.raises(UsageError, match="has a dot in its name"):
        add_table(lab.root, AddTable(tables=['"a.b"."x"']))
    # a name that has the quotes in it
    lab.root_db.execute('create table """Plain""" (id int primary key)')
    add_table(lab.root, AddTable(tables=['"""Plain"""']))
    assert names(lab.root)[-1] == "public.Plain"
    with pytest.raises(UsageError, match=r'"Plain" can mean public\.Plain or public\."Plain"'):
        resync_root = AddTable(tables=['"Plain"'])
        add_table(lab.root, resync_root)


def key_of_events(lab: Lab, table: str) -> list[str]:
    """The key columns that the last event of a table names."""
    text = "select ev_type from pgq.event_template where ev_extra1 = %s order by ev_id desc limit 1"
    return list(json.loads(lab.root_db.value(text, [table]))["pkey"])


KEYED = """
create table s.k (a int not null, b text not null, c int not null unique deferrable, v text,
    d int unique, e int not null);
create unique index k_partial on s.k (e) where e > 0;
create unique index k_expr on s.k ((e + 1));
create unique index k_ab on s.k (b, a) include (v);
create table s.r (x int not null, y int not null, z int not null, unique (z));
create unique index r_xy on s.r (x, y);
alter table s.r replica identity using index r_xy;
"""


def test_a_unique_index_stands_for_a_primary_key(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute(KEYED)
    add_table(lab.root, AddTable(tables=["s.k", "s.r"]))
    lab.root_db.execute("insert into s.k values (1, 'b', 2, 'v', 3, 4); update s.k set v = 'w'")
    lab.root_db.execute("insert into s.r values (1, 2, 3); delete from s.r")
    assert key_of_events(lab, "s.k") == ["b", "a"]
    assert key_of_events(lab, "s.r") == ["x", "y"]
    add_table(lab.leaf, AddTable(tables=["s.k", "s.r"], create=True))
    assert [f.differences for f in check(lab.leaf)] == [(), ()]
    unique = "select pg_get_indexdef(indexrelid) from pg_index where indrelid = %s::regclass"
    assert [r[0] for r in lab.leaf_db.query(unique, ["s.k"])] == [
        "CREATE UNIQUE INDEX k_ab ON s.k USING btree (b, a) INCLUDE (v)"
    ]
    # a leaf with another key only is told so
    lab.root_db.execute("create table s.o (x int not null unique, y int)")
    add_table(lab.root, AddTable(tables=["s.o"]))
    lab.leaf_db.execute("create table s.o (x int, y int primary key)")
    lab.log.clear()
    add_table(lab.leaf, AddTable(tables=["s.o"]))
    assert "the provider's key (x) has no unique index here" in lab.lines()[0]
    (found,) = check(lab.leaf, ["s.o"])
    assert "key is (x) on provider, (y) here" in found.differences
    # and one that PostgreSQL allows no such index for is not told to make one
    for name, key, said in (
        ("p", ", primary key (x, y)", "cannot be unique here, because the table is partitioned by"),
        ("q", ", primary key (y, x)", 'create index on "s"."q" (x)'),
    ):
        lab.root_db.execute(f"create table s.{name} (x int primary key, y int)")
        add_table(lab.root, AddTable(tables=[f"s.{name}"]))
        lab.leaf_db.execute(f"create table s.{name} (x int, y int{key}) partition by range (y)")
        lab.log.clear()
        add_table(lab.leaf, AddTable(tables=[f"s.{name}"]))
        line = lab.lines()[0]
        assert said in line and "create unique index" not in line


@pytest.mark.parametrize("flags", [None, "AIUDL", "AIUDQ"])
def test_changes_of_a_table_with_a_unique_index(
    quick_leaf: Callable[..., Leaf],
    flags: str | None,
) -> None:
    leaf = quick_leaf()
    ddl = "create table u (a int not null, b text not null, v text, unique (a, b))"
    leaf.pair.table("public.u", ddl, flags=flags)
    leaf.root.execute("insert into u select i, 'b' || i, 'v' from generate_series(1, 50) i")
    leaf.catch_up()
    assert len(leaf.same("u")) == 50
    leaf.root.execute("update u set v = 'w' where a % 2 = 0; delete from u where a % 5 = 0")
    leaf.root.execute("update u set a = a + 1000, b = b || '!' where a % 3 = 0")
    leaf.catch_up()
    assert len(leaf.same("u")) == 40
    leaf.root.execute("truncate u; insert into u values (1, 'x', null)")
    leaf.catch_up()
    leaf.same("u")


def test_a_table_that_others_feed_is_not_emptied(lab: Lab) -> None:
    lab.create_nodes()
    lab.root_db.execute("create table s.c (like s.a including all)")
    add_table(lab.root, AddTable(tables=["s.a", "s.c"]))
    add_table(lab.leaf, AddTable(tables=["s.a"]))
    into = {"dest_table": "s.a", "no_triggers": True}
    with pytest.raises(StateError, match=r'"s\.a" of queue "replika" brings rows to "s\.a"'):
        add_table(lab.leaf, AddTable(tables=["s.c"], **into))  # type: ignore[arg-type]
    with pytest.raises(StateError, match="give each of them a condition"):
        add_table(lab.leaf, AddTable(tables=["s.c"], expect_sync=True, **into))  # type: ignore[arg-type]
    set_attrs = "select londiste.local_set_table_attrs('replika', 's.a', 'copy_condition=id<10')"
    lab.leaf_db.execute(set_attrs)
    rows = into | {"copy_condition": "id >= 10"}
    with pytest.raises(StateError, match="would empty it: use --skip-truncate"):
        add_table(lab.leaf, AddTable(tables=["s.c"], **rows))  # type: ignore[arg-type]
    with pytest.raises(StateError, match="its first copy, which empties it, is not done"):
        add_table(lab.leaf, AddTable(tables=["s.c"], skip_truncate=True, **rows))  # type: ignore[arg-type]
    lab.leaf_db.execute("select londiste.local_set_table_state('replika', 's.a', null, 'ok')")
    assert names(lab.leaf) == ["s.a"]
    add_table(lab.leaf, AddTable(tables=["s.c"], skip_truncate=True, **rows))  # type: ignore[arg-type]
    assert names(lab.leaf) == ["s.a", "s.c"]
    with pytest.raises(UsageError, match="--merge-all is for leafs"):
        add_table(lab.root, AddTable(tables=["s.b"], merge_all=True))


def test_two_commands_for_one_table_go_one_after_the_other(lab: Lab) -> None:
    """Each alone would be right; the second copy would take the rows of the first away."""
    lab.create_nodes()
    lab.root_db.execute("create table s.c (like s.a including all)")
    add_table(lab.root, AddTable(tables=["s.a", "s.c"]))
    sync_tables(lab.leaf, lab.leaf_db, lab.root_db)
    lab.leaf_db.execute("begin")
    lab.leaf_db.value(query("admin", "lock_destination"), ["s.a"])  # as the first command does
    failed: list[str] = []

    def second() -> None:
        with Session(lab.leaf.settings) as session:
            try:
                add_table(session, AddTable(tables=["s.c"], dest_table="s.a", no_triggers=True))
            except StateError as error:
                failed.append(error.message)

    thread = threading.Thread(target=second)
    thread.start()
    waits = "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
    try:
        assert until(lambda: bool(lab.root_db.value(waits)) or bool(lab.leaf_db.value(waits)))
        args = "'replika', 's.a', '{}', null, 's.a'"
        assert lab.leaf_db.one(f"select * from londiste.local_add_table({args})").ret_code == 200
    finally:
        lab.leaf_db.execute("commit")
        thread.join(60)
    assert len(failed) == 1 and 'brings rows to "s.a" already' in failed[0]
    assert names(lab.leaf) == ["s.a"]


def test_expect_sync_takes_the_table_of_this_queue_alone(lab: Lab) -> None:
    lab.create_nodes()
    add_table(lab.root, AddTable(tables=["s.a"]))
    for call in (
        "pgq_node.register_location('q2', 'r', 'dbname=r', false)",
        "pgq_node.register_location('q2', 'l', 'dbname=l', false)",
        "pgq_node.create_node('q2', 'leaf', 'l', 'w2', 'r', 1, null)",
        "londiste.global_add_table('q2', 's.a')",
    ):
        lab.leaf_db.execute(f"select {call}")
    add_table(lab.leaf, AddTable(tables=["s.a"], expect_sync=True))
    local = "select queue_name from londiste.table_info where local"
    assert [row.queue_name for row in lab.leaf_db.query(local)] == [QUEUE]


def test_tables_that_share_keep_each_others_rows(quick_lab: CopyLab) -> None:
    """The second copy adds to the first's rows, and a truncate takes its own rows only."""
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute("create table east (id int primary key, region text)")
    lab.root.execute("create table west (like east including all)")
    lab.root.execute("insert into east values (1, 'e'), (2, 'e')")
    lab.root.execute("insert into west values (11, 'w'), (12, 'w')")
    lab.add("public.east", attrs="copy_condition=region%3D%27e%27")
    lab.start()
    lab.wait_ok()
    lab.add(
        "public.west", dest="public.east", attrs="copy_condition=region%3D%27w%27",
        args=("skip_truncate", "no_triggers"),
    )  # fmt: skip
    lab.wait_ok()
    lab.settle()
    text = "select array_agg(id order by id) from east"
    assert lab.leaf.value(text) == [1, 2, 11, 12]
    lab.root.execute("truncate west; insert into west values (13, 'w')")
    lab.settle()
    assert lab.leaf.value(text) == [1, 2, 13]
