"""The command that runs the worker; the only one that may load Spark."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.config import LondisteSettings


def worker(call: Call, settings: LondisteSettings) -> int:
    """worker"""
    from vedur.ops.run_worker import WorkerOptions, run_worker

    options = WorkerOptions(
        background=call.options.daemon,
        verbosity=-1 if call.options.quiet else call.options.verbose,
        overrides=call.overrides,
    )
    return run_worker(settings, options)
