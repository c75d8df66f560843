"""Every built-in type with hostile values arrives as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.leaf import Leaf

pytestmark = pytest.mark.spark

SETUP = """
create type mood as enum ('sad', 'it''s "ok", \\ {,}');
create domain posint as int not null check (value > 0);
create type pair as (a int, b text);
"""

VALUES: dict[str, list[str]] = {
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648"],
    "bigint": ["-9223372036854775808", "9007199254740993"],
    "numeric": ["NaN", "Infinity", "1." + "0" * 300 + "1", "9" * 900, "-0.00", "1E-120"],
    "numeric(10,2)": ["1.50"],
    "real": ["NaN", "-Infinity", "1.17549435e-38", "0.1"],
    "double precision": ["NaN", "Infinity", "-0", "0.1", "1.7976931348623157e308", "5e-324"],
    "money": ["$1.50"],
    "boolean": ["t", "f"],
    "text": [
        "",
        "null",
        "NULL",
        "\\N",
        "\\",
        "a\tb\nc\rd",
        "%41+&=;",
        "'\"`{}()",
        "日本語 🎉 \u202e",
        " x ",
    ],
    "varchar(20)": ["abc "],
    "char(5)": ["a"],
    '"char"': ["x"],
    "name": ["Odd Name"],
    "bytea": ["\\x00ff5c27", "\\x"],
    "date": ["infinity", "-infinity", "0001-01-01 BC", "5874897-12-31"],
    "time": ["24:00:00", "00:00:00.000001"],
    "timetz": ["12:00:00.123456+15:59:59"],
    "timestamp": ["infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"],
    "timestamptz": ["-infinity", "2024-03-31 01:30:00.000001+00", "0044-03-15 12:00:00+00 BC"],
    "interval": ["-1 year -2 mons +3 days -04:05:06.789", "178000000 years", "00:00:00"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "inet": ["::1/128", "10.1.2.3/8"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit(3)": ["101"],
    "varbit": ["", "1010101"],
    "json": ['{"a":  1.0, "a": [null, "\\u0041"]}', "null", '"str"', "  1 "],
    "jsonb": ['{"a": 1.00, "b": "\\n"}', "null", "12345678901234567890.10"],
    "xml": ["<a>&amp;</a>"],
    "int[]": ["{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={5,6}"],
    "text[]": ['{"a,b","\\"q\\"","NULL",NULL,""}'],
    "json[]": ['{"{\\"a\\": 1}"}'],
    "int4range": ["empty", "[1,5)", "(,)"],
    "tstzrange": ['["2024-01-01 00:00:00+00",infinity]'],
    "int4multirange": ["{[1,3),[5,7)}"],
    "point": ["(1.5,-0)"],
    "box": ["(2,2),(1,1)"],
    "path": ["((0,0),(1,1))"],
    "polygon": ["((0,0),(1,1),(2,0))"],
    "circle": ["<(0,0),1>"],
    "line": ["{1,-1,0}"],
    "lseg": ["[(0,0),(1,1)]"],
    "tsvector": ["'a':1A 'it''s':2"],
    "tsquery": ["'a' & !'b'"],
    "pg_lsn": ["16/B374D848"],
    "mood": ['it\'s "ok", \\ {,}'],
    "pair": ['(1,"a,\\"b")', "(,)"],
    "pair[]": ['{"(1,x)",NULL}'],
    "citext": ["MiXed"],
    "oid": ["4294967295"],
    "regclass": ["pg_class"],
}


@pytest.mark.draw(3)
@pytest.mark.parametrize("kind", ["upstream", "ours"])
@pytest.mark.parametrize("flags", [None, "AIUDJ", "AIUDQ"], ids=["urlenc", "json", "sql"])
def test_every_type(make_leaf: Callable[..., Leaf], kind: str, flags: str | None) -> None:
    leaf = make_leaf(kind)
    for db in (leaf.root, leaf.leaf):
        db.execute(SETUP)
        if kind == "upstream":
            db.execute("create extension citext")
    # The embedded servers come without contrib and libxml.
    types = [t for t in VALUES if kind == "upstream" or t not in ("citext", "xml")]
    names = [f'"c {i} {t}"'.replace("%", "") for i, t in enumerate(types)]
    columns = ", ".join(
        f"{n.replace(chr(34) + 'char' + chr(34), 'char')} {t}"
        for n, t in zip(names, types, strict=True)
    )
    names = [n.replace('"char"', "char") for n in names]
    ddl = (
        f"create table t (id int primary key, {columns}, dom posint default 1, "
        "gen int generated always as (id * 2) stored, "
        'ident int generated always as identity, "select" text, "%s" text)'
    )
    leaf.pair.table("public.t", ddl, flags=flags)
    longest = max(len(v) for v in VALUES.values())
    for row in range(longest + 1):
        values = [VALUES[t][row] if row < len(VALUES[t]) else None for t in types]
        marks = ", ".join(["%s"] * len(values))
        listed = ", ".join(n.replace("%", "%%") for n in names)
        leaf.root.execute(f"insert into t (id, {listed}) values (%s, {marks})", [row, *values])
    leaf.catch_up()
    assert len(leaf.same("t")) == longest + 1
    # Shift every column by one row, so that each value is written by an update as well.
    sets = ", ".join(
        f"{n} = (select o.{n} from t o where o.id = (t.id + 1) % {longest + 1})" for n in names
    )
    leaf.root.execute(f"update t set {sets}")
    leaf.root.execute("update t set dom = id + 5, \"%s\" = 'x' where id > 2")
    leaf.root.execute("delete from t where id = 1")
    leaf.catch_up()
    assert len(leaf.same("t")) == longest


KEYS = {
    "numeric": ["1.0", "1.00", "NaN"],
    "timestamptz": ["2024-01-01 00:00:00+00", "2024-01-01 03:00:00+03"],
    "citext": ["abc", "ABC"],
    "char(4)": ["a", "a  "],
    "double precision": ["0", "-0"],
    "bytea": ["\\x00"],
    "text": ["", "a b&c=%"],
    "interval": ["24:00:00", "1 day"],
}


def test_keys_whose_text_is_not_their_value(make_leaf: Callable[..., Leaf]) -> None:
    leaf = make_leaf("upstream")  # citext is part of contrib
    for db in (leaf.root, leaf.leaf):
        db.execute("create extension citext")
    for number, type_name in enumerate(KEYS):
        leaf.pair.table(
            f"public.k{number}", f"create table k{number} (k {type_name} primary key, n int)"
        )
    for number, values in enumerate(KEYS.values()):
        for value in values:
            leaf.root.execute("set timezone = 'Asia/Tokyo'")
            leaf.root.execute(
                f"insert into k{number} values (%s, 1) on conflict (k) do nothing", [value]
            )
            leaf.root.execute("set timezone = 'UTC'")
            leaf.root.execute(f"update k{number} set n = n + 1 where k = %s", [value])
        leaf.root.execute(f"delete from k{number} where k = %s", [values[0]])
        leaf.root.execute(
            f"insert into k{number} values (%s, 7) on conflict (k) do update set n = 8",
            [values[-1]],
        )
    leaf.catch_up()
    for number in range(len(KEYS)):
        leaf.same(f"k{number}")
