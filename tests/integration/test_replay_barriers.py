"""Truncates, scripts and system events; what does not fit; names and types."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.integration.test_replay_worker import cut_at
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER, call
from vedur.db import connect
from vedur.errors import DatabaseError, StateError

pytestmark = pytest.mark.spark

MakeLeaf = Callable[..., Leaf]


def execute(leaf: Leaf, name: str, script: str, attrs: str | None = None) -> None:
    """As `londiste3 execute` on the root."""
    with leaf.root.transaction():
        leaf.root.execute("set local session_replication_role = local")
        args = [QUEUE, name, script, True] + ([attrs] if attrs else [])
        call(leaf.root, "londiste.execute_start", *args)
        leaf.root.execute(script)
        call(leaf.root, "londiste.execute_finish", QUEUE, name)


def test_truncate_in_the_middle_spares_tables_outside_the_set(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.p", "create table p (id int primary key, v text)")
    leaf.pair.table("public.c", "create table c (id int primary key, p int references p)")
    leaf.leaf.execute("create table local_only (id int primary key, p int references p)")
    leaf.root.execute("insert into p values (1, 'a'), (2, 'b'); insert into c values (1, 1)")
    leaf.catch_up()
    leaf.leaf.execute("insert into local_only values (1, 1)")
    leaf.root.execute("update p set v = 'x'; truncate p, c; insert into p values (2, 'c')")
    leaf.catch_up()
    assert leaf.same("p") == ["(2,c)"]
    assert leaf.same("c") == []
    assert leaf.leaf.value("select count(*) from local_only") == 1


def test_a_script_between_changes_runs_at_its_place(
    make_leaf: MakeLeaf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, a text)")
    leaf.root.execute("insert into t values (1, 'before')")
    execute(leaf, "add.sql", "alter table t add column c int default 7")
    leaf.root.execute("insert into t values (2, 'after', 8); update t set a = 'changed', c = 9")
    execute(leaf, "again.sql", "update t set c = c + 1; alter table t add column d text")
    leaf.root.execute("insert into t values (3, 'last', 3, 'd'); delete from t where id = 1")
    leaf.catch_up()
    assert leaf.same("t") == ["(2,changed,10,)", "(3,last,3,d)"]
    said = [r.getMessage() for r in caplog.records]
    start = said.index("Executing: add.sql")
    assert said.index("Execute finished: add.sql") > start
    leaf.root.execute("insert into t values (4, 'next batch', 1, 'x')")
    leaf.catch_up()
    assert len(leaf.same("t")) == 3


def test_transaction_control_in_a_script_and_another_name_here(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.leaf.execute("create schema other")
    leaf.pair.table(
        "public.t",
        "create table t (id int primary key)",
        dest="other.t2",
        dest_ddl="create table other.t2 (id int primary key)",
    )
    leaf.root.execute("insert into t values (1)")
    leaf.root.autocommit = True
    with leaf.root.transaction():
        leaf.root.execute("set local session_replication_role = local")
        script = "begin; alter table public.t add column c int; end;"
        call(leaf.root, "londiste.execute_start", QUEUE, "f.sql", script, True)
        leaf.root.execute("alter table public.t add column c int")
        call(leaf.root, "londiste.execute_finish", QUEUE, "f.sql")
    leaf.root.execute("insert into t values (2, 2)")
    leaf.catch_up()
    assert leaf.same("t", "other.t2") == ["(1,)", "(2,2)"]


SCRIPTS = (
    "update t set a = t.id * 10, b = public.t.id from public.m where m.id = t.id and t.id = 1",
    "insert into public.t select public.t.id + 10, m.id from public.t join m using (id) "
    "on conflict (id) do nothing returning t.id",
    "insert into t values (1, 5) on conflict (id) do update set a = t.a + excluded.a "
    "where public.t.a > 0",
    "delete from t using (select t.id from t where t.id = 2) as gone where public.t.id = gone.id",
    "with t as (select id from t) update m set v = t.id from t where t.id = m.id",
    "create view seen as select t, t.id, public.t.a, public.m.v from t left join m on m.id = t.id",
    "alter table t add check (t.id > 0 and public.t.id < 1000); "
    "create index t_part on t ((t.a + 1)) where t.a > 0; "
    "create policy mine on t using (t.id > 0 and exists (select from m where m.id = t.id))",
    "create table copied as select 't'::regclass = 'public.t'::regclass as same, t.* "
    "from t where exists (select from m where m.id = public.t.id) order by t.id for update of t",
)


def test_scripts_that_name_columns_run_on_a_node_with_other_names(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.leaf.execute("create schema other")
    for name, ddl in (
        ("t", "(id int primary key, a int, b int)"),
        ("m", "(id int primary key, v int)"),
    ):
        dest = {"t": "other.t2", "m": "other.m"}[name]
        leaf.pair.table(
            f"public.{name}",
            f"create table {name} {ddl}",
            dest=dest,
            dest_ddl=f"create table {dest} {ddl}",
        )
    leaf.root.execute("insert into t values (1, 1), (2, 2), (3, 3)")
    leaf.root.execute("insert into m values (1, 1), (3, 3), (11, 0)")
    for number, script in enumerate(SCRIPTS):
        execute(leaf, f"{number}.sql", script)
    leaf.catch_up()
    assert leaf.same("t", "other.t2") == ["(1,15,1)", "(11,1,)", "(13,3,)", "(3,3,)"]
    assert leaf.same("m", "other.m") == ["(1,1)", "(11,11)", "(3,3)"]
    assert len(leaf.same("seen")) == 4
    assert leaf.same("copied") == ["(t,1,15,1)", "(t,11,1,)", "(t,3,3,)"]


def test_a_script_for_other_nodes_is_left_out(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    leaf.root.execute("create schema far")
    execute(leaf, "far.sql", "create table far.x (i int)", attrs="need-schema=far")
    execute(leaf, "here.sql", "create table near (i int)", attrs="local-table=public.t")
    leaf.catch_up()
    assert leaf.leaf.value("select to_regclass('far.x')") is None
    assert leaf.leaf.value("select to_regclass('near')") is not None


def test_a_script_that_fails_leaves_nothing_and_is_tried_again(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    leaf.catch_up()
    leaf.root.execute("create schema digoal")
    leaf.root.execute("insert into t values (1)")
    execute(leaf, "bad.sql", "create table digoal.x (i int)")
    leaf.pair.tick()
    with pytest.raises(DatabaseError, match='schema "digoal" does not exist'):
        leaf.worker.work()
    assert leaf.leaf.value("select count(*) from t") == 0
    leaf.worker._work_safely()
    state = leaf.leaf.one(
        "select cur_error from pgq_node.local_state where consumer_name = %s", [WORKER]
    )
    assert state.cur_error == 'schema "digoal" does not exist'
    leaf.leaf.execute("create schema digoal")
    leaf.catch_up()
    assert leaf.same("t") == ["(1)"]
    state = leaf.leaf.one(
        "select cur_error from pgq_node.local_state where consumer_name = %s", [WORKER]
    )
    assert state.cur_error is None


def test_members_and_sequences_arrive(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    call(leaf.root, "pgq_node.register_location", QUEUE, "third", "host=third", False)
    for db in (leaf.root, leaf.leaf):
        db.execute("create sequence s")
    call(leaf.root, "londiste.local_add_seq", QUEUE, "public.s")
    leaf.catch_up()
    names = {
        r.node_name for r in leaf.leaf.query("select * from pgq_node.get_queue_locations('q')")
    }
    assert "third" in names
    call(leaf.leaf, "londiste.local_add_seq", QUEUE, "public.s")
    leaf.root.execute("select setval('s', 100000)")
    leaf.root.execute("select londiste.root_check_seqs('q')")
    leaf.catch_up()
    assert leaf.leaf.value("select last_value from s") >= 100000


def test_an_unknown_event_stops_the_worker(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.root.execute("select pgq.insert_event('q', 'londiste.surprise', 'x')")
    leaf.pair.tick()
    with pytest.raises(StateError, match="Unhandled event type in queue"):
        while leaf.worker.work():
            pass


@pytest.mark.parametrize("flags", [None, "AIUDQ"], ids=["urlenc", "sql"])
def test_a_column_missing_on_the_target_is_named(make_leaf: MakeLeaf, flags: str | None) -> None:
    leaf = make_leaf(missing_columns="stop")
    leaf.pair.table(
        "public.t",
        "create table t (id int primary key, a text, extra int)",
        dest_ddl="create table t (id int primary key, a text)",
        flags=flags,
    )
    leaf.root.execute("insert into t values (1, 'a', 2)")
    leaf.pair.tick()
    with pytest.raises(StateError, match=r'table "public\.t": column "extra" is missing'):
        while leaf.worker.work():
            pass
    leaf.leaf.execute("alter table t add extra int")
    leaf.catch_up()
    assert leaf.same("t") == ["(1,a,2)"]


def test_a_row_that_is_already_there_is_an_error_that_names_the_event(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, a text)")
    with leaf.leaf.transaction():
        leaf.leaf.execute("set local session_replication_role = replica")
        leaf.leaf.execute("insert into t values (1, 'mine')")
    leaf.root.execute("insert into t values (0, 'zero'); insert into t values (1, 'theirs')")
    leaf.pair.tick()
    refusal = r'^\[ev_id=\d+,ev_txid=\d+\] table "public.\w+": duplicate key'
    with pytest.raises(DatabaseError, match=refusal):
        while leaf.worker.work():
            pass
    assert leaf.leaf.value("select count(*) from t") == 1


def test_updates_of_rows_that_are_missing_are_counted(
    make_leaf: MakeLeaf, caplog: pytest.LogCaptureFixture
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, a text)")
    leaf.root.execute("insert into t values (1, 'a'), (2, 'b')")
    leaf.catch_up()
    with leaf.leaf.transaction():
        leaf.leaf.execute("set local session_replication_role = replica")
        leaf.leaf.execute("delete from t where id = 1")
    leaf.root.execute("update t set a = 'x'")
    leaf.catch_up()
    assert leaf.leaf.query("select * from t") == [(2, "x")]
    assert "public.t: 1 update(s) changed no row on this node (the row" in caplog.text


def test_unique_values_swap_and_local_columns_survive(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table(
        "public.t",
        "create table t (id int primary key, u text unique)",
        dest_ddl="create table t (id int primary key, u text unique, mine text default 'kept')",
    )
    leaf.root.execute("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    leaf.catch_up()
    with leaf.leaf.transaction():
        leaf.leaf.execute("set local session_replication_role = replica")
        leaf.leaf.execute("update t set mine = 'local ' || id")
    leaf.root.execute(
        "update t set u = 'tmp' where id = 1; update t set u = 'a' where id = 2; "
        "update t set u = 'b' where id = 3; update t set u = 'c' where id = 1"
    )
    leaf.catch_up()
    got = leaf.leaf.query("select id, u, mine from t order by id")
    assert got == [(1, "c", "local 1"), (2, "a", "local 2"), (3, "b", "local 3")]


def test_unique_values_swap_between_rows_of_different_columns(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table(
        "public.t",
        "create table t (id int primary key, u text unique)",
        dest_ddl="create table t (id int primary key, u text unique, c int)",
    )
    leaf.root.execute("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    leaf.catch_up()
    leaf.root.execute("update t set u = 'tmp' where id = 1; update t set u = 'a' where id = 2")
    leaf.root.execute("alter table t add column c int")
    leaf.root.execute("update t set u = 'b', c = 5 where id = 1")
    leaf.catch_up()
    assert leaf.same("t") == ["(1,b,5)", "(2,a,)", "(3,c,)"]


def test_row_by_row_before_a_script_ends_at_the_script(
    make_leaf: MakeLeaf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="vedur")
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.root.execute("insert into t values (1, 'old'), (2, 'other')")
    leaf.catch_up()
    late, early = connect(leaf.root.connstr), connect(leaf.root.connstr)
    leaf.root.execute("delete from t where id = 1")
    late.execute("update t set v = 'x' where id = 2")
    early.execute("insert into t values (1, 'new')")
    border = early.value("select txid_current()")
    early.commit()
    late.execute("update t set v = 'late' where id = 1")
    late.commit()
    late.close()
    early.close()
    execute(leaf, "add.sql", "alter table t add column c int default 7")
    leaf.root.execute("insert into t values (3, 'after', 8); update t set c = 9 where id = 1")
    cut_at(monkeypatch, border)
    leaf.catch_up()
    assert leaf.same("t") == ["(1,late,9)", "(2,x,7)", "(3,after,8)"]
    why = "the changes of a key contradict each other, or interleave"
    assert f"public.t: its events are replayed row by row: {why}" in caplog.messages


def test_pause_is_answered_and_kept(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    leaf.catch_up()
    call(leaf.leaf, "pgq_node.set_consumer_paused", QUEUE, WORKER, True)
    leaf.root.execute("insert into t values (1)")
    leaf.pair.tick()
    assert not leaf.worker.work()
    row = leaf.leaf.one(
        "select paused, uptodate from pgq_node.local_state where consumer_name = %s", [WORKER]
    )
    assert row == (True, True)
    assert leaf.leaf.value("select count(*) from t") == 0
    call(leaf.leaf, "pgq_node.set_consumer_paused", QUEUE, WORKER, False)
    leaf.catch_up()
    assert leaf.same("t") == ["(1)"]


def test_passwords_stay_out_of_reprs(make_leaf: MakeLeaf) -> None:
    leaf = make_leaf()
    leaf.catch_up()
    runner = leaf.runner
    assert "host=" not in repr(runner) and "port=" not in repr(runner)


@pytest.mark.parametrize("row_by_row", [False, True])
def test_a_condition_holds_for_changes_too(make_leaf: MakeLeaf, row_by_row: bool) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, n int, kind text)")
    leaf.leaf.execute(
        "update londiste.table_info set table_attrs = %s",
        ["copy_condition=n+%3c+10+and+t.kind+is+not+null+and+kind+like+%27a%25%27+--+few"],
    )
    if row_by_row:
        leaf.catch_up()
        leaf.appliers[-1].log_tables.add("public.t")
    leaf.root.execute(
        "insert into t select i, i, case when i % 2 = 0 then 'a' end from generate_series(1, 20) i"
    )
    leaf.catch_up()
    want = "select t::text from t where n < 10 and kind like 'a%' order by 1"
    rows = leaf.root.query(want)
    assert len(rows) == 4
    assert leaf.leaf.query("select t::text from t order by 1") == rows
    leaf.root.execute("update t set n = n + 5; update t set kind = 'axe' where id = 3")
    leaf.root.execute("update t set n = 1 where id = 20; delete from t where id = 2")
    leaf.root.execute("insert into t values (30, 5, 'a'); update t set n = 50 where id = 30")
    leaf.catch_up()
    rows = leaf.root.query(want)
    assert [r[0] for r in rows] == ["(20,1,a)", "(3,8,axe)", "(4,9,a)"]
    assert leaf.leaf.query("select t::text from t order by 1") == rows
