"""Where `dispatch` may be, and with what: branches, quarantine, poor roles, others' partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.integration.test_dispatch import (
    DDL,
    DECLARED,
    applied,
    begin,
    catch_up_at,
    spread,
    start,
    written_at,
)
from tests.integration.test_quarantine_events import quarantined, replay
from tests.labs.chain import Chain, make_chain
from tests.labs.handlers import set_handler
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.db import connect
from vedur.db.conninfo import with_params
from vedur.errors import StateError, VedurError
from vedur.handlers.registry import handler_attr
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.session import Session

__all__ = ["applied", "make_chain", "quick_leaf", "without_spark"]

FIELD = handler_attr("daily_field", ["part_field=at"])


def test_a_branch_has_partitions_and_passes_rows_on(
    make_chain: Callable[..., Chain], without_spark: None
) -> None:
    chain = make_chain(3)
    branch, names = chain["n2"].db, ("t", "d", "e")
    for name in names:
        chain.table(f"public.{name}", DDL.replace("table t ", f"table {name} "))
    branch.execute("drop table d")
    branch.execute(DECLARED.replace("table t ", "table d "))
    for name in ("t", "d"):
        set_handler(branch, f"public.{name}", FIELD)
    set_handler(branch, "public.e", handler_attr("yearly_event", []))

    def write(*statements: str) -> None:
        for name in names:
            for text in statements:
                chain.root.execute(text.format(name))
        chain.catch_up()
        for name in names:
            chain.require_same(name, "n3")

    write("insert into {} values (1, '2026-03-01', 'a'), (2, '2026-03-02', 'b')")
    write("update {} set at = '2026-03-03' where id = 1", "delete from {} where id = 2")
    for name in ("t", "d"):
        assert spread(branch, name) == {f"{name}_2026_03_03": ['(1,"2026-03-03 00:00:00",a)']}
    write("truncate {}")
    write("insert into {} values (3, '2026-03-04', 'c')")
    for name in ("t", "d"):
        assert list(spread(branch, name)) == [f"{name}_2026_03_04"]
    assert sorted(row.split(",")[0] for rows in spread(branch, "e").values() for row in rows) == [
        "(1",
        "(3",
    ]
    assert chain.require_queues() > 10
    # a branch that has a table otherwise gives no first copy of it
    chain["n3"].db.execute("select londiste.local_remove_table(%s, 'public.t')", [QUEUE])
    with (
        chain["n3"].session() as session,
        pytest.raises(StateError, match=r"what handler daily_field\(part_field=at\) makes of it"),
    ):
        add_table(session, AddTable(tables=["t"]))


def test_what_waited_in_quarantine_goes_to_the_partition_of_its_time(
    quick_leaf: Callable[..., Leaf], applied: str
) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    begin(leaf, "daily_event", name="e")
    begin(leaf, "daily_batch", name="b")
    begin(leaf, "daily_field", ["part_field=at"])
    names = ("e", "b", "t")
    start(leaf, applied, *names)
    rows = [f"({i}, '2026-03-01', '{'bad' if i == 3 else 'good'}')" for i in range(1, 6)]
    for name in names:
        leaf.leaf.execute(f"alter table {name} add constraint fine check (v <> 'bad')")
        text = f"insert into {name} values {', '.join(rows)}"
        written_at(leaf, "2026-03-01 10:00:00", text)
    written_at(leaf, "2026-03-01 10:00:00", "insert into t values (7, null, 'no time')")
    catch_up_at(leaf, "2026-03-01 23:00:00")
    assert sorted((row[0], row[2]) for row in quarantined(leaf)) == [
        ("public.b", "error"),
        ("public.e", "error"),
        ("public.t", "error"),
        ("public.t", "error"),
    ]
    for name in names:
        assert [len(found) for found in spread(leaf.leaf, name).values()] == [4]
    constraints = "select conrelid::regclass::text as t from pg_constraint where conname = 'fine'"
    for row in leaf.leaf.query(f"{constraints} order by conrelid"):
        leaf.leaf.execute(f"alter table {row.t} drop constraint if exists fine")
    replay(leaf)
    for name, counts in (("e", [5]), ("t", [5]), ("b", [4, 1])):  # its batch is over
        assert [len(found) for found in spread(leaf.leaf, name).values()] == counts
    # the row without a time waits on
    assert [row[0] for row in quarantined(leaf)] == ["public.t"]


@pytest.fixture
def poor(quick_leaf: Callable[..., Leaf]) -> Iterator[tuple[Leaf, str]]:
    """A leaf, and a role for its worker that owns nothing."""
    leaf = quick_leaf(on_error="quarantine-row")
    role = "poor_" + str(leaf.leaf.value("select current_database()"))
    leaf.leaf.execute(f'create role "{role}" login in role londiste_writer, pgq_admin')
    leaf.settings = replace(leaf.settings, db=with_params(leaf.leaf.connstr, user=role))
    leaf.worker.settings = leaf.settings
    yield leaf, role
    leaf.close()
    leaf.leaf.execute(f'drop owned by "{role}" cascade; drop role "{role}"')


@pytest.mark.parametrize("ddl", [DDL, DECLARED], ids=["inherited", "declared"])
def test_a_role_that_may_not_make_partitions(poor: tuple[Leaf, str], ddl: str) -> None:
    leaf, role = poor
    begin(leaf, "daily_field", ["part_field=at"], ddl)
    leaf.leaf.execute(f'grant all on t to "{role}"')
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a')")

    def refused(problem: str, before: str) -> None:
        """The batch stops whatever the policy, and add-table says it before."""
        with pytest.raises(VedurError, match=problem):
            leaf.catch_up()
        assert (quarantined(leaf), spread(leaf.leaf)) == ([], {})
        leaf.leaf.execute("select londiste.local_remove_table(%s, 'public.t')", [QUEUE])
        wanted = AddTable(
            tables=["t"], handler="daily_field", handler_args=["part_field=at"], expect_sync=True
        )
        with Session(leaf.settings) as session, pytest.raises(StateError, match=before):
            add_table(session, wanted)
        with Session(replace(leaf.settings, db=leaf.leaf.connstr)) as session:
            add_table(session, wanted)

    refused("must be owner of table t|permission denied for schema", "as its owner")
    leaf.leaf.execute(f'alter table t owner to "{role}"')
    leaf.leaf.execute("revoke create on schema public from public")
    refused("permission denied for schema public", "create tables in its schema")
    leaf.leaf.execute(f'grant create on schema public to "{role}"')
    leaf.catch_up()
    assert list(spread(leaf.leaf)) == ["t_2026_03_01"]


def test_declared_partitions_have_names_of_their_own(
    quick_leaf: Callable[..., Leaf], applied: str
) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], DECLARED)
    leaf.leaf.execute(
        "create table march partition of t for values from ('2026-03-01') to ('2026-04-01')"
    )
    start(leaf, applied)
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a'), (2, '2026-03-31 23:59', 'b')")
    leaf.root.execute("insert into t values (3, '2026-04-01', 'c'), (4, '2026-02-28 23:59', 'd')")
    leaf.catch_up()
    assert {part: len(rows) for part, rows in spread(leaf.leaf).items()} == {
        "march": 2,
        "t_2026_02_28": 1,
        "t_2026_04_01": 1,
    }
    leaf.root.execute("update t set at = '2026-03-07' where id = 3")
    leaf.catch_up()
    assert len(spread(leaf.leaf)["march"]) == 3
    # one that takes a part of the day only
    leaf.leaf.execute(
        "create table noon partition of t for values from ('2026-05-01 12:00') to ('2026-06-01')"
    )
    leaf.root.execute("insert into t values (9, '2026-05-01 13:00', 'e')")
    with pytest.raises(VedurError, match='"t_2026_05_01" would overlap partition "noon"'):
        leaf.catch_up()
    leaf.leaf.execute("drop table noon")
    leaf.catch_up()
    leaf.same("t")
    leaf.leaf.execute("create table other (like t) partition by list (v)")
    with Session(leaf.settings) as session:
        leaf.pair.root.execute("create table other (like t including all)")
        leaf.pair.root.execute(
            "select londiste.local_add_table(%s, 'public.other', '{expect_sync}')", [QUEUE]
        )
        wanted = AddTable(tables=["other"], handler="daily_field", handler_args=["part_field=at"])
        leaf.leaf.execute("alter table other add unique (id, v), alter v set not null")
        with pytest.raises(StateError, match=r"partitioned by LIST \(v\).* need RANGE \(at\)"):
            add_table(session, wanted)


def test_making_a_declared_partition_waits_for_nobody(quick_leaf: Callable[..., Leaf]) -> None:
    """Readers and writers of the table go on; what the partition is, is the same."""
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], DECLARED)
    leaf.leaf.execute("create index on t (v); grant select on t to public")
    leaf.leaf.execute("alter table t add check (v <> 'bad'), alter v set default 'x'")
    leaf.leaf.execute(
        "create table asked partition of t for values from ('2020-01-01') to ('2020-01-02')"
    )
    leaf.root.execute("insert into t values (1, '2026-03-01', 'a')")
    with connect(leaf.leaf.connstr) as reader:
        reader.execute("select * from t; lock table t in row exclusive mode")
        leaf.leaf.execute("set lock_timeout = '60s'")
        leaf.catch_up()
        reader.rollback()
    assert list(spread(leaf.leaf)) == ["t_2026_03_01"]
    text = """
        select array(
            select (attname, atttypid, atttypmod, attnotnull, attislocal, attinhcount, attstorage,
                pg_get_expr(adbin, adrelid))::text
            from pg_attribute a left join pg_attrdef on adrelid = a.attrelid and adnum = a.attnum
            where attrelid = %(part)s::regclass and attnum > 0 order by attnum) as columns,
        array(
            select (contype, conislocal, coninhcount, convalidated, connoinherit,
                regexp_replace(pg_get_constraintdef(oid), '\\d{4}', '', 'g'))::text
            from pg_constraint where conrelid = %(part)s::regclass order by 1) as constraints,
        array(
            select regexp_replace(pg_get_indexdef(indexrelid), 'INDEX .* USING', '')
            from pg_index where indrelid = %(part)s::regclass order by 1) as indexes,
        (select (relam, reltablespace, relpersistence, relispartition, relowner)::text
         from pg_class where oid = %(part)s::regclass) as place"""
    made, asked = (leaf.leaf.one(text, {"part": part}) for part in ("t_2026_03_01", "asked"))
    assert tuple(made) == tuple(asked)
    grants = "select relacl::text from pg_class where relname = 't_2026_03_01'"
    assert "=r/" in str(leaf.leaf.value(grants))
