"""Whatever databases and roles have set, values arrive as they are and scripts mean the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.labs.first_copy import Lab
from tests.labs.in_process import without_spark as without_spark
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.db.settings import PINNED
from vedur.ops.execute.run import execute
from vedur.ops.session import Session

pytestmark = pytest.mark.timeout(400)

#: What we pin, otherwise; and what else a statement of ours or a value could depend on.
HOSTILE = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "check_function_bodies": "off",
    "client_encoding": "LATIN1",
    "datestyle": "German, DMY",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "extra_float_digits": "-10",
    "gin_fuzzy_search_limit": "1",
    "intervalstyle": "sql_standard",
    "lc_monetary": "POSIX",
    "lc_numeric": "POSIX",
    "lc_time": "POSIX",
    "quote_all_identifiers": "on",
    "row_security": "on",
    "standard_conforming_strings": "off",
    "timezone": "Asia/Kathmandu",
    "timezone_abbreviations": "India",
    "transform_null_equals": "on",
    "xmlbinary": "hex",
    "xmloption": "document",
    "constraint_exclusion": "on",
    "default_text_search_config": "pg_catalog.german",
    "default_transaction_deferrable": "on",
    "enable_seqscan": "off",
    "escape_string_warning": "off",
    "lo_compat_privileges": "on",
    "plan_cache_mode": "force_generic_plan",
    "plpgsql.extra_errors": "all",
    "plpgsql.variable_conflict": "use_column",
    "search_path": "elsewhere, public",
    "synchronous_commit": "off",
}
#: The leaf's are other ones, and some are the role's.
ON_LEAF = {
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "quote_all_identifiers": "off",
    "session_replication_role": "replica",
    "timezone": "America/Caracas",
}
TABLE = """
create table public.t (id int primary key, tags text[], at timestamptz, day date, span interval,
    real8 float8, real4 float4, raw bytea, money money, num numeric, at_time timetz, said text,
    during tstzrange, place point, doc json, note text, name regclass);
create index t_tags on public.t using gin (tags) with (fastupdate = off);
create schema elsewhere;
create table elsewhere.t (like public.t including all);
insert into elsewhere.t (id, said) select g, 'decoy' from generate_series(1, 900) g;
create table public.log (id int primary key, what text);
create table public.u (like public.t including all)
"""
VALUES = r"""
insert into public.t
select g, array[null, 'NULL', 'x', 'a "b\c', g::text], '2026-01-02 03:04:05.678+00'::timestamptz
        + make_interval(hours => g), make_date(2026, 2, 1 + g % 28),
    make_interval(-1, 2, 0, g % 7, -3, 4, 5.5), 0.1::float8 + g / 3.0, (g / 7.0)::float4,
    convert_to(E'\\\001' || g, 'UTF8'), (g * 1.25)::numeric::money, g * 1.50,
    '04:05:06+03', E'it''s "\\" ü ' || g, tstzrange(to_timestamp(g), null),
    point(g / 3.0, 1e-9), json_build_object('a', g / 3.0), nullif(g % 3, 0)::text, 'pg_class'
from generate_series({first}, {last}) as g
"""
#: Each statement means something else under a setting of HOSTILE.
SCRIPT = r"""
update public.t set at = '2026-07-01 12:00', day = '01/02/03', note = 'zone' where id = 1;
update public.t set span = '-1 2:03:04', tags = '{a,NULL}', note = 'array' where id = 2;
update public.t set said = 'a\b', note = to_char(id + 0.5, '9D9') where id = 3;
update public.t set said = to_char(at, 'HH24:MI TMMon TZ'), note = span::text where id = 4;
update public.t set said = at::text || day || raw::text || real8::text || money::text where id = 5;
update public.t set at = '2026-07-01 12:00 IST', note = 'abbreviation' where id = 6;
update public.t set said = 'nothing' where note = null;
delete from public.t where tags @> '{x}' and id > 200;
insert into public.log select 1, quote_ident('plain') || current_setting('timezone');
create function public.later() returns int language sql as 'select count(*)::int from public.log'
"""


def make_hostile(db: vdb.Database, settings: dict[str, str], *, role: bool) -> None:
    """Only the role's settings in this database: other tests have the same role."""
    name = db.value("select quote_ident(current_database())")
    whose = f"role current_user in database {name}" if role else f"database {name}"
    for setting, value in settings.items():
        db.execute(f"alter {whose} set {setting} = {value if ',' in value else repr(value)}")


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], without_spark: None
) -> Iterator[Lab]:
    databases = [make_db_on(server, autocommit=True) for server in (oldest, newest)]
    for db in databases:
        db.execute(TABLE)
    make_hostile(databases[0], HOSTILE, role=False)
    make_hostile(databases[1], HOSTILE, role=False)
    make_hostile(databases[1], ON_LEAF, role=True)
    lab = Lab(*(vdb.connect(db.connstr, name=db.name, autocommit=True) for db in databases), None)
    yield lab
    lab.close()


