"""Options of compare and change-filter that cannot be meant."""

from __future__ import annotations

import pytest

from vedur.cli.commands import COMMANDS
from vedur.cli.compare import _require_limit
from vedur.cli.grammar import Grammar
from vedur.errors import UsageError
from vedur.ops.change_filter import ChangeFilter
from vedur.ops.compare import CompareOptions


def test_numbers_of_options_are_not_negative() -> None:
    def limit(*words: str) -> int:
        call = Grammar("londiste3", "words", COMMANDS).parse(["x.ini", "compare", *words])
        options = call.fill(CompareOptions)
        _require_limit(options.limit)
        return options.limit

    assert limit() == 100
    assert limit("--limit=0") == 0
    for word in ("--limit=-1", "--max-wait=-1", "--max-wait=nan", "--max-wait=inf", "--max-wait=x"):
        with pytest.raises(UsageError, match="from 0 up"):
            limit(word)


def test_options_that_cannot_be_meant() -> None:
    CompareOptions(count_only=True).check()
    with pytest.raises(UsageError, match="without --rows"):
        CompareOptions(count_only=True, rows=True).check()
    ChangeFilter(table="t", all_rows=True, max_wait=0).check()
    with pytest.raises(UsageError, match="--max-wait is a number from 0 up, got -1"):
        ChangeFilter(table="t", all_rows=True, max_wait=-1).check()
