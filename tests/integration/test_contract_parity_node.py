"""pgq_node and londiste against upstream's, catalog by catalog and call by call.

The scripts in `contract/` hold one statement per paragraph. Each runs as upstream's client would
run it (an answer of 400 or more is rolled back) against upstream's extensions and against ours, and
every answer must be the same. A paragraph that begins with `-- differs: reason` is where we mean to
differ; there the answers must not be the same, so that the mark cannot outlive its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from tests.fixtures.pg import Servers
from vedur import db as vdb
from vedur.db.install import install

CONTRACT = Path(__file__).parent / "contract"
SCRIPTS = sorted(path.stem for path in CONTRACT.glob("[a-z]*.sql"))
SCHEMAS = ["pgq_node", "londiste"]

#: Functions that upstream does not have: helpers of ours.
EXTRA_FUNCTIONS = {
    "pgq_node.queue_top",
    "pgq_node.consumer_tick",
    "pgq_node.lowest_tick",
    "londiste.trigger_plan",
    "londiste.drop_trigger",
    "londiste.drop_partition_triggers",
    "londiste.follow_seq",
    "londiste.copy_table_actions",
    "londiste.local_add_table_combined",
    "londiste.restore_table_struct",
    "londiste.table_key",
    "londiste.truncate_renamed",
}
#: Upstream forgot this one in its grants, so everybody may call it.
NOT_FOR_PUBLIC = "londiste.local_change_handler"

FUNCTIONS = """
    select n.nspname || '.' || p.proname as name, pg_get_function_arguments(p.oid) as arguments,
        pg_get_function_result(p.oid) as result, p.provolatile::text as volatility,
        p.proisstrict as strict, p.prosecdef as definer
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = any (%s)
    order by 1, 2
"""
COLUMNS = """
    select table_schema, table_name, ordinal_position, column_name, data_type, is_nullable,
        column_default
    from information_schema.columns
    where table_schema = any (%s)
    order by 1, 2, 3
"""
CONSTRAINTS = """
    select k.conrelid::regclass::text, k.conname::text, pg_get_constraintdef(k.oid)
    from pg_constraint k join pg_namespace n on n.oid = k.connamespace
    where n.nspname = any (%s) and k.contype <> 'n'
    order by 1, 2
"""
TRIGGERS = """
    select pg_get_triggerdef(g.oid)
    from pg_trigger g
    where g.tgrelid = 'londiste.table_info'::regclass and not g.tgisinternal
"""
FUNCTION_RIGHTS = """
    select n.nspname || '.' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
        coalesce(nullif(a.grantee, 0)::regrole::text, 'public')
    from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace,
        lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
    where n.nspname = any (%s) and a.grantee <> p.proowner
    order by 1, 2
"""
TABLE_RIGHTS = """
    select n.nspname || '.' || c.relname, coalesce(nullif(a.grantee, 0)::regrole::text, 'public'),
        a.privilege_type
    from pg_class c
        join pg_namespace n on n.oid = c.relnamespace,
        lateral aclexplode(c.relacl) a
    where n.nspname = any (%s) and a.grantee <> c.relowner
    order by 1, 2, 3
"""
MEMBERS = """
    select m.roleid::regrole::text, m.member::regrole::text
    from pg_auth_members m
    where m.member::regrole::text in ('londiste_reader', 'londiste_writer')
    order by 1, 2
"""

#: Without it add-table makes the contract's triggers, whose definitions can be compared.
NO_CAPTURE = (
    "drop function if exists vedur.create_capture(text, text, text, text, text, text, text[])"
)

MakeDbOn = Callable[..., vdb.Database]


@pytest.fixture
def ours(servers: Servers, make_db_on: MakeDbOn) -> vdb.Database:
    """Our schemas on the oracle's server version, without generated capture: the contract alone."""
    db = make_db_on(servers.get(15))
    db.execute(NO_CAPTURE)
    db.commit()
    return db


