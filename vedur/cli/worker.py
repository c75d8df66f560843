"""The command that runs the worker; the only one that may load Spark."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vedur.cli.grammar import Call
from vedur.config import LondisteSettings
from vedur.daemon import PidFile
from vedur.errors import UsageError
from vedur.ops.session import Session

if TYPE_CHECKING:
    from vedur.ops.processes.worker import WorkerOptions


def worker(call: Call, settings: LondisteSettings) -> int:
    given = call.options
    if given.rewind or given.reset or given.set_tick is not None:
        return _move_position(call, settings)
    if given.yes:
        raise UsageError("--yes is for --rewind, --reset and --set-tick")
    from vedur.ops.processes.worker import run_worker

    return run_worker(settings, _options(call))


def workers(call: Call, several: list[LondisteSettings]) -> int:
    given = call.options
    if given.rewind or given.reset or given.set_tick is not None or given.yes:
        raise UsageError("--rewind, --reset and --set-tick work with one INI")
    from vedur.ops.processes.many import run_workers

    return run_workers(several, _options(call))


def _options(call: Call) -> WorkerOptions:
    from vedur.ops.processes.worker import WorkerOptions

    return WorkerOptions(
        background=call.options.daemon,
        verbosity=-1 if call.options.quiet else call.options.verbose,
        overrides=call.overrides,
    )


def _move_position(call: Call, settings: LondisteSettings) -> int:
    """Move the position of the node in place of its worker, which must not run meanwhile."""
    from vedur.ops.move_position import MoveTo, move_position

    given = call.options
    if given.daemon:
        raise UsageError("--rewind, --reset and --set-tick do not run in the background")
    asked = MoveTo(given.rewind, given.reset, given.set_tick)
    with ExitStack() as stack:
        if settings.pidfile:
            stack.enter_context(PidFile(settings.pidfile))
        session = stack.enter_context(Session(settings))
        move_position(session, asked, lambda text: given.yes or _ask(text))
    return 0


def _ask(text: str) -> bool:
    """Ask at the terminal; where nobody can answer, the answer is no."""
    if not sys.stdin.isatty():
        return False
    return input(f"{text}. Do it? (yes/no) ").strip().lower() == "yes"
