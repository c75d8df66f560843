"""What a comparison decides without a server: buckets, progress, types that round."""

from __future__ import annotations

from typing import Any

import pytest

from vedur.errors import ConnectError
from vedur.pipeline.compare.engine import bucket_mask
from vedur.pipeline.compare.jobs import Parts, job
from vedur.pipeline.compare.model import Buckets, Side, Sums
from vedur.pipeline.compare.plan import MatchedColumn, rounds
from vedur.tables.match import Column as TypedColumn


def test_the_number_of_buckets_is_a_power_of_two_and_has_an_end() -> None:
    assert bucket_mask(0) == bucket_mask(19_999) == 0
    for rows in (20_000, 100_000, 5_000_000, 10**9):
        mask = bucket_mask(rows)
        assert mask & (mask + 1) == 0
        assert 16 <= mask + 1 <= 1 << 14


def test_buckets_that_differ_and_totals() -> None:
    one, two = Sums(1, 1, 1, 1, 1), Sums(2, 5, 5, 5, 5)
    found = Buckets.from_sums(7, {1: one, 2: one, 3: two}, {1: one, 2: two, 4: one})
    assert found.bad == (2, 3, 4)
    assert (found.source.rows, found.target.rows) == (4, 4)
    assert found.worth_choosing
    same = Buckets.from_sums(7, {1: one}, {1: one})
    assert (same.bad, same.source) == ((), same.target)
    # totals that are equal by chance do not hide buckets that are not
    swapped = Buckets.from_sums(1, {0: one, 1: two}, {0: two, 1: one})
    assert swapped.source == swapped.target
    assert swapped.bad == (0, 1)
    assert not swapped.worth_choosing


def side(**more: object) -> Side:
    values = {"key": ("t.a", "t.b"), "columns": ("t.a", "t.b", "t.c"), **more}
    return Side("s.t", '"s"."t"', (), key_names=(), key_types=(), connstr="", **values)  # type: ignore[arg-type]


def test_a_bucket_comes_from_every_part_of_the_key() -> None:
    text = side().bucket(15)
    assert text.endswith(" & 15)")
    for part in ("t.a", "t.b"):
        assert f"coalesce(cast({part} as text), '') collate" in text
    numbers = side(integer_key=True).bucket(15)
    assert "cast(t.a as bigint)" in numbers
    assert "cast(t.b as bigint)" in numbers
    assert "as text" not in numbers
    # without a key, and between encodings, the text of the row is what can be relied on
    assert "row(t.a, t.b)::text" in side(columns=("t.a", "t.b")).bucket(15)
    assert "convert_to" in side(transcode=True).bucket(15)


def test_progress_says_what_is_left() -> None:
    assert Parts("Counting t", 0, 8, 5.0).text() == "Counting t: 0 of 8 parts"
    assert Parts("Counting t", 2, 8, 5.0).text() == "Counting t: 2 of 8 parts, about 15 s left"
    assert Parts("Counting t", 8, 8, 20.0).text() == "Counting t: 8 of 8 parts"


def test_an_error_of_a_task_is_raised_as_it_was() -> None:
    spark: Any = object()
    text = "Traceback:\n  File x\nvedur.errors.ConnectError: the server is gone\n\nDriver stack:"
    with pytest.raises(ConnectError, match=r"^the server is gone$"), job(spark, "work"):
        raise RuntimeError(text)
    with pytest.raises(RuntimeError, match="other"), job(spark, "work"):
        raise RuntimeError("other")


@pytest.mark.parametrize(
    ("source", "target", "lossy"),
    [
        ("integer", "bigint", False),
        ("bigint", "integer", False),  # refused, not rounded
        ("integer", "numeric", False),
        ("integer", "numeric(10,2)", True),  # to be looked at: it may be too large as well
        ("numeric", "numeric(10,2)", True),
        ("numeric(10,2)", "numeric", False),
        ("double precision", "real", True),
        ("real", "double precision", False),
        ("bigint", "double precision", True),
        ("integer", "double precision", False),
        ("timestamp without time zone", "timestamp(0) without time zone", True),
        ("timestamp(3) without time zone", "timestamp without time zone", False),
        ("timestamp without time zone", "date", True),
        ("date", "timestamp without time zone", False),
        ("text", "character varying(3)", False),
        ("numeric", "text", False),
    ],
)
def test_types_that_round(source: str, target: str, lossy: bool) -> None:
    assert rounds(source, target) is lossy
    assert rounds(source, source) is rounds(target, target) is False


def test_the_text_of_a_value_is_that_of_its_output_function() -> None:
    def asked(source: str, target: str) -> tuple[str, str]:
        pair = MatchedColumn(TypedColumn("c", source), TypedColumn("c", target))
        return pair.source_sql, pair.target_sql

    out = 'case when pg_catalog.num_nulls(t."c") = 0 then pg_catalog.concat(t."c") end'
    assert asked("integer", "integer") == asked("text", "character varying(5)") == ('t."c"',) * 2
    assert asked("boolean", "text") == (f"cast({out} as text)", 't."c"')
    assert asked("timestamp(3) without time zone", "date") == (
        'cast(cast(t."c" as text) as date)',
        't."c"',
    )
    # of what can be written in several ways the text is read back
    assert asked("timestamp with time zone", "text") == (
        't."c"',
        'cast(cast(t."c" as text) as timestamp with time zone)',
    )
