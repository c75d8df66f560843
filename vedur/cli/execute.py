"""The command that runs scripts on all nodes."""

from __future__ import annotations

from dataclasses import asdict

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.ops.execute import plan as ops_execute_plan
from vedur.ops.execute import run as ops_execute
from vedur.ops.session import Session

#: Exit codes go up to 255; a few are left free for what the system itself may say.
_MAX_EXIT = 250


def execute(call: Call, settings: LondisteSettings) -> int:
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
