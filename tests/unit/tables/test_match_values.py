"""Which types of two sides keep a value, whether a copy or an event brings it."""

from __future__ import annotations

import pytest

from vedur.tables.match import Column, ColumnPair, unsteady_value, without_length

TIMESTAMP, TIMESTAMPTZ = "timestamp without time zone", "timestamp with time zone"


@pytest.mark.parametrize(
    ("there", "here", "reason"),
    [
        (Column("c", TIMESTAMP), Column("c", "text"), "with a T"),
        (Column("c", TIMESTAMP), Column("c", '"date"'), None),
        (Column("c", TIMESTAMP), Column("c", TIMESTAMPTZ, zoned=True), "which moment"),
        (Column("c", TIMESTAMP), Column("c", "time without time zone"), "with a T"),
        (Column("c", "timestamp(3) without time zone"), Column("c", TIMESTAMP), None),
        (Column("c", TIMESTAMPTZ, zoned=True), Column("c", TIMESTAMP), "time zone of"),
        (Column("c", TIMESTAMPTZ, zoned=True), Column("c", "citext", builtin=False), "time zone"),
        (Column("c", "tstzrange", zoned=True), Column("c", '"tstzrange"', zoned=True), None),
        (Column("c", "regclass", naming=True), Column("c", "text"), "search path of"),
        (Column("c", "m", builtin=False, zoned=True), Column("c", "s.m", builtin=False), None),
        (Column("c", TIMESTAMP), Column("c", "text", generated=True), None),
        (Column("c", "integer"), Column("c", "text"), None),
    ],
)
def test_types_that_keep_a_value(there: Column, here: Column, reason: str | None) -> None:
    found = unsteady_value(ColumnPair(there, here))
    assert found is None if reason is None else reason in str(found)


def test_a_length_may_stand_in_the_middle() -> None:
    assert without_length("timestamp(3) with time zone") == TIMESTAMPTZ
    assert without_length("numeric(10,2)") == "numeric"
