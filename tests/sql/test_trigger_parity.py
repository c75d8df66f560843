"""The capture triggers against upstream's C triggers: same tables, same changes, same bytes.

Upstream's pgq extension on PostgreSQL 15 is the oracle. Where we differ on purpose (key updates,
hostile session settings, changes of representation) the tests below say what we write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vedur.db import Database
from vedur.errors import DatabaseError

TRIGGERS = {"json": "jsontriga", "urlenc": "logutriga", "sql": "sqltriga"}

TYPES = """
create type mood as enum ('sad', 'ok');
create domain di as int;
create domain dd as date;
create table pair (a int, b text);
create table every (
    id int8, "Key 2" text, i2 int2, i4 int4, bo bool, f4 float4, f8 float8, n numeric, t text,
    c char(4), vc varchar(9), nm name, ch "char", by bytea, d date, ts timestamp, tz timestamptz,
    ti time, tt timetz, iv interval, mo money, j json, jb jsonb, ia int[], ta text[], ba bool[],
    u uuid, ip inet, ci cidr, mac macaddr, r int4range, tr tstzrange, p point, m mood, ma mood[],
    di di, dd dd, o oid, x xml, tsv tsvector, bi bit(3), vb varbit, rec pair, "b=c&d%%,é" text,
    primary key ("Key 2", id));
"""
ROWS = [
    """insert into every values (
    9223372036854775807,
    'k"''\\', -1, 2, true, 1.1, 0.1, 1e10, 'a b+c&d=%é€/~*', 'b', 'c',
    'nm', 'h', '\\xdeadbeef', '2020-01-02', '2020-01-02 03:04:05.06',
    '2020-01-02 03:04:05.06+00', '01:02:03', '01:02:03+02', '1 year 2 days', '12.5', '{"a": 1}',
    '{"b":[1]}', '{1,2}', '{"a b",null}', '{t,f}', '6ecd8c99-4036-403d-bf84-cf8400f67836',
    '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,3)', '[2020-01-01 00:00+00,)', '(1,2)', 'ok',
    '{ok,sad}', 5, '2021-02-03', 12, '<a/>', 'a b', '101', '1', '(1,"x y")',
    E'\\t\\r\\n\\x01\\x7f"')""",
    """insert into every (id, "Key 2", bo, f4, f8, n, t, c, vc, by, d, ts, tz, rec)
    values (2, '', false, 'NaN', '-infinity', 'NaN', '', '', '', '', 'infinity', 'infinity',
    '-infinity', row(null, null))""",
    """insert into every (id, "Key 2", d, ts, tz, f8) values
    (3, 'bc', '0044-03-15 BC', '0044-03-15 01:02:03 BC', '0044-03-15 01:02:03 BC', 1e300),
    (4, 'far', '20200-01-01', '20200-01-01 10:00', '20200-01-01 10:00', '-0')""",
    "update every set t = 'new', bo = not bo, ia = null",
    "update every set t = t",
    "update every set n = 12345678901234567890.123456789, j = '[1, 2]' where id = 2",
    "delete from every",
    "truncate every",
]
SMALL = 'create table small (id int primary key, a int, b text, c text, "Odd" text)'
SMALL_ROWS = [
    "insert into small values (1, 3, 'x'), (2, 7, 'y')",
    "update small set a = a + 3",
    "update small set a = a + 1, b = 'z' where id = 2",
    "update small set b = b",
    "update small set c = 'c'",
    "alter table small add column e numeric default 1.5",
    "update small set e = 2 where id = 1",
    "alter table small drop column c",
    "update small set e = null",
    "alter table small rename column b to bb",
    "delete from small",
]
ARGUMENTS: list[list[str]] = [
    [],
    ["backup"],
    ["ignore=a,c"],
    ["ignore=id,nosuch", "backup"],
    ["pkey=id"],
    ["pkey=a", "ignore=c"],
    ["when=a > 6"],
    ["ev_extra1='other.name'", "ev_extra3=a + 1", "ev_extra4=null"],
    ["ev_type='T' || id", "ev_data=a"],
    ["when=id = 1 -- comment", "ev_extra2=a::text", "backup"],
]


def events(db: Database) -> list[Any]:
    return [
        tuple(row)
        for row in db.query(
            "select ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
            " from pgq.event_template order by ev_id"
        )
    ]


def run(db: Database, setup: str, attach: Callable[[Database], None], rows: list[str]) -> list[Any]:
    db.call("pgq.create_queue", "q")
    db.execute(setup)
    attach(db)
    outcome: list[Any] = []
    for statement in rows:
        before = len(events(db))
        try:
            with db.transaction():
                db.execute(statement)
        except DatabaseError as error:
            outcome.append((statement, "error", str(error)))
        else:
            outcome.append((statement, events(db)[before:]))
    return outcome


def generic(table: str, function: str, args: list[str]) -> Callable[[Database], None]:
    def attach(db: Database) -> None:
        literals = ", ".join("'" + a.replace("'", "''") + "'" for a in ["q", *args])
        db.execute(
            f"create trigger tg after insert or update or delete on {table}"
            f" for each row execute function pgq.{function}({literals})"
        )
        db.execute(
            f"create trigger tt after truncate on {table}"
            f" for each statement execute function pgq.{function}('q')"
        )

    return attach


def generated(table: str, form: str, mode: str, args: list[str]) -> Callable[[Database], None]:
    def attach(db: Database) -> None:
        got = db.one(
            "select * from vedur.create_capture('q', %s, '_londiste_q', %s, 'IUDT', %s, %s)",
            [table, form, mode, args],
        )
        assert got.ret_code == 200, got

    return attach


@pytest.fixture
def pair(servers: Any, make_db_on: Callable[..., Database]) -> tuple[Database, Database]:
    """Upstream's database and ours, on the same server."""
    server = servers.get(15)
    return make_db_on(server, "upstream"), make_db_on(server, "ours")


