"""Commands that run scripts, and that compare the two sides."""

from __future__ import annotations

from dataclasses import asdict

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.ops import check as ops_check
from vedur.ops import compare as ops_compare
from vedur.ops import execute as ops_execute
from vedur.ops import repair as ops_repair
from vedur.ops.session import Session

#: Exit codes above are taken by signals and shells.
_MAX_EXIT = 100


def execute(call: Call, settings: LondisteSettings) -> None:
    """execute"""
    with Session(settings) as session:
        ops_execute.execute(session, call.args)


def compare(call: Call, settings: LondisteSettings) -> int:
    """compare"""
    given = call.options
    options = ops_compare.CompareOptions(
        tables=call.args, force=given.force, count_only=given.count_only, rows=given.rows
    )
    with Session(settings) as session:
        found = ops_compare.compare(session, options)
    if given.json:
        print_json([item.as_json() for item in found.tables])
    return min(_MAX_EXIT, found.bad)


def repair(call: Call, settings: LondisteSettings) -> None:
    """repair"""
    given = call.options
    options = ops_repair.RepairOptions(
        tables=call.args, apply=given.apply, where=given.where, force=given.force
    )
    with Session(settings) as session:
        found = ops_repair.repair(session, options)
    if given.json:
        print_json([asdict(item) for item in found])


def check(call: Call, settings: LondisteSettings) -> int:
    """check"""
    with Session(settings) as session:
        found = ops_check.check(session, call.args)
    if call.options.json:
        print_json([asdict(item) for item in found])
    else:
        for item in found:
            for difference in item.differences:
                print(f"{item.local_table}: {difference}")
    return min(_MAX_EXIT, sum(bool(item.differences) for item in found))


def fkeys(call: Call, settings: LondisteSettings) -> None:
    """fkeys"""
    with Session(settings) as session:
        found = ops_check.fkeys(session, call.args)
    if call.options.json:
        print_json([asdict(key) for key in found])
        return
    for key in found:
        print(f"{key.fkey_def.rstrip().rstrip(';')};")
