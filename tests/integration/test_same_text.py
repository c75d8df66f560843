"""A first copy and an event write the same value, whatever type the leaf has; else it is refused.

No Spark: copy and replay run in this process.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE, call
from vedur.errors import StateError
from vedur.names import quote_ident
from vedur.pipeline.copy import plan_table
from vedur.tables.mapping import TableMap

OWN_TYPES = """
create type mood as enum ('sad', 'it''s ok');
create domain since as timestamp;
create domain amount as numeric(12, 2);
create type pair as (a boolean, b text);
create type moment as (a int, b timestamptz[]);
"""
#: Every base type that a server brings and a table can have, with values; and what is made of them.
VALUES: dict[str, list[str | None]] = {
    '"char"': ["x", ""],
    "bit": ["1", "0"],
    "bit(4)": ["1010"],
    "boolean": ["t", "f", None],
    "box": ["(2,2),(1,1)"],
    "bytea": ["\\x00ff5c27", "\\x"],
    "character": ["a"],
    "char(5)": ["ab", ""],
    "character varying": ["null", "", 'a"b\\c\n\td', "2024-02-03T04:05:06"],
    "cid": ["7"],
    "cidr": ["10.0.0.0/8", "::/0"],
    "circle": ["<(0,0),1.5>"],
    "date": ["2024-02-03", "infinity", "0044-03-15 BC", "20200-01-01"],
    "double precision": ["0.1", "1e300", "-0", "NaN", "-Infinity", "5e-324"],
    "inet": ["10.0.0.1", "10.1.2.3/8", "::1"],
    "integer": ["-7", "0"],
    "bigint": ["-9223372036854775808"],
    "smallint": ["12"],
    "interval": ["1 year 2 days 03:04:05.6", "-1 mon", "00:00:00"],
    "json": ['{"b":  1.0}', "null", '"x"', "true", "7", "[1, 2]"],
    "jsonb": ['{"b":  1.0}', "null", '"x"', "true", "7"],
    "jsonpath": ["$.a[*] ? (@ > 1)"],
    "line": ["{1,-1,0}"],
    "lseg": ["[(0,0),(1,1)]"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "money": ["1.50", "-1234567.89"],
    "name": ["Odd Name", ""],
    "numeric": ["1.500", "NaN", "1e20", "-0.00", "Infinity"],
    "oid": ["4294967295"],
    "path": ["((0,0),(1,1))"],
    "pg_lsn": ["16/B374D848"],
    "pg_snapshot": ["10:20:10,14"],
    "point": ["(1.5,-0)"],
    "polygon": ["((0,0),(1,1),(2,0))"],
    "real": ["0.1", "1.17549435e-38", "NaN"],
    "text": ["null", "NULL", "\\N", " x ", "日本語 🎉", "t", "true", "%41+&=;"],
    "tid": ["(1,2)"],
    "time without time zone": ["04:05:06.7", "24:00:00"],
    "time with time zone": ["04:05:06+03", "04:05:06.7-15:59:59"],
    "tsquery": ["'a' & !'b'"],
    "tsvector": ["'a':1A 'it''s':2"],
    "txid_snapshot": ["10:20:10,14"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "bit varying": ["", "1010101"],
    "xid": ["7"],
    "xid8": ["7"],
    "boolean[]": ["{t,NULL,f}"],
    "double precision[]": ["{0.1,1e300}"],
    "bytea[]": ['{"\\\\x00ff"}'],
    "interval[]": ['{"1 day"}'],
    "timestamp[]": ['{"2024-02-03 04:05:06",infinity}'],
    "text[][]": ['{{"a,b",NULL},{"",x}}'],
    "money[]": ["{1.50}"],
    "int4range": ["empty", "[1,5)", "(,)"],
    "tsrange": ['["2024-01-01 00:00:00",infinity]'],
    "int4multirange": ["{[1,3),[5,7)}"],
    "mood": ["it's ok"],
    "amount": ["3.1"],
    "pair": ['(t,"a b")', "(,)"],
    "pair[]": ['{"(f,x)",NULL}'],
}
#: Types that no column of text can stand for, and what they are refused as.
ZONE, NAMES, SPACE = "the time zone of", "the search path of", "with a T"
REFUSED = {
    "timestamp": SPACE, "timestamp(3)": SPACE, "since": SPACE,
    "timestamptz": ZONE, "timestamptz(0)": ZONE, "timestamptz[]": ZONE, "tstzrange": ZONE,
    "tstzmultirange": ZONE, "moment": ZONE, "moment[]": ZONE,
    "regclass": NAMES, "regproc": NAMES, "regprocedure": NAMES, "regoper": NAMES,
    "regoperator": NAMES, "regtype": NAMES, "regtype[]": NAMES, "regconfig": NAMES,
    "regdictionary": NAMES, "regcollation": NAMES, "regnamespace": NAMES, "regrole": NAMES,
    "regdatabase": NAMES,
}  # fmt: skip
#: Base types of a server that no table of anybody has: catalogs use them, or their text needs a
#: library that test servers lack.
NOT_STORED = {
    "aclitem", "gtsvector", "int2vector", "oidvector", "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list", "pg_ndistinct",
    "pg_node_tree", "refcursor", "xml", "pg_ddl_command",
}  # fmt: skip
#: What the session of a writer may have set.
WRITER = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
}
LATER = 100_000
#: Tables (one has the name of a type), and the format of their events.
FORMATS = {"many": "J", "json": "J", "urlenc": "L", "sql": "Q"}


def test_every_base_type_is_looked_at(quick_lab: Lab) -> None:
    found = quick_lab.leaf.query(
        "select format_type(oid, null) as name from pg_type where typtype = 'b'"
        " and typnamespace = 'pg_catalog'::regnamespace and typcategory <> 'A'"
    )
    known = {*VALUES, *REFUSED, *NOT_STORED, "timestamp without time zone",
             "timestamp with time zone"}  # fmt: skip
    assert {row.name for row in found} - known == set()


def column(kind: str) -> str:
    return quote_ident(kind)


def make_tables(lab: Lab) -> None:
    """Tables with a column for each type."""
    for db, own in ((lab.root, True), (lab.leaf, False)):
        db.raw.execute(OWN_TYPES)
        listed = ", ".join(f"{column(k)} {k if own else 'text'}" for k in VALUES)
        for name in FORMATS:
            db.raw.execute(f'create table "{name}" (id int primary key, {listed})')
    for name, letter in FORMATS.items():
        args = [f"tgflags=AIUD{letter}"]
        call(lab.root, "londiste.local_add_table", QUEUE, f"public.{name}", args)
        call(lab.leaf, "londiste.global_add_table", QUEUE, f"public.{name}")


def insert(app: psycopg.Connection[Any], table: str, first: int, times: int) -> int:
    """Write each value, in rows that look alike."""
    rounds = max(map(len, VALUES.values()))
    for nr in range(rounds):
        kinds = {k: v[nr] for k, v in VALUES.items() if nr < len(v)}
        listed = ", ".join(column(k) for k in kinds)
        given = ", ".join(f"%s::text::{k}" for k in kinds)
        app.execute(
            f'insert into "{table}" (id, {listed}) select {first + nr * times} + g, {given}'
            f" from generate_series(0, {times - 1}) as g".replace("%41", "%%41"),
            list(kinds.values()),
        )
    return rounds * times


def test_copy_and_replay_write_the_same_text(quick_lab: Lab) -> None:
    lab = quick_lab
    make_tables(lab)
    app = psycopg.connect(lab.root.connstr, autocommit=True)
    app.execute("set lc_monetary = 'C'")
    # Where many rows look alike, capture and replay take their fast paths. An ordinary session
    # writes those, and one with settings of its own the others.
    times = {name: 200 if name == "many" else 2 for name in FORMATS}
    counts = {name: insert(app, name, 1, times[name]) for name in FORMATS}
    lab.add_leaf(*(f"public.{name}" for name in FORMATS))
    lab.start()
    lab.wait_ok()
    for name in FORMATS:
        if name != "many":
            for setting, value in WRITER.items():
                app.execute("select set_config(%s, %s, false)", [setting, value])
        insert(app, name, LATER + 1, times[name])
        app.execute(f'update "{name}" set text = text where id > {LATER} and id % 5 = 0')
        moved = f"id > {LATER} and id % {times[name]} = 1"
        app.execute(f'update "{name}" set id = id + {LATER} where {moved}')
    lab.settle()
    app.close()
    for name, count in counts.items():
        assert lab.leaf.value(f'select count(*) from "{name}"') == 2 * count
        pairs = (
            f'from "{name}" c join "{name}" r'
            f" on r.id in (c.id + {LATER}, c.id + 2 * {LATER}) where c.id <= {LATER}"
        )
        assert lab.leaf.value(f"select count(*) {pairs}") == count
        wrong = [
            (name, kind, row.copied, row.replayed)
            for kind in VALUES
            for row in lab.leaf.query(
                f"select c.{column(kind)} as copied, r.{column(kind)} as replayed {pairs}"
                f" and c.{column(kind)} is distinct from r.{column(kind)} limit 1"
            )
        ]
        assert wrong == []


@pytest.mark.parametrize("leaf_type", ["text", "varchar(90)", "label", "bytea", "jsonb"])
def test_what_has_several_texts_is_refused(quick_lab: Lab, leaf_type: str) -> None:
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.raw.execute(OWN_TYPES + "create domain label as text")
    known = lab.root.value("select to_regtype('regdatabase') is not null")
    for nr, (kind, reason) in enumerate(REFUSED.items()):
        if kind == "regdatabase" and not known:  # of PostgreSQL 19
            continue
        lab.root.raw.execute(f"create table t{nr} (id int primary key, v {kind})")
        lab.leaf.raw.execute(f"create table t{nr} (id int primary key, v {leaf_type})")
        with pytest.raises(StateError, match=f'column "v" is .* here, and .*{reason}'):
            plan_table(lab.root, lab.leaf, QUEUE, TableMap(f"public.t{nr}", f"public.t{nr}"))


#: Moments that lose their zone on the way would be another day or hour.
@pytest.mark.parametrize(
    ("there", "here", "fits"),
    [
        ("timestamptz", "timestamp", False),
        ("timestamptz", "date", False),
        ("timestamptz(3)", "timestamptz", True),
        ("timestamptz", "timestamptz(0)", True),
        ("timestamp", "timestamptz", False),
        ("timestamp", "date", True),
        ("timestamp", "time", False),
        ("timestamp(0)", "timestamp", True),
        ("since", "timestamp", True),
        ("timestamptz[]", "timestamptz[]", True),
        ("timestamptz[]", "timestamp[]", False),
        ("tstzrange", "tsrange", False),
        ("moment", "moment", True),
        ("regclass", "regclass", True),
        ("regclass", "oid", False),
    ],
)
def test_moments_and_names_keep_their_type(
    quick_lab: Lab, there: str, here: str, fits: bool
) -> None:
    lab = quick_lab
    for db, kind in ((lab.root, there), (lab.leaf, here)):
        db.raw.execute(OWN_TYPES + f"; create table t (id int primary key, v {kind})")
    table = TableMap("public.t", "public.t")
    if fits:
        plan_table(lab.root, lab.leaf, QUEUE, table)
        return
    with pytest.raises(StateError, match="give it the same type here"):
        plan_table(lab.root, lab.leaf, QUEUE, table)
