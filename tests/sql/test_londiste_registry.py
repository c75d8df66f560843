"""The registry of londiste on every server version: tables, triggers, sequences, scripts, keys."""

from __future__ import annotations

from typing import Any

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError


def call(db: vdb.Database, function: str, *params: Any) -> tuple[Any, ...]:
    marks = ", ".join(["%s"] * len(params))
    return tuple(db.one(f"select * from {function}({marks})", list(params)))


def events(db: vdb.Database, queue: str = "rq") -> list[tuple[Any, ...]]:
    table = db.value("select queue_data_pfx from pgq.queue where queue_name = %s", [queue])
    return [
        tuple(row)
        for row in db.query(f"select ev_type, ev_data, ev_extra1 from {table} order by ev_id")
    ]


def triggers(db: vdb.Database, table: str) -> dict[str, str]:
    return dict(
        tuple(row)
        for row in db.query(
            "select tgname::text, pg_get_triggerdef(oid) from pg_trigger"
            " where tgrelid = %s::regclass and not tgisinternal",
            [table],
        )
    )


@pytest.fixture
def node(db: vdb.Database) -> vdb.Database:
    """One database that is root of "rq" and leaf of "lq"."""
    for queue, name in (("rq", "r"), ("lq", "r"), ("lq", "l")):
        call(db, "pgq_node.register_location", queue, name, "dbname=x", False)
    call(db, "pgq_node.create_node", "rq", "root", "r", "rw", None, None, None)
    call(db, "pgq_node.create_node", "lq", "leaf", "l", "lw", "r", 1, None)
    db.execute("create table public.t (id int primary key, v text)")
    return db


def test_a_table_of_the_root_is_captured_as_json(node: vdb.Database) -> None:
    assert call(node, "londiste.local_add_table", "rq", "t") == (200, "Table added: public.t")
    node.execute("insert into t values (1, 'a'); update t set v = 'b'; delete from t; truncate t")
    got = events(node)
    assert got[0] == ("londiste.add-table", "public.t", None)
    assert [e[0].split(",")[0] for e in got[1:4]] == [
        '{"op":"INSERT"',
        '{"op":"UPDATE"',
        '{"op":"DELETE"',
    ]
    assert got[4][0] == "R"
    assert {e[2] for e in got[1:]} == {"public.t"}


def test_capture_is_generated_for_the_table_and_goes_with_it(node: vdb.Database) -> None:
    generated = (
        "select count(*) from pg_trigger g join pg_proc f on f.oid = g.tgfoid"
        " where g.tgname = '_londiste_rq' and f.pronamespace = 'vedur_work'::regnamespace"
    )
    functions = "select count(*) from pg_proc where pronamespace = 'vedur_work'::regnamespace"
    before = node.value(functions)
    call(node, "londiste.local_add_table", "rq", "t")
    assert node.value(generated) == 1
    # What cannot be generated falls back to the contract's trigger and leaves nothing behind.
    call(node, "londiste.local_change_handler", "rq", "t", ["when=new.id > 5"], None)
    assert node.value(generated) == 0
    assert node.value(functions) == before
    call(node, "londiste.local_change_handler", "rq", "t", [], None)
    assert node.value(generated) == 1
    call(node, "londiste.local_remove_table", "rq", "t")
    assert triggers(node, "public.t") == {}
    assert node.value(functions) == before


def test_flags_choose_the_format_of_the_walk_through(node: vdb.Database) -> None:
    call(node, "londiste.local_add_table", "rq", "t", ["tgflags=L"])
    node.execute("insert into t values (1, 'a b')")
    assert events(node)[-1] == ("I:id", "id=1&v=a+b", "public.t")


def test_a_leaf_refuses_writes_of_users_but_not_of_the_worker(node: vdb.Database) -> None:
    call(node, "londiste.global_add_table", "lq", "public.t")
    assert call(node, "londiste.local_add_table", "lq", "public.t")[0] == 200
    defs = triggers(node, "public.t")
    assert "pgq.logutriga('lq', 'deny')" in defs["_londiste_lq"]
    assert "pgq.sqltriga('lq', 'deny')" in defs["_londiste_lq_truncate"]
    for statement in ("insert into t values (1, 'a')", "truncate t"):
        node.execute("savepoint s")
        with pytest.raises(DatabaseError, match="not allowed"):
            node.execute(statement)
        node.execute("rollback to s")
    node.execute("select londiste.set_session_replication_role('replica', true)")
    node.execute("insert into t values (1, 'a')")


