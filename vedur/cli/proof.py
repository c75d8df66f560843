"""Commands that run scripts, and that compare the two sides."""

from __future__ import annotations

from dataclasses import asdict
from typing import TypeVar

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops import check as ops_check
from vedur.ops import compare as ops_compare
from vedur.ops import execute as ops_execute
from vedur.ops import execute_plan as ops_execute_plan
from vedur.ops import rejoin as ops_rejoin
from vedur.ops import repair as ops_repair
from vedur.ops.session import Session

#: Exit codes go up to 255; a few are left free for what the system itself may say.
_MAX_EXIT = 250
#: Of check; see `vedur/ops/compare.py`.
_MAX_DIFFERENT = ops_compare.MAX_DIFFERENT
#: Rows that are named unless --limit says otherwise, and for how long a lagging node is waited for.
_COMPARE_LIMIT, _REPAIR_LIMIT = 100, 10
_MAX_WAIT, _REJOIN_WAIT = 60.0, 120.0


N = TypeVar("N", int, float)


def _given(value: N | None, default: N) -> N:
    if value is None:
        return default
    if value < 0:
        raise UsageError(f"--limit and --max-wait are numbers from 0 up, got {value}")
    return value


def execute(call: Call, settings: LondisteSettings) -> int:
    """execute"""
    with Session(settings) as session:
        if not call.options.dry_run:
            ops_execute.execute(session, call.args)
            return 0
        plans = ops_execute_plan.plan_execute(session, call.args)
    if call.options.json:
        print_json([asdict(plan) for plan in plans])
    else:
        for plan in plans:
            print(f"-- {plan.script} on {plan.node} ({plan.node_type})")
            for warning in plan.warnings:
                print(f"-- WARNING: {warning}")
            print(f"-- {plan.note}" if plan.note else ";\n".join(plan.statements) + ";")
            print()
    return min(_MAX_EXIT, sum(plan.trouble for plan in plans))


def compare(call: Call, settings: LondisteSettings) -> int:
    """compare"""
    given = call.options
    options = ops_compare.CompareOptions(
        tables=call.args,
        force=given.force,
        count_only=given.count_only,
        rows=given.rows or given.limit is not None,
        limit=_given(given.limit, _COMPARE_LIMIT),
        max_wait=_given(given.max_wait, _MAX_WAIT),
        common_columns=given.common_columns,
        allow_rounding=given.allow_rounding,
    )
    with Session(settings) as session:
        found = ops_compare.compare(session, options)
    if given.json:
        print_json([item.as_json() for item in found.tables])
    return found.exit_code


def repair(call: Call, settings: LondisteSettings) -> None:
    """repair"""
    given = call.options
    options = ops_repair.RepairOptions(
        tables=call.args,
        apply=given.apply,
        where=given.where,
        force=given.force,
        limit=_given(given.limit, _REPAIR_LIMIT),
        max_wait=_given(given.max_wait, _MAX_WAIT),
    )
    with Session(settings) as session:
        found = ops_repair.repair(session, options)
    if given.json:
        print_json([item.as_json() for item in found])


def rejoin(call: Call, settings: LondisteSettings) -> None:
    """rejoin"""
    given = call.options
    options = ops_rejoin.RejoinOptions(
        apply=given.apply,
        copy=given.copy,
        force=given.force,
        limit=_given(given.limit, _REPAIR_LIMIT),
        max_wait=_given(given.max_wait, _REJOIN_WAIT),
    )
    with Session(settings) as session:
        found = ops_rejoin.rejoin(session, options)
    if given.json:
        print_json(found.as_json())


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
            for note in item.notes:
                print(f"{item.local_table}: {note} (allowed)")
    return min(_MAX_DIFFERENT, sum(bool(item.differences) for item in found))


def fkeys(call: Call, settings: LondisteSettings) -> None:
    """fkeys"""
    with Session(settings) as session:
        found = ops_check.fkeys(session, call.args)
    if call.options.json:
        print_json([asdict(key) for key in found])
        return
    for key in found:
        print(f"{key.fkey_def.rstrip().rstrip(';')};")
