"""Two tables at two snapshots: equal tables are equal, planted differences are found exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from vedur import db as vdb
from vedur.pipeline.compare import (
    Difference,
    Differences,
    Pair,
    bucket_sums,
    checksum,
    describe,
    differing_keys,
    make_pair,
)
from vedur.pipeline.compare.plan import slices
from vedur.tables.mapping import TableMap

MakeDbOn = Callable[..., vdb.Database]

TABLE = """
create table public.account (
    id bigint not null, region text not null, amount numeric, note text, code char(6),
    weight float8, ratio real, at timestamptz, span interval, tags text[], doc json, raw bytea,
    ip inet, flag boolean, "Odd ""name"" %" text,
    primary key (region, id)
)
"""

FILL = """
insert into public.account
select g, 'r' || g % 7, (g * 1.37)::numeric(12, 4), 'note ' || g, 'c' || g % 10,
    sqrt(g), g / 3.0, '2024-01-01 00:00+00'::timestamptz + g * interval '17 min',
    g * interval '1 hour', array['a' || g, null, 'b'], json_build_object('n', g),
    decode(md5(g::text), 'hex'),
    '10.0.0.0'::inet + g, g % 2 = 0, case when g % 3 = 0 then null else 'odd %s ' || g end
from generate_series(1, {rows}) g
"""


@contextmanager
def moments(pair: Pair, source: vdb.Database, target: vdb.Database) -> Iterator[Pair]:
    """The pair at snapshots of now, open until the end."""
    names = []
    for db in (source, target):
        db.commit()
        db.execute("begin isolation level repeatable read")
        names.append(db.value("select pg_export_snapshot()"))
    try:
        yield replace(
            pair,
            source=replace(pair.source, snapshot=names[0]),
            target=replace(pair.target, snapshot=names[1]),
        )
    finally:
        source.rollback()
        target.rollback()


@pytest.fixture
def two(make_db_on: MakeDbOn, oldest: Any, newest: Any) -> tuple[vdb.Database, vdb.Database]:
    return make_db_on(oldest, "bare"), make_db_on(newest, "bare")


def fill(two: tuple[vdb.Database, vdb.Database], rows: int) -> None:
    for db in two:
        db.execute(TABLE)
        db.execute(FILL.format(rows=rows))
        db.commit()


def look(spark: Any, pair: Pair, two: tuple[vdb.Database, vdb.Database]) -> Differences | None:
    with moments(pair, *two) as at:
        left, right = checksum(spark, at)
        buckets = bucket_sums(spark, at, rows=left.rows)
        assert (buckets.source, buckets.target) == (left, right)
        assert (left == right) == (buckets.bad == ())
        if left == right:
            return None
        return describe(spark, at, differing_keys(spark, at, buckets))


def test_equal_tables_are_equal_on_different_servers(spark: Any, two: Any) -> None:
    fill(two, 3000)
    two[0].execute("set timezone = 'Asia/Tokyo'")
    pair = make_pair(*two, TableMap("account", "account"))
    with moments(pair, *two) as at:
        left, right = checksum(spark, at)
    assert left == right
    assert left.rows == 3000
    expected = two[1].one(
        "select count(1) as cnt, sum(hashtext(t.*::text)) as chksum from only account t"
    )
    two[1].execute("set timezone = 'UTC'")
    expected = two[1].one(
        "select count(1) as cnt, sum(hashtext(t.*::text)) as chksum from only account t"
    )
    assert (left.rows, left.a) == (expected.cnt, expected.chksum)


def test_rows_that_a_shared_table_does_not_want_are_counted_beside(spark: Any, two: Any) -> None:
    """In the sums and in those by bucket, of rows, of which many buckets have none that is wanted;
    where nobody else has the table, they are not looked at."""
    fill(two, 25_000)
    two[0].execute("update account set note = null where id % 4 = 0")
    two[1].execute("delete from account where id % 4 = 0")
    for db in two:
        db.commit()
    table = TableMap("account", "account", condition="id % 4 <> 0 or note <> '' -- never null")
    for shared, left_out in ((True, 6250), (False, 0)):
        pair = make_pair(*two, table, shared=shared)
        with moments(pair, *two) as at:
            for sums in (checksum(spark, at)[0], bucket_sums(spark, at, rows=25_000).source):
                assert (sums.rows, sums.left_out) == (18_750, left_out)
            assert checksum(spark, at, count_only=True)[0].left_out == left_out
        assert look(spark, pair, two) is None
        two[1].execute("update account set amount = 0 where id = 17")
        found = look(spark, pair, two)
        assert found is not None and [row.key["id"] for row in found.rows] == ["17"]
        two[1].execute("update account t set amount = (17 * 1.37)::numeric(12, 4) where id = 17")
        two[1].commit()


PLANTED = {
    "one bit in a numeric": (
        "update account set amount = amount + 0.0001 where id = 17",
        [("different", 17, ("amount",))],
    ),
    "scale of a numeric": (
        "update account set amount = amount::numeric(20, 6) where id = 18",
        [("different", 18, ("amount",))],
    ),
    "null against empty": (
        "update account set note = '' where id = 5; update account set note = null where id = 6",
        [("different", 5, ("note",)), ("different", 6, ("note",))],
    ),
    "swapped rows": (
        "update account a set note = b.note from account b"
        " where a.id in (8, 15) and b.id in (8, 15) and a.id <> b.id",
        [("different", 8, ("note",)), ("different", 15, ("note",))],
    ),
    "extra": (
        "insert into account (region, id) values ('r0', 999999)",
        [("extra", 999999, ())],
    ),
    "missing": ("delete from account where id = 100", [("missing", 100, ())]),
    "trailing space": (
        "update account set note = note || ' ' where id = 41",
        [("different", 41, ("note",))],
    ),
    "last digit of a float": (
        "update account set weight = weight + 2.220446049250313e-16 * 8 where id = 9",
        [("different", 9, ("weight",))],
    ),
    "last bit of a real": (
        "update account set ratio = ratio * 1.0000001 where id = 10",
        [("different", 10, ("ratio",))],
    ),
    "null in an array": (
        "update account set tags[2] = 'NULL' where id = 12",
        [("different", 12, ("tags",))],
    ),
    "blanks in json": (
        "update account set doc = '{\"n\" :  13}' where id = 13",
        [("different", 13, ("doc",))],
    ),
    "odd column": (
        'update account set "Odd ""name"" %" = null where id = 14',
        [("different", 14, ('Odd "name" %',))],
    ),
    "key changed": (
        "update account set id = -77 where id = 77",
        [("missing", 77, ()), ("extra", -77, ())],
    ),
}


def kinds(found: Differences) -> set[tuple[str, int, tuple[str, ...]]]:
    return {(r.kind, int(r.key["id"] or 0), r.columns) for r in found.rows}


@pytest.mark.draw("compare")
def test_each_kind_of_difference_is_found_exactly(spark: Any, two: Any) -> None:
    fill(two, 500)
    pair = make_pair(*two, TableMap("account", "account"))
    assert look(spark, pair, two) is None
    for name, (plant, expected) in PLANTED.items():
        two[1].execute(plant)
        two[1].commit()
        found = look(spark, pair, two)
        assert found is not None, name
        assert kinds(found) == set(expected), name
        assert found.total == len(expected), name
        two[1].execute("truncate account")
        two[1].execute(FILL.format(rows=500))
        two[1].commit()


@pytest.mark.draw("compare")
def test_all_kinds_at_once_in_many_slices_and_buckets(
    spark: Any, two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(two, 40_000)
    monkeypatch.setattr("vedur.pipeline.compare.plan.SLICE_PAGES", 200)
    pair = make_pair(*two, TableMap("account", "account"))
    assert len(slices(pair.source)) > 4
    assert look(spark, pair, two) is None
    expected = set()
    for plant, rows in PLANTED.values():
        two[1].execute(plant)
        expected.update(rows)
    two[1].commit()
    found = look(spark, pair, two)
    assert found is not None
    assert kinds(found) == expected
    assert (found.missing, found.extra) == (2, 2)


def test_physical_order_and_dead_rows_do_not_matter(spark: Any, two: Any) -> None:
    fill(two, 2000)
    two[1].execute("update account set note = note")
    two[1].execute("delete from account where id % 2 = 0")
    two[1].execute("insert into account select * from account where false")
    two[1].commit()
    pair = make_pair(*two, TableMap("account", "account", condition="id % 2 = 1 -- odd"))
    assert look(spark, pair, two) is None


@pytest.mark.draw("compare")
def test_a_table_that_differs_everywhere_is_counted_and_shown_in_part(spark: Any, two: Any) -> None:
    fill(two, 30_000)
    two[1].execute("update account set note = 'x'")
    two[1].commit()
    pair = make_pair(*two, TableMap("account", "account"))
    found = look(spark, pair, two)
    assert found is not None
    assert found.different == 30_000
    assert len(found.rows) == 100
    assert isinstance(found.rows[0], Difference)


def test_other_names_types_columns_and_partitions(spark: Any, two: Any) -> None:
    source, target = two
    source.execute(
        "create table item (id int primary key, name varchar(20), price numeric, secret text,"
        " pad char(4), state smallint)"
    )
    source.execute(
        "insert into item select g, 'n' || g, g + 0.5, 's', 'p', g % 5"
        " from generate_series(1, 900) g"
    )
    target.execute(
        "create schema other; create domain other.money2 as numeric(10, 2);"
        "create table other.thing (state bigint, pad char(9), id bigint not null, name text,"
        " price other.money2, mine text) partition by hash (id);"
        "create table other.thing0 partition of other.thing"
        " for values with (modulus 2, remainder 0);"
        "create table other.thing1 partition of other.thing"
        " for values with (modulus 2, remainder 1)"
    )
    target.execute(
        "insert into other.thing select g % 5, 'p', g, 'n' || g, g + 0.5, 'local'"
        " from generate_series(1, 499) g"
    )
    source.commit()
    target.commit()
    pair = make_pair(source, target, TableMap("item", "other.thing", condition="id < 500"))
    assert set(pair.ignored) == {"secret", "mine"}
    assert look(spark, pair, two) is None
    target.execute("update other.thing set price = 7.77 where id = 3")
    target.execute("insert into other.thing values (1, 'p', 700, 'n700', 700.5)")
    target.commit()
    found = look(spark, pair, two)
    assert found is not None
    assert {(r.kind, r.key["id"], r.columns) for r in found.rows} == {
        ("different", "3", ("price",)),
        ("extra", "700", ()),
    }


def test_repeated_rows_without_a_key(spark: Any, two: Any) -> None:
    for db in two:
        db.execute("create table heap (a int, b text)")
        db.execute("insert into heap select 1, 'x' from generate_series(1, 4)")
        db.execute("insert into heap values (2, null)")
    two[1].execute("insert into heap values (1, 'x'), (3, '')")
    pair = make_pair(*two, TableMap("heap", "heap"))
    found = look(spark, pair, two)
    assert found is not None
    assert [(r.kind, r.key) for r in found.rows] == [
        ("extra", {"a": "1", "b": "x"}),
        ("extra", {"a": "3", "b": ""}),
    ]


def test_other_encoding(spark: Any, oldest: Any, newest: Any) -> None:
    oldest.admin.execute(
        "create database latin1_compare template template0 encoding 'LATIN1' lc_collate 'C'"
        " lc_ctype 'C'"
    )
    name = newest.create_database("template0")
    source = vdb.connect(oldest.connstr("latin1_compare"))
    target = vdb.connect(newest.connstr(name))
    try:
        for db in (source, target):
            db.execute("create table words (id int primary key, word text)")
            db.execute("insert into words values (1, 'gr\u00fc\u00dfe'), (2, '\u00e9t\u00e9\\n')")
        pair = make_pair(source, target, TableMap("words", "words"))
        assert look(spark, pair, (source, target)) is None
        target.execute("update words set word = 'gr\u00fc\u00dfE' where id = 1")
        found = look(spark, pair, (source, target))
        assert found is not None
        assert [(r.kind, r.key["id"], r.columns) for r in found.rows] == [
            ("different", "1", ("word",))
        ]
    finally:
        source.close()
        target.close()
        oldest.drop_database("latin1_compare")
        newest.drop_database(name)