def test_a_renamed_table_sends_the_name_of_the_set(node: vdb.Database) -> None:
    node.execute('create schema "Odd s"; create table "Odd s"."T 1" (id int primary key)')
    assert call(node, "londiste.local_add_table", "rq", "public.x", None, None, "Odd s.T 1") == (
        200,
        "Table added: public.x(Odd s.T 1)",
    )
    node.execute('insert into "Odd s"."T 1" values (1); truncate "Odd s"."T 1"')
    assert [e[2] for e in events(node)[1:]] == ["public.x", "public.x"]


def test_a_partitioned_table_is_one_table(node: vdb.Database) -> None:
    node.execute(
        "create table public.p (id int primary key, v text) partition by range (id);"
        "create table public.p1 partition of p for values from (0) to (10);"
        "create table public.p2 partition of p for values from (10) to (20)"
    )
    assert ("r", "public.p") in [
        tuple(r) for r in node.query("select * from londiste.local_show_missing('rq')")
    ]
    assert call(node, "londiste.local_add_table", "rq", "public.p")[0] == 200
    node.execute("insert into p values (1, 'a'), (11, 'b')")
    assert [e[2] for e in events(node)[1:]] == ["public.p", "public.p"]
    missing = node.query("select obj_name from londiste.local_show_missing('rq')")
    assert [r.obj_name for r in missing if r.obj_name.startswith("public.p")] == []


@pytest.mark.parametrize(
    ("table", "code", "note"),
    [
        ("public.nope", 404, "Table does not exist: public.nope"),
        ("public.nokey", 400, "Primary key missing on table: public.nokey"),
    ],
)
def test_bad_tables_are_refused(node: vdb.Database, table: str, code: int, note: str) -> None:
    node.execute("create table public.nokey (id int)")
    assert call(node, "londiste.local_add_table", "rq", table) == (code, note)
    assert node.value("select count(*) from londiste.table_info") == 0


def test_a_trigger_that_fires_first_is_reported(node: vdb.Database) -> None:
    node.execute(
        "create function public.f() returns trigger language plpgsql as 'begin return null; end';"
        'create trigger "AAA" after insert on t for each row execute function public.f()'
    )
    assert call(node, "londiste.local_add_table", "rq", "t") == (
        301,
        "Table added: public.t, but londiste trigger is not first: AAA",
    )


def test_skip_alone_is_refused_on_a_root(node: vdb.Database) -> None:
    """Upstream makes an AFTER trigger that refuses each row; ours swallowed them in silence."""
    for word in (["skip"], ["SKIP"], ["tgflags=IUDS"]):
        code, note = call(node, "londiste.local_add_table", "rq", "t", word)
        assert code == 403
        assert "AFTER trigger cannot work with SKIP trigger(s)" in note and "tgflags=B" in note
        assert not triggers(node, "public.t")
    node.execute("insert into t values (1, 'a')")
    assert node.value("select count(*) from t") == 1


def test_skip_keeps_rows_out_of_the_table(node: vdb.Database) -> None:
    call(node, "londiste.local_add_table", "rq", "t", ["tgflags=B", "skip"])
    assert "zzz__londiste_rq" in triggers(node, "public.t")
    node.execute("insert into t values (1, 'a')")
    assert node.value("select count(*) from t") == 0
    assert len(events(node)) == 2


def test_a_second_entrance_leaves_the_first_alone(node: vdb.Database) -> None:
    skip = ["tgflags=B", "skip"]
    call(node, "londiste.local_add_table", "rq", "t", skip)
    got = call(node, "londiste.local_add_table", "rq", "public.x", skip, None, "public.t")
    assert got[0] == 200
    got = call(node, "londiste.local_add_table", "rq", "public.y", skip, None, "public.t")
    assert got[0] == 405
    node.execute("insert into t values (1, 'a')")
    assert sorted(e[2] for e in events(node) if e[2]) == ["public.t", "public.x"]


