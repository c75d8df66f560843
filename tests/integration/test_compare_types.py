"""compare hashes what copy and replay store, also where the leaf's types are others.

No Spark: copy and replay run in this process, and the expressions of a comparison are asked of both
servers directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur.names import quote_ident
from vedur.pipeline.compare.plan import make_pair
from vedur.sql import query
from vedur.tables.mapping import TableMap

TYPES = """
create type mood as enum ('sad', 'it''s ok');
create domain amount as numeric(12, 2) check (value < 1e9);
create type pair as (a int, b text);
"""
#: Type on the root, type on the leaf, values.
PAIRS: list[tuple[str, str, list[str]]] = [
    ("boolean", "text", ["t", "f"]),
    ("boolean", "boolean", ["t", "f"]),
    ("text", "boolean", ["t", "false", "on"]),
    ("char(6)", "text", ["ab", ""]),
    ("char(6)", "varchar(10)", ["ab"]),
    ("char(6)", "char(10)", ["ab"]),
    ("text", "char(10)", ["ab", "ab  "]),
    ("varchar(5)", "text", ["ab  "]),
    ("text", "varchar(9)", ["ab  "]),
    ('"char"', "text", ["x"]),
    ("name", "text", ["n"]),
    ("inet", "text", ["10.0.0.1", "10.0.0.0/8", "::1"]),
    ("cidr", "inet", ["10.0.0.0/8", "10.0.0.1/32"]),
    ("text", "inet", ["10.0.0.1/32"]),
    ("smallint", "bigint", ["-7"]),
    ("integer", "numeric", ["7"]),
    ("integer", "numeric(10,2)", ["7"]),
    ("integer", "text", ["7"]),
    ("text", "integer", [" 7 ", "+7"]),
    ("bigint", "double precision", ["9007199254740993"]),
    ("numeric", "numeric(10,2)", ["1.005", "1", "-0.00"]),
    ("numeric(10,2)", "numeric", ["1.50"]),
    ("numeric", "double precision", ["0.1", "1e300"]),
    ("numeric", "text", ["1.500", "NaN"]),
    ("real", "double precision", ["0.1", "1e-20"]),
    ("double precision", "real", ["0.1"]),
    ("double precision", "text", ["0.1", "1e100", "Infinity"]),
    ("double precision", "numeric", ["0.1", "1e20"]),
    ("date", "timestamp", ["2024-02-03"]),
    ("date", "text", ["2024-02-03"]),
    ("timestamp", "timestamp(0)", ["2024-02-03 04:05:06.789"]),
    ("timestamp(3)", "timestamp", ["2024-02-03 04:05:06.789"]),
    ("timestamp", "date", ["2024-02-03 04:05:06"]),
    ("timestamptz(0)", "timestamptz", ["2024-02-03 04:05:06+00"]),
    ("time", "interval", ["04:05:06"]),
    ("time", "text", ["04:05:06"]),
    ("timetz", "text", ["04:05:06+03"]),
    ("interval", "text", ["1 year 2 days 03:04:05"]),
    ("interval", "interval(0)", ["00:00:01.6"]),
    ("bytea", "text", ["\\x00ff"]),
    ("text", "bytea", ["\\x00ff", "abc"]),
    ("uuid", "text", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("text", "uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
    ("json", "jsonb", ['{"b": 1, "a": [1.0, null]}', '"x"', "[1]"]),
    ("jsonb", "json", ['{"b": 1, "a": [1.0, null]}']),
    ("json", "text", ['{"b":  1}', '"x"', "true", "7"]),
    ("jsonb", "text", ['{"b":  1}', '"x"', "true", "7"]),
    ("text", "jsonb", ['{"b":  1}']),
    ("int[]", "text", ["{1,NULL}", "{}"]),
    ("int[]", "bigint[]", ["{1,2}", "{{1},{2}}"]),
    ("text[]", "text", ['{"a,b",NULL}']),
    ("varchar[]", "text[]", ["{a,b}"]),
    ("boolean[]", "text", ["{t,f}"]),
    ("boolean[]", "text[]", ["{t,f}"]),
    ("mood", "text", ["it's ok"]),
    ("text", "mood", ["it's ok"]),
    ("amount", "numeric", ["3.10"]),
    ("numeric", "amount", ["3.1", "3.105"]),
    ("pair", "text", ['(1,"a b")', "(,)"]),
    ("int4range", "text", ["[1,5)"]),
    ("int4range", "int8range", ["[1,5)"]),
    ("bit(3)", "varbit", ["101"]),
    ("bit(3)", "text", ["101"]),
    ("money", "text", ["$1.50"]),
    ("xml", "text", ["<a>b</a>"]),
    ("point", "text", ["(1,2)"]),
    ("macaddr", "text", ["08:00:2b:01:02:03"]),
    ("oid", "bigint", ["7"]),
    ("tsvector", "text", ["'a':1"]),
]
#: What a role or a database may have set, and nothing of ours may depend on.
SETTINGS = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
    "xmlbinary": "hex",
    "xmloption": "document",
    "quote_all_identifiers": "on",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
}


@pytest.fixture
def odd_lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], without_spark: None
) -> Iterator[Lab]:
    """Databases with settings of their own, made before anything of ours connects again."""
    databases = [make_db_on(server, autocommit=True) for server in (oldest, newest)]
    for db, more in zip(databases, ({}, {"timezone": "America/Caracas"}), strict=True):
        for name, value in (SETTINGS | more).items():
            db.raw.execute(
                f"do $$ begin execute format('alter database %I set {name} = %L',"
                f" current_database(), '{value}'); end $$"
            )
    made = Lab(*databases, None)
    yield made
    made.close()


def column(number: int) -> str:
    return quote_ident(f"{PAIRS[number][0]} as {PAIRS[number][1]}")


def insert(db: Any, table: str, first: int) -> None:
    """All values, one column in a row of its own, as an application writes them."""
    number = first
    for at, (_, _, values) in enumerate(PAIRS):
        for value in values:
            db.execute(
                f"insert into {table} (id, {column(at).replace('%', '%%')}) values (%s, %s)",
                [number, value],
            )
            number += 1


def texts(db: vdb.Database, side: Any) -> dict[int, list[str]]:
    """By key the text of each column as compare hashes it."""
    with vdb.connect(db.connstr, autocommit=True) as fresh:
        fresh.execute(query("compare", "pin"))
        cells = ", ".join(side.text_of((c,)) for c in side.columns)
        rows = fresh.query(f"select t.id, array[{cells}] as cells from only {side.table} as t")
    return {row.id: row.cells for row in rows}


@pytest.mark.draw("compare")
def test_other_types_here(odd_lab: Lab) -> None:
    lab = odd_lab
    for db, which in ((lab.root, 0), (lab.leaf, 1)):
        db.raw.execute(TYPES)
        for table in ("j", "u"):
            columns = ", ".join(f"{column(at)} {pair[which]}" for at, pair in enumerate(PAIRS))
            db.raw.execute(f"create table {table} (id int primary key, {columns})")
    app = psycopg.connect(lab.root.connstr, autocommit=True)
    for table, flags in (("j", "AIUDJ"), ("u", "AIUDL")):
        insert(app, table, 1)
        call(lab.root, "londiste.local_add_table", QUEUE, f"public.{table}", [f"tgflags={flags}"])
        call(lab.leaf, "londiste.global_add_table", QUEUE, f"public.{table}")
    lab.add_leaf("public.j", "public.u")
    lab.start()
    lab.wait_ok()
    count = sum(len(values) for _, _, values in PAIRS)
    for table in ("j", "u"):
        insert(app, table, 1001)
    lab.settle()
    app.close()
    wrong = []
    for table in ("j", "u"):
        pair = make_pair(lab.root, lab.leaf, TableMap(f"public.{table}", f"public.{table}"))
        here, there = texts(lab.root, pair.source), texts(lab.leaf, pair.target)
        assert len(there) == 2 * count
        assert here.keys() == there.keys()
        for key, cells in here.items():
            for name, left, right in zip(pair.column_names, cells, there[key], strict=True):
                if left != right:
                    way = "copied" if key <= 1000 else f"replayed from {table}"
                    wrong.append(f"{name}, {way}: {left} against {right}")
    assert wrong == []
    # and what the leaf's types have rounded is told: it is right, but it is not equal
    lossy = {
        ("bigint", "double precision"), ("numeric", "numeric(10,2)"), ("double precision", "real"),
        ("timestamp", "timestamp(0)"), ("timestamp", "date"), ("interval", "interval(0)"),
        ("numeric", "amount"),
    }  # fmt: skip
    with vdb.connect(lab.root.connstr, autocommit=True) as fresh:
        fresh.execute(query("compare", "pin"))
        for name, lost in pair.rounding:
            found = fresh.value(f"select count(*) from public.u as t where {lost}")
            told = any(name.startswith(f"{a} as {b} (") for a, b in lossy)
            assert bool(found) == told, (name, found)
        named = {name for name, _ in pair.rounding}
        for a, b in lossy:
            assert any(name.startswith(f"{a} as {b} (") for name in named), (a, b)
