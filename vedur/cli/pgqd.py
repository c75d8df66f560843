"""The command `pgqd`: ticker and maintenance daemon, with the grammar of the C program."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from vedur import __version__
from vedur.errors import UsageError, VedurError
from vedur.log import mask

USAGE = """\
usage: pgqd [switches] config.file

Ticks the queues of all databases of a server, rotates their tables, returns
events that were put off.

Switches:
  -v        Increase verbosity (-vv: still more)
  -q        No output to console
  -d        Daemonize
  -h        Show help
  -V        Show version
 --ini      Show sample config file
  -s        Stop - send SIGINT to running process
  -k        Kill - send SIGTERM to running process
  -r        Reload - send SIGHUP to running process

Examples:
  pgqd --ini > pgqd.ini     begin with a commented sample
  pgqd -d pgqd.ini          start in the background
  pgqd -r pgqd.ini          read the ini again
  pgqd -s pgqd.ini          stop
"""

_SIGNALS = {"stop": signal.SIGINT, "kill": signal.SIGTERM, "reload": signal.SIGHUP}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}, use --help for help")


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    result = _Parser(prog="pgqd", add_help=False, allow_abbrev=False)
    result.add_argument("-h", "--help", action="store_true")
    result.add_argument("-V", "--version", action="store_true")
    result.add_argument("--ini", action="store_true")
    result.add_argument("-v", "--verbose", action="count", default=0)
    result.add_argument("-q", "--quiet", action="store_true")
    result.add_argument("-d", "--daemon", action="store_true")
    action = result.add_mutually_exclusive_group()
    action.add_argument("-s", "--stop", dest="action", action="store_const", const="stop")
    action.add_argument("-k", "--kill", dest="action", action="store_const", const="kill")
    action.add_argument("-r", "--reload", dest="action", action="store_const", const="reload")
    result.add_argument("config", nargs="?")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ticker, or send a signal to a running one; returns the exit code."""
    try:
        return _main(parser().parse_args(argv))
    except VedurError as error:
        print(f"pgqd: {mask(error.message)}", file=sys.stderr)
        return error.exit_code


def _main(args: argparse.Namespace) -> int:
    if args.help:
        print(USAGE, end="")
        return 0
    if args.version:
        print(f"pgqd version {__version__}")
        return 0
    if args.ini:
        return _ini()
    if not args.config:
        print("pgqd requires config file", file=sys.stderr)
        return 1
    return _signal(args) if args.action else _run(args)


def _ini() -> int:
    from vedur.config import PgqdSettings, sample_ini

    print(sample_ini(PgqdSettings, "pgqd"), end="")
    return 0


def _signal(args: argparse.Namespace) -> int:
    from vedur.daemon import Sent
    from vedur.ops.processes.ticker import signal_ticker

    number = _SIGNALS[args.action]
    sent = signal_ticker(args.config, number)
    if sent is Sent.NOT_CONFIGURED:
        print("No pidfile configured", file=sys.stderr)
        return 1
    note = f"{number.name} sent" if sent is Sent.OK else "Old process is not running"
    print(note, file=sys.stderr)
    return 0


def _run(args: argparse.Namespace) -> int:
    from vedur.ops.processes.ticker import TickerProcess

    verbosity = -1 if args.quiet else args.verbose
    return TickerProcess(args.config, background=args.daemon, verbosity=verbosity).run()


if __name__ == "__main__":
    sys.exit(main())