def test_stored_indexes_come_back_when_a_copy_is_given_up(node: vdb.Database) -> None:
    call(node, "londiste.global_add_table", "lq", "public.t")
    call(node, "londiste.local_add_table", "lq", "public.t")
    call(node, "londiste.local_set_table_state", "lq", "public.t", None, "in-copy")
    call(
        node, "londiste.local_set_table_struct", "lq", "public.t", "create index t_v on public.t(v)"
    )
    with pytest.raises(DatabaseError, match="table_info_check"), node.raw.transaction():
        call(node, "londiste.local_set_table_state", "lq", "public.t", None, "ok")
    assert call(node, "londiste.local_remove_table", "lq", "public.t")[0] == 200
    assert node.value("select to_regclass('public.t_v') is not null")


def test_removing_a_table_takes_its_serial_sequence_along(node: vdb.Database) -> None:
    node.execute("create table public.s (id serial primary key)")
    call(node, "londiste.local_add_table", "rq", "public.s")
    call(node, "londiste.local_add_seq", "rq", "public.s_id_seq")
    call(node, "londiste.local_remove_table", "rq", "public.s")
    assert [e[:2] for e in events(node)[-2:]] == [
        ("londiste.remove-seq", "public.s_id_seq"),
        ("londiste.remove-table", "public.s"),
    ]
    assert triggers(node, "public.s") == {}


def test_sequences_are_published_ahead(node: vdb.Database) -> None:
    node.execute("create sequence public.sq; select setval('sq', 4366741)")
    assert call(node, "londiste.local_add_seq", "rq", "sq")[0] == 200
    assert events(node)[-1] == ("londiste.update-seq", "4396741", "public.sq")
    node.execute("select setval('sq', 4386740)")
    call(node, "londiste.root_check_seqs", "rq")
    assert len(events(node)) == 1
    node.execute("select setval('sq', 4386741)")
    call(node, "londiste.root_check_seqs", "rq")
    assert events(node)[-1][1] == "4416741"
    assert ("londiste.root_check_seqs", "rq") in [
        tuple(row) for row in node.query("select * from pgq.maint_operations()")
    ]


def test_a_replica_sequence_never_goes_back(node: vdb.Database) -> None:
    node.execute("create sequence public.sq")
    assert call(node, "londiste.local_add_seq", "lq", "public.sq")[0] == 404
    call(node, "londiste.global_update_seq", "lq", "public.sq", 500)
    call(node, "londiste.local_add_seq", "lq", "public.sq")
    assert node.value("select last_value from sq") == 500
    call(node, "londiste.global_update_seq", "lq", "public.sq", 20)
    assert node.value("select last_value from sq") == 500


def test_registered_objects_are_not_missing(node: vdb.Database) -> None:
    node.execute("create sequence public.sq; create sequence public.other")
    call(node, "londiste.local_add_seq", "rq", "public.sq")
    got = [tuple(r) for r in node.query("select * from londiste.local_show_missing('rq')")]
    assert got == [("S", "public.other"), ("r", "public.t")]


def test_a_script_is_known_by_name_and_content(node: vdb.Database) -> None:
    start = "londiste.execute_start"
    assert call(node, start, "rq", "1.sql", "select 1", True)[0] == 200
    assert call(node, "londiste.execute_finish", "rq", "1.sql")[0] == 200
    assert events(node)[-1] == ("EXECUTE", "select 1", "1.sql")
    assert call(node, start, "rq", "1.sql", "select 1", True)[0] == 201
    code, note = call(node, start, "rq", "1.sql", "select 2", True)
    assert code == 409
    assert "other content" in note
    assert call(node, start, "lq", "1.sql", "select 2", True)[0] == 401
    # The root of "lq" has run it, so its subscriber must.
    assert call(node, start, "lq", "1.sql", "select 2", False)[0] == 200


@pytest.fixture
def keys(node: vdb.Database) -> vdb.Database:
    """Leaf tables "t" and "f" with keys between them and to a table that is not replicated."""
    node.execute(
        "create table public.outside (id int primary key, r int constraint o_t references t);"
        "create table public.f (id int primary key, a int constraint f_t references t"
        " on delete cascade, b int constraint f_o references outside)"
    )
    for table in ("public.t", "public.f"):
        call(node, "londiste.global_add_table", "lq", table)
        call(node, "londiste.local_add_table", "lq", table)
    return node


