"""Commands that change which tables and sequences a node has."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops import add_table as ops_add_table
from vedur.ops import change_filter as ops_change_filter
from vedur.ops import remove_table as ops_remove_table
from vedur.ops import resync as ops_resync
from vedur.ops import sequences as ops_sequences
from vedur.ops.session import Session


def _one_condition(copy_condition: str | None, where: str | None) -> str | None:
    """--copy-condition and --where are one thing under two names."""
    if copy_condition is not None and where is not None:
        raise UsageError("--copy-condition and --where are the same: give one of them")
    return where if copy_condition is None else copy_condition


def add_table(call: Call, settings: LondisteSettings) -> None:
    """add-table"""
    given = call.options
    wish = ops_add_table.AddTable(
        tables=call.args,
        all=given.all,
        dest_table=given.dest_table,
        copy_condition=_one_condition(given.copy_condition, given.where),
        columns=given.columns,
        create=given.create,
        create_full=given.create_full,
        expect_sync=given.expect_sync,
        skip_truncate=given.skip_truncate,
        no_triggers=given.no_triggers,
        trigger_flags=given.trigger_flags,
        trigger_args=given.trigger_arg,
        handler=given.handler,
        handler_args=given.handler_arg,
        max_parallel_copy=given.max_parallel_copy,
        on_error=given.on_error,
        merge_all=given.merge_all,
        no_merge=given.no_merge,
        skip_non_existing=given.skip_non_existing,
        skip_unusable=given.skip_unusable,
        wait_sync=given.wait_sync,
        force=given.force,
    )
    with Session(settings) as session:
        ops_add_table.add_table(session, wish)


def change_filter(call: Call, settings: LondisteSettings) -> None:
    """change-filter"""
    given = call.options
    wish = ops_change_filter.ChangeFilter(
        table=call.args[0],
        where=given.where,
        all_rows=given.all_rows,
        dry_run=given.dry_run,
        force=given.force,
        max_wait=60.0 if given.max_wait is None else given.max_wait,
    )
    with Session(settings) as session:
        found = ops_change_filter.change_filter(session, wish)
    if given.json:
        print_json(found.as_json() if found is not None else None)


def remove_table(call: Call, settings: LondisteSettings) -> None:
    """remove-table"""
    with Session(settings) as session:
        ops_remove_table.remove_table(session, call.args, everything=call.options.all)


def add_seq(call: Call, settings: LondisteSettings) -> None:
    """add-seq"""
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
    """remove-seq"""
    with Session(settings) as session:
        ops_sequences.remove_seq(session, call.args, everything=call.options.all)


def resync(call: Call, settings: LondisteSettings) -> None:
    """resync"""
    with Session(settings) as session:
        ops_resync.resync(session, call.args, everything=call.options.all)