@pytest.mark.parametrize("form", TRIGGERS)
@pytest.mark.parametrize("mode", ["generic", "row", "bulk"])
def test_every_type(pair: tuple[Database, Database], form: str, mode: str) -> None:
    if (form, mode) == ("sql", "bulk"):
        pytest.skip("bulk capture has no sql format")
    upstream, ours = pair
    function = TRIGGERS[form]
    expected = run(upstream, TYPES, generic("every", function, []), ROWS)
    attach = (
        generic("every", function, []) if mode == "generic" else generated("every", form, mode, [])
    )
    assert run(ours, TYPES, attach, ROWS) == expected
    assert sum(len(got[1]) for got in expected if len(got) == 2) == 18


@pytest.mark.draw(12)
@pytest.mark.parametrize("form", TRIGGERS)
@pytest.mark.parametrize("args", ARGUMENTS, ids=" ".join)
def test_every_argument_and_alter(
    pair: tuple[Database, Database], form: str, args: list[str]
) -> None:
    upstream, ours = pair
    rows = SMALL_ROWS
    if any(a.startswith("pkey=a") for a in args):  # elsewhere we write what upstream refuses
        rows = [r for r in rows if "a = a +" not in r]
    attach = generic("small", TRIGGERS[form], args)
    assert run(ours, SMALL, attach, rows) == run(upstream, SMALL, attach, rows)


@pytest.mark.parametrize("form", ["json", "urlenc"])
@pytest.mark.parametrize("args", [[], ["backup"], ["pkey=id"], ["ignore=a,c"], ["when=a > 6"]])
def test_generated_capture_equals_upstream(
    pair: tuple[Database, Database], form: str, args: list[str]
) -> None:
    upstream, ours = pair
    expected = run(upstream, SMALL, generic("small", TRIGGERS[form], args), SMALL_ROWS)
    assert run(ours, SMALL, generated("small", form, "row", args), SMALL_ROWS) == expected


MAGIC = (
    "create table magic (id int primary key, b text, _pgq_ev_type text, _pgq_ev_extra1 text,"
    " _pgq_ev_extra4 text, _pgq_other text)"
)
MAGIC_ROWS = [
    "insert into magic values (1, 'x'), (2, 'y', 'type', 'e1', 'e4', 'other')",
    "update magic set _pgq_ev_type = 'u'",
    "update magic set b = 'z'",
    "delete from magic",
]


@pytest.mark.parametrize("form", TRIGGERS)
def test_magic_columns(pair: tuple[Database, Database], form: str) -> None:
    upstream, ours = pair
    attach = generic("magic", TRIGGERS[form], ["ev_extra4=b"])
    assert run(ours, MAGIC, attach, MAGIC_ROWS) == run(upstream, MAGIC, attach, MAGIC_ROWS)


@pytest.mark.parametrize(
    "args",
    [
        ["foo"], ["foo=bar"], ["SKIP"], ["deny"], ["when=a"], ["when=a > 100 and null"],
        ["when=null::bool"], ["BACKUP"], ["pkey="], ["deny", "when=false"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_error_messages(pair: tuple[Database, Database], args: list[str]) -> None:
    upstream, ours = pair
    rows = ["insert into small values (1, 3)", "update small set a = 4", "delete from small"]
    attach = generic("small", "logutriga", args)
    assert run(ours, SMALL, attach, rows) == run(upstream, SMALL, attach, rows)


def test_trigger_of_the_wrong_kind(pair: tuple[Database, Database]) -> None:
    def attach(declaration: str) -> Callable[[Database], None]:
        return lambda db: db.execute(f"create trigger tg {declaration}")

    for number, declaration in enumerate(
        [
            "after insert on {0} for each statement execute function pgq.sqltriga('q')",
            "after insert on {0} for each row execute function pgq.sqltriga()",
            "after insert on {0} for each row execute function pgq.sqltriga('nosuch')",
            "after truncate on {0} for each statement execute function pgq.jsontriga('q', 'deny')",
            "after truncate on {0} for each statement execute function pgq.sqltriga('q', 'when=t')",
            "before insert on {0} for each row execute function pgq.logutriga('q', 'SKIP')",
            "before insert on {0} for each row execute function pgq.logutriga('q')",
        ]
    ):
        table = f"kind{number}"
        got = [
            run(
                db,
                f"create table {table} (id int primary key)",
                attach(declaration.format(table)),
                [f"insert into {table} values (1)", f"delete from {table}", f"truncate {table}"],
            )
            for db in pair
        ]
        assert got[0] == got[1], declaration