def test_keys_to_tables_that_are_not_replicated_come_back(keys: vdb.Database) -> None:
    for table, key in (("f", "f_t"), ("f", "f_o"), ("outside", "o_t")):
        assert keys.value("select londiste.drop_table_fkey(%s, %s)", [f"public.{table}", key]) == 1
    call(keys, "londiste.local_set_table_state", "lq", "public.t", None, "ok")
    valid = "select fkey_name from londiste.get_valid_pending_fkeys('lq')"
    assert [r.fkey_name for r in keys.query(valid)] == ["o_t"]
    call(keys, "londiste.local_set_table_state", "lq", "public.f", "1:2:", "ok")
    assert [r.fkey_name for r in keys.query(valid)] == ["o_t"]
    call(keys, "londiste.local_set_table_state", "lq", "public.f", None, "ok")
    assert [r.fkey_name for r in keys.query(valid)] == ["f_o", "f_t", "o_t"]
    # Statements name every schema, so the path of the session does not matter.
    keys.execute("set local search_path = pg_catalog")
    for table, key in (("f", "f_t"), ("f", "f_o"), ("outside", "o_t")):
        keys.execute("select londiste.restore_table_fkey(%s, %s)", [f"public.{table}", key])
    assert keys.value("select count(*) from londiste.pending_fkeys") == 0
    found = "select count(*) from pg_constraint where conname in ('f_t', 'f_o', 'o_t')"
    assert keys.value(found + " and convalidated") == 3


def test_a_key_is_restored_in_steps(keys: vdb.Database) -> None:
    keys.execute("select londiste.drop_table_fkey('public.f', 'f_t')")
    steps = []
    while step := keys.value("select londiste.restore_table_fkey('public.f', 'f_t', true)"):
        steps.append(step)
        keys.execute(step)
    assert [s.rsplit(" ", 2)[-2:] for s in steps] == [["not", "valid"], ["constraint", "f_t"]]
    assert keys.value("select convalidated from pg_constraint where conname = 'f_t'")


def test_partitions_are_made_and_dropped_by_time(node: vdb.Database) -> None:
    node.execute("create table public.ev (id int primary key, ts timestamptz)")
    make = "select londiste.create_partition('ev', %s, 'id', 'ts', %s::timestamptz, 'month')"
    assert node.value(make, ["ev_2011_01", "2011-01-15"]) == 1
    assert node.value(make, ["ev_2011_01", "2011-01-15"]) == 0
    assert node.value(make, ["ev_2199_01", "2199-01-15"]) == 1
    gone = node.query("select * from londiste.drop_obsolete_partitions('ev', '1 year', 'month')")
    assert [r[0] for r in gone] == ["public.ev_2011_01"]
    assert node.value("select to_regclass('public.ev_2199_01') is not null")


def test_partitions_of_a_declared_table(node: vdb.Database) -> None:
    node.execute(
        "create table public.dp (id int, ts timestamptz, primary key (id, ts))"
        " partition by range (ts)"
    )
    assert node.value(
        "select londiste.create_partition('dp', 'dp_2011_01', 'id,ts', 'ts', '2011-01-15', 'month')"
    )
    node.execute("insert into dp values (1, '2011-01-31')")
    assert node.value("select count(*) from dp_2011_01") == 1


def test_the_worker_needs_no_superuser(node: vdb.Database) -> None:
    node.execute("create table public.w (id int primary key)")
    node.execute("create role worker_of_test in role londiste_writer")
    node.execute("grant all on table public.w to worker_of_test")
    node.execute("alter table public.w owner to worker_of_test")
    node.execute("set local role worker_of_test")
    call(node, "londiste.global_add_table", "lq", "public.w")
    assert call(node, "londiste.local_add_table", "lq", "public.w")[0] == 200
    node.execute("select londiste.set_session_replication_role('replica', true)")
    node.execute("insert into public.w values (1)")
    call(node, "pgq_node.set_consumer_completed", "lq", "lw", 7)
    assert node.one("select * from pgq_node.get_worker_state('lq')").completed_tick == 7


def test_a_reader_sees_the_list_and_changes_nothing(node: vdb.Database) -> None:
    call(node, "londiste.local_add_table", "rq", "t")
    node.execute("create role reader_of_test in role londiste_reader")
    node.execute("set local role reader_of_test")
    assert len(node.query("select * from londiste.get_table_list('rq')")) == 1
    for statement in (
        "select londiste.local_remove_table('rq', 'public.t')",
        "select londiste.set_session_replication_role('replica', true)",
        "delete from londiste.table_info",
    ):
        with pytest.raises(DatabaseError, match="permission denied"), node.raw.transaction():
            node.execute(statement)
