"""Statements of the applier that goes row by row."""

from __future__ import annotations

from vedur.pipeline.replay.row_by_row import RowWise
from vedur.tables.mapping import TableSpec, TargetColumn


def test_a_table_may_be_called_as_an_alias_of_ours() -> None:
    for name, there in (("d", '"e"'), ("other", '"d"')):
        dest = f'"public"."{name}"'
        spec = TableSpec(name, dest, "s", (TargetColumn("id", "integer"),), condition="id > 0")
        text = RowWise._compose(spec, "i", ("id",), ("id",))
        assert f'from only {dest} {there} where {there}."id" = "{name}"."id"' in text
