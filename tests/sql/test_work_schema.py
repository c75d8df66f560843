"""Schema vedur is the installer's; what others make is in vedur_work and never called by name."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.db.install import install
from vedur.errors import PrivilegeError

CAPTURE = "select * from vedur.create_capture('q', 't', '_l', 'json', 'IUDT')"
FUNCTION = """
select p.oid::regprocedure::text as name, p.proowner::regrole::text as owner
from pg_proc p join pg_trigger t on t.tgfoid = p.oid where t.tgname = '_l'
"""


@pytest.fixture
def admin(db: vdb.Database) -> vdb.Database:
    """A queue, and a role with all our rights; tests roll back, since roles outlive a database."""
    db.call("pgq.create_queue", "q")
    db.execute("create role w_admin in role pgq_admin, londiste_writer")
    db.execute("create table t (id int primary key, a text)")
    return db


@pytest.mark.parametrize(
    "text",
    [
        "create function vedur.capture_slow(oid, text, text, text[], t, t) returns void"
        " language sql as 'select'",
        "create function vedur.capture_when(boolean) returns boolean language sql as 'select true'",
        "create table vedur.mine ()",
    ],
)
def test_nobody_may_create_in_our_schema(admin: vdb.Database, text: str) -> None:
    admin.execute("set local role w_admin")
    with pytest.raises(PrivilegeError, match="schema vedur"):
        admin.execute(text)
    admin.rollback()


def test_an_overload_in_the_work_schema_is_never_called(admin: vdb.Database) -> None:
    assert admin.one(CAPTURE).ret_code == 200
    admin.execute("create table seen (who text)")
    admin.execute("grant insert on seen to public")
    admin.execute("set local role w_admin")
    for rows in ("public.t, public.t", "text, text"):
        admin.execute(
            f"create function vedur_work.capture_slow(oid, text, text, text[], {rows}) returns void"
            " language sql as 'insert into public.seen values (current_user)'"
        )
    admin.execute("reset role")
    admin.execute("set local search_path = vedur_work, public")
    admin.execute("insert into t values (1, 'x')")
    admin.execute("update t set id = 2")  # the key changes: the slow way
    admin.execute("set local datestyle = 'German'")
    admin.execute("alter table t add column b int")
    admin.execute("insert into t values (3, 'y', 1)")
    admin.execute("truncate t")
    assert admin.value("select count(*) from seen") == 0
    assert admin.value("select count(*) from pgq.event_template") == 5
    admin.rollback()


def test_a_function_made_beforehand_is_not_kept(admin: vdb.Database) -> None:
    assert admin.one(CAPTURE).ret_code == 200
    name, owner = admin.one(FUNCTION)
    assert name.startswith("vedur_work.capture_")
    assert admin.call("vedur.drop_capture", "t", "_l")[0].ret_code == 200
    admin.execute("set local role w_admin")
    admin.execute(f"create function {name} returns trigger language plpgsql as 'begin end'")
    admin.execute("reset role")
    assert admin.one(CAPTURE).ret_code == 200
    assert tuple(admin.one(FUNCTION)) == (name, owner)
    admin.rollback()


def test_a_function_in_use_by_another_owner_is_refused(admin: vdb.Database) -> None:
    assert admin.one(CAPTURE).ret_code == 200
    name = admin.one(FUNCTION).name
    admin.execute(f"alter function {name} owner to w_admin")
    with pytest.raises(PrivilegeError, match="belongs to role w_admin"):
        # The truncate trigger stays, and with it the function.
        admin.one(CAPTURE.replace("IUDT", "IUD"))
    admin.rollback()


def test_an_upgrade_moves_functions_and_takes_the_right_away(admin: vdb.Database) -> None:
    assert admin.one(CAPTURE).ret_code == 200
    name = admin.one(FUNCTION).name
    admin.execute(f"alter function {name} set schema vedur")
    admin.execute("grant create on schema vedur to pgq_admin, londiste_writer")
    admin.execute("update vedur.component set digest = 'old' where schema = 'vedur'")
    install(admin)
    assert admin.one(FUNCTION).name == name
    assert not admin.value("select has_schema_privilege('w_admin', 'vedur', 'create')")
    admin.execute("insert into t values (1, 'x')")
    assert admin.value("select count(*) from pgq.event_template") == 1
    admin.rollback()
