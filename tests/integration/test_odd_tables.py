"""Tables and names at the edge of what PostgreSQL allows, copied and then replayed.

What cannot be replicated (no key, no columns) is refused when it is added, in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Lab
from tests.labs.pair import QUEUE
from vedur import db as vdb
from vedur.names import quote_ident

pytestmark = [pytest.mark.spark]


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    yield made
    made.close()


def both(lab: Lab, ddl: str) -> None:
    """Run a script on both sides."""
    lab.root.execute(ddl)
    lab.leaf.execute(ddl)


#: With the key as many columns as a table can have.
WIDE = 1599
#: As many bytes as a name can have, of characters that take three.
LONGEST = "ツ" * 21
NAMES = [
    ("select", "from"),
    ('sch"ema', 'ta"ble'),
    ("s'x", "it's; drop table victim; --"),
    ("Mixed Case", "with.dot"),
    ("ünï", LONGEST),
    ("a b", "%s %(x)s {} {0} $1 \\ \t"),
]


@pytest.mark.draw("large tables")
def test_odd_names_of_tables_and_columns(lab: Lab) -> None:
    both(lab, "create table victim (id int)")
    for schema, table in NAMES:
        column, value = table, schema
        sql = (
            f"create schema {quote_ident(schema)}; create table "
            f"{quote_ident(schema)}.{quote_ident(table)} ({quote_ident(column)} text, "
            f'"ke""y" int, {quote_ident("x" + value)} jsonb, primary key ("ke""y", '
            f"{quote_ident(column)}))"
        )
        both(lab, sql)
    quoted = [f"{quote_ident(s)}.{quote_ident(t)}" for s, t in NAMES]
    for name in quoted:
        lab.root.raw.execute(
            f"insert into {name} select 'v' || i, i, jsonb_build_object('a', i) "
            "from generate_series(1, 500) i"
        )
    lab.add(*(f"{s}.{t}" for s, t in NAMES))
    lab.start()
    lab.wait_ok()
    for (_, column), name in zip(NAMES, quoted, strict=True):
        which = quote_ident(column)
        lab.root.raw.execute(
            f"update {name} set {which} = {which} || '\t\\''' where \"ke\"\"y\" < 50"
        )
        lab.root.raw.execute(f'delete from {name} where "ke""y" > 450')
        lab.root.raw.execute(f"insert into {name} values ('null', 1000, null), ('', 1001, 'null')")
    lab.settle()
    for name in quoted:
        rows = f"select t::text from {name} t order by 1"
        here, there = (db.raw.execute(rows).fetchall() for db in (lab.root, lab.leaf))
        assert here == there and len(here) == 452
    assert lab.leaf.value("select to_regclass('victim')") is not None


def test_a_key_of_ten_columns_and_domains(lab: Lab) -> None:
    keys = ", ".join(f"k{i} {t}" for i, t in enumerate(
        ["int", "text", "date", "uuid", "numeric", "posint", "bool", "char(4)", "bytea", "inet"]
    ))  # fmt: skip
    listed = ", ".join(f"k{i}" for i in range(10))
    both(
        lab,
        "create domain posint as int check (value > 0);"
        "create domain small as posint check (value < 100000);"
        f"create table t ({keys}, v small, w text, primary key ({listed}))",
    )
    row = (
        "i, 'a' || i, date '2020-01-01' + i, md5(i::text)::uuid, i / 3.0, i, i % 2 = 0, "
        "left('c' || i, 4), decode(md5(i::text), 'hex'), ('10.0.0.' || i % 255)::inet, i, 'w'"
    )
    lab.root.execute(f"insert into t select {row} from generate_series(1, 400) i")
    lab.add("public.t")
    lab.start()
    lab.wait_ok()
    lab.root.execute("update t set w = 'changed' where k0 % 3 = 0")
    lab.root.execute("update t set k4 = k4 + 1, k7 = 'zz' where k0 % 5 = 0")
    lab.root.execute("delete from t where k0 > 350")
    lab.settle()
    lab.same("t")
    assert lab.leaf.value("select count(*) from t") == 350


@pytest.mark.draw("large tables")
def test_sixteen_hundred_columns(lab: Lab) -> None:
    columns = ", ".join(f"c{i} int" for i in range(WIDE))
    both(lab, f"create table t (id int primary key, {columns})")
    values = ", ".join(f"i + {i}" for i in range(WIDE))
    lab.root.execute(f"insert into t select i, {values} from generate_series(1, 20) i")
    lab.add("public.t")
    lab.start()
    lab.wait_ok()
    lab.root.execute(
        f"update t set c7 = -1, c{WIDE - 1} = null where id < 10; delete from t where id = 20"
    )
    lab.root.execute(f"insert into t select i, {values} from generate_series(100, 105) i")
    lab.settle()
    lab.same("t")
    assert lab.leaf.value(f"select count(*) from t where c{WIDE - 1} is null") == 9


@pytest.mark.draw("large tables")
def test_megabytes_in_a_row(lab: Lab) -> None:
    both(lab, "create table t (id int primary key, big text, b bytea, n int)")
    fill = (
        "insert into t select i, repeat(md5(i::text), 250000), "
        "convert_to(repeat(md5(i::text), 100000), 'UTF8'), 0 from generate_series({}, {}) i"
    )
    lab.root.execute(fill.format(1, 2))
    lab.add("public.t")
    lab.start()
    lab.wait_ok()
    lab.root.execute(fill.format(3, 4))
    # the large values are not touched by this one, and still must be there
    lab.root.execute("update t set n = n + 1")
    lab.settle()
    lab.same("t")
    assert lab.leaf.value("select min(length(big)) from t") == 8_000_000


def test_inherited_tables_stay_apart(lab: Lab) -> None:
    """A parent holds its own rows; a child is a table of its own, replicated or not."""
    both(
        lab,
        "create table parent (id int primary key, v text);"
        "create table child (primary key (id)) inherits (parent)",
    )
    lab.root.execute("insert into parent select i, 'p' from generate_series(1, 50) i")
    lab.root.execute("insert into child select i, 'c' from generate_series(100, 150) i")
    lab.leaf.execute("insert into child values (7777, 'local')")
    lab.add("public.parent")
    lab.start()
    lab.wait_ok()
    lab.root.execute(
        "update only parent set v = 'x' where id < 10; delete from only parent where id = 50"
    )
    lab.root.execute("truncate only parent; insert into parent values (1, 'again')")
    lab.settle()
    only = "select id, v from only parent order by id"
    assert lab.leaf.query(only) == lab.root.query(only)
    assert [tuple(r) for r in lab.leaf.query("select * from only child")] == [(7777, "local")]


@pytest.mark.parametrize(
    "ddl",
    [
        "create table t (id int, v text)",
        "create table t ()",
        "create view t as select 1 as id",
    ],
)
def test_what_has_no_key_is_refused(lab: Lab, ddl: str) -> None:
    both(lab, ddl)
    (answer,) = lab.root.call("londiste.local_add_table", QUEUE, "public.t")
    assert answer.ret_code >= 400
    assert "public.t" in answer.ret_note
    assert lab.root.query("select * from londiste.table_info where local") == []
