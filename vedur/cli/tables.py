"""Commands that change which tables and sequences a node has."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops import add_table as ops_add_table
from vedur.ops import change_filter as ops_change_filter
from vedur.ops import change_handler as ops_change_handler
from vedur.ops import remove_table as ops_remove_table
from vedur.ops import resync as ops_resync
from vedur.ops import sequences as ops_sequences
from vedur.ops.session import Session


def _one_condition(copy_condition: str | None, where: str | None) -> str | None:
    """Return the condition of `--copy-condition` or `--where`, which are one thing under two names;
    raises where both are given."""
    if copy_condition is not None and where is not None:
        raise UsageError("--copy-condition and --where are the same: give one of them")
    return where if copy_condition is None else copy_condition


def add_table(call: Call, settings: LondisteSettings) -> None:
    condition = _one_condition(call.options.copy_condition, call.options.where)
    wanted = call.fill(ops_add_table.AddTable, tables=call.args, copy_condition=condition)
    with Session(settings) as session:
        ops_add_table.add_table(session, wanted)


def change_filter(call: Call, settings: LondisteSettings) -> None:
    wanted = call.fill(ops_change_filter.ChangeFilter, table=call.args[0])
    with Session(settings) as session:
        change = ops_change_filter.change_filter(session, wanted)
    if call.options.json:
        print_json(change.as_json() if change is not None else None)


def change_handler(call: Call, settings: LondisteSettings) -> None:
    wanted = call.fill(ops_change_handler.ChangeHandler, table=call.args[0])
    with Session(settings) as session:
        ops_change_handler.change_handler(session, wanted)


def remove_table(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_remove_table.remove_table(session, call.args, everything=call.options.all)


def add_seq(call: Call, settings: LondisteSettings) -> None:
    given = call.options
    with Session(settings) as session:
        ops_sequences.add_seq(
            session,
            call.args,
            everything=given.all,
            create=given.create or given.create_full,
            skip_non_existing=given.skip_non_existing,
        )


def remove_seq(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_sequences.remove_seq(session, call.args, everything=call.options.all)


def resync(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_resync.resync(
            session,
            call.args,
            everything=call.options.all,
            copy_node=call.options.copy_node,
            find_copy_node=call.options.find_copy_node,
        )
