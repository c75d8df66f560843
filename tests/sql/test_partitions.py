"""Partitioned tables: TRUNCATE of one partition, and changes that no event tells of."""

from __future__ import annotations

import json

import pytest

import vedur.db as vdb
from vedur.db import Database
from vedur.errors import DatabaseError

TREE = """
create table p (id int, v text, primary key (id)) partition by range (id);
create table p1 partition of p for values from (0) to (10);
create table p2 partition of p for values from (10) to (20) partition by list (id);
create table p2a partition of p2 for values in (10, 11);
create table p2b partition of p2 default;
"""


def call(db: Database, function: str, *args: object) -> None:
    marks = ", ".join(["%s"] * len(args))
    row = db.one(f"select * from {function}({marks})", args)
    assert row.ret_code < 300, row


def make_node(db: Database, kind: str) -> Database:
    db.autocommit = True
    call(db, "pgq_node.register_location", "q", "here", "dbname=h", False)
    call(db, "pgq_node.register_location", "q", "other", "dbname=o", False)
    if kind == "root":
        call(db, "pgq_node.create_node", "q", "root", "here", "w", None, None, None)
    else:
        call(db, "pgq_node.create_node", "q", "leaf", "here", "w", "other", 1, None)
    return db


@pytest.fixture
def root(db: Database) -> Database:
    make_node(db, "root").execute(TREE)
    call(db, "londiste.local_add_table", "q", "p")
    forget(db)
    return db


def forget(db: Database) -> None:
    db.execute("truncate pgq.event_1_0, pgq.event_1_1, pgq.event_1_2")


def events(db: Database) -> list[tuple[str, str, str]]:
    """Type, data and table of every event about rows so far, then forget them."""
    rows = db.query(
        "select ev_type, ev_data, ev_extra1 from pgq.event_1 where ev_type !~ '^(pgq|londiste)'"
        " order by ev_id"
    )
    forget(db)
    return [tuple(row) for row in rows]


def fill(db: Database) -> None:
    db.execute("insert into p values (1, 'a'), (2, 'b'), (10, 'c'), (15, 'd')")
    forget(db)


def watch(db: Database) -> None:
    db.value("select vedur.watch_tables('q')")


def problems(db: Database) -> list[tuple[str, str, str]]:
    rows = db.query("select * from vedur.table_problems('q') order by what")
    return [(row.table_name, row.severity, row.what) for row in rows]


def test_truncate_of_a_partition_is_deletes_of_its_rows(root: Database) -> None:
    fill(root)
    root.execute("truncate p1")
    assert events(root) == [
        ("D:id", "id=1&v=a", "public.p"),
        ("D:id", "id=2&v=b", "public.p"),
    ]
    root.execute("truncate p2")
    assert sorted(events(root)) == [
        ("D:id", "id=10&v=c", "public.p"),
        ("D:id", "id=15&v=d", "public.p"),
    ]


def test_truncate_of_the_whole_table_is_one_event(root: Database) -> None:
    fill(root)
    root.execute("truncate p")
    assert events(root) == [("R", "", "public.p")]
    fill(root)
    root.execute("truncate p; insert into p values (3, 'x'); truncate p1")
    assert events(root) == [
        ("R", "", "public.p"),
        ("I:id", "id=3&v=x", "public.p"),
        ("D:id", "id=3&v=x", "public.p"),
    ]
    fill(root)
    root.execute("truncate p2a, p")
    assert events(root) == [("D:id", "id=10&v=c", "public.p"), ("R", "", "public.p")]


def test_truncate_of_a_partition_names_the_table_in_json(db: Database) -> None:
    make_node(db, "root").execute(TREE)
    call(db, "londiste.local_add_table", "q", "p", ["tgflags=J"])
    fill(db)
    db.execute("truncate p1")
    for kind, _, table in events(db):
        assert json.loads(kind)["table"] == ["public", "p"]
        assert table == "public.p"


