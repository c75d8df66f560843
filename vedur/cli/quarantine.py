"""Commands about events that a node refuses: errors, skip, quarantine, change-table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vedur.cli.grammar import Call
from vedur.cli.output import print_json, print_table
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops import change_table as ops_change_table
from vedur.ops.quarantine import entries as ops_quarantine
from vedur.ops.quarantine import list_errors as ops_errors
from vedur.ops.quarantine import replay as ops_quarantine_replay
from vedur.ops.quarantine import skip as ops_skip
from vedur.ops.session import Session

#: Rows of a list; --json gives all.
_SHOWN = 1000


def errors(call: Call, settings: LondisteSettings) -> int:
    with Session(settings) as session:
        reports = ops_errors.errors(session)
    prefix = f"{call.program} {call.ini} "
    if call.options.json:
        print_json([report.as_json() for report in reports])
    else:
        for report in reports:
            print("\n".join(_report_lines(report, prefix)) + "\n")
    return 1 if reports else 0


def _report_lines(report: ops_errors.ErrorReport, prefix: str) -> list[str]:
    where = report.table or report.consumer or ""
    lines = [f"{where}: {report.what}" if where else report.what]
    stuck = report.stuck
    if report.message:
        state = f" ({stuck.sqlstate})" if stuck and stuck.sqlstate else ""
        lines.append(f"    error:  {report.message}{state}")
    if stuck and stuck.detail:
        lines.append(f"    detail: {stuck.detail}")
    if stuck and stuck.ev_id is not None:
        lines.append(f"    event:  {stuck.ev_id}, {report.operation}")
    if report.key:
        lines.append(f"    key:    {report.key}")
    if stuck:
        lines.append(f"    ticks:  after {stuck.prev_tick} up to {stuck.tick_id}")
    if report.first_seen:
        tries = f", {stuck.attempts} attempt(s)" if stuck and stuck.attempts else ""
        lines.append(f"    since:  {report.first_seen:%Y-%m-%d %H:%M:%S%z}{tries}")
    verbs = ("skip ", "change-table ", "quarantine ")
    for at, action in enumerate(report.actions):
        text = prefix + action if action.startswith(verbs) else action
        lines.append(f"    {'next:' if at == 0 else 'or:':<7} {text}")
    return lines


def skip(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_skip.skip(session, call.fill(ops_skip.SkipOptions))


def change_table(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_change_table.change_table(session, call.args, call.options.on_error)


def quarantine(call: Call, settings: LondisteSettings) -> int:
    action, *numbers = call.args
    try:
        ids = tuple(map(int, numbers))
    except ValueError:
        raise UsageError(
            f'quarantine {action} expects numbers, got "{" ".join(numbers)}"'
        ) from None
    choice = ops_quarantine.Choice(ids, tuple(call.options.table), call.options.until_tick)
    with Session(settings) as session:
        if action == "list":
            _list(session, choice, call.options.json)
        elif action == "show":
            _show(session, choice, call.options.json)
        elif action == "replay":
            return _replay(session, choice, call)
        elif action == "drop":
            _drop(session, choice, call)
        else:
            raise UsageError(f'quarantine can list, show, replay and drop, not "{action}"')
    return 0


def _list(session: Session, choice: ops_quarantine.Choice, as_json: bool) -> None:
    rows = ops_quarantine.list_events(session, choice, None if as_json else _SHOWN)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    columns = ("id", "table_name", "row_key", "ev_id", "tick_id", "cause", "why")
    values = [
        (r.id, r.table_name, r.row_key, r.ev_id, r.tick_id, r.cause, r.message or r.reason or "")
        for r in rows
    ]
    print_table("Events in quarantine", columns, values)


def _show(session: Session, choice: ops_quarantine.Choice, as_json: bool) -> None:
    if not choice.ids:
        raise UsageError("quarantine show needs ID, see quarantine list")
    rows = [asdict(ops_quarantine.show_event(session, id)) for id in choice.ids]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        for name, value in row.items():
            if value is not None:
                print(f"{name:<16}{value}")
        print()


def _replay(session: Session, choice: ops_quarantine.Choice, call: Call) -> int:
    done = ops_quarantine_replay.replay(session, choice, replace=call.options.replace)
    if call.options.json:
        print_json([asdict(item) for item in done])
    return 1 if any(item.stayed for item in done) else 0


def _drop(session: Session, choice: ops_quarantine.Choice, call: Call) -> None:
    given: Any = call.options
    rows = ops_quarantine.drop(session, choice, given.reason or "", sure=given.yes)
    if given.json:
        print_json([asdict(row) for row in rows])
