"""Columns, format and slices of a first copy."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace

import pytest

from vedur.errors import StateError
from vedur.names import QualifiedName
from vedur.pipeline.copy.plan import Slice, StoredTable, TableCopy, columns_to_copy, make_slices
from vedur.tables.match import Column

T = QualifiedName("public", "t")


def column(name: str, oid: int = 23, plain: bool = True, generated: bool = False) -> Column:
    return Column(name, "integer", generated, type_oid=oid, plain=plain)


def leaf(pages: int, toast: int = 0) -> StoredTable:
    return StoredTable(T, pages * 8192, pages * 8192 + toast, 8192, 100)


def test_same_plain_types_go_in_binary() -> None:
    found = columns_to_copy("t", [column("a"), column("b")], [column("b"), column("a")])
    assert found.columns == ("a", "b")
    assert found.format == "binary"


@pytest.mark.parametrize("other", [column("a", 20), column("a", plain=False)])
def test_anything_else_goes_as_text(other: Column) -> None:
    assert columns_to_copy("t", [column("a")], [other]).format == "text"


def test_columns_of_one_side_are_named_and_generated_ones_make_themselves() -> None:
    found = columns_to_copy(
        "t",
        [column("a"), column("gone"), column("g", generated=True)],
        [column("a"), column("new"), column("g", generated=True)],
    )
    assert found.columns == ("a",)
    assert found.only_source == ("gone",)
    assert found.only_target == ("new",)
    with pytest.raises(StateError, match="no column in common"):
        columns_to_copy("t", [column("a")], [column("b")])


@pytest.mark.parametrize("pages", [0, 1, 127, 128, 129, 1000, 4096, 50000])
def test_slices_cover_every_page_once_and_the_last_is_open(pages: int) -> None:
    slices = make_slices([leaf(pages)], slice_bytes=1 << 20)
    assert [s.nr for s in slices] == list(range(len(slices)))
    assert slices[0].first == 0
    assert slices[-1].end is None
    for one, following in itertools.pairwise(slices):
        assert one.end == following.first
    assert len(slices) <= max(1, pages * 8192 // (1 << 20) + 1)


def test_toast_makes_slices_smaller() -> None:
    thin, fat = make_slices([leaf(1000)]), make_slices([leaf(1000, toast=1 << 30)])
    assert len(thin) == 1
    assert len(fat) == 32


def test_statements_of_a_slice() -> None:
    plan = TableCopy("q", "public.t", T, ("a", 'b"'), "text", "a > 1 -- why")
    out = plan.copy_out(Slice(3, QualifiedName("s", "p1"), 10, 20))
    assert out == (
        'copy (select "a", "b""" from only "s"."p1" as t where ctid >= \'(10,0)\'::tid and '
        "ctid < '(20,0)'::tid and (a > 1 -- why\n)) to stdout (format text)"
    )
    assert plan.copy_in == 'copy "public"."t" ("a", "b""") from stdin (format text)'
    assert pickle.loads(pickle.dumps(plan)) == plan
    tree = replace(plan, condition=None, whole_tree=True)
    assert tree.copy_out(Slice(0, T, 0, None)) == (
        'copy (select "a", "b""" from "public"."t" as t) to stdout (format text)'
    )


def test_tasks_of_different_tables_have_different_names() -> None:
    long = "x" * 80
    tables = ["public.表一", "public.表二", f"public.{long}1", f"public.{long}2", "public.t"]
    plans = [TableCopy(q, t, T, ("a",), "text") for q in ("q", long) for t in tables]
    names = [plan.task_name for plan in plans]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and len(name) <= 63 for name in names)
    assert names[4].startswith("vedur copy ")
    assert names[4].endswith(" q public.t")