def make_long(db: Database, queue: str) -> Database:
    db.autocommit = True
    call(db, "pgq_node.register_location", queue, "here", "dbname=h", False)
    call(db, "pgq_node.create_node", queue, "root", "here", "w", None, None, None)
    db.execute(TREE)
    return db


@pytest.mark.parametrize("size", [42, 43, 44, 45, 51, 52])
def test_queues_with_long_names_capture_partitions(db: Database, size: int) -> None:
    queue = "å" * 20 + "q" * (size - 40)
    make_long(db, queue)
    call(db, "londiste.local_add_table", queue, "p")
    db.execute("insert into p values (1, 'a'), (10, 'c')")
    forget(db)
    db.execute("truncate p1")
    assert events(db) == [("D:id", "id=1&v=a", "public.p")]
    db.execute("create table p3 partition of p for values from (20) to (30)")
    db.value("select vedur.watch_tables(%s)", [queue])
    db.execute("insert into p values (20, 'd')")
    forget(db)
    db.execute("truncate p3, p2a")
    assert sorted(events(db)) == [
        ("D:id", "id=10&v=c", "public.p"),
        ("D:id", "id=20&v=d", "public.p"),
    ]
    db.execute("truncate p")
    assert events(db) == [("R", "", "public.p")]
    call(db, "londiste.local_remove_table", queue, "p")
    left = "select count(*) from pg_trigger where tgrelid in ('p'::regclass, 'p1'::regclass)"
    assert db.value(left) == 0


@pytest.mark.parametrize(("queue", "words"), [("q" * 53, []), ("å" * 25, ["skip", "tgflags=B"])])
def test_a_queue_whose_name_leaves_no_room_for_triggers_is_refused(
    db: Database, queue: str, words: list[str]
) -> None:
    make_long(db, queue)
    row = db.one("select * from londiste.local_add_table(%s, 'p', %s)", [queue, words])
    assert row.ret_code == 405
    assert f"{len(queue.encode())} bytes" in row.ret_note
    call(db, "londiste.local_add_table", queue, "p", ["no_triggers"])


def test_a_capture_with_a_cut_name_is_replaced_and_dropped(db: Database) -> None:
    db.call("pgq.create_queue", "q")
    db.execute("create table t (id int primary key)")
    for _ in range(2):
        row = db.call("vedur.create_capture", "q", "t", "å" * 29 + "_l", "json", "IUDT")[0]
        assert row.ret_code == 200
    assert db.call("vedur.drop_capture", "t", "å" * 29 + "_l")[0].ret_code == 200
    assert not db.value("select count(*) from pg_trigger where tgrelid = 't'::regclass")
    db.rollback()


def test_a_truncate_that_is_undone_leaves_no_mark(root: Database) -> None:
    fill(root)
    root.execute("begin; savepoint s; truncate p; rollback to s; truncate p1; commit")
    assert [event[0] for event in events(root)] == ["D:id", "D:id"]


def test_truncate_in_role_local_writes_nothing(root: Database) -> None:
    fill(root)
    root.execute("begin; set local session_replication_role = 'local'; truncate p1; commit")
    assert events(root) == []


def test_repeatable_read_cannot_truncate_a_partition(root: Database) -> None:
    fill(root)
    with vdb.connect(root.connstr, autocommit=True) as other:
        other.execute("begin isolation level repeatable read")
        other.value("select count(*) from p")
        root.execute("insert into p values (5, 'unseen')")
        with pytest.raises(DatabaseError, match="needs isolation level READ COMMITTED"):
            other.execute("truncate p1")
        other.execute("rollback")


def test_who_may_not_read_may_not_truncate(root: Database) -> None:
    fill(root)
    role = "trunc_" + str(root.value("select current_database()"))
    root.execute(f"create role {role}; grant truncate on p1 to {role}")
    try:
        with pytest.raises(DatabaseError, match="writes a delete event for every row: permission"):
            root.execute(f"set role {role}; truncate p1")
    finally:
        root.execute("reset role")
        root.execute(f"drop owned by {role}; drop role {role}")
    assert root.value("select count(*) from p1") == 2


