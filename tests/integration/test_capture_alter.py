"""Generated capture under ALTER TABLE, rotation, settings, missing rights and nested changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

import vedur.db as vdb
from vedur.db import Database
from vedur.errors import DatabaseError


def events(db: Database) -> list[tuple[str, dict[str, Any]]]:
    """Operation and row of every event so far, then forget them."""
    rows = db.query(
        "select e.ev_type::json ->> 'op', e.ev_data from pgq.event_template e order by e.ev_id"
    )
    db.execute("truncate pgq.event_1_0, pgq.event_1_1, pgq.event_1_2")
    return [(row[0], json.loads(row[1])) for row in rows]


def capture(db: Database, table: str, mode: str = "row") -> None:
    call = "select * from vedur.create_capture('q', %s, '_l', 'json', 'IUDT', %s)"
    got = db.one(call, [table, mode])
    assert got.ret_code == 200, got


@pytest.fixture
def qdb(db: Database) -> Database:
    db.autocommit = True
    db.call("pgq.create_queue", "q")
    db.execute("create table t (id int primary key, a text)")
    return db


def functions_of(db: Database) -> str:
    query = "select string_agg(proname, ',') from pg_proc where proname ~ '^capture_[0-9]'"
    return str(db.value(query))


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_alter_is_followed_at_once(qdb: Database, mode: str) -> None:
    capture(qdb, "t", mode)
    with vdb.connect(qdb.connstr, autocommit=True) as other:
        for number in range(8):  # enough for a cached generic plan in this session
            other.execute(f"insert into t values ({number}, 'x')")
            other.execute(f"update t set a = 'y' where id = {number}")
        events(qdb)
        qdb.execute("alter table t add column n numeric default 1.50")
        other.execute("update t set a = 'z' where id = 1")
        assert events(qdb) == [("UPDATE", {"id": 1, "a": "z", "n": "1.50"})]
        qdb.execute("alter table t rename column a to b")
        other.execute("update t set b = 'w' where id = 1")
        assert events(qdb) == [("UPDATE", {"id": 1, "b": "w", "n": "1.50"})]
        qdb.execute("alter table t alter column n type text")
        other.execute("update t set n = 'txt' where id = 1")
        assert events(qdb) == [("UPDATE", {"id": 1, "b": "w", "n": "txt"})]
        qdb.execute("alter table t alter column id type bigint")
        other.execute("update t set n = 'big' where id = 1")
        assert events(qdb) == [("UPDATE", {"id": 1, "b": "w", "n": "big"})]
        qdb.execute("alter table t drop column b")
        other.execute("delete from t where id = 1")
        assert events(qdb) == [("DELETE", {"id": 1, "n": "big"})]
        qdb.execute("alter table t rename column id to key")
        other.execute("insert into t values (100, 'k')")
        assert qdb.value("select ev_type::json ->> 'pkey' from pgq.event_1") == '["key"]'
        events(qdb)
        qdb.execute("alter table t rename to renamed")
        other.execute("insert into renamed values (101, 'k')")
        assert qdb.value("select ev_extra1 from pgq.event_1") == "public.renamed"
        events(qdb)
        other.execute("begin")
        other.execute("insert into renamed values (102, 'k')")
        other.execute("alter table renamed add column f float8 default 0.5")
        other.execute("update renamed set n = 'l' where key = 102")
        other.execute("commit")
        assert events(qdb) == [
            ("INSERT", {"key": 102, "n": "k"}),
            ("UPDATE", {"key": 102, "n": "l", "f": "0.5"}),
        ]


def test_repeatable_read_sees_a_column_added_after_its_snapshot(qdb: Database) -> None:
    capture(qdb, "t")
    with vdb.connect(qdb.connstr, autocommit=True) as other:
        other.execute("insert into t values (1, 'x')")
        other.execute("begin isolation level repeatable read")
        other.value("select count(*) from pgq.queue")
        qdb.execute("alter table t add column n numeric default 2.5")
        other.execute("update t set a = 'y'")
        other.execute("commit")
        other.execute("update t set a = 'z'")
    assert events(qdb)[1:] == [
        ("UPDATE", {"id": 1, "a": "y", "n": "2.5"}),
        ("UPDATE", {"id": 1, "a": "z", "n": "2.5"}),
    ]


def test_refresh_returns_to_the_fast_way(qdb: Database) -> None:
    capture(qdb, "t")
    before = qdb.value("select prosrc from pg_proc where proname ~ '^capture_[0-9]'")
    qdb.execute("alter table t add column n numeric")
    assert qdb.one("select * from vedur.refresh_capture('t')").ret_code == 200
    after = qdb.value("select prosrc from pg_proc where proname ~ '^capture_[0-9]'")
    assert before != after and '"n"' in after
    qdb.execute("insert into t values (1, 'x', 1.0)")
    assert events(qdb) == [("INSERT", {"id": 1, "a": "x", "n": "1.0"})]
    assert qdb.one("select * from vedur.drop_capture('t', '_l')").ret_code == 200
    assert functions_of(qdb) == "None"
    assert qdb.one("select * from vedur.drop_capture('t', '_l')").ret_code == 404


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_changed_keys_become_delete_and_insert(qdb: Database, mode: str) -> None:
    capture(qdb, "t", mode)
    qdb.execute("insert into t values (1, 'x'), (2, 'y')")
    events(qdb)
    qdb.execute("update t set id = 10 where id = 1")
    assert events(qdb) == [("DELETE", {"id": 1, "a": "x"}), ("INSERT", {"id": 10, "a": "x"})]
    qdb.execute("truncate t")
    assert [op for op, _ in events(qdb)] == ["TRUNCATE"]


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_hostile_settings_do_not_change_the_text(qdb: Database, mode: str) -> None:
    qdb.execute(
        "create table s (id int primary key, i interval, b bytea, f float8, d date, a date[],"
        " z timestamptz, m money[], r regclass)"
    )
    qdb.execute("create schema app create table thing (id int)")
    capture(qdb, "s", mode)
    insert = (
        "insert into s values ({}, make_interval(years => -1, days => 2), '\\xdead',"
        " 0.1::float8 + 0.2::float8, make_date(2020, 2, 1), array[make_date(2020, 2, 1)],"
        " '2020-02-01 00:00+00', array[1.5::money], 'app.thing')"
    )
    qdb.execute(insert.format(1))
    plain = events(qdb)[0][1]
    for name, value in [
        ("intervalstyle", "sql_standard"), ("bytea_output", "escape"), ("extra_float_digits", "-3"),
        ("datestyle", "SQL, DMY"), ("datestyle", "German"), ("search_path", "app, public"),
    ]:  # fmt: skip
        qdb.execute(f"select set_config('{name}', '{value}', false)")
        qdb.execute(insert.format(2))
        assert events(qdb)[0][1] == {**plain, "id": 2}, name
        assert qdb.value(f"show {name}").lower().startswith(value.split(",")[0].lower())
        qdb.execute("delete from s where id = 2")
        qdb.execute(f"reset {name}")
        events(qdb)


def test_money_is_written_in_one_locale(qdb: Database) -> None:
    """Other locales may not be there, so this looks at what the capture asks for."""
    qdb.execute("create type price as (amount money)")
    for name, columns, asks in [
        ("m1", "m money", True), ("m2", "m price[]", True), ("m3", "m numeric, t text[]", False),
    ]:  # fmt: skip
        qdb.execute(f"create table {name} (id int primary key, {columns})")
        text = qdb.value(f"select vedur.capture_settings('{name}'::regclass, 'json')")
        assert ("lc_monetary" in text) is asks, name
    # whoever writes an event on another path sets it
    missing = qdb.query(
        "select proname from pg_proc where 'extra_float_digits=1' = any (proconfig)"
        " and not 'lc_monetary=C' = any (proconfig)"
    )
    assert missing == []
    with vdb.connect(qdb.connstr) as ours:
        assert ours.value("show lc_monetary") == "C"


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_a_user_without_rights_on_the_queue_may_write(qdb: Database, mode: str) -> None:
    capture(qdb, "t", mode)
    role = f"writer_{qdb.value('select pg_backend_pid()')}"
    qdb.execute(f"create role {role}")
    try:
        qdb.execute(f"grant select, insert, update, delete on t to {role}")
        qdb.execute("create schema evil")
        qdb.execute(f"grant usage on schema evil to {role}")
        qdb.execute(
            "create function evil.now() returns timestamptz language plpgsql as"
            " $$ begin raise exception 'hijacked'; end $$"
        )
        qdb.execute(
            "create function evil.boom(text, text) returns boolean language plpgsql as"
            " $$ begin raise exception 'hijacked'; end $$"
        )
        for operator in ("=", "<>", "||", "!~"):
            qdb.execute(
                f"create operator evil.{operator}"
                " (leftarg = text, rightarg = text, function = evil.boom)"
            )
        qdb.execute(f"set role {role}")
        qdb.execute("set search_path = evil, pg_catalog, public")
        qdb.execute("insert into t values (1, 'a:b c')")
        qdb.execute("update t set a = 'é' where id operator(pg_catalog.=) 1")
        qdb.execute("update t set id = 5")
        with pytest.raises(DatabaseError, match="permission denied"):
            qdb.execute("select pgq.insert_event('q', 't', 'd')")
        qdb.execute("reset role")
        qdb.execute("reset search_path")
        assert [op for op, _ in events(qdb)] == ["INSERT", "UPDATE", "DELETE", "INSERT"]
    finally:
        qdb.execute("reset role")
        qdb.execute(f"drop owned by {role}")
        qdb.execute(f"drop role {role}")


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_roles_rotation_limits(qdb: Database, mode: str) -> None:
    capture(qdb, "t", mode)
    qdb.execute("set session_replication_role = local")
    qdb.execute("insert into t values (1, 'local')")
    qdb.execute("set session_replication_role = replica")
    qdb.execute("insert into t values (2, 'replica')")
    qdb.execute("reset session_replication_role")
    assert events(qdb) == []
    qdb.execute("insert into t values (3, 'x')")
    qdb.execute("update pgq.queue set queue_cur_table = 1")
    qdb.execute("insert into t values (4, 'x')")
    qdb.execute("insert into t values (5, 'x')")
    assert [qdb.value(f"select count(*) from pgq.event_1_{n}") for n in range(3)] == [1, 2, 0]
    qdb.execute("update pgq.queue set queue_disable_insert = true")
    with pytest.raises(DatabaseError, match="Insert into queue disallowed"):
        qdb.execute("insert into t values (6, 'x')")


def test_bulk_keeps_the_final_state_right(qdb: Database) -> None:
    """Replaying the events row by row ends in the same table, whatever nests in the statement."""
    qdb.execute("create table replay (id int primary key, a text)")
    capture(qdb, "t", "bulk")
    qdb.execute(
        "create function nest() returns trigger language plpgsql as $$ begin"
        " if pg_trigger_depth() < 2 then"
        "   update t set a = 'nested' where id = new.id and a = 'outer';"
        "   delete from t where id = new.id and a = 'die';"
        "   if new.a = 'again' then delete from t where id = new.id;"
        "     insert into t values (new.id, 'reborn'); end if;"
        " end if; return null; end $$"
    )
    qdb.execute("create trigger z after insert or update on t for each row execute function nest()")
    qdb.execute(
        "create function sly(int) returns text language plpgsql as $$ begin"
        " update t set a = 'sly' where id = $1 - 1; return 'plain'; end $$"
    )
    statements = [
        "insert into t select g, 'x' from generate_series(1, 9) g",
        "update t set a = 'outer' where id in (1, 2)",
        "update t set a = 'die' where id = 3",
        "update t set a = 'again' where id = 4",
        "insert into t values (20, 'again'), (21, 'die'), (22, 'outer')",
        "insert into t select g, sly(g) from generate_series(30, 33) g",
        "update t set id = -id where id > 5",
        "update t set id = case id when 1 then 102 else 101 end where id in (1, 2)",
        "with d as (delete from t where id = 4 returning a) insert into t select 50, a from d",
        "insert into t values (50, 'c'), (51, 'n') on conflict (id) do update set a = excluded.a",
        "delete from t where id = 51",
    ]
    if qdb.value("select current_setting('server_version_num')::int") >= 150000:
        statements.append(
            "merge into t using (values (50), (60)) v (k) on id = k"
            " when matched then delete when not matched then insert values (k, 'm')"
        )
    for statement in statements:
        qdb.execute(statement)
        for op, row in events(qdb):
            if op == "INSERT":
                qdb.execute("insert into replay values (%s, %s)", [row["id"], row["a"]])
            elif op == "UPDATE":
                qdb.execute("update replay set a = %s where id = %s", [row["a"], row["id"]])
            else:
                qdb.execute("delete from replay where id = %s", [row["id"]])
        both = [qdb.query(f"select * from {name} order by id") for name in ("t", "replay")]
        assert [tuple(r) for r in both[0]] == [tuple(r) for r in both[1]], statement


def test_other_triggers_stay(qdb: Database) -> None:
    capture(qdb, "t")
    qdb.execute(
        "create function mine() returns trigger language plpgsql as 'begin return null; end'"
    )
    qdb.execute("create trigger _l_update after update on t execute function mine()")
    assert qdb.one("select * from vedur.create_capture('q', 't', '_l')").ret_code == 200
    names = "select string_agg(tgname, ' ' order by tgname) from pg_trigger where tgname ~ '^_l'"
    assert qdb.value(names) == "_l _l_truncate _l_update"
    qdb.execute("insert into t values (1, 'x')")
    qdb.execute("truncate t")
    assert [op for op, _ in events(qdb)] == ["INSERT", "TRUNCATE"]
    assert qdb.one("select * from vedur.drop_capture('t', '_l')").ret_code == 200
    assert qdb.value(names) == "_l_update"


def test_refusals(qdb: Database) -> None:
    def code(*args: Any) -> int:
        call = "select * from vedur.create_capture(%s, %s, '_l', %s, %s, %s, %s)"
        return int(qdb.one(call, list(args)).ret_code)

    assert code("nosuch", "t", "json", "IUD", "row", []) == 404
    assert code("q", "nosuch", "json", "IUD", "row", []) == 404
    assert code("q", "t", "xml", "IUD", "row", []) == 400
    assert code("q", "t", "json", "IUD", "row", ["deny"]) == 400
    assert code("q", "t", "json", "IUD", "bulk", ["backup"]) == 405
    qdb.execute("create table p (id int primary key) partition by range (id)")
    assert code("q", "p", "json", "IUD", "bulk", []) == 405
    assert qdb.value("select count(*) from pg_trigger where tgname ~ '^_l'") == 0
