"""The grammar: INI before the command, options anywhere, one clear line for bad input."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from vedur.cli import wait as waiting
from vedur.cli.commands import COMMANDS
from vedur.cli.grammar import Call, Grammar
from vedur.cli.main import EXAMPLES, main
from vedur.errors import UsageError

GRAMMAR = Grammar("londiste3", "words", COMMANDS)


def parse(*argv: str) -> Call:
    return GRAMMAR.parse(argv)


def name(call: Call) -> str | None:
    return call.command.name if call.command else None


@pytest.mark.parametrize(
    "argv",
    [
        ("x.ini", "create-leaf", "n", "host=h", "--provider=host=p"),
        ("--provider", "host=p", "x.ini", "create-leaf", "n", "host=h"),
        ("x.ini", "--provider", "host=p", "create-leaf", "n", "host=h"),
        ("x.ini", "create-leaf", "n", "--prov=host=p", "host=h"),
        ("-v", "x.ini", "create-leaf", "--provider=host=p", "n", "host=h"),
    ],
)
def test_options_stand_anywhere(argv: tuple[str, ...]) -> None:
    call = parse(*argv)
    assert (call.ini, name(call), call.args) == ("x.ini", "create-leaf", ("n", "host=h"))
    assert call.options.provider == "host=p"


def test_the_walk_throughs_command_lines() -> None:
    call = parse("-d", "/a/src.ini", "worker")
    assert (call.ini, name(call), call.options.daemon) == ("/a/src.ini", "worker", True)
    call = parse("-r", "/a/src.ini")
    assert (call.ini, call.command, call.options.reload) == ("/a/src.ini", None, True)
    call = parse("d.ini", "add-table", "--dest-table=s.t1", "--copy-condition=userid<1000", "s.t")
    assert call.options.dest_table == "s.t1"
    assert call.options.copy_condition == "userid<1000"
    assert call.args == ("s.t",)


def test_verbosity_counts_and_set_repeats() -> None:
    call = parse("-vv", "x.ini", "tables", "--set", "a=b=c", "--set=d=")
    assert call.options.verbose == 2
    assert call.overrides == {"a": "b=c", "d": ""}
    with pytest.raises(UsageError, match='--set expects PARAM=VALUE, got "x"'):
        _ = parse("x.ini", "tables", "--set", "x").overrides


def test_a_word_after_double_dash_is_no_option() -> None:
    assert parse("x.ini", "execute", "--", "-odd.sql").args == ("-odd.sql",)


def test_an_option_of_another_command_is_refused() -> None:
    with pytest.raises(UsageError, match="unrecognized arguments: --provider=x"):
        parse("x.ini", "tables", "--provider=x")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_has_help_with_an_example(command: object) -> None:
    from vedur.cli.grammar import Command

    assert isinstance(command, Command)
    text = GRAMMAR.help(command)
    ini = "INI..." if command.run_many else "INI"
    assert text.startswith(f"usage: londiste3 {ini} {command.name}")
    assert command.summary in text
    assert command.examples, "a command without an example"
    for item in command.options:
        assert all(option in text for option in item.names)
    assert max(map(len, text.splitlines())) <= 100


def test_the_examples_of_the_program_are_command_lines() -> None:
    """From nothing to a replicating pair, and none of it is refused by the grammar."""
    seen = []
    for text, note in EXAMPLES:
        assert note
        for part in text.format(program="vedur").split(";"):
            program, *words = shlex.split(part.partition(" > ")[0])
            if program == "vedur":
                call = parse(*words)
                seen.append(call.command.name if call.command else "--ini")
    assert seen == [
        "--ini", "create-root", "create-leaf", "worker", "worker", "add-table", "add-table",
        "status", "worker",
    ]  # fmt: skip
    shown = Grammar("londiste3", "x", COMMANDS, EXAMPLES).help(None)
    assert "  londiste3 src.ini create-root src" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_one_verb_all_the_way_down(command: object) -> None:
    from vedur.cli.grammar import Command

    assert isinstance(command, Command)
    run = command.load()
    assert run.__name__ == command.name.replace("-", "_")
    assert f"{run.__module__}:{run.__name__}" == f"vedur.cli.{command.run}"


@pytest.mark.parametrize(
    "argv, line, code",
    [
        ([], "need config file, use --help for help.", 1),
        (["{ini}"], "need command", 1),
        (["{ini}", "frobnicate"], "Unknown command 'frobnicate', use --help for help", 1),
        (["{ini}", "drop-node"], "drop-node needs NODE, use --help for help", 1),
        (
            ["{ini}", "tables", "x"],
            'tables: unexpected argument "x", use --help for help',
            1,
        ),
        (["{ini}", "-d", "status"], "status does not run in the background: leave out -d", 1),
        (["-s", "{ini}"], "No pidfile in config, nothing to do", 0),
        (["{ini}", "tables", "--nonsense"], "unrecognized arguments: --nonsense, use", 1),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str],
    line: str,
    code: int,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ini = tmp_path_factory.mktemp("ini") / "x.ini"
    ini.write_text("[londiste3]\ndb = dbname=x\nqueue_name = q\n")
    assert main("londiste3", [word.format(ini=ini) for word in argv]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_version_and_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("londiste3", ["-V"]) == 0
    assert capsys.readouterr().out.startswith("londiste3, Vedur version ")
    assert main("londiste3", ["/nowhere/x.ini", "tables"]) == 2
    _, err = capsys.readouterr()
    assert "/nowhere/x.ini" in err
    assert err.count("\n") == 1


def test_help_of_a_command_with_and_without_ini(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("londiste3", ["add-table", "--help"]) == 0
    alone = capsys.readouterr().out
    assert main("londiste3", ["x.ini", "add-table", "-h"]) == 0
    assert capsys.readouterr().out == alone
    assert "--copy-condition" in alone


@pytest.mark.parametrize("verbose", [False, True])
def test_a_defect_is_one_line_too(
    verbose: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ini = tmp_path / "x.ini"
    ini.write_text("[londiste3]\ndb = dbname=x\nqueue_name = q\n")

    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(waiting, "wait_sync", broken)
    flags = ["-v"] if verbose else []
    assert main("londiste3", [*flags, str(ini), "wait-sync"]) == 12
    err = capsys.readouterr().err
    assert "ERROR BUG: KeyError: 'oops'" in err
    assert ("Traceback" in err) == verbose
    assert verbose or err.count("\n") == 1


# -- several ini files --------------------------------------------------------------------------


def test_files_before_the_command_are_ini_files() -> None:
    call = parse("-d", "a.ini", "conf/b", "../c.ini", "worker")
    assert (call.inis, name(call), call.args) == (("a.ini", "conf/b", "../c.ini"), "worker", ())
    assert parse("a.ini", "b.ini", "--compact", "status", "--dead", "x.y").inis == (
        "a.ini",
        "b.ini",
    )
    call = parse("-s", "a.ini", "b.ini")
    assert (call.inis, call.command, call.unknown) == (("a.ini", "b.ini"), None, None)
    call = parse("a.ini", "b.ini", "wroker", "status")
    assert (call.inis, call.unknown) == (("a.ini", "b.ini"), "wroker")


def test_what_follows_the_command_is_an_argument() -> None:
    call = parse("a.ini", "add-table", "b.ini", "worker")
    assert (call.inis, name(call), call.args) == (("a.ini",), "add-table", ("b.ini", "worker"))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.run_many], ids=lambda c: c.name)
def test_commands_for_several_can_be_loaded(command: object) -> None:
    from vedur.cli.grammar import Command

    assert isinstance(command, Command)
    assert callable(command.load(many=True))


def test_several_ini_files_where_one_is_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inis = []
    for word in ("a", "b"):
        (tmp_path / f"{word}.ini").write_text("[londiste3]\ndb = dbname=x\nqueue_name = q\n")
        inis.append(str(tmp_path / f"{word}.ini"))
    assert main("londiste3", [*inis, "tables"]) == 1
    assert main("londiste3", [*inis, "worker", "--rewind"]) == 1
    assert main("londiste3", [*inis, "worker"]) == 2
    assert main("londiste3", ["-s", *inis]) == 0
    first, second, third, *rest = capsys.readouterr().err.splitlines()
    assert first == "tables works with one INI, and not with 2"
    assert second.endswith("--rewind, --reset and --set-tick work with one INI")
    assert third.endswith("have the same node: each queue in a process needs its own")
    assert rest == [f"{ini}: No pidfile in config, nothing to do" for ini in inis]


def test_a_directory_of_ini_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("londiste3", ["-s", str(tmp_path)]) == 2
    (tmp_path / "pgqd.ini").write_text("[pgqd]\nbase_connstr = host=x\n")
    (tmp_path / ".hidden.ini").write_text("nonsense")
    (tmp_path / "notes.txt").write_text("nonsense")
    assert main("londiste3", ["-s", str(tmp_path)]) == 2
    (tmp_path / "a.ini").write_text("[londiste3]\ndb = dbname=x\nqueue_name = q\n")
    assert main("londiste3", ["-s", str(tmp_path)]) == 0
    (tmp_path / "b.ini").write_text("nonsense")
    assert main("londiste3", ["-s", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == lines[1] == f'directory "{tmp_path}" has no ini file of a node (*.ini)'
    assert lines[2] == "No pidfile in config, nothing to do"
    assert lines[3].startswith(f'bad config file "{tmp_path}/b.ini"')