def test_arguments_of_the_row_trigger_hold(db: Database) -> None:
    make_node(db, "root").execute(TREE)
    args = ["ignore=v", "when=id > 1", "tgflags=AIUDJ"]
    call(db, "londiste.local_add_table", "q", "p", args)
    fill(db)
    db.execute("truncate p1")
    got = events(db)
    assert [(data, table) for _, data, table in got] == [('{"id":2}', "public.p")]
    assert '"op":"DELETE"' in got[0][0]


def test_odd_names_and_another_order_of_columns(db: Database) -> None:
    make_node(db, "root").execute(
        'create table "P t" (id int primary key, "a ""b" text, c text) partition by list (id);'
        'create table "p\'1" (c text, gone int, "a ""b" text, id int not null);'
        'alter table "p\'1" drop column gone;'
        'alter table "P t" attach partition "p\'1" for values in (1)'
    )
    call(db, "londiste.local_add_table", "q", "public.P t", None, None, None)
    db.execute("insert into \"P t\" values (1, 'x', 'y')")
    forget(db)
    db.execute('truncate "p\'1"')
    assert events(db) == [("D:id", "id=1&a+%22b=x&c=y", "public.P t")]


def test_a_leaf_refuses_truncate_of_a_partition(db: Database) -> None:
    make_node(db, "leaf").execute(TREE)
    db.execute("select londiste.global_add_table('q', 'public.p')")
    call(db, "londiste.local_add_table", "q", "p", ["expect_sync"])
    with pytest.raises(DatabaseError, match="change not allowed"):
        db.execute("truncate p1")
    with pytest.raises(DatabaseError, match="change not allowed"):
        db.execute("truncate p2")
    db.execute("create table p9 partition of p for values from (90) to (100)")
    assert problems(db)[0][2].startswith("TRUNCATE is not refused on 1 partition(s)")
    watch(db)
    assert problems(db) == []
    with pytest.raises(DatabaseError, match="change not allowed"):
        db.execute("truncate p9")
    db.execute("begin; set local session_replication_role = 'replica'; truncate p; commit")
    db.execute("alter table p detach partition p1; truncate p1")
    call(db, "londiste.local_remove_table", "q", "p")
    db.execute("truncate p9, p2a, p")
    left = "select count(*) from pg_trigger where tgname ~ '^_londiste' and tgrelid::regclass <> %s"
    assert db.value(left + "::regclass", ["p1"]) == 0


def test_new_partitions_get_their_trigger(root: Database) -> None:
    root.execute("create table p3 partition of p for values from (20) to (30)")
    assert problems(root)[0][2].startswith("TRUNCATE is not captured on 1 partition(s)")
    root.value("select londiste.periodic_maintenance()")
    assert problems(root) == []
    root.execute("insert into p values (20, 'x')")
    forget(root)
    root.execute("truncate p3")
    assert events(root) == [("D:id", "id=20&v=x", "public.p")]


def test_truncated_before_it_was_watched(root: Database) -> None:
    root.execute("create table p3 partition of p for values from (20) to (30)")
    root.execute("insert into p values (20, 'x')")
    root.execute("truncate p3")
    watch(root)
    what = "partition public.p3 may have been truncated before its trigger was made"
    assert problems(root) == [("public.p", "fail", f"{what} (not repaired yet: other)")]


def test_attach_with_rows_is_told(root: Database) -> None:
    root.execute("create table p3 (like p including all); alter table p attach partition p3"
                 " for values from (20) to (30)")  # fmt: skip
    root.execute("insert into p values (20, 'captured')")
    watch(root)
    what = "partition public.p3 was attached with rows: the other nodes do not have them"
    # rows that came after the attachment are captured, but nobody can tell them from others
    assert problems(root) == [("public.p", "fail", f"{what} (not repaired yet: other)")]
    root.execute("select vedur.forget_table_changes('q', 'p')")
    root.execute(
        "begin; create table p4 (like p including all); insert into p4 values (30, 'unseen');"
        " alter table p attach partition p4 for values from (30) to (40); commit;"
        "create table p5 (like p including all);"
        "alter table p attach partition p5 for values from (40) to (50);"
        "create table p6 partition of p for values from (50) to (60);"
        "insert into p values (50, 'captured')"
    )
    watch(root)
    assert [what for _, _, what in problems(root)] == [
        "partition public.p4 was attached with rows: the other nodes do not have them"
        " (not repaired yet: other)"
    ]