@pytest.fixture
def ours_on_upstream_pgq(servers: Servers, make_db_on: MakeDbOn) -> vdb.Database:
    """Our pgq_node and londiste over upstream's pgq, which the installer must leave alone."""
    server = servers.get(15)
    server.upstream_template()
    db = make_db_on(server, "bare")
    db.execute("create extension pgq")
    install(db)
    db.execute(NO_CAPTURE)
    db.commit()
    return db


def rows(db: vdb.Database, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.query(sql, list(params))]


def paragraphs(script: str) -> list[tuple[str, str | None]]:
    """Statements of a script with the reason to differ, if there is one."""
    found: list[tuple[str, str | None]] = []
    for text in re.split(r"\n\s*\n", (CONTRACT / f"{script}.sql").read_text().strip()):
        mark = re.match(r"-- differs: (.+)\n", text)
        found.append((text[mark.end() :] if mark else text, mark.group(1) if mark else None))
    return found


def answer(connection: psycopg.Connection[Any], sql: str) -> str:
    """What one statement gives: columns and rows, or SQLSTATE and message."""
    try:
        cursor = connection.cursor(row_factory=tuple_row)
        cursor.execute(sql)  # type: ignore[call-overload]
        results: list[Any] = []
        refused = False
        while True:
            if cursor.description:
                names = [column.name for column in cursor.description]
                data = cursor.fetchall()
                results.append((names, data))
                if "ret_code" in names:
                    refused |= any(row[names.index("ret_code")] >= 400 for row in data)
            if not cursor.nextset():
                break
        if refused:
            connection.rollback()
        else:
            connection.commit()
        return plain(repr(results))
    except psycopg.Error as error:
        connection.rollback()
        return plain(repr((error.sqlstate, error.diag.message_primary)))


def plain(text: str) -> str:
    """Leave out what we decided to do otherwise everywhere.

    New tables get JSON events; a truncate of a renamed table carries the name in the set; foreign
    keys name the schema of the table they refer to; errors of C code have another SQLSTATE.
    """
    text = text.replace("jsontriga", "logutriga")
    text = re.sub(r"londiste.truncate_renamed\('(\w+)', '[\w.]+'\)", r"pgq.sqltriga('\1')", text)
    text = re.sub(r"^\('(P0|XX)\d+'", "('raised'", text)
    return text.replace("REFERENCES public.", "REFERENCES ")


