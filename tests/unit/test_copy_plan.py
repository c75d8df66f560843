"""Columns, format and slices of a first copy; the stored script; the pages that describe it."""

from __future__ import annotations

import itertools
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

from vedur.catalog.table_ddl import Part, TableDdl, parse_script
from vedur.errors import StateError
from vedur.names import QualifiedName
from vedur.pipeline.copy.plan import Column, Leaf, Slice, TableCopy, make_slices, match_columns
from vedur.worker.copying_steps import Step
from vedur.worker.states import _NEXT, MergeState

DOCS = Path(__file__).parents[2] / "docs" / "design"
T = QualifiedName("public", "t")


def column(name: str, oid: int = 23, plain: bool = True, generated: bool = False) -> Column:
    return Column(name, oid, "integer", generated, "", plain)


def leaf(pages: int, toast: int = 0) -> Leaf:
    return Leaf(T, pages * 8192, pages * 8192 + toast, 8192, 100)


def test_same_plain_types_go_in_binary() -> None:
    found = match_columns("t", [column("a"), column("b")], [column("b"), column("a")])
    assert found.columns == ("a", "b")
    assert found.format == "binary"


@pytest.mark.parametrize("other", [column("a", 20), column("a", plain=False)])
def test_anything_else_goes_as_text(other: Column) -> None:
    assert match_columns("t", [column("a")], [other]).format == "text"


def test_columns_of_one_side_are_named_and_generated_ones_make_themselves() -> None:
    found = match_columns(
        "t",
        [column("a"), column("gone"), column("g", generated=True)],
        [column("a"), column("new"), column("g", generated=True)],
    )
    assert found.columns == ("a",)
    assert found.only_source == ("gone",)
    assert found.only_target == ("new",)
    with pytest.raises(StateError, match="no column in common"):
        match_columns("t", [column("a")], [column("b")])


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


def test_a_stored_script_reads_back_whatever_it_holds() -> None:
    parts = (
        Part("index", "s", "i", "create index i on t ((a || '\n--- vedur {}\n'));"),
        Part("attach", "s", "i", "alter table t add constraint i primary key using index i;"),
        Part("marks", "s", 'o"dd;\n', "comment on index i is 'é😀\n';"),
    )
    ddl = TableDdl(parts)
    assert parse_script(ddl.script()) == ddl
    assert parse_script(None) == TableDdl(())
    assert TableDdl(()).script() is None
    assert parse_script("create index i on t (a);") is None
    newer = TableDdl((Part("index", "s", "i", "other"), Part("index", "s", "j", "new")))
    assert [p.text for p in ddl.merge(newer).parts] == [*(p.text for p in parts), "new"]


def test_the_page_lists_the_steps() -> None:
    page = (DOCS / "first-copy.md").read_text()
    listed = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert listed == [(str(int(step)), step.title) for step in Step]


def test_the_page_lists_the_transitions() -> None:
    page = (DOCS / "table-states.md").read_text()
    rows = re.findall(r"^\| (\S+?),? .*?\| (worker|copy) \| `([a-z-]+)", page, re.MULTILINE)
    rows = [r for r in rows if r[0] != "`ok`"]
    listed = {}
    for word, owner, following in rows:
        name = word.strip("`").partition(":")[0]
        state = MergeState.parse(None if name == "(none)" else name).state
        listed[state] = (owner, following)
    assert listed == {s: (str(owner), str(n)) for s, (owner, n) in _NEXT.items()}
