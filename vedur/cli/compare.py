"""Commands that put the tables of this node beside the provider's: compare, repair, check, fkeys,
and rejoin, which repairs a node whose position is lost."""

from __future__ import annotations

from dataclasses import asdict

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops import check as ops_check
from vedur.ops import compare as ops_compare
from vedur.ops import repair as ops_repair
from vedur.ops.compare import MAX_DIFFERENT
from vedur.ops.rejoin import run as ops_rejoin
from vedur.ops.session import Session


def _require_limit(limit: int) -> None:
    """Raise unless it is what a number of rows can be."""
    if limit < 0:
        raise UsageError(f"--limit is a number from 0 up, got {limit}")


def compare(call: Call, settings: LondisteSettings) -> int:
    rows = call.options.rows or call.options.limit is not None
    options = call.fill(ops_compare.CompareOptions, tables=call.args, rows=rows)
    _require_limit(options.limit)
    with Session(settings) as session:
        result = ops_compare.compare(session, options)
    if call.options.json:
        print_json([item.as_json() for item in result.tables])
    return result.exit_code


def repair(call: Call, settings: LondisteSettings) -> None:
    options = call.fill(ops_repair.RepairOptions, tables=call.args)
    _require_limit(options.limit)
    with Session(settings) as session:
        repairs = ops_repair.repair(session, options)
    if call.options.json:
        print_json([item.as_json() for item in repairs])


def rejoin(call: Call, settings: LondisteSettings) -> None:
    options = call.fill(ops_rejoin.RejoinOptions)
    _require_limit(options.limit)
    with Session(settings) as session:
        result = ops_rejoin.rejoin(session, options)
    if call.options.json:
        print_json(result.as_json())


def check(call: Call, settings: LondisteSettings) -> int:
    with Session(settings) as session:
        found = ops_check.check(session, call.args)
    if call.options.json:
        print_json([asdict(item) for item in found])
    else:
        for item in found:
            for difference in item.differences:
                print(f"{item.local_table}: {difference}")
            for note in item.notes:
                print(f"{item.local_table}: {note} (allowed)")
    return min(MAX_DIFFERENT, sum(bool(item.differences) for item in found))


def fkeys(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        found = ops_check.fkeys(session, call.args)
    if call.options.json:
        print_json([asdict(key) for key in found])
        return
    for key in found:
        print(f"{key.fkey_def.rstrip().rstrip(';')};")
