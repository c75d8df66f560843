"""Every function that runs as its owner and every grant in our schemas, one by one.

`rights.txt` is the list that somebody has looked at, as an attacker with each role would (the
attacks are in test_rights_of_roles.py, what each role amounts to in docs/reference/privileges.md).
A new line there is a decision: what could a member of that role do with it, what runs as the
installer, and with whose tables, names and functions?
"""

from __future__ import annotations

from pathlib import Path

import pytest

from vedur import db as vdb
from vedur.db.install import install
from vedur.sql import SCHEMAS

pytestmark = pytest.mark.every_version

EXPECTED = Path(__file__).with_name("rights.txt")
OURS = [*SCHEMAS, "vedur_work"]

#: The owner's own rights, and what came to be with PostgreSQL 17 (MAINTAIN), are left out.
RIGHTS = """
select kind || ' ' || name || ': ' || role || ' ' || string_agg(deed, ',' order by deed) as line
from (
    select 'schema' as kind, n.nspname::text as name, n.nspowner as owner, a.*
    from pg_namespace n, aclexplode(n.nspacl) a
    where n.nspname = any (%(schemas)s)
    union all
    select case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end,
        c.oid::regclass::text, c.relowner, a.*
    from pg_class c, aclexplode(c.relacl) a
    where c.relnamespace = any (%(schemas)s::regnamespace[])
    union all
    select 'column', t.attrelid::regclass || '.' || t.attname, c.relowner, a.*
    from pg_attribute t join pg_class c on c.oid = t.attrelid, aclexplode(t.attacl) a
    where c.relnamespace = any (%(schemas)s::regnamespace[])
    union all
    select case when p.prosecdef then 'definer' else 'function' end, p.oid::regprocedure::text,
        p.proowner, a.*
    from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
    where p.pronamespace = any (%(schemas)s::regnamespace[])
    union all
    select 'type', t.oid::regtype::text, t.typowner, a.*
    from pg_type t, aclexplode(t.typacl) a
    where t.typnamespace = any (%(schemas)s::regnamespace[])
) g,
    lateral (
        select coalesce((select rolname::text from pg_roles where oid = g.grantee), 'public'),
            lower(g.privilege_type) || case when g.is_grantable then '*' else '' end
    ) as r (role, deed)
where g.grantee <> g.owner
group by kind, name, role
"""
#: Functions that nobody but the owner may call are definers all the same.
DEFINERS = """
select p.oid::regprocedure::text as name, coalesce(p.proconfig, '{}') as config
from pg_proc p
where p.pronamespace = any (%(schemas)s::regnamespace[]) and p.prosecdef
order by 1
"""
MEMBERS = """
select 'member ' || m.roleid::regrole || ': ' || m.member::regrole
    || case when m.admin_option then ' admin' else '' end as line
from pg_auth_members m
where m.member::regrole::text ~ '^(pgq|londiste)_(reader|writer|admin)$'
    or m.roleid::regrole::text ~ '^(pgq|londiste)_(reader|writer|admin)$'
        and m.member::regrole::text ~ '^(pgq|londiste)_'
"""


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    """One queue, since its tables and sequences get their grants from a function."""
    db.call("pgq.create_queue", "q")
    return db


def lines(db: vdb.Database) -> list[str]:
    db.execute("set local search_path = pg_catalog")
    found = [r.line for text in (RIGHTS, MEMBERS) for r in db.query(text, {"schemas": OURS})]
    return sorted(found)


def test_rights_are_those_that_were_looked_at(queue: vdb.Database) -> None:
    got = lines(queue)
    want = [line for line in EXPECTED.read_text().splitlines() if line and line[0] != "#"]
    assert {"new": sorted(set(got) - set(want)), "gone": sorted(set(want) - set(got))} == {
        "new": [],
        "gone": [],
    }, f"see the head of this file, then write it to {EXPECTED.name}"


def test_what_runs_as_its_owner_has_a_path_of_its_own(queue: vdb.Database) -> None:
    loose = [
        row.name
        for row in queue.query(DEFINERS, {"schemas": OURS})
        if "search_path=pg_catalog, pg_temp" not in row.config
    ]
    assert loose == []


def test_nobody_but_the_owner_creates_where_definers_look(queue: vdb.Database) -> None:
    """Nor does anybody own, or hand on, anything there."""
    got = lines(queue)
    creators = [line for line in got if line.startswith("schema ") and "create" in line]
    assert creators == [
        "schema vedur_work: londiste_writer create,usage",
        "schema vedur_work: pgq_admin create,usage",
    ]
    assert [line for line in got if "*" in line.split(": ")[1]] == []
    foreign = queue.query(
        "select c.oid::regclass from pg_class c"
        " where c.relnamespace = any (%(schemas)s::regnamespace[])"
        " and c.relowner <> (select nspowner from pg_namespace where nspname = 'pgq')",
        {"schemas": OURS},
    )
    assert foreign == []


def test_an_upgrade_takes_rights_away_that_an_older_version_gave(queue: vdb.Database) -> None:
    want = lines(queue)
    queue.execute("""
        grant insert, update, delete on pgq.queue, londiste.table_info, londiste.pending_fkeys,
            vedur.quarantine, vedur.skip_request to pgq_admin;
        grant execute on function pgq.insert_event_raw(text, bigint, timestamptz, integer, integer,
            text, text, text, text, text, text) to public;
        alter table pgq.queue drop constraint queue_schema_check;
        update vedur.component set digest = 'old'
    """)
    install(queue)
    assert lines(queue) == want
    check = "select 1 from pg_constraint where conname = 'queue_schema_check'"
    assert queue.value(check) == 1
    queue.rollback()


def test_an_upgrade_keeps_producers_that_have_the_function_alone(queue: vdb.Database) -> None:
    queue.execute("""
        create role producer_alone;
        grant execute on function pgq.insert_event(text, text, text),
            pgq.insert_event(text, text, text, text, text, text, text) to producer_alone;
        update vedur.component set digest = 'old' where schema = 'pgq'
    """)
    install(queue)
    queue.execute("set local role producer_alone")
    assert queue.value("select pgq.insert_event('q', 'a', 'b')") is not None
    queue.rollback()
