"""Options of add-table: what they mean, and what cannot be meant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vedur.errors import UsageError
from vedur.ops.add_table import AddTable


@pytest.mark.parametrize(
    "wish, message",
    [
        (AddTable(tables=()), "add-table needs TABLE"),
        (AddTable(tables=("a", "b"), dest_table="c"), "only for single table"),
        (AddTable(tables=("a",), handler_args=("x=1",)), "--handler-arg needs --handler"),
        (AddTable(tables=("a",), merge_all=True, no_merge=True), "cannot be given together"),
        (AddTable(tables=("a",), merge_all=True, copy_condition="b"), "its own --where"),
        (AddTable(tables=("a",), max_parallel_copy=0), "at least 1"),
    ],
)
def test_add_table_refuses_what_cannot_be_meant(wish: AddTable, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wish.check()


def test_add_table_attributes_and_arguments() -> None:
    wish = AddTable(
        tables=("a",),
        copy_condition="x < 5",
        handler="londiste",
        max_parallel_copy=3,
        expect_sync=True,
        skip_truncate=True,
        trigger_args=("backup",),
    )
    assert wish.attrs() == {
        "handler": "londiste",
        "copy_condition": "x < 5",
        "max_parallel_copy": "3",
    }
    assert wish.args("json", True) == ["backup", "expect_sync", "skip_truncate"]
    assert "tgflags=AIUDL" in wish.args("urlenc", True)
    assert "tgflags=AIUDL" not in wish.args("urlenc", False)
    with pytest.raises(UsageError, match="unknown handler"):
        replace(wish, handler="nope").attrs()
    with pytest.raises(UsageError, match="Invalid handler argument"):
        replace(wish, handler_args=("nope=1",)).attrs()