def test_detach_and_drop_are_told(root: Database) -> None:
    fill(root)
    root.execute("alter table p detach partition p1")
    root.execute("alter table p2 detach partition p2a")
    root.execute("drop table p2b")
    watch(root)
    rest = "its rows are still on the other nodes (not repaired yet: other)"
    assert [what for _, _, what in problems(root)] == [
        f"partition public.p1 was detached: {rest}",
        f"partition public.p2a was detached: {rest}",
        f"partition public.p2b was dropped: {rest}",
    ]
    watch(root)
    assert len(problems(root)) == 3
    last = root.value("select max(change_id) from vedur.table_change")
    mend = "select vedur.mend_table_changes('q', 'public.p', %s, %s, %s)"
    root.execute("update vedur.table_change set pending = array['branch', 'other']")
    assert root.value(mend, ["other", "branch", last]) == 0
    assert "not repaired yet: other" in problems(root)[0][2]
    assert root.value(mend, ["branch", "here", last]) == 0
    assert root.value(mend, ["other", "here", last - 1]) == 2
    assert root.value(mend, ["other", "here", last]) == 1
    assert problems(root) == []
    root.execute("truncate p1")  # it is a table of its own now
    assert events(root) == []


def test_detach_concurrently_is_told(root: Database) -> None:
    fill(root)
    root.execute("alter table p detach partition p1 concurrently")
    watch(root)
    assert "p1 was detached" in problems(root)[0][2]


def test_what_a_script_does_is_not_told(root: Database) -> None:
    fill(root)
    root.execute("alter table p detach partition p1")
    root.value("select vedur.watch_tables('q', true)")
    watch(root)
    assert problems(root) == []


def test_rewrites_of_partitions_are_not_told(root: Database) -> None:
    fill(root)
    root.execute("vacuum full p1")
    root.execute("truncate p2a")
    watch(root)
    assert problems(root) == []


def test_disabled_triggers_are_told(root: Database) -> None:
    root.execute("alter table p1 disable trigger _londiste_q")
    what = "triggers of public.p1 are disabled, its changes are lost: _londiste_q"
    assert problems(root) == [("public.p", "fail", what)]
    root.execute("alter table p1 enable trigger user")
    assert problems(root) == []


REPAIR = "(not repaired yet: other)"


def test_a_trigger_that_was_disabled_is_remembered(root: Database) -> None:
    what = f"triggers of public.p1 were disabled: the other nodes did not get its changes {REPAIR}"
    now = "triggers of public.p1 are disabled, its changes are lost: _londiste_q"
    watch(root)
    root.execute("alter table p1 disable trigger _londiste_q")
    watch(root)
    assert set(problems(root)) == {("public.p", "fail", now), ("public.p", "fail", what)}
    first = root.value("select max(change_id) from vedur.table_change")
    root.execute("alter table p1 enable trigger user")
    watch(root)
    assert problems(root) == [("public.p", "fail", what)]
    # a repair that began before it was enabled mends nothing
    mend = "select vedur.mend_table_changes('q', 'public.p', 'other', 'here', %s)"
    assert root.value(mend, [first]) == 0
    last = root.value("select max(change_id) from vedur.table_change")
    assert root.value(mend, [last]) == 1
    watch(root)
    assert problems(root) == []


