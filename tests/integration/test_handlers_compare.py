"""Compare and repair know what a handler makes of rows; on Spark, as the product runs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration import test_transform as transforms
from tests.integration.test_obfuscate import (
    DDL,
    MASKED,
    PLANTED,
    RULES,
    expected,
    insert,
    leaks,
    present,
)
from tests.labs.compare import Lab, make_lab  # noqa: F401
from tests.labs.handlers import UseHandlers, set_handler, use_handlers
from tests.labs.pair import content
from vedur.errors import StateError
from vedur.handlers.registry import handler_attr
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.compare_tables import local_tables, make_nodes, pair_at_one_moment, plan_pair
from vedur.ops.repair import RepairOptions, repair
from vedur.pipeline.compare import checksum

__all__ = ["use_handlers"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.draw("compare")
def test_masked_rows_are_compared_and_repaired(
    make_lab: Callable[..., Lab],  # noqa: F811
    use_handlers: UseHandlers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    use_handlers(RULES)
    lab = make_lab()
    lab.pair.table("public.people", DDL, dest_ddl=MASKED)
    lab.pair.table("public.kept", "create table kept (id int primary key)")
    set_handler(lab.leaf, "public.people", "obfuscate")
    set_handler(lab.leaf, "public.kept", "londiste(ignore_truncate=1)")
    caplog.set_level("DEBUG")
    insert(lab.root, *range(1, 200))
    lab.root.execute("insert into kept values (1)")
    lab.start()
    lab.settle()
    assert present(lab.leaf) == expected(lab.root)

    def differing() -> int:
        with lab.session() as session:
            options = CompareOptions(tables=("people",), rows=True)
            return compare(session, options, lab.spark).bad

    assert differing() == 0
    lab.plant("update people set name = 'wrong' where id in (select id from people limit 2)")
    lab.plant("delete from people where id in (select id from people order by id desc limit 3)")
    lab.plant("insert into people (id, mail) values (1, gen_random_uuid())")
    assert differing() == 1
    with lab.session() as session:
        with pytest.raises(StateError, match="as a whole, without --where"):
            repair(session, RepairOptions(tables=("people",), where="true"), lab.spark)
        (done,) = repair(session, RepairOptions(tables=("people",), apply=True), lab.spark)
    assert (done.inserts, done.updates, done.deletes) == (3, 2, 1)
    assert present(lab.leaf) == expected(lab.root)
    assert differing() == 0
    lab.root.execute("truncate kept")
    lab.settle()
    with lab.session() as session, pytest.raises(StateError, match="ignores TRUNCATE"):
        repair(session, RepairOptions(tables=("kept",), apply=True), lab.spark)
    assert lab.leaf.value("select count(*) from kept") == 1
    assert lab.leaf.query("select 1 from pg_class where relname like 'expected\\_%%'") == []
    assert list(leaks(lab.leaf)) == []
    assert not [word for word in PLANTED if word in caplog.text]


@pytest.mark.draw("compare")
def test_transformed_rows_are_compared_and_repaired(
    make_lab: Callable[..., Lab],  # noqa: F811
) -> None:
    """Rows that a function leaves out, columns that it adds, changes and drops."""
    lab = make_lab()
    lab.pair.table("public.t", transforms.DDL, dest_ddl=transforms.HERE)
    set_handler(lab.leaf, "public.t", handler_attr("transform", [f"function={transforms.SHOUT}"]))
    lab.root.execute(
        "insert into t select n, case when n % 7 = 0 then 'secret' else 'v' || n end, 'private'"
        " from generate_series(1, 200) n"
    )
    lab.start()
    lab.settle()
    assert content(lab.leaf, "t") == transforms.expected(lab.root)

    def differing() -> int:
        with lab.session() as session:
            return compare(session, CompareOptions(tables=("t",), rows=True), lab.spark).bad

    assert differing() == 0
    lab.plant("update t set v = 'v' || id where id < 4")  # as on the root
    lab.plant("delete from t where id between 10 and 12")
    lab.plant("insert into t values (14, 'SECRET', 6)")  # on the root, and left out
    assert differing() == 1
    with lab.session() as session:
        (done,) = repair(session, RepairOptions(tables=("t",), apply=True), lab.spark)
    assert (done.inserts, done.updates, done.deletes) == (3, 3, 1)
    assert content(lab.leaf, "t") == transforms.expected(lab.root)
    assert differing() == 0


@pytest.mark.draw("compare")
def test_rows_in_partitions_are_compared_and_repaired(
    make_lab: Callable[..., Lab],  # noqa: F811
) -> None:
    lab = make_lab()
    ddl = "create table {} (id int primary key, at timestamptz, v text)"
    declared = (
        "create table d (id int, at timestamptz, v text, primary key (id, at))"
        " partition by range (at)"
    )
    # sessions of compare and repair have another zone than the database
    name = lab.leaf.value("select quote_ident(current_database())")
    lab.leaf.execute(f"alter database {name} set timezone = 'Asia/Tokyo'")
    lab.pair.table("public.t", ddl.format("t"))
    lab.pair.table("public.d", ddl.format("d"), dest_ddl=declared)
    for table in ("t", "d"):
        set_handler(lab.leaf, f"public.{table}", "daily_field(part_field=at)")
        lab.root.execute(
            f"insert into {table} select i, timestamptz '2026-03-01 00:00+00'"
            " + i * interval '7 hours', 'x' from generate_series(1, 30) i"
        )
    lab.start()
    lab.settle()

    def spread(table: str) -> list[str]:
        text = f"select tableoid::regclass || ' ' || t::text from {table} t order by id, 1"
        return [row[0] for row in lab.leaf.query(text)]

    def differing() -> int:
        with lab.session() as session:
            options = CompareOptions(tables=("t", "d"), rows=True)
            return compare(session, options, lab.spark).bad

    before = {table: spread(table) for table in ("t", "d")}
    assert len({row.split(" ")[0] for row in before["t"]}) == 10
    assert differing() == 0
    for table in ("t", "d"):
        lab.plant(f"update {table} set v = 'wrong' where id = 3")
        lab.plant(f"delete from {table} where id in (5, 6)")
    lab.plant("drop table t_2026_03_09")  # with its rows
    lab.plant("insert into t_2026_03_02 select 99, min(at), 'not there' from only t_2026_03_02")
    lab.plant("insert into t_2026_03_02 select 20, min(at), 'twice' from only t_2026_03_02")
    assert differing() == 2
    with lab.session() as session:
        done = repair(session, RepairOptions(tables=("t", "d"), apply=True), lab.spark)
    assert sorted(found.deletes for found in done) == [0, 1]
    assert {table: spread(table) for table in ("t", "d")} == before
    # a declared partition that is missing is made, unless the repair would wait for itself
    lab.plant("drop table d_2026_03_09")
    with lab.session() as session:
        repair(session, RepairOptions(tables=("d",), apply=True), lab.spark)
    assert spread("d") == before["d"]
    lab.plant("drop table d_2026_03_09; create table d_rest partition of d default")
    with (
        lab.session(lock_timeout=0.5) as session,
        pytest.raises(StateError, match="has no partition for rows of 2026-03-09"),
    ):
        repair(session, RepairOptions(tables=("d",), apply=True), lab.spark)
    lab.plant("drop table d_rest")
    with lab.session() as session:
        repair(session, RepairOptions(tables=("d",), apply=True), lab.spark)
    assert spread("d") == before["d"]


def test_partitions_that_come_after_the_plan_are_compared(
    make_lab: Callable[..., Lab],  # noqa: F811
) -> None:
    lab = make_lab()
    ddl = "create table {} (id int primary key, at timestamp, v text)"
    declared = (
        "create table d (id int, at timestamp, v text, primary key (id, at))"
        " partition by range (at)"
    )
    # a column of the leaf's own keeps its values in a repair
    lab.pair.table("public.t", ddl.format("t"), dest_ddl=ddl.format("t")[:-1] + ", own int)")
    lab.pair.table("public.d", ddl.format("d"), dest_ddl=declared)
    for table in ("t", "d"):
        set_handler(lab.leaf, f"public.{table}", "daily_field(part_field=at)")
        lab.root.execute(
            f"insert into {table} values (1, '2026-03-01', 'a'), (2, '2026-03-01', null)"
        )
    lab.start()
    lab.settle()
    with lab.session() as session:
        info, tables = local_tables(session, ("t", "d"))
        nodes = make_nodes(session, info)
        pairs = [plan_pair(session, nodes, table) for table in tables]
        for table in ("t", "d"):
            lab.root.execute(
                f"insert into {table} values (3, '2026-03-02', 'b'), (4, '2026-03-03', null)"
            )
        lab.settle()
        for pair in pairs:
            left, right = pair_at_one_moment(nodes, pair, lambda at, _: checksum(lab.spark, at))
            assert left == right and left.rows == 4
        lab.plant("update t set own = id")
        lab.plant("update t set v = 'wrong' where id = 1")
        # in the wrong partition, and in two of them
        lab.plant("delete from t where id = 3")
        lab.plant("insert into t_2026_03_01 values (3, '2026-03-01', 'b', 3)")
        lab.plant("insert into t_2026_03_01 values (4, '2026-03-01', 'twice', 0)")
        lab.plant("delete from t where id = 2")
        repair(session, RepairOptions(tables=("t",), apply=True), lab.spark)
    rows = lab.leaf.query("select tableoid::regclass || ' ' || t::text from t order by id")
    assert [row[0] for row in rows] == [
        't_2026_03_01 (1,"2026-03-01 00:00:00",a,1)',
        't_2026_03_01 (2,"2026-03-01 00:00:00",,)',
        't_2026_03_02 (3,"2026-03-02 00:00:00",b,3)',
        't_2026_03_03 (4,"2026-03-03 00:00:00",,4)',
    ]
