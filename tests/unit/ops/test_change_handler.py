"""What becomes of the rows of a table that gets another handler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vedur.ops.change_handler import Rows, judge_rows
from vedur.tables.mapping import TableMap
from vedur.tables.row_function import RowFunction
from vedur.tables.target import Partitions

PLAIN = TableMap("public.t", "public.t")
SHARD = replace(PLAIN, condition="(id & 1) = 0")
OTHER = replace(PLAIN, condition="(id & 3) = 0")
KEEPING = replace(PLAIN, unrepairable="it ignores TRUNCATE")
HISTORY = replace(PLAIN, uncomparable="it applies only I")
NOTHING = replace(PLAIN, applies=False, uncomparable="it leaves the table alone")
MASKED = replace(PLAIN, rows=RowFunction("mask", "m", "f", "public.t", (), ()))
BY_DAY = replace(PLAIN, partitions=Partitions("day", "%(parent)s", "at"))


@pytest.mark.parametrize(
    "old, new, rows",
    [
        (PLAIN, PLAIN, Rows.STAY),
        (SHARD, SHARD, Rows.STAY),
        (PLAIN, KEEPING, Rows.STAY),
        (SHARD, NOTHING, Rows.STAY),
        (None, NOTHING, Rows.STAY),
        (PLAIN, BY_DAY, Rows.STAY),
        (PLAIN, SHARD, Rows.MOVE),
        (SHARD, OTHER, Rows.MOVE),
        (OTHER, PLAIN, Rows.MOVE),
        (SHARD, replace(OTHER, unrepairable="it ignores TRUNCATE"), Rows.MOVE),
        (None, SHARD, Rows.ANEW),
        (NOTHING, SHARD, Rows.ANEW),
        (HISTORY, SHARD, Rows.ANEW),
        (KEEPING, SHARD, Rows.ANEW),
        (SHARD, HISTORY, Rows.ANEW),
        (SHARD, BY_DAY, Rows.ANEW),
        (PLAIN, MASKED, Rows.ANEW),
        (MASKED, PLAIN, Rows.ANEW),
        (replace(MASKED, condition="a"), replace(MASKED, condition="b"), Rows.ANEW),
    ],
)
def test_rows_stay_move_or_come_anew(old: TableMap | None, new: TableMap, rows: Rows) -> None:
    assert judge_rows(old, new) is rows
