"""Completion in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.wants import wanting
from vedur.cli.commands import COMMANDS
from vedur.cli.completion import main, script
from vedur.errors import UsageError

_ASK = """
source ./complete
COMP_WORDS=({words})
COMP_CWORD={at}
_vedur
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(directory: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    (directory / "complete").write_text(script("bash"))
    quoted = " ".join(f"'{word}'" for word in words)
    text = _ASK.format(words=quoted, at=len(words) - 1)
    done = subprocess.run(
        ["bash", "--norc", "-u", "-c", text],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("dst.ini", "src.ini", "notes.txt", "add.sql"):
        (tmp_path / name).touch()
    return tmp_path


def test_first_comes_the_ini(directory: Path) -> None:
    assert complete(directory, "vedur", "d") == ["demo", "dst.ini"]
    assert "notes.txt" not in complete(directory, "vedur", "")


def test_then_the_command(directory: Path) -> None:
    everything = complete(directory, "vedur", "dst.ini", "")
    assert everything == [command.name for command in COMMANDS]
    assert complete(directory, "londiste3", "-v", "dst.ini", "wait-r") == ["wait-root"]
    assert complete(directory, "vedur", "--set", "a=b", "dst.ini", "doc") == ["doctor"]


def test_then_its_options(directory: Path) -> None:
    found = complete(directory, "vedur", "dst.ini", "status", "--")
    assert {"--dead", "--compact", "--json", "--help"} <= set(found)
    assert "--provider" not in found
    assert complete(directory, "vedur", "dst.ini", "web", "--po") == ["--port"]


def test_files_where_files_are_meant(directory: Path) -> None:
    assert complete(directory, "vedur", "src.ini", "execute", "a") == ["add.sql"]
    assert complete(directory, "vedur", "src.ini", "tables", "a") == []


@pytest.mark.skipif(not shutil.which("zsh"), reason=wanting("zsh"))
def test_zsh_takes_it(directory: Path) -> None:
    (directory / "_vedur").write_text(script("zsh"))
    text = "autoload -Uz compinit && compinit -u -D; source ./_vedur; echo ${_comps[vedur]}"
    done = subprocess.run(
        ["zsh", "-f", "-c", text], cwd=directory, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "_vedur" in done.stdout


def test_other_shells_are_refused() -> None:
    with pytest.raises(UsageError, match="bash or zsh"):
        main(["fish"])


def test_help_has_an_example_for_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "vedur completion bash >" in shown and "vedur completion zsh >" in shown
