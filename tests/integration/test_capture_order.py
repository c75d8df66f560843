"""Events of a row stand in the order of its changes, whatever changes it from within a statement,
and keys that are checked later than they are written end right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import vedur.db as vdb
from tests.oracle import plain
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.sql import schema_files

KINDS = ("row", "urlenc", "bulk", "jsontriga", "logutriga", "sqltriga")


@dataclass
class Replayed:
    """A captured table `t`, and another database where its events are replayed one by one."""

    root: Database
    leaf: Database
    last: int = 0

    def capture(self, kind: str, deferred: bool = False) -> None:
        if kind.endswith("triga"):
            words = ("constraint", "deferrable initially deferred") if deferred else ("", "")
            self.root.execute(
                f"create {words[0]} trigger _l after insert or update or delete on t {words[1]}"
                f" for each row execute function pgq.{kind}('q', 'ev_extra1=''public.t''')"
            )
            return
        form, mode = "urlenc" if kind == "urlenc" else "json", "bulk" if kind == "bulk" else "row"
        call = "select * from vedur.create_capture('q', 't', '_l', %s, 'IUDT', %s)"
        got = self.root.one(call, [form, mode])
        assert got.ret_code == 200, got

    def replay(self) -> list[tuple[Any, ...]]:
        """Apply new events; both tables must be the same. Returns the rows."""
        query = "select * from pgq.event_1 where ev_id > %s order by ev_id"
        rows = self.root.query(query, [self.last])
        self.last = rows[-1].ev_id if rows else self.last
        plain.apply(self.leaf, rows)
        self.leaf.commit()
        query = "table t order by 1, 2"
        both = [[tuple(r) for r in db.query(query)] for db in (self.root, self.leaf)]
        self.leaf.commit()
        assert both[0] == both[1], [(r.ev_type, r.ev_data) for r in rows]
        return both[0]

    def does(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in one transaction, then `replay`."""
        with self.root.raw.transaction():
            for text in statements:
                self.root.execute(text)
        return self.replay()


@pytest.fixture
def make(newest: Any, make_db_on: Callable[..., Database]) -> Iterator[Callable[[str], Replayed]]:
    def make(ddl: str, leaf_ddl: str = "create table t (id int primary key, v text)") -> Replayed:
        root, leaf = make_db_on(newest, autocommit=True), make_db_on(newest, "bare")
        root.call("pgq.create_queue", "q")
        root.execute(ddl)
        leaf.execute(leaf_ddl)
        leaf.commit()
        return Replayed(root, leaf)

    yield make


PLAIN = "create table t (id int primary key, v text)"

#: What a trigger does when row 1 changes, at the first depth.
DEEDS = {
    "other row": "update t set v = v || '!' where id = 2",
    "same row": "update t set v = v || '!' where id = 1",
    "gone": "delete from t where id = 2",
    "gone and back": "delete from t where id = 2; insert into t values (2, 'back')",
    "back": "insert into t select 2, 'again' where not exists (select from t where id = 2)",
    "moved": "update t set id = 9 where id = 2",
    "comes": "insert into t values (5, 'new') on conflict (id) do update set v = t.v || '+'",
}


def react(db: Database, name: str, when: str, deed: str) -> None:
    """A trigger of a user, for row 1."""
    db.execute(
        "create function react() returns trigger language plpgsql as $f$ begin"
        " if pg_trigger_depth() = 1 and coalesce(new.id, old.id) = 1 then " + deed + "; end if;"
        " return coalesce(new, old); end $f$"
    )
    db.execute(
        f'create trigger "{name}" {when} insert or update or delete on t'
        " for each row execute function react()"
    )