@pytest.mark.every_version
@pytest.mark.parametrize("which", ["user", "all", "_londiste_q"])
def test_a_trigger_that_was_disabled_between_two_looks_is_told(db: Database, which: str) -> None:
    make_node(db, "root").execute("create table t (id int primary key)")
    call(db, "londiste.local_add_table", "q", "t")
    db.execute(
        f"begin; alter table t disable trigger {which}; insert into t values (1);"
        f" alter table t enable trigger {which}; commit"
    )
    watch(db)
    how = "what was changed while they were disabled is not on the other nodes"
    what = f"triggers of public.t were altered between two looks: {how} {REPAIR}"
    assert problems(db) == [("public.t", "fail", what)]


def test_triggers_of_many_partitions_are_one_line(root: Database) -> None:
    root.execute("alter table p disable trigger user")
    watch(root)
    told = [what for _, _, what in problems(root) if "were disabled" in what]
    lost = "were disabled: the other nodes did not get its changes"
    assert told == [f"triggers of public.p {lost} {REPAIR}"]
    root.execute("select vedur.forget_table_changes('q'); alter table p enable trigger user")
    watch(root)
    root.execute("create table p3 partition of p for values from (20) to (30)")
    watch(root)
    root.execute("select vedur.forget_table_changes('q')")
    for name in ("p1", "p2a", "p2b", "p3"):
        root.execute(f"alter table {name} disable trigger _londiste_q")
    watch(root)
    told = [what for _, _, what in problems(root) if "were disabled" in what]
    assert told == [f"triggers of public.p1, public.p2a, public.p2b and 1 more {lost} {REPAIR}"]


def test_a_trigger_that_was_dropped_is_remembered(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key)")
    call(db, "londiste.local_add_table", "q", "t")
    made = db.value("select pg_get_triggerdef(oid) from pg_trigger where tgname = '_londiste_q'")
    db.execute("drop trigger _londiste_q on t")
    watch(db)
    how = "dropped or renamed: the other nodes do not get its changes"
    what = f"triggers of public.t were {how} {REPAIR}"
    now = "table public.t has no trigger of the set any more: its changes are lost"
    assert problems(db) == [("public.t", "fail", now), ("public.t", "fail", what)]
    db.execute("select vedur.forget_table_changes('q')")
    watch(db)
    assert problems(db) == [("public.t", "fail", now)]
    db.execute(made)
    watch(db)
    how = "dropped or renamed for a while: the other nodes did not get its changes"
    assert problems(db) == [("public.t", "fail", f"triggers of public.t were {how} {REPAIR}")]


def test_a_table_without_triggers_is_not_told(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key)")
    call(db, "londiste.local_add_table", "q", "t", ["no_triggers"])
    db.execute("alter table t add v int")
    db.execute("select vedur.watch_tables('q', true)")
    assert problems(db) == []


def test_triggers_that_vedur_makes_again_are_not_told(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int, constraint k primary key (id))")
    call(db, "londiste.local_add_table", "q", "t")
    db.execute(
        "alter table t drop constraint k;"
        "alter table t add constraint k primary key (id) deferrable initially deferred"
    )
    before = db.value("select oid from pg_trigger where tgname = '_londiste_q'")
    db.execute("select vedur.refresh_stale_captures()")
    assert db.value("select oid from pg_trigger where tgname = '_londiste_q'") != before
    watch(db)
    assert problems(db) == []


@pytest.mark.every_version
def test_values_that_using_computed_are_told(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key, v int, n numeric)")
    call(db, "londiste.local_add_table", "q", "t")
    db.execute("insert into t values (1, 1, 1)")
    db.execute("alter table t alter v type int using v * 100, alter n type numeric using n * 2")
    watch(db)
    what = 'the table was rewritten while column(s) were altered by hand: "v", "n"'
    assert problems(db) == [("public.t", "warn", what)]
    (action,) = db.one("select action from vedur.table_problems('q')")
    assert action.startswith('run "compare public.t" on the other nodes')
    db.execute("select vedur.forget_table_changes('q'); alter table t alter n type numeric(9, 1)")
    watch(db)
    what = 'the type of column "n" was changed by hand from numeric to numeric(9,1)'
    assert problems(db) == [("public.t", "warn", what)]
    (action,) = db.one("select action from vedur.table_problems('q')")
    assert 'run "compare public.t" there, since USING and defaults compute values' in action


