"""Statements of the applier that goes row by row."""

from __future__ import annotations

from vedur.pipeline.replay.row_by_row import RowWise
from vedur.tables.mapping import PartColumn, TableSpec, TargetColumn


def test_a_table_may_be_called_as_an_alias_of_ours() -> None:
    for name, there in (("d", '"e"'), ("other", '"d"')):
        dest = f'"public"."{name}"'
        spec = TableSpec(name, dest, "s", (TargetColumn("id", "integer"),), condition="id > 0")
        text = RowWise._compose(spec, "i", ("id",), ("id",))
        assert f'from only {dest} {there} where {there}."id" = "{name}"."id"' in text


def test_a_row_put_in_its_place_anew_says_whose_part_it_is() -> None:
    spec = TableSpec(
        "t",
        '"public"."t"',
        "s",
        (TargetColumn("k", "text"), TargetColumn("id", "bigint", identity_always=True)),
        part=PartColumn("shard", "north"),
        part_type="text",
    )
    text = RowWise._compose(spec, "T", ("id",), ("k",))
    assert 'insert into "public"."t" ("id", "k", "shard")' in text
    assert "select %s::bigint, \"k\", 'north'::text from gone" in text
