"""Commands about a root that was replaced: resurrect, lost-events."""

from __future__ import annotations

import json

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.ops.resurrect import lost_events as ops_lost_events
from vedur.ops.resurrect import run as ops_resurrect
from vedur.ops.session import Session

_FORMATS = ("text", "json", "sql")


def resurrect(call: Call, settings: LondisteSettings) -> None:
    options = call.fill(ops_resurrect.ResurrectOptions)
    if options.limit < 0:
        raise UsageError(f"--limit is a number from 0 up, got {options.limit}")
    if options.keep_rows and options.copy:
        raise UsageError("give one of --keep-rows and --copy")
    with Session(settings) as session:
        result = ops_resurrect.resurrect(session, options)
    if call.options.json:
        print_json(result.as_json())


def lost_events(call: Call, settings: LondisteSettings) -> int:
    form = call.options.format or "text"
    if form not in _FORMATS:
        raise UsageError(f"--format is one of {', '.join(_FORMATS)}, got {form!r}")
    if call.options.forget and not call.options.yes:
        raise UsageError("--forget deletes the only copy of these events: say --yes, too")
    with Session(settings) as session:
        count = 0
        for event in ops_lost_events.read(session):
            count += 1
            if form == "json":
                print(json.dumps(event.as_json(), ensure_ascii=False))
            else:
                print(ops_lost_events.as_text(event, sql=form == "sql"))
        if call.options.forget and count:
            ops_lost_events.forget(session)
    return 1 if count else 0