def test_values_that_using_computed_in_partitions_are_told(root: Database) -> None:
    fill(root)
    watch(root)
    root.execute("alter table p alter v type text using upper(v)")
    watch(root)
    what = 'the table was rewritten while column(s) were altered by hand: "v"'
    assert problems(root) == [("public.p", "warn", what)]


@pytest.mark.every_version
def test_rewrites_that_keep_all_values_are_not_told(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key, v int, n numeric)")
    call(db, "londiste.local_add_table", "q", "t")
    for harmless in (
        "insert into t values (1, 1, 1)",
        "vacuum full t",
        "cluster t using t_pkey",
        "vacuum (analyze, freeze) t",
        "alter table t set unlogged; alter table t set logged",
        "alter table t alter v set statistics 5",
        "alter table t alter v set not null, alter n set default 3",
        "alter table t alter v type int using v",
        "grant select (v) on t to public",
        "create index on t (v)",
        "truncate t",
        "vacuum full pg_attribute",
        "vacuum full pg_trigger",
        "vacuum freeze pg_attribute",
    ):
        db.execute(harmless)
        watch(db)
        assert problems(db) == [], harmless


def test_a_catalog_that_pg_upgrade_wrote_is_taken_as_it_is(root: Database) -> None:
    """It keeps oids of tables, and has written every row of the catalog again."""
    root.execute(
        "update vedur.table_watch set state = state || jsonb_build_object('made', '1', 'file', 1,"
        " 'triggers', (select jsonb_object_agg(key, jsonb_set(value, '{3}', '\"1\"'))"
        " from jsonb_each(state -> 'triggers')), 'written', (select jsonb_object_agg(key, '1')"
        " from jsonb_each(state -> 'written')))"
    )
    watch(root)
    assert problems(root) == []


def test_renamed_table_is_followed(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key, v text); create schema s")
    for args in (None, ["ignore=v"]):
        call(db, "londiste.local_add_table", "q", "t", args)
        forget(db)
        db.execute("alter table t rename to t2; insert into t2 values (1)")
        db.execute("alter table t2 set schema s; update s.t2 set id = 2; truncate s.t2")
        assert [event[2] for event in events(db)] == ["public.t"] * 4
        watch(db)
        what = "table public.t was renamed to s.t2 by hand; its changes go on under its name in"
        assert problems(db) == [("public.t", "warn", f"{what} the set")]
        assert db.value("select dest_table from londiste.table_info") == "s.t2"
        db.execute("select vedur.refresh_stale_captures(); insert into s.t2 values (3)")
        assert [event[2] for event in events(db)] == ["public.t"]
        db.execute("alter table s.t2 set schema public; alter table t2 rename to t")
        call(db, "londiste.local_remove_table", "q", "t")
        assert db.value("select count(*) from pg_trigger where tgname ~ '^_londiste'") == 0
        db.execute("truncate t")
        watch(db)
        assert problems(db) == []


def test_replaced_and_dropped_tables_are_told(db: Database) -> None:
    make_node(db, "root").execute(
        "create table t (id int primary key); create table u (id int primary key);"
        "create table w (id int primary key)"
    )
    for name in "tuw":
        call(db, "londiste.local_add_table", "q", name)
    db.execute("alter table t rename to t_old; create table t (id int primary key)")
    db.execute("drop table u; create table u (id int primary key)")
    db.execute("drop table w")
    watch(db)
    assert [what for _, _, what in problems(db) if "renamed" not in what] == [
        "table public.t is another table now, the replicated one is public.t_old",
        "table public.u was dropped and made anew: its changes are not captured",
        "table public.w was dropped",
    ]
    assert {severity for _, severity, what in problems(db) if "renamed" not in what} == {"fail"}


