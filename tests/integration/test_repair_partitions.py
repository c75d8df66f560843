"""What a repair writes to a table in partitions, without Spark: rows are staged by hand."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.test_dispatch import DDL, DECLARED, begin, spread
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.catalog.tables import get_table_list
from vedur.pipeline.compare import make_pair
from vedur.pipeline.repair import RepairMoment, RepairTable, apply, open_stage

__all__ = ["quick_leaf"]

#: As the root has them; a task would have brought them.
ROWS = (
    "(1, '2026-03-01', 'a'), (2, '2026-03-01', 'b'), (3, '2026-03-02', 'c'),"
    " (4, '2026-03-03', null)"
)


def repair(leaf: Leaf, table: str, tick: int = 1) -> tuple[int, int, int]:
    """Repair all rows, as if every key had looked different."""
    db = leaf.leaf
    mapping = get_table_list(db, QUEUE).by_name[f"public.{table}"].mapping
    pair = make_pair(leaf.root, db, mapping)
    plan = RepairTable.read(db, pair)
    with open_stage(db, pair, plan.target_columns) as stage:
        keys = "select to_json(array[i::text])::text from generate_series(1, 9) i"
        db.execute(f"insert into {stage.keys} {keys}")
        columns = ", ".join(f"c{i}" for i in range(1, len(plan.target_columns) + 1))
        db.execute(f"insert into {stage.rows} ({columns}) values {ROWS}")
        with db.transaction():
            db.execute("set local session_replication_role = replica")
            done = apply(db, pair, plan, stage, RepairMoment(QUEUE, tick, 5.0))
    return done.inserts, done.updates, done.deletes


def test_a_column_of_the_leaf_keeps_its_values(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], DDL.replace("v text", "v text, own int"))
    leaf.catch_up()
    how = '{"period": "day", "name": "%(parent)s_%(year)s_%(month)s_%(day)s", "field": "at",'
    how += ' "keys": "id", "function": "londiste.create_partition"}'
    for day in (1, 3):
        text = "select vedur.make_partition('public.t', %s::jsonb, %s::timestamp)"
        leaf.leaf.value(text, [how, f"2026-03-0{day}"])
    leaf.leaf.execute("set session_replication_role = replica")
    # wrong, in the wrong partition, in two of them, and not there on the root
    leaf.leaf.execute("insert into t_2026_03_01 values (1, '2026-03-01', 'wrong', 1)")
    leaf.leaf.execute("insert into t_2026_03_01 values (3, '2026-03-01', 'c', 3)")
    leaf.leaf.execute("insert into t_2026_03_01 values (4, '2026-03-01', 'twice', 0)")
    leaf.leaf.execute("insert into t_2026_03_03 values (4, '2026-03-03', null, 4)")
    leaf.leaf.execute("insert into t_2026_03_03 values (9, '2026-03-03', 'extra', 9)")
    inserts, _, deletes = repair(leaf, "t")
    assert (inserts, deletes) == (1, 1)
    assert spread(leaf.leaf) == {
        "t_2026_03_01": ['(1,"2026-03-01 00:00:00",a,1)', '(2,"2026-03-01 00:00:00",b,)'],
        "t_2026_03_02": ['(3,"2026-03-02 00:00:00",c,3)'],
        "t_2026_03_03": ['(4,"2026-03-03 00:00:00",,4)'],
    }


def test_declared_partitions_are_made(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    begin(leaf, "daily_field", ["part_field=at"], DECLARED)
    leaf.catch_up()
    assert repair(leaf, "t") == (4, 0, 0)
    assert list(spread(leaf.leaf)) == ["t_2026_03_01", "t_2026_03_02", "t_2026_03_03"]
    leaf.leaf.execute("set session_replication_role = replica; update t set v = 'wrong'")
    assert repair(leaf, "t", 2) == (0, 4, 0)
    assert leaf.leaf.value("select count(*) from t where v = 'wrong'") == 0
