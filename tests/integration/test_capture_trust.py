"""Whom capture trusts while sessions go on: owners and their rights change, and it must notice.

Capture runs as the role that added the table. Where it reads the table, functions in indexes of the
table run as that role, so it reads none whose owner has fewer rights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from vedur import db as vdb

TABLES = """
create table seen (who text);
grant select, insert on seen to public;
grant usage, create on schema public to {role};
create table t (id int primary key, a text) {parts};
grant select, insert, update on t to public;
insert into t values (1, 'x');
"""
HARMLESS = """
create function peep(int) returns int language plpgsql immutable as $$ begin return 1; end $$;
create index bad on {table} (a) where peep(1) > 0;
"""
HOSTILE = """
create or replace function note() returns void language plpgsql volatile as $$
begin insert into public.seen values (current_user); end $$;
create or replace function peep(int) returns int language plpgsql immutable as $$
begin perform public.note(); return 1; end $$;
"""
UPSERT = "insert into t values (1, 'x') on conflict (id) do update set a = 'y'"


@pytest.fixture
def owner(db: vdb.Database) -> Iterator[str]:
    """A role that owns tables."""
    db.autocommit = True
    name = f"owner_{db.value('select pg_backend_pid()')}"
    db.execute(f"create role {name}")
    yield name
    db.execute("reset role")
    db.execute(f"drop owned by {name} cascade; drop role {name}")


def capture(db: vdb.Database) -> str:
    """Capture the table; returns the role that it runs as."""
    db.call("pgq.create_queue", "q")
    assert db.one("select * from vedur.create_capture('q', 't', '_l')").ret_code == 200
    return str(db.value("select current_user"))


@contextmanager
def writing(db: vdb.Database) -> Iterator[psycopg.Connection[Any]]:
    """A session of a user who may write the table, and nothing else."""
    with psycopg.connect(db.connstr, autocommit=True) as session:
        session.execute("set role pgq_writer")
        yield session


def act(db: vdb.Database, role: str, text: str) -> None:
    """Run statements as a role, each in a transaction of its own."""
    db.execute(f"set role {role}")
    for statement in text.split(";\n"):
        if statement.strip():
            db.execute(statement)
    db.execute("reset role")


def test_a_superuser_who_is_none_any_more_is_not_trusted(db: vdb.Database, owner: str) -> None:
    db.execute(f"alter role {owner} superuser")
    db.execute(TABLES.format(role=owner, parts=""))
    db.execute(f"alter table t owner to {owner}")
    trusted = capture(db)
    act(db, owner, HARMLESS.format(table="t"))
    with writing(db) as session:
        session.execute(UPSERT)
        db.execute(f"alter role {owner} nosuperuser")
        act(db, owner, HOSTILE)
        # The session reads the index anew, and nothing tells it of the table.
        act(db, owner, "alter index bad set (fillfactor = 50)")
        session.execute(UPSERT)
        session.execute(UPSERT)
    assert db.value("select count(*) from seen where who = %s", [trusted]) == 0
    last = "select ev_data::json ->> 'a' from pgq.event_template order by ev_id desc limit 1"
    assert db.value(last) == "y"


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("part", ["t", "t1"])
def test_a_table_that_was_handed_over_is_not_trusted(
    db: vdb.Database, owner: str, level: str, part: str
) -> None:
    """A snapshot of before shows the owner of before."""
    parts = "partition by range (id); create table t1 partition of t for values from (0) to (9)"
    db.execute(TABLES.format(role=owner, parts=parts if part == "t1" else ""))
    trusted = capture(db)
    with writing(db) as session:
        session.execute(UPSERT)
        session.execute(f"begin isolation level {level}")
        session.execute("select 1 from seen")
        db.execute(f"alter table {part} owner to {owner}")
        act(db, owner, HOSTILE)
        act(db, owner, f"create index bad on {part} (a) where peep(1) > 0")
        if level != "read committed":
            # Whether it may look at the row is not known: the transaction has to be repeated.
            with pytest.raises(psycopg.errors.SerializationFailure, match="was altered after"):
                session.execute(UPSERT)
            session.execute("rollback")
            session.execute(f"begin isolation level {level}")
        session.execute(UPSERT)
        session.execute("commit")
    assert db.value("select count(*) from seen where who = %s", [trusted]) == 0
    assert db.value("select a from t") == "y"