def test_columns_changed_by_hand_are_told(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key, a text, b int, c int)")
    call(db, "londiste.local_add_table", "q", "t")
    db.execute(
        "alter table t rename column a to z; alter table t alter column b type bigint;"
        "alter table t drop column c; alter table t add column d int"
    )
    watch(db)
    assert [what for _, _, what in problems(db)] == [
        'column "a" was renamed to "z" by hand',
        'column "c" was dropped by hand',
        'column "d" was added by hand',
        'the type of column "b" was changed by hand from integer to bigint',
    ]


def test_children_by_inheritance_are_told(db: Database) -> None:
    make_node(db, "root").execute(
        "create table t (id int primary key); create table c (primary key (id)) inherits (t)"
    )
    call(db, "londiste.local_add_table", "q", "t")
    assert "has children by inheritance" in problems(db)[0][2]
    call(db, "londiste.local_add_table", "q", "c")
    assert problems(db) == []


def test_a_restored_root_is_taken_as_it_is(root: Database) -> None:
    root.execute("update vedur.table_watch set relid = 1")  # oids of another database
    watch(root)
    assert problems(root) == []
    assert root.value("select relid from vedur.table_watch") == root.value(
        "select 'p'::regclass::oid"
    )


def test_capture_of_an_older_version_learns_the_name(db: Database) -> None:
    make_node(db, "root").execute("create table t (id int primary key)")
    call(db, "londiste.local_add_table", "q", "t")
    got = db.one("select * from vedur.create_capture('q', 't', '_londiste_q', 'json')")
    assert got.ret_code == 200
    db.execute("delete from vedur.table_watch")
    watch(db)
    forget(db)
    db.execute("alter table t rename to t2; insert into t2 values (1)")
    assert events(db)[0][2] == "public.t"


def test_create_partition_takes_no_trigger_of_the_set(db: Database) -> None:
    make_node(db, "root").execute(
        "create table t (id int primary key, ts timestamptz);"
        "create function f() returns trigger language plpgsql as 'begin return new; end';"
        'create trigger "x ON public.t y" before insert on t for each row execute function f()'
    )
    call(db, "londiste.local_add_table", "q", "t")
    db.execute("select londiste.create_partition('t', 't_2026', 'id', 'ts', now(), 'year')")
    triggers = "select tgname from pg_trigger where tgrelid = 't_2026'::regclass"
    assert [row[0] for row in db.query(triggers)] == ["x ON public.t y"]
    forget(db)
    db.execute("truncate t_2026")  # not that of the whole table
    assert events(db) == []


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "part, bounds, inside",
    [("p1", "from (0) to (10)", "p1"), ("p2", "from (10) to (20)", "p2a")],
)
def test_a_partition_that_was_away_for_a_while_is_told(
    root: Database, part: str, bounds: str, inside: str, together: bool
) -> None:
    fill(root)
    watch(root)
    assert problems(root) == []
    statements = [
        f"alter table p detach partition {part}",
        f"update {part} set v = 'unseen'",
        f"alter table p attach partition {part} for values {bounds}",
    ]
    if together:
        root.execute("begin; " + "; ".join(statements) + "; commit")
    else:
        for statement in statements:
            root.execute(statement)
    assert events(root) == []
    watch(root)
    what = f"partition public.{inside} was detached and attached again"
    assert [found for found in problems(root) if found[2].startswith(what)] == [
        ("public.p", "fail", f"{what}: the other nodes do not have what was written to it in"
         " between (not repaired yet: other)"),
    ]  # fmt: skip
    root.execute("select vedur.forget_table_changes('q', 'p')")
    watch(root)
    assert problems(root) == []


