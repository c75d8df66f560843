"""Options are declared once with the command, and each of them reaches the operation."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from vedur.cli.commands import COMMANDS
from vedur.cli.grammar import Grammar, Option
from vedur.cli.nodes import takeover
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops.add_table import AddTable
from vedur.ops.change_filter import ChangeFilter
from vedur.ops.compare import CompareOptions
from vedur.ops.quarantine.skip import SkipOptions
from vedur.ops.rejoin.run import RejoinOptions
from vedur.ops.repair import RepairOptions

GRAMMAR = Grammar("londiste3", "words", COMMANDS)
#: What each command makes of its options, its arguments, and options that no field is named after.
FILLED = [
    ("add-table", AddTable, {"tables", "masks"}, {"where"}),
    ("change-filter", ChangeFilter, {"table"}, {"json"}),
    ("compare", CompareOptions, {"tables"}, {"json"}),
    ("repair", RepairOptions, {"tables"}, {"json"}),
    ("rejoin", RejoinOptions, set(), {"json"}),
    ("skip", SkipOptions, set(), set()),
]


def dest(item: Option) -> str:
    return item.dest or item.names[0].lstrip("-").replace("-", "_")


@pytest.mark.parametrize("command, kind, arguments, others", FILLED)
def test_every_option_has_its_field(
    command: str, kind: Any, arguments: set[str], others: set[str]
) -> None:
    options = {dest(item) for item in GRAMMAR.by_name[command].options}
    assert {item.name for item in fields(kind)} - arguments == options - others


@pytest.mark.parametrize("command, kind, arguments, others", FILLED)
def test_an_option_that_was_not_given_keeps_the_default(
    command: str, kind: Any, arguments: set[str], others: set[str]
) -> None:
    call = GRAMMAR.parse(["x.ini", command, *(["t"] if "table" in arguments else [])])
    words = dict.fromkeys(arguments, call.args)
    made = call.fill(kind, **words)
    for item in fields(kind):
        if item.name not in arguments and item.default is not MISSING:
            value = getattr(made, item.name)
            assert (tuple(value) if isinstance(value, list) else value) == item.default


def test_options_that_were_given_are_in_their_fields() -> None:
    argv = ["x.ini", "add-table", "a", "b", "--all", "--trigger-arg=x", "--trigger-arg=y"]
    call = GRAMMAR.parse([*argv, "--max-parallel-copy=0", "--on-error=stop", "--where=w"])
    made = call.fill(AddTable, tables=call.args, copy_condition="c")
    assert (made.tables, made.all, made.force) == (("a", "b"), True, False)
    assert (made.trigger_args, made.max_parallel_copy) == (["x", "y"], 0)
    assert (made.on_error, made.copy_condition) == ("stop", "c")


@pytest.mark.parametrize("other", ["--abort", "--dead-root", "--dead-branch"])
def test_takeover_compares_nothing_with_a_node_that_is_gone(other: str) -> None:
    call = GRAMMAR.parse(["x.ini", "takeover", "old", "--no-compare", other])
    with pytest.raises(UsageError, match="nothing is compared"):
        takeover(call, LondisteSettings())
    call = GRAMMAR.parse(["x.ini", "takeover", "old", "--max-lag=5", other])
    with pytest.raises(UsageError, match="--max-lag is for the takeover of a root that answers"):
        takeover(call, LondisteSettings())


def test_an_abort_moves_nobody() -> None:
    call = GRAMMAR.parse(["x.ini", "takeover", "old", "--abort", "--all"])
    with pytest.raises(UsageError, match="moves nobody: leave out --all"):
        takeover(call, LondisteSettings())