def app(lab: Lab, *statements: str) -> None:
    """Write as an application whose session has all of these settings."""
    with psycopg.connect(lab.root.connstr, autocommit=True) as db:
        db.execute("set default_transaction_read_only = off; set client_encoding = 'UTF8'")
        for statement in statements:
            db.execute(statement)


def run(lab: Lab, tmp: Path, name: str, script: str) -> None:
    (tmp / name).write_text(script)
    settings = LondisteSettings(db=lab.root.connstr, queue_name=QUEUE, job_name="root")
    with Session(settings) as root:
        execute(root, [str(tmp / name)])


def rows(db: vdb.Database, table: str = "t") -> list[str]:
    return [row[0] for row in db.query(f"select t::text from public.{table} t order by id")]


def test_copy_replay_and_scripts(lab: Lab, tmp_path: Path) -> None:
    assert set(PINNED) <= set(HOSTILE)
    app(lab, VALUES.format(first=1, last=300))
    lab.add("public.t", "public.log")
    call(lab.root, "londiste.local_add_table", QUEUE, "public.u", ["tgflags=AIUDL"])
    call(lab.leaf, "londiste.global_add_table", QUEUE, "public.u")
    lab.add_leaf("public.u")
    lab.start()
    lab.wait_ok()
    assert rows(lab.root) == rows(lab.leaf)
    for t in ("t", "u"):
        app(
            lab,
            VALUES.format(first=301, last=600).replace("public.t", f"public.{t}"),
            f"update public.{t} set tags = tags || array[null], real8 = real8 / 7, span = span * 2,"
            " at = at + span where id % 2 = 0",
            f"update public.{t} set id = id + 1000, raw = raw || '00' where id % 10 = 7",
            f"delete from public.{t} where id % 10 = 9",
        )
    lab.settle()
    assert rows(lab.root) == rows(lab.leaf)
    assert len(rows(lab.root, "u")) == 270
    assert rows(lab.root, "u") == rows(lab.leaf, "u")
    run(lab, tmp_path, "1.sql", SCRIPT)  # and row by row, in the batch of a script
    app(lab, "update public.t set tags = tags || array[null, 'NULL'], num = num / 3 where id < 9")
    lab.settle()
    assert rows(lab.root) == rows(lab.leaf)
    lab.same("public.log")
    assert lab.root.value("select count(*) from public.t where tags @> '{x}' and id > 200") == 0
    found = lab.leaf.query(
        "select id, extract(epoch from at)::int as at, day::text as day, said, note, tags[2] as tag"
        " from public.t where id in (1, 2, 3, 6) order by id"
    )
    noon = 1782907200  # 2026-07-01 12:00 UTC
    assert (found[0].at, found[0].day) == (noon, "2001-02-03")
    assert (found[1].tag, found[2].said, found[2].note) == (None, "a\\b", " 3.5")
    assert found[3].at == noon - 2 * 3600  # IST is Israel's, if nobody says otherwise
    assert all(row.said != "nothing" for row in found)
    for db in (lab.root, lab.leaf):  # nobody has touched the tables of that other schema
        text = "select count(*), count(distinct said) from elsewhere.t"
        assert tuple(db.one(text.replace("count(*)", "count(*) as n"))) == (900, 1)
