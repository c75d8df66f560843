"""Entry points `londiste3` and `vedur`, which are the same program under two names.

The only place where an exception becomes an exit code: one line on stderr, in the log's format
once logging is set up, and the traceback with -v only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vedur import __version__
from vedur.cli.commands import COMMANDS
from vedur.cli.grammar import Call, Command, Grammar
from vedur.errors import ConfigError, InternalError, UsageError, VedurError

if TYPE_CHECKING:
    from vedur.config import LondisteSettings

log = logging.getLogger("vedur.cli")

SUMMARY = (
    "Replicates tables between PostgreSQL databases: a root, and nodes that follow it.\n"
    "INI describes one node; begin with --ini."
)
#: A pair of databases from nothing; docs/tutorial.md has it at length.
EXAMPLES = (
    (
        "{program} --ini --set job_name=src --set queue_name=q --set db='host=db1 dbname=shop' "
        "> src.ini",
        "an ini per node: another for dst on db2, with the same queue_name",
    ),
    ("{program} src.ini create-root src 'host=db1 dbname=shop'", "the node that is written to"),
    (
        "{program} dst.ini create-leaf dst 'host=db2 dbname=shop' "
        "--provider='host=db1 dbname=shop'",
        "the node that follows it",
    ),
    ("pgqd --ini > pgqd.ini; pgqd -d pgqd.ini", "the ticker: one per server with a root"),
    ("{program} -d src.ini worker; {program} -d dst.ini worker", "a worker per node"),
    ("{program} src.ini add-table shop.orders", "offer a table ..."),
    (
        "{program} dst.ini add-table shop.orders --create-full --wait-sync",
        "... and take it: created, copied, followed",
    ),
    ("{program} src.ini status", "how all nodes are"),
    ("{program} -d a.ini b.ini c.ini worker", "workers of several queues, with one Java"),
)
#: Keys of the ini that change nothing are told by the worker when it starts; doctor tells them too.
_TELLS_ALL = ("worker",)
_SIGNALS = {"reload": signal.SIGHUP, "stop": signal.SIGINT, "kill": signal.SIGTERM}


def londiste3() -> None:
    """Run the program under its name `londiste3` and exit."""
    sys.exit(main("londiste3", sys.argv[1:]))


def vedur() -> None:
    """Run the program under its name `vedur` and exit. It also has `ticker`, `demo`, `prepare`,
    `completion`."""
    argv = sys.argv[1:]
    if argv and argv[0] == "ticker":
        from vedur.cli import pgqd

        sys.argv = ["pgqd", *argv[1:]]
        sys.exit(pgqd.main())
    if argv and argv[0] == "completion":
        from vedur.cli import completion

        try:
            sys.exit(completion.main(argv[1:]))
        except UsageError as error:
            print(error.message, file=sys.stderr)
            sys.exit(error.exit_code)
    if argv and argv[0] == "demo":
        from vedur.demo.__main__ import main as demo

        sys.exit(demo(argv[1:]))
    if argv and argv[0] == "prepare":
        from vedur.cli.prepare import main as prepare

        sys.exit(prepare(argv[1:]))
    sys.exit(main("vedur", argv))


def main(program: str, argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    grammar = Grammar(program, SUMMARY, COMMANDS, EXAMPLES)
    try:
        code = _run(grammar, grammar.parse(argv))
        sys.stdout.flush()  # here, where it can be caught, and not when Python ends
        return code
    except BrokenPipeError:
        # the reader of our output has gone (`| head`): not an error, and nobody to tell
        _discard_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except VedurError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code + grammar.errors_from(argv)


def _run(grammar: Grammar, call: Call) -> int:
    if call.options.help:
        sys.stdout.write(grammar.help(call.command))
        return 0
    if call.options.version:
        print(f"{call.program}, Vedur version {__version__}")
        return 0
    if call.options.show_ini:
        return _show_ini(call)
    return _with_ini(call)


def _discard_output() -> None:
    """Send what is still in the buffer to nowhere: Python flushes it once more when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _reader_is_gone() -> bool:
    """Check whether a broken pipe is that of stdout: a lost server or Java breaks pipes, too."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    except (OSError, ValueError):
        return False
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def _show_ini(call: Call) -> int:
    from vedur.config import LondisteSettings, sample_ini

    sys.stdout.write(sample_ini(LondisteSettings, "londiste3", call.overrides))
    return 0


def _with_ini(call: Call) -> int:
    from vedur.config import load_londiste

    if call.ini is None:
        raise UsageError("need config file, use --help for help.")
    asked = next((name for name in _SIGNALS if getattr(call.options, name)), None)
    command = call.command
    names = list(call.inis)
    if asked or (command is not None and command.run_many):
        from vedur.cli.inis import find_inis

        names = find_inis(names)
    several = [load_londiste(name, call.overrides, service=call.program) for name in names]
    if asked:
        return max(_send(settings, asked, several=len(several) > 1) for settings in several)
    if call.unknown is not None:
        raise UsageError(f"Unknown command '{call.unknown}', use --help for help")
    if command is None:
        raise UsageError("need command")
    if len(several) > 1 and not command.run_many:
        raise UsageError(f"{command.name} works with one INI, and not with {len(several)}")
    _check_count(call)
    with ExitStack() as stack:
        try:
            return _execute(call, command, several, stack) or 0
        except VedurError as error:
            return _report(call, error)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _reader_is_gone():
                raise
            words = f"BUG: {type(error).__name__}: {error}".splitlines()[0]
            return _report(call, InternalError(f"{words}; run it with -v and report what it shows"))


def _execute(
    call: Call, command: Command, several: list[LondisteSettings], stack: ExitStack
) -> int | None:
    from vedur.handlers.registry import load_handlers

    settings = several[0]
    if len(several) > 1:
        _start_logging(call, several, "")
        return command.load(many=True)(call, several)
    _start_logging(call, several, settings.logfile)
    load_handlers(settings)
    if command.side and (path := settings.pidfile_for(command.side)):
        from vedur.daemon import PidFile

        stack.enter_context(PidFile(path))
    return command.load()(call, settings)


def _report(call: Call, error: VedurError) -> int:
    log.error("%s", error.message, exc_info=call.options.verbose > 0)
    for key in ("detail", "hint"):
        if error.values.get(key):
            log.error("%s: %s", key.upper(), error.values[key])
    return error.exit_code + (call.command.errors_from if call.command else 0)


def _check_count(call: Call) -> None:
    command = call.command
    assert command is not None
    count = len(call.args)
    if count < command.least:
        raise UsageError(f"{command.name} needs {command.arguments}, use --help for help")
    if command.most is not None and count > command.most:
        extra = " ".join(call.args[command.most :])
        raise UsageError(f'{command.name}: unexpected argument "{extra}", use --help for help')
    if call.options.daemon and command.name != "worker":
        raise UsageError(f"{command.name} does not run in the background: leave out -d")


def _send(settings: LondisteSettings, asked: str, *, several: bool) -> int:
    """Ask one worker to read its INI again or to end: by a word where it shares its process with
    others, else by a signal."""
    from vedur.control import ask
    from vedur.daemon import Sent, signal_pidfile

    try:
        if ask(settings.pidfile, asked):
            return 0
        sent = signal_pidfile(settings.pidfile, _SIGNALS[asked])
        said = sent.value if sent is not Sent.OK else ""
        code = 0
    except VedurError as error:
        if not several:
            raise
        said, code = error.message, error.exit_code
    if said:
        print(f"{settings.config_file}: {said}" if several else said, file=sys.stderr)
    return code


def _start_logging(call: Call, several: list[LondisteSettings], logfile: str) -> None:
    from vedur.config.reader import for_every_command
    from vedur.log import LogOptions, setup_logging

    options = call.options
    settings = several[0]
    skylog = settings.use_skylog if len(several) == 1 else 0
    try:
        setup_logging(
            LogOptions(
                logfile=logfile,
                verbosity=-1 if options.quiet else options.verbose,
                log_format=settings.log_format,
                log_size=settings.log_size,
                log_count=settings.log_count,
                use_skylog=skylog,
                skylog_locations=settings.skylog_locations,
            )
        )
    except OSError as error:
        raise ConfigError(f'cannot write log file "{logfile}": {error.strerror}') from error
    tells_all = call.command is not None and call.command.name in _TELLS_ALL and not options.quiet
    if len(several) > 1 and tells_all and not options.daemon:
        return  # the workers tell it themselves, each in its own log and here
    for each in several:
        for warning in each.warnings if tells_all else for_every_command(each.warnings):
            log.warning("%s", warning)
