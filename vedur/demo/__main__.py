"""`vedur demo`: the walk-through on embedded servers, told stage by stage.

However it ends, nothing of it stays: ^C, SIGTERM and a closed terminal stop everything and remove
the files. A failure leaves the logs, `--keep` leaves it running, and `--stop` ends either.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from vedur.demo.going_on import how_to_go_on, what_went_wrong
from vedur.demo.lab import Lab
from vedur.demo.story import Story
from vedur.errors import InternalError, UsageError, VedurError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USAGE = """\
usage: vedur demo [--cascade] [--fast] [--keep]
       vedur demo --stop DIR

Replicates between embedded PostgreSQL servers (16 and 18): first copy under
load, an outage, TRUNCATE, a renamed and filtered leaf, DDL, and a proof that
all is equal. On a terminal with a live view. Nothing is left behind: not
after ^C either; a failure leaves the logs and says where.

Options:
  --cascade     the second leaf reads from the first node, which is a branch
  --keep        leave servers, workers and the status page running
  --stop DIR    stop what was kept and remove its files
  --fast        few rows, short load: for tests
  -h, --help    show this help

Examples:
  # about three minutes; ends with a proof and removes everything
  vedur demo
  # leave it running, with ini files and commands to try
  vedur demo --keep
  # a chain: root, branch, leaf
  vedur demo --cascade
  # end what --keep left; it tells the directory
  vedur demo --stop /tmp/vedur-demo-x1y2z3
  # no terminal: plain lines
  vedur demo > demo.log
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"demo: {message}, use --help for help")


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    result = _Parser(prog="vedur demo", add_help=False, allow_abbrev=False)
    result.add_argument("-h", "--help", action="store_true")
    result.add_argument("--cascade", action="store_true")
    result.add_argument("--fast", action="store_true")
    result.add_argument("--keep", action="store_true")
    result.add_argument("--stop", metavar="DIR", type=Path)
    return result


def main(argv: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    try:
        options = parser().parse_args(argv)
        if options.help:
            sys.stdout.write(USAGE)
            return 0
        if options.stop:
            return stop(options.stop)
    except VedurError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    console = Console(highlight=False)
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    story = Story(console, fast=options.fast, cascade=options.cascade)
    return run(console, story, keep=options.keep)


def run(console: Console, story: Story, *, keep: bool) -> int:
    """Run all stages and clean up afterwards; returns the exit code."""
    hurry, failure = False, None
    try:
        code = story.tell()
    except KeyboardInterrupt:
        hurry, code = True, 130
    except VedurError as error:
        failure, code = error, error.exit_code
    except Exception as error:
        failure = InternalError(f"BUG: {type(error).__name__}: {error}")
        code = failure.exit_code
    for number in _SIGNALS:
        signal.signal(number, _not_now)
    ended = not keep or hurry or failure
    _say(console, "\nstopping everything ..." if hurry or failure else "")
    if ended:
        story.lab.close(keep=failure is not None, hurry=hurry or failure is not None)
    if failure:
        story.lab.strip()
        _say(console, what_went_wrong(story, failure))
    elif hurry:
        _say(console, "stopped, nothing is left")
    elif keep:
        _say(console, how_to_go_on(story))
    else:
        _say(console, f"The status page was {story.page}; --keep leaves it running.")
    return code


def _say(console: Console, text: str) -> None:
    # the terminal may be gone: that must not keep us from cleaning up
    with contextlib.suppress(OSError):
        if text:
            console.print(text, soft_wrap=True)


def stop(base: Path) -> int:
    """Stop a demo that was kept running; returns the exit code."""
    lab = Lab.reopen(base.resolve())
    lab.close()
    if base.exists():
        shutil.rmtree(base)
    print(f"stopped, {base} is removed")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _not_now(_number: int, _frame: FrameType | None) -> None:
    """Ignore another ^C until cleaning up has ended."""


if __name__ == "__main__":
    sys.exit(main())