@pytest.mark.draw(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_trigger_changes_the_table_from_within(make: Callable[..., Replayed], kind: str) -> None:
    lab = make(PLAIN)
    lab.capture(kind)
    for deed in DEEDS.values():
        for name, when in (("A_first", "after"), ("zz_last", "after"), ("m", "before")):
            lab.does("truncate t") if not kind.endswith("triga") else lab.does("delete from t")
            react(lab.root, name, when, deed)
            for text in (
                "insert into t select g, 'x' from generate_series(1, 3) g",
                "update t set v = v || 'u'",
                "update t set v = 'w' where id = 1",
                "delete from t where id in (1, 2)",
            ):
                try:
                    lab.does(text)
                except DatabaseError as error:
                    if error.sqlstate not in ("23505", "27000"):  # the user's own fault
                        raise
                    lab.replay()
            lab.root.execute(f'drop trigger "{name}" on t; drop function react()')


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_or_a_cascade_changes_the_table_from_within(
    make: Callable[..., Replayed], kind: str
) -> None:
    lab = make("create table t (id int primary key, v text, p int references t on delete cascade)",
               "create table t (id int primary key, v text, p int)")  # fmt: skip
    lab.capture(kind)
    lab.root.execute(
        "create function f(int) returns text language plpgsql as $f$ begin"
        " update t set v = v || 'f' where id = $1 - 1; return 'g'; end $f$"
    )
    lab.does("insert into t values (1, 'a', null), (2, 'b', 1), (3, 'c', 2), (4, 'd', null)")
    lab.does("update t set v = f(id)")
    lab.does("update t set v = 'r' returning f(id)")
    lab.does("with u as (update t set v = 'w' where id < 3 returning f(id)) select * from u")
    lab.does("insert into t values (5, f(5), 4), (6, f(6), 5)")
    lab.does("delete from t where id = 4 returning f(2)")
    lab.does(
        "savepoint a",
        "update t set v = f(2) where id = 2",
        "rollback to a",
        "delete from t where id = 1",
    )
    assert lab.replay() == []


SHIFTS = {
    "shift": ["update t set id = id + 1"],
    "swap": ["update t set id = 3 - id where id < 3"],
    "swap in two": [
        "set constraints all deferred",
        "update t set id = 2 where v = 'one'",
        "update t set id = 1 where v = 'two'",
    ],
    "double, old one goes": [
        "set constraints all deferred",
        "insert into t values (1, 'uno')",
        "delete from t where v = 'one'",
    ],
    "double, new one goes": [
        "set constraints all deferred",
        "insert into t values (1, 'uno')",
        "delete from t where v = 'uno'",
    ],
    "double, savepoint": [
        "set constraints all deferred",
        "savepoint a",
        "insert into t values (1, 'uno')",
        "rollback to a",
        "update t set id = id + 1 where id > 1",
    ],
    "checked in between": [
        "set constraints all deferred",
        "update t set id = id + 1",
        "set constraints all immediate",
        "update t set id = id + 1, v = v || '+'",
        "delete from t where id = 3",
    ],
    "named": [
        "set constraints t_pkey deferred",
        "update t set id = 2 where v = 'one'",
        "update t set id = 1 where v = 'two'",
    ],
    "truncate": ["truncate t", "insert into t values (1, 'new')", "update t set id = 7"],
}


@pytest.mark.draw(2)
@pytest.mark.parametrize("initially", ["immediate", "deferred"])
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bulk"])
def test_keys_that_are_checked_later(
    make: Callable[..., Replayed], kind: str, initially: str
) -> None:
    lab = make(f"create table t (id int primary key deferrable initially {initially}, v text)")
    lab.capture(kind, deferred=True)
    for name, statements in SHIFTS.items():
        if name == "truncate" and kind.endswith("triga"):
            continue
        lab.does("delete from t")
        lab.does("insert into t values (1, 'one'), (2, 'two'), (3, 'three')")
        lab.does(*statements)
        assert lab.does("update t set v = v || '.'"), name


def test_an_update_of_a_row_keeps_its_own_columns(make: Callable[..., Replayed]) -> None:
    """Delete and insert would empty what only the other side has."""
    lab = make("create table t (id int primary key deferrable, v text)")
    lab.capture("row")
    lab.does("insert into t values (1, 'one')")
    lab.root.execute("update t set v = 'uno'")
    types = lab.root.query("select ev_type::json ->> 'op' from pgq.event_1 order by ev_id")
    assert types[-1][0] == "UPDATE"
    lab.replay()


def test_partitions_with_a_key_that_is_checked_later(make: Callable[..., Replayed]) -> None:
    lab = make(
        "create table t (id int primary key deferrable, v text) partition by range (id);"
        "create table t1 partition of t for values from (0) to (3);"
        "create table t2 partition of t for values from (3) to (100)"
    )
    lab.capture("logutriga", deferred=True)
    lab.does("insert into t values (1, 'one'), (2, 'two'), (3, 'three')")
    lab.does("update t set id = id + 1")
    lab.does("update t set id = 6 - id where id in (2, 4)")
    lab.does("delete from t where id > 2")


def test_a_unique_key_that_is_checked_later(make: Callable[..., Replayed]) -> None:
    lab = make("create table t (id int not null unique deferrable, v text)")
    call = "select * from vedur.create_capture('q', 't', '_l', 'json', 'IUD', 'row', '{pkey=id}')"
    assert lab.root.one(call).ret_code == 200
    lab.does("insert into t values (1, 'one'), (2, 'two')")
    lab.does("update t set id = id + 1")
    # Another index keeps the key unique at all times: nothing has to wait.
    lab.root.execute("create unique index on t (id)")
    assert lab.root.one("select * from vedur.refresh_capture('t')").ret_code == 200
    assert not lab.root.value("select tgdeferrable from pg_trigger where tgname = '_l'")


@pytest.mark.parametrize("kind", ["row", "jsontriga"])
def test_a_key_becomes_deferrable_later(make: Callable[..., Replayed], kind: str) -> None:
    lab = make(PLAIN)
    lab.capture(kind)
    lab.does("insert into t values (1, 'one'), (2, 'two'), (3, 'three')")
    change = "alter table t drop constraint t_pkey, add primary key (id) {}"
    lab.root.execute(change.format("deferrable"))
    lab.does("update t set id = id + 1")  # at once, although the trigger is the old one
    swap = ["update t set id = 2 where v = 'two'", "update t set id = 3 where v = 'one'"]
    with pytest.raises(DatabaseError, match="two rows have the same key"):
        lab.does("set constraints all deferred", "update t set id = 3 where id = 2", *swap)
    deferrable = "select tgdeferrable from pg_trigger where tgname = '_l' and tgtype & 1 = 1"
    assert not lab.root.value(deferrable)
    assert lab.root.value("select vedur.refresh_stale_captures()") == 1
    assert lab.root.value(deferrable)
    lab.does("set constraints all deferred", "update t set id = 3 where id = 2", *swap)
    lab.root.execute(change.format(""))
    lab.does("update t set v = v || '.'")
    assert lab.root.value("select vedur.refresh_stale_captures()") == 1
    assert not lab.root.value(deferrable)
    assert lab.root.value("select vedur.refresh_stale_captures()") == 0


def test_what_a_deferrable_key_does_not_allow(make: Callable[..., Replayed]) -> None:
    lab = make("create table t (id int primary key deferrable, v text)")
    call = "select * from vedur.create_capture('q', 't', %s, 'json', 'IUD', %s, %s)"
    bulk = lab.root.one(call, ["_l", "bulk", []])
    assert bulk.ret_code == 405 and "DEFERRABLE" in bulk.ret_note
    ignore = lab.root.one(call, ["_l", "row", ["ignore=v"]])
    assert ignore.ret_code == 405 and "ignore=" in ignore.ret_note
    early = lab.root.one(call, ["A", "row", []])
    assert early.ret_code == 405 and "sort after" in early.ret_note


def test_bulk_capture_stops_when_its_key_becomes_deferrable(make: Callable[..., Replayed]) -> None:
    lab = make(PLAIN)
    lab.capture("bulk")
    lab.does("insert into t values (1, 'one'), (2, 'two')")
    lab.root.execute("alter table t drop constraint t_pkey, add primary key (id) deferrable")
    lab.does("update t set id = id + 1")
    with pytest.raises(DatabaseError, match="two rows have the same key"):
        lab.does("set constraints all deferred", "update t set id = 3 where id = 2")


def test_a_later_writer_of_a_deferred_key_is_logged_later(make: Callable[..., Replayed]) -> None:
    """A deferred key does not wait when it is written: only its check waits for the other."""
    lab = make("create table t (id int primary key deferrable initially deferred, v text)")
    lab.capture("row")
    lab.does("insert into t values (1, 'old')")
    with vdb.connect(lab.root.connstr, autocommit=True) as other:
        other.execute("begin")
        other.execute("insert into t values (1, 'new')")
        lab.root.execute("begin")
        lab.root.execute("delete from t where id = 1")
        lab.root.execute("commit")
        other.execute("commit")
        # A row that came and went is nobody's business, though another row has its key.
        other.execute("begin")
        other.execute("insert into t values (1, 'passing')")
        other.execute("delete from t where v = 'passing'")
        other.execute("commit")
    assert lab.replay() == [(1, "new")]


PARTS = (
    "create table t (id int primary key, v text) partition by range (id);"
    "create table t1 partition of t for values from (minvalue) to (4);"
    "create table t2 partition of t for values from (4) to (maxvalue)"
)
#: Row `id` - 1 gets another value, after it got one from the statement.
PREVIOUS = (
    "create function previous(int) returns int language plpgsql as $f$ begin"
    " update t set v = v || '!' where id = $1 - 1; return $1; end $f$"
)


def prepare_change(lab: Replayed, how: str) -> str:
    """Return a statement that changes a row twice."""
    if how == "trigger":
        react(lab.root, "A_first", "after", DEEDS["other row"])
        return "update t set v = v || '+'"
    lab.root.execute(PREVIOUS)
    return "update t set v = v || '+' returning previous(id)"


@pytest.mark.parametrize("ddl", [PLAIN, PARTS], ids=["plain", "parts"])
@pytest.mark.parametrize("how", ["function", "trigger"])
@pytest.mark.parametrize("undone", ["truncate t", "alter table t add x int", "a savepoint"])
def test_ddl_that_was_rolled_back_is_no_change(
    make: Callable[..., Replayed], ddl: str, how: str, undone: str
) -> None:
    lab = make(ddl)
    lab.capture("row")
    lab.does("insert into t values (1, 'one'), (2, 'two')")
    if undone == "a savepoint":
        lab.does("savepoint s", "truncate t", "rollback to s", "insert into t values (7, 'seven')")
    else:
        lab.root.execute(f"begin; {undone}; rollback")
    change = prepare_change(lab, how)
    rows = lab.does("set transaction isolation level repeatable read", change)
    want = ["one+!", "two+"] if how == "function" else ["one+", "two+!"]
    assert [row[1] for row in rows][:2] == want


@pytest.mark.parametrize("how", ["function", "trigger"])
@pytest.mark.parametrize("owned", ["by a role", "by the first superuser"])
def test_ddl_since_the_snapshot_is_never_guessed_at(
    make: Callable[..., Replayed], how: str, owned: str
) -> None:
    """Whose the table is now says the catalog for roles that were created. For the superuser whom
    the server came with it does not: that transaction has to be repeated."""
    lab = make(PLAIN)
    role = f"owns_{lab.root.value('select pg_backend_pid()')}"
    if owned == "by a role":
        lab.root.execute(f"create role {role} superuser; alter table t owner to {role}")
        lab.root.execute(f"grant all on schema public to {role}; set role {role}")
    lab.capture("row")
    lab.does("insert into t values (1, 'one'), (2, 'two')")
    change = prepare_change(lab, how)
    try:
        with vdb.connect(lab.root.connstr, autocommit=True) as other:
            for again in range(2):
                lab.root.execute("begin isolation level repeatable read")
                lab.root.value("select count(*) from t")
                if not again:
                    other.execute("grant select on t to public")
                try:
                    lab.root.execute(change)
                    lab.root.execute("commit")
                    break
                except DatabaseError as error:
                    assert "could not serialize access" in str(error)
                    assert owned == "by the first superuser" and not again
                    lab.root.execute("rollback")
        want = ["one+!", "two+"] if how == "function" else ["one+", "two+!"]
        assert [row[1] for row in lab.replay()] == want
    finally:
        lab.root.execute("reset role")
        if owned == "by a role":
            lab.root.execute(f"reassign owned by {role} to current_user; drop owned by {role}")
            lab.root.execute(f"drop role {role}")


@pytest.mark.parametrize("kind", ["row", "urlenc", "jsontriga", "logutriga"])
def test_a_key_of_a_partition_is_inserted_again_by_a_trigger(
    make: Callable[..., Replayed], kind: str
) -> None:
    lab = make(PARTS)
    lab.capture(kind)
    react(lab.root, "A_first", "after", "insert into t values (1, 'again')")
    lab.root.execute("alter table t disable trigger user")
    lab.root.execute("insert into t values (1, 'one'), (5, 'five')")
    lab.leaf.execute("insert into t values (1, 'one'), (5, 'five')")
    lab.root.execute("alter table t enable trigger user")
    assert lab.does("delete from t where id = 1") == [(1, "again"), (5, "five")]


def test_events_of_a_partition_name_the_table_on_each_path(make: Callable[..., Replayed]) -> None:
    lab = make(PARTS)
    lab.capture("row")
    lab.does("insert into t values (1, 'one'), (5, 'five')")  # fast
    lab.does("update t set id = id + 1")  # slow: the key changes
    lab.root.execute("alter table t alter v type varchar(99)")  # slow: another shape
    lab.does("insert into t values (3, 'three')", "update t set v = 'x'", "delete from t")
    types = [r.ev_type for r in lab.root.query("select ev_type from pgq.event_1")]
    assert {str(json.loads(t)["table"]) for t in types} == {"['public', 't']"}
    assert len(types) > 10


def test_rows_of_others_are_seen_past_policies(make: Callable[..., Replayed]) -> None:
    """Generated capture looks with the rights of who made it."""
    lab = make("create table t (id int primary key deferrable, v text)")
    lab.capture("row")
    role = f"policed_{lab.root.value('select pg_backend_pid()')}"
    lab.root.execute(f"create role {role}; grant all on t to {role}")
    try:
        lab.root.execute("alter table t enable row level security")
        lab.root.execute("create policy few on t using (v <> 'hidden') with check (true)")
        lab.does(
            f"set local role {role}",
            "set local row_security = on",  # an application's session, unlike ours, is filtered
            "insert into t values (1, 'hidden'), (2, 'two')",
            "update t set id = id + 1",
        )
    finally:
        lab.root.execute(f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize("row", ["", ", new.ctid, new.xmax, null::pg_catalog.xid"])
def test_functions_of_an_earlier_form_are_written_anew_by_the_installer(
    db: Database, row: str
) -> None:
    db.execute("create table t (id int primary key, a text)")
    db.call("pgq.create_queue", "q")
    assert db.call("vedur.create_capture", "q", "t", "_l")[0].ret_code == 200
    name = db.value("select proname from pg_proc where proname ~ '^capture_[0-9]'")
    db.execute(
        f"create or replace function vedur_work.{name}() returns trigger language plpgsql"
        " security definer as $$ begin"
        f" perform vedur.capture_slow(tg_relid, tg_op, 'json', '{{q}}'::text[], new, new{row});"
        " return null; end $$"
    )
    db.execute("insert into t values (1, 'x')")  # what an old function calls is still there
    assert db.value("select count(*) from pgq.event_1") == 1
    (rewrite,) = (f.text for f in schema_files("vedur") if f.path.endswith("rewrite.sql"))
    db.execute(rewrite)
    assert "_late" in db.value("select prosrc from pg_proc where proname = %s", [name])
    db.rollback()
