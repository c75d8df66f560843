"""Every kind of difference, in tables of three sizes, found and repaired exactly, under load."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.compare import Lab, make_lab  # noqa: F401
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.repair import RepairOptions, repair

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

MakeLab = Callable[..., Lab]

SMALL = (10, 1_000)

#: The rows are made on both sides at once, so that no first copy is needed.
ACCOUNT = """
create table {table} (
    id bigint primary key, amount numeric, note text, code char(6), weight float8, ratio real,
    doc json, tags text[], raw bytea
);
insert into {table}
select g, (g * 1.37)::numeric(14, 4), case when g = 2 then null else 'note ' || g end, 'c' || g % 9,
    case when g = 8 then 0 else sqrt(g) end, g / 3.0, json_build_object('n', g),
    array['a' || g, null], decode(md5(g::text), 'hex')
from generate_series(1, {rows}) g
"""

#: What is done to the leaf: kind, key, columns that differ.
PLANTED = {
    "update {t} set amount = amount + 0.0001 where id = 1": [("different", 1, ("amount",))],
    "update {t} set note = '' where id = 2": [("different", 2, ("note",))],
    "update {t} a set note = b.note, doc = b.doc from {t} b"
    " where a.id in (3, 4) and b.id in (3, 4) and a.id <> b.id": [
        ("different", 3, ("note", "doc")),
        ("different", 4, ("note", "doc")),
    ],
    "update {t} set note = note || ' ' where id = 5": [("different", 5, ("note",))],
    "update {t} set weight = weight * (1 + 2.3e-16) where id = 6": [("different", 6, ("weight",))],
    "update {t} set doc = '{{\"n\" :  7}}' where id = 7": [("different", 7, ("doc",))],
    "update {t} set weight = '-0' where id = 8": [("different", 8, ("weight",))],
    "delete from {t} where id = 9": [("missing", 9, ())],
    "update {t} set ratio = 'NaN', tags[2] = 'NULL', raw = raw || '\\x00', code = null"
    " where id = 10": [("different", 10, ("code", "ratio", "tags", "raw"))],
    "insert into {t} (id) values (-1)": [("extra", -1, ())],
}
#: A busy machine is no failure.
COMPARE = CompareOptions(rows=True, max_wait=600.0)
REPAIR = RepairOptions(apply=True, max_wait=600.0)
_VERBS = {"different": "update", "missing": "insert", "extra": "delete"}


def table(rows: int) -> str:
    return f"public.account_{rows}"


@pytest.mark.draw("compare")
@pytest.mark.parametrize("large", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_planted_in_three_sizes(make_lab: MakeLab, large: int) -> None:  # noqa: F811
    lab = make_lab()
    sizes = (*SMALL, large)
    for rows in sizes:
        lab.pair.table(table(rows), ACCOUNT.format(table=table(rows), rows=rows))
    lab.start()
    lab.settle()
    for rows in sizes:
        name = table(rows)
        lab.write(
            f"insert into {name} (id, note) values (1000000 + (random() * 50)::int, 'new')"
            " on conflict (id) do update set note = excluded.note || random()",
            0.02,
        )
        lab.write(f"delete from {name} where id = 1000000 + (random() * 50)::int", 0.03)
        lab.write(
            f"update {name} set amount = amount + 1 where id ="
            f" 11 + (random() * {max(0, rows - 11)})::int",
            0.02,
        )
    with lab.session() as session:
        assert compare(session, COMPARE, lab.spark).bad == 0
        for rows in sizes:
            for statement in PLANTED:
                lab.plant(statement.format(t=table(rows)))
        expected = {row for found in PLANTED.values() for row in found}
        result = compare(session, COMPARE, lab.spark)
        assert result.bad == len(sizes)
        for one in result.tables:
            assert one.differences is not None
            got = {(r.kind, int(r.key["id"] or 0), r.columns) for r in one.differences.rows}
            assert got == expected, one.table
        for done in repair(session, REPAIR, lab.spark):
            assert (done.inserts, done.updates, done.deletes) == (1, 9, 1), done.table
        logged = lab.leaf.query(
            "select table_name, action, (row_key::json ->> 0)::int from vedur.repair_log"
        )
        assert sorted(tuple(row) for row in logged) == sorted(
            (table(rows), _VERBS[kind], key) for rows in sizes for kind, key, _ in expected
        )
        assert compare(session, COMPARE, lab.spark).bad == 0
        assert [d.total for d in repair(session, REPAIR, lab.spark)] == [0] * 3


@pytest.mark.draw("compare")
def test_tables_with_foreign_keys_are_repaired_in_any_order(make_lab: MakeLab) -> None:  # noqa: F811
    """Rows are written in replica role: no key is checked on the way, all hold at the end."""
    lab = make_lab()
    # the child is first in the set, so its rows come before those that they refer to
    child = "create table child (id int primary key, parent int)"
    lab.pair.table("public.child", child)
    lab.pair.table("public.parent", "create table parent (id int primary key, n int)")
    for db in (lab.root, lab.leaf):
        db.execute(
            "alter table child add constraint child_parent foreign key (parent) references parent"
            " on delete cascade"
        )
    lab.root.execute("insert into parent select g, g from generate_series(1, 40) g")
    lab.root.execute("insert into child select g, 1 + g % 40 from generate_series(1, 200) g")
    lab.start()
    lab.settle()
    lab.write(
        "with gone as (delete from child where id = 1 + (random() * 90)::int returning *)"
        " insert into child select id + 1000, parent from gone on conflict do nothing",
        0.02,
    )
    lab.plant("delete from parent where id in (3, 4); delete from child where id in (101, 102)")
    lab.plant("insert into parent values (-1, 0); insert into child values (-1, -1), (-2, -1)")
    lab.plant("update child set parent = -1 where id in (103, 104)")
    with lab.session() as session:
        done = {d.table: d for d in repair(session, REPAIR, lab.spark)}
        one = done["public.child"]
        assert (one.inserts, one.updates, one.deletes) == (2, 2, 2)
        one = done["public.parent"]
        assert (one.inserts, one.updates, one.deletes) == (2, 0, 1)
        assert compare(session, COMPARE, lab.spark).bad == 0
    orphans = "select count(*) from child c where not exists (select from parent where id = parent)"
    assert lab.leaf.value(orphans) == 0
