"""docs/tutorial.md does what it says: its files are written, its commands run, outputs compared.

`make test` goes as far as the first leaf and its comparison, `make test-long` to the end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS, Servers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: What differs from run to run, by what the page writes for it.
CHANGING = [
    (re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3} \d+ ", re.M), "TIME PID "),
    (re.compile(r"checksum=-?\d+"), "checksum=SUM"),
    (re.compile(r"Starting pgqd \S+"), "Starting pgqd VERSION"),
    (re.compile(r"Lag: \S+(?: \(\S+ behind \S+\))?, Tick: \d+"), "Lag: LAG, Tick: TICK"),
    (re.compile(r"(srcdb|dstdb): (?!20000 |999 |0 )\d+ rows"), r"\1: N rows"),
    (re.compile(r"^TIME PID INFO .*: \d+ of \d+ parts.*\n", re.M), ""),  # of slow machines
    # of a pg_dump that is older than the minor release of the server
    (re.compile(r'^ERROR:  unrecognized parameter "pg_attver"\n', re.M), ""),
    (re.compile(r"[ \t]+$", re.M), ""),
]
#: Five seconds of load are for readers; here as many transactions as show whether they arrive.
LOAD = ("-T 5 ", "-t 250 ")


def _commands(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.draw("programs")
@pytest.mark.parametrize(
    ("end", "commands"),
    [("## Stop everything under load", 20), pytest.param("", 40, marks=pytest.mark.long)],
    ids=["first leaf", "all"],
)
def test_tutorial(servers: Servers, tmp_path: Path, end: str, commands: int) -> None:
    provider = servers.private(min(VERSIONS))
    subscriber = servers.private(max(VERSIONS))
    ports = {"5501": str(provider.port), "5502": str(subscriber.port)}

    def here(text: str) -> str:
        return re.sub("5501|5502", lambda found: ports[found[0]], text).replace(*LOAD)

    path = os.pathsep.join(
        [str(Path(sys.executable).parent), str(subscriber.binaries.bindir), os.environ["PATH"]]
    )
    ran = 0
    try:
        for kind, file, text in BLOCK.findall(_part(end)):
            if file:
                (tmp_path / file).write_text(here(text))
            elif kind == "console":
                for command, want in _commands(text):
                    _run(here(command), want, tmp_path, path)
                    ran += 1
    finally:
        for ini in tmp_path.glob("*.ini"):
            tool = "pgqd" if ini.name == "pgqd.ini" else "londiste3"
            subprocess.run([Path(sys.executable).with_name(tool), "-k", ini.name], cwd=tmp_path,
                           check=False, capture_output=True)  # fmt: skip
    assert ran > commands


def _part(end: str) -> str:
    """The page up to a heading; all of it without one."""
    text = PAGE.read_text()
    return text[: text.index(f"\n{end}\n")] if end else text


def _run(
    command: str,
    want: str,
    cwd: Path,
    path: str,
    more: Sequence[tuple[re.Pattern[str], str]] = (),
) -> None:
    """Run a command and compare what it prints; `more` is what else differs from run to run."""
    # Python buffers what goes to a pipe, unless told otherwise; the order of lines must be the same
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**env, "PATH": path, "PGOPTIONS": "-c client_min_messages=warning"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    got = done.stdout
    for pattern, written in (*CHANGING, *more):
        got = pattern.sub(written, got)
        want = pattern.sub(written, want)  # a page may show what was seen once
    # a listing ends in empty lines, which the page leaves out
    assert got.rstrip("\n") == want.rstrip("\n"), command