def compare(script: str, upstream: vdb.Database, ours: vdb.Database) -> None:
    helpers = (CONTRACT / "_helpers.sql").read_text()
    for db in (upstream, ours):
        db.rollback()
        db.raw.execute(helpers)
        db.commit()
    wrong = []
    for sql, reason in paragraphs(script):
        want, got = answer(upstream.raw, sql), answer(ours.raw, sql)
        if (want == got) == (reason is not None):
            wrong.append(f"{sql}\n    upstream {want}\n    ours     {got}\n    reason   {reason}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("script", SCRIPTS)
def test_calls_give_the_same_answers(
    script: str, upstream_db: vdb.Database, ours: vdb.Database
) -> None:
    compare(script, upstream_db, ours)


@pytest.mark.parametrize("script", ["node_life", "node_switch", "tables"])
def test_calls_give_the_same_answers_over_upstreams_pgq(
    script: str, upstream_db: vdb.Database, ours_on_upstream_pgq: vdb.Database
) -> None:
    compare(script, upstream_db, ours_on_upstream_pgq)


def test_functions_have_upstreams_signatures(upstream_db: vdb.Database, ours: vdb.Database) -> None:
    got = [row for row in rows(ours, FUNCTIONS, SCHEMAS) if row[0] not in EXTRA_FUNCTIONS]
    assert got == rows(upstream_db, FUNCTIONS, SCHEMAS)


def test_tables_have_upstreams_columns(upstream_db: vdb.Database, ours: vdb.Database) -> None:
    assert rows(ours, COLUMNS, SCHEMAS) == rows(upstream_db, COLUMNS, SCHEMAS)
    assert rows(ours, CONSTRAINTS, SCHEMAS) == rows(upstream_db, CONSTRAINTS, SCHEMAS)
    assert rows(ours, TRIGGERS) == rows(upstream_db, TRIGGERS)


def test_rights_are_upstreams(upstream_db: vdb.Database, ours: vdb.Database) -> None:
    got = [
        row
        for row in rows(ours, FUNCTION_RIGHTS, SCHEMAS)
        if row[0].split("(")[0] not in EXTRA_FUNCTIONS | {NOT_FOR_PUBLIC}
    ]
    want = [
        row
        for row in rows(upstream_db, FUNCTION_RIGHTS, SCHEMAS)
        if row[0].split("(")[0] != NOT_FOR_PUBLIC
    ]
    assert got == want
    have, theirs = (set(rows(db, TABLE_RIGHTS, SCHEMAS)) for db in (ours, upstream_db))
    # intended: SQL that a worker runs is in these tables, so they are the worker's
    tables = ("table_info", "seq_info", "applied_execute", "pending_fkeys")
    less = {
        (f"londiste.{table}", "pgq_admin", deed)
        for table in tables
        for deed in ("INSERT", "UPDATE", "DELETE")
    } - {("londiste.applied_execute", "pgq_admin", "DELETE")}
    assert theirs - have == less
    assert {row[:2] for row in have - theirs} == {
        (f"londiste.{table}", "londiste_writer") for table in tables
    }
    assert ("pgq_admin", "londiste_writer") in rows(ours, MEMBERS)
    assert ("pgq_reader", "londiste_reader") in rows(ours, MEMBERS)


def copy_roles(db: vdb.Database, parts: int = 3) -> dict[str, list[tuple[Any, ...]]]:
    """Role and position of every part for every combination of states."""
    states = {
        "N": (None, None),
        "c": ("in-copy", None),
        "C": ("in-copy", "ddl"),
        "u": ("catching-up", None),
        "U": ("catching-up", "ddl"),
        "w": ("wanna-sync:5", None),
        "d": ("do-sync:5", None),
        "o": ("ok", None),
    }
    db.execute("create table public.tf (id int primary key)")
    for nr in range(parts):
        queue = f"p{nr}"
        for node in "sd":
            db.execute("select pgq_node.register_location(%s, %s, 'x', false)", [queue, node])
        db.execute(
            "select pgq_node.create_node(%s, 'leaf', 'd', %s, 's', 1, null)", [queue, queue + "w"]
        )
        db.execute("select londiste.global_add_table(%s, 'public.tf')", [queue])
    db.execute("select londiste.local_add_table('p0', 'public.tf', array['merge_all'])")
    # One statement for all combinations: a loop of calls from here would take a minute.
    db.execute(
        """
        create function public.roles(i_codes text, i_states text[], i_ddl text[])
        returns table (combo text, nr int, copy_role text, copy_pos int) language plpgsql as $$
        declare a int; b int; c int;
        begin
            for a in 1..length(i_codes) loop for b in 1..length(i_codes) loop
            for c in 1..length(i_codes) loop
                update londiste.table_info t set
                    merge_state = i_states[(array[a, b, c])[substr(t.queue_name, 2)::int + 1]],
                    dropped_ddl = i_ddl[(array[a, b, c])[substr(t.queue_name, 2)::int + 1]];
                return query
                    select substr(i_codes, a, 1) || substr(i_codes, b, 1) || substr(i_codes, c, 1),
                        q.nr, l.copy_role, l.copy_pos
                    from generate_series(0, 2) q (nr),
                        lateral londiste.get_table_list('p' || q.nr) l;
            end loop; end loop; end loop;
        end $$
        """
    )
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in db.query(
        "select * from public.roles(%s, %s, %s) order by 1, 2",
        ["".join(states), [s[0] for s in states.values()], [s[1] for s in states.values()]],
    ):
        found.setdefault(row[0], []).append(tuple(row[2:]))
    return found


def test_parts_of_a_merge_are_coordinated_alike(
    upstream_db: vdb.Database, ours: vdb.Database
) -> None:
    want = copy_roles(upstream_db)
    assert len(want) == 512
    assert copy_roles(ours) == want
