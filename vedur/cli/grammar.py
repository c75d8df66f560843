"""The grammar `londiste3 [options] INI... COMMAND [arguments]`, options standing anywhere.

Commands are data (`Command`): words, options, examples, and the name of the function that runs
it, loaded only when it runs, so that help never waits for a database driver. Two passes: a scan
that knows which options of all commands take a value finds INI and COMMAND; then the parser of
that one command reads everything and refuses what it does not know. Words before the command that
look like files are further INIs; few commands take more than one.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from vedur.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Wanted = TypeVar("Wanted", bound="DataclassInstance")


@dataclass(frozen=True)
class Option:
    """One option; `metavar` None means that it takes no value."""

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    dest: str | None = None
    repeat: bool = False
    kind: Callable[[str], Any] | None = None

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add this option to an argparse parser."""
        more: dict[str, Any] = {"help": self.help}
        if self.dest:
            more["dest"] = self.dest
        if self.metavar is None:
            more["action"] = "count" if self.repeat else "store_true"
            if self.repeat:
                more["default"] = 0
        else:
            more["metavar"] = self.metavar
            if self.repeat:
                more |= {"action": "append", "default": []}
            if self.kind:
                more["type"] = self.kind
        parser.add_argument(*self.names, **more)


def seconds(text: str) -> float:
    """Parse a time to wait. Python also takes `nan` for a number, and nothing is ever later."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds from 0 up is needed, not {text!r}")
    return value


def option(*names: str, help: str, **more: Any) -> Option:
    """Make an `Option`: `option("--all", help="…")`, `option("-n", help="…", metavar="N")`."""
    return Option(names, help, **more)


@dataclass(frozen=True)
class Command:
    """One command.

    arguments   usage text of the positional arguments, e.g. `TABLE...`
    least, most how many of them (`most` None: any number)
    run         `module:function` below vedur.cli, called with a `Call` and the settings of INI
    run_many    the same for several INIs, called with a list of settings; '' where one is all
    side        suffix of the pidfile that keeps two of them apart, '' for commands that only read
    errors_from added to the exit code of an error, where smaller codes are numbers that it found
    """

    name: str
    summary: str
    run: str
    group: str
    arguments: str = ""
    least: int = 0
    most: int | None = 0
    details: str = ""
    options: tuple[Option, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    side: str = ""
    errors_from: int = 0
    run_many: str = ""

    def load(self, *, many: bool = False) -> Callable[..., int | None]:
        """Import and return the function that runs the command."""
        module, _, function = (self.run_many if many else self.run).partition(":")
        loaded: Callable[..., int | None] = getattr(import_module(f"vedur.cli.{module}"), function)
        return loaded


GENERAL = (
    option("-h", "--help", help="show this help, or that of a command"),
    option("-V", "--version", help="show the version"),
    option("-q", "--quiet", help="log only warnings and errors"),
    option("-v", "--verbose", help="log every call; -vv: every step", repeat=True),
    option("-d", "--daemon", help="go to the background (worker)"),
    option("--ini", help="show a commented sample configuration", dest="show_ini"),
    option(
        "--set",
        help="override a configuration value (repeatable)",
        metavar="PARAM=VALUE",
        dest="overrides",
        repeat=True,
    ),
)
SIGNALS = (
    option("-r", "--reload", help="the running process reads its configuration again (SIGHUP)"),
    option("-s", "--stop", help="the running process finishes its batch and ends (SIGINT)"),
    option("-k", "--kill", help="the running process ends at once (SIGTERM)"),
)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}, use --help for help")


@dataclass(frozen=True)
class Call:
    """A parsed command line."""

    program: str
    inis: tuple[str, ...]
    command: Command | None
    args: tuple[str, ...]
    options: argparse.Namespace
    unknown: str | None = None

    @property
    def ini(self) -> str | None:
        """The only or first INI."""
        return self.inis[0] if self.inis else None

    @property
    def overrides(self) -> dict[str, str]:
        """Return the `--set` values. Raises `UsageError`."""
        values = {}
        for text in self.options.overrides:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise UsageError(f'--set expects PARAM=VALUE, got "{text}"')
            values[key.strip()] = value.strip()
        return values

    def fill(self, kind: type[Wanted], **more: object) -> Wanted:
        """Make what an operation takes, a dataclass, from the options that were given.

        A field has the value of the option of its name, or keeps its own default where the option
        was not given. `more` are fields that are no options, or are worked out of several.
        """
        names = {item.name for item in fields(kind)} - more.keys()
        given = {name: value for name, value in vars(self.options).items() if value is not None}
        return kind(**{name: given[name] for name in names & given.keys()}, **more)


@dataclass(frozen=True)
class Grammar:
    """All commands of a program, and how to read a command line of it."""

    program: str
    summary: str
    commands: Sequence[Command]
    examples: Sequence[tuple[str, str]] = ()
    by_name: dict[str, Command] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {command.name: command for command in self.commands})

    def parse(self, argv: Sequence[str]) -> Call:
        """Parse a command line. Raises `UsageError`."""
        inis, name, command = self._find(argv)
        options = self._parser(command).parse_intermixed_args(list(argv))
        return Call(
            self.program,
            tuple(inis),
            command,
            tuple(options.words[len(inis) + 1 :]),
            options,
            name if name and command is None else None,
        )

    def errors_from(self, argv: Sequence[str]) -> int:
        """Return `errors_from` of the command, also for a command line that cannot be parsed."""
        _, _, command = self._find(argv)
        return command.errors_from if command else 0

    def _find(self, argv: Sequence[str]) -> tuple[list[str], str | None, Command | None]:
        """Return the INIs, the word in the place of the command, and the command of that name."""
        words = self._scan(argv)
        if words and words[0] in self.by_name and _asks_help(argv):
            words = ["", *words]
        count = min(1, len(words))
        while count < len(words) and words[count] not in self.by_name and _is_file(words[count]):
            count += 1
        name = words[count] if len(words) > count else None
        return words[:count], name, self.by_name.get(name) if name else None

    def _scan(self, argv: Sequence[str]) -> list[str]:
        """Return the words of a command line that are neither options nor their values."""
        takes_value = self._takes_value()
        words: list[str] = []
        skip = False
        for at, text in enumerate(argv):
            if skip:
                skip = False
            elif text == "--":
                words += argv[at + 1 :]
                break
            elif text.startswith("--"):
                skip = "=" not in text and takes_value.get(_full(text, takes_value), False)
            elif not text.startswith("-") or text == "-":
                words.append(text)
        return words

    def _takes_value(self) -> dict[str, bool]:
        everything = [*GENERAL, *SIGNALS]
        everything += [item for command in self.commands for item in command.options]
        return {name: item.metavar is not None for item in everything for name in item.names}

    def _parser(self, command: Command | None) -> Parser:
        parser = Parser(prog=self.program, add_help=False)
        for item in (*GENERAL, *SIGNALS, *(command.options if command else ())):
            item.add_to(parser)
        parser.add_argument("words", nargs="*")
        return parser

    def help(self, command: Command | None) -> str:
        """Return the help text of the program or of one command."""
        return self._command_help(command) if command else self._program_help()

    def _program_help(self) -> str:
        lines = [
            f"usage: {self.program} [options] INI COMMAND [arguments]",
            f"       {self.program} [options] INI... worker|status",
            f"       {self.program} -r|-s|-k INI...",
            f"       {self.program} --ini | --version | COMMAND --help",
            *self._words_of_vedur(),
            "",
            self.summary,
        ]
        groups: dict[str, list[Command]] = {}
        for command in self.commands:
            groups.setdefault(command.group, []).append(command)
        for group, members in groups.items():
            lines += ["", f"{group}:"]
            lines += [f"  {member.name:<18}{member.summary}" for member in members]
        lines += ["", "Options:", *_option_lines(GENERAL), "", "Running process:"]
        lines += _option_lines(SIGNALS)
        lines += ["", "Examples:"] if self.examples else []
        for text, note in self.examples:
            lines += [f"  # {note}", f"  {text.format(program=self.program)}"]
        return "\n".join(lines) + "\n"

    def _words_of_vedur(self) -> list[str]:
        """Return the words that only the name `vedur` has; see `vedur.cli.main.vedur`."""
        if self.program != "vedur":
            return []
        return ["       vedur ticker INI | vedur demo | vedur completion bash|zsh"]

    def _command_help(self, command: Command) -> str:
        words = " ".join(filter(None, [command.name, command.arguments]))
        own = " [options]" if command.options else ""
        ini = "INI..." if command.run_many else "INI"
        lines = [f"usage: {self.program} {ini} {words}{own}", "", command.summary]
        for paragraph in filter(None, command.details.split("\n\n")):
            lines += ["", *textwrap.wrap(" ".join(paragraph.split()), 78)]
        if command.options:
            lines += ["", "Options:", *_option_lines(command.options)]
        if command.examples:
            lines += ["", "Examples:"]
            for text, note in command.examples:
                lines += [f"  # {note}", f"  {self.program} {text}"]
        return "\n".join(lines) + "\n"


def _is_file(word: str) -> bool:
    """Tell whether a word names a file or directory; no command has a dot or slash in its name."""
    return "." in word or "/" in word


def _asks_help(argv: Sequence[str]) -> bool:
    return "-h" in argv or "--help" in argv


def _full(text: str, known: dict[str, bool]) -> str:
    """Complete an abbreviated long option as argparse would."""
    if text in known:
        return text
    near = [name for name in known if name.startswith(text)]
    return near[0] if len(near) == 1 else text


def _option_lines(options: Sequence[Option]) -> list[str]:
    lines = []
    for item in options:
        shown = ", ".join(item.names) + (f" {item.metavar}" if item.metavar else "")
        text = textwrap.wrap(item.help, 54)
        if len(shown) > 22:
            lines.append(f"  {shown}")
            shown = ""
        lines += [f"  {shown if at == 0 else '':<24}{part}" for at, part in enumerate(text)]
    return lines
