"""Columns of two tables put together, and tables cut into ranges of pages."""

from __future__ import annotations

import itertools

import pytest

from vedur.tables.match import Column, match_columns
from vedur.tables.pages import PageRange, cut_pages

A, B, C, D = (Column(name, "integer") for name in "abcd")


def test_columns_match_by_name_in_the_providers_order() -> None:
    match = match_columns([A, B, C], [C, D, A])
    assert [(p.source.name, p.target.name) for p in match.pairs] == [("a", "a"), ("c", "c")]
    assert match.only_source == ("b",)
    assert match.only_target == (D,)


def test_a_column_list_renames_and_leaves_out() -> None:
    match = match_columns([A, B, C], [A, D], (("c", "d"), ("a", "x")))
    assert [(p.source.name, p.target.name) for p in match.pairs] == [("c", "d")]
    assert match.only_source == ("a",)  # asked for under a name that is not here
    assert match.only_target == (A,)


@pytest.mark.parametrize("pages", [0, 1, 2, 127, 1000, 50_000])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 32, 4000])
def test_every_page_is_in_one_range_and_the_last_is_open(pages: int, count: int) -> None:
    ranges = cut_pages(pages, count)
    assert len(ranges) == max(1, min(count, pages))
    assert (ranges[0].first, ranges[-1].end) == (0, None)
    for one, following in itertools.pairwise(ranges):
        assert one.end == following.first
        assert one.first < following.first
    sizes = [r.end - r.first for r in ranges if r.end is not None]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_one_range_is_the_whole_table() -> None:
    assert [r.whole for r in cut_pages(100, 1)] == [True]
    assert not PageRange(0, 50).whole
    assert not PageRange(50, None).whole