def test_a_tree_that_is_attached_with_rows_is_told(root: Database) -> None:
    tree = "create table {0} (id int, v text, primary key (id)) partition by range (id)"
    root.execute(tree.format("s") + "; create table s1 partition of s for values from (20) to (25)")
    root.execute("insert into s values (20, 'unseen')")
    root.execute("alter table p attach partition s for values from (20) to (30)")
    # this one is younger than the attachment, so all of its rows are captured
    root.execute("create table s2 partition of s for values from (25) to (30)")
    root.execute("insert into p values (25, 'captured')")
    watch(root)
    assert [what for _, _, what in problems(root)] == [
        "partition public.s1 was attached with rows: the other nodes do not have them"
        " (not repaired yet: other)"
    ]


def test_a_node_that_comes_back_is_not_forgotten(root: Database) -> None:
    fill(root)
    dead = "select pgq_node.register_location('q', 'other', 'dbname=o', {})"
    root.execute(dead.format("true"))
    watch(root)
    root.execute("drop table p1")
    watch(root)
    assert problems(root) == []
    root.execute(dead.format("false"))
    assert [what for _, _, what in problems(root)] == [
        "partition public.p1 was dropped: its rows are still on the other nodes"
        " (not repaired yet: other)"
    ]


@pytest.mark.parametrize("kind", ["root", "leaf"])
def test_a_table_that_a_crash_empties_is_told(db: Database, kind: str) -> None:
    make_node(db, kind).execute(TREE + "create table plain (id int primary key)")
    for table in ("p", "plain"):
        if kind == "leaf":
            call(db, "londiste.global_add_table", "q", table)
        call(db, "londiste.local_add_table", "q", table)
    watch(db)
    assert problems(db) == []
    db.execute("alter table p1 set unlogged; alter table plain set unlogged")
    told = "is unlogged: a crash of this server empties it, and no event tells"
    assert problems(db) == [
        ("public.p", "warn", f"public.p1 {told}"),
        ("public.plain", "warn", f"public.plain {told}"),
    ]


def drop_p1(root: Database) -> str:
    fill(root)
    watch(root)
    root.execute("drop table p1")
    watch(root)
    return "partition public.p1 was dropped: its rows are still on the other nodes"


def test_a_renamed_node_has_not_repaired_anything_by_that(root: Database) -> None:
    what = drop_p1(root)
    for step in (1, 2, 3):
        call(root, "vedur.rename_node", "q", "other", "new_name", step)
    watch(root)
    assert problems(root) == [("public.p", "fail", f"{what} (not repaired yet: new_name)")]


def test_a_node_that_was_dropped_is_not_waited_for(root: Database) -> None:
    drop_p1(root)
    call(root, "pgq_node.unregister_location", "q", "other")
    watch(root)
    call(root, "pgq_node.register_location", "q", "other", "dbname=o", False)
    watch(root)
    assert problems(root) == []
    assert root.value("select count(*) from vedur.table_change") == 0


def test_what_is_above_the_table_does_not_matter(db: Database) -> None:
    make_node(db, "root").execute(
        "create table top (id int, primary key (id)) partition by range (id);"
        "create table mid (id int not null, primary key (id)) partition by range (id);"
        "alter table top attach partition mid for values from (0) to (1000);"
        "create table c partition of mid for values from (0) to (100) partition by range (id);"
        "create table c1 partition of c for values from (0) to (10)"
    )
    call(db, "londiste.local_add_table", "q", "c")
    db.execute("insert into c values (1)")
    watch(db)
    db.execute("alter table top detach partition mid")
    db.execute("alter table top attach partition mid for values from (0) to (1000)")
    db.execute("create table c2 partition of c for values from (10) to (20)")
    db.execute("insert into c values (11)")
    watch(db)
    assert problems(db) == []


def test_a_restored_table_is_known_by_its_name(root: Database) -> None:
    """In another server the number that was kept may be that of an index."""
    watch(root)
    oid = "select 'public.p'::regclass::oid"
    root.execute(
        "update vedur.table_watch set relid = 'public.p_pkey'::regclass,"
        " state = jsonb_set(state, '{name}', '\"public.old\"')"
    )
    watch(root)
    assert problems(root) == []
    assert root.value("select relid from vedur.table_watch") == root.value(oid)
