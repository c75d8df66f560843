"""`vedur demo` as a person has it: on a terminal, interrupted, failing, kept and stopped."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedur.demo.lab import program
from vedur.demo.leftover import marked

pytestmark = [pytest.mark.slow, pytest.mark.spark]

_PATIENCE = 300.0


@pytest.fixture
def place() -> Iterator[Path]:
    """The directory for temporary files of a demo; its user's servers must be able to enter it."""
    made = Path(tempfile.mkdtemp(prefix="vedur-test-demo-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


class Terminal:
    """A demo on a terminal of its own; ^C there reaches all that runs in the foreground."""

    def __init__(self, place: Path, *args: str) -> None:
        self.master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [program("vedur"), "demo", "--fast", *args],
            env={**os.environ, "TMPDIR": str(place), "TERM": "xterm", "COLUMNS": "100"},
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)

    def read_until(self, text: str | None) -> None:
        """Read until a text is there, or until the end."""
        deadline = time.monotonic() + _PATIENCE
        while text is None or text not in self.text:
            assert time.monotonic() < deadline, self.text
            if not select.select([self.master], [], [], 1.0)[0]:
                continue
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # Linux: nobody has the other end any more
                assert text is None, f"{text!r} never came: {self.text}"
                return

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # it cleans up on SIGTERM, too
            self.process.wait(_PATIENCE)
        os.close(self.master)


def running(place: Path) -> list[int]:
    """Processes whose laboratory is in this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"VEDUR_LAB={place}/".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.draw("programs")
@pytest.mark.parametrize(
    ("args", "moment", "runs"),
    [
        pytest.param([], "1. start two", b"initdb", id="servers start"),
        pytest.param(
            ["--cascade"], "$ londiste3 -d dst1_digoal_01.ini worker", b"java", id="Spark starts"
        ),
    ],
)
def test_interrupt_leaves_nothing(place: Path, args: list[str], moment: str, runs: bytes) -> None:
    demo = Terminal(place, *args)
    try:
        demo.read_until(moment)
        deadline = time.monotonic() + _PATIENCE
        while not any(runs in _command(pid) for pid in running(place)):
            assert time.monotonic() < deadline, demo.text
            time.sleep(0.01)
        demo.type(b"\x03")
        demo.read_until("stopping everything")
        demo.type(b"\x03")  # who is impatient changes nothing
        demo.read_until(None)
        assert demo.process.wait(_PATIENCE) == 130
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", demo.text)
        assert "nothing is left" in text
        assert "Traceback" not in text
        assert "╭─ 1/8 start two PostgreSQL servers" in text  # it was a live view
        assert running(place) == []
        assert list(place.iterdir()) == []
    finally:
        demo.close()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.draw("programs")
def test_failure_says_where_and_leaves_the_logs(place: Path) -> None:
    java = place / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit 0; }\n'
        "echo 'this Java is a dummy' >&2; exit 3\n"
    )
    java.chmod(0o755)
    done = subprocess.run(
        [program("vedur"), "demo", "--fast"],
        env={**os.environ, "TMPDIR": str(place), "JAVA_HOME": str(place / "jdk")},
        capture_output=True, text=True, check=False, timeout=_PATIENCE,
    )  # fmt: skip
    assert done.returncode not in (0, 130), done.stdout
    assert done.stderr == ""
    assert "demo failed in stage 2 (create the root" in done.stdout
    (base,) = place.glob("vedur-demo-*")
    assert f"Logs: {base}/log" in done.stdout
    assert (base / "log" / "dst1_digoal_01.log").exists()
    assert not (base / "root" / "data").exists()
    assert running(place) == []
    assert _stop(base).returncode == 0
    assert not base.exists()


def test_stop_refuses_what_is_no_demo(place: Path) -> None:
    (place / "precious").touch()
    done = _stop(place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == f'"{place}" is not the directory of a demo that was kept'
    assert (place / "precious").exists()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("args", "second"),
    [
        pytest.param([], ("leaf", "src_digoal_01"), id="two leaves"),
        pytest.param(["--cascade"], ("branch", "dst1_digoal_01"), id="cascade"),
    ],
)
def test_kept_proved_and_stopped(place: Path, args: list[str], second: tuple[str, str]) -> None:
    done = subprocess.run(
        [program("vedur"), "demo", "--fast", "--keep", *args],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    (base,) = place.glob("vedur-demo-*")
    try:
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "\x1b" not in done.stdout and "╭" not in done.stdout  # no terminal: a plain log
        assert [int(n) for n in re.findall(r"^(\d+)\. ", done.stdout, re.M)] == list(range(1, 9))
        proved = [line for line in done.stdout.splitlines() if line.count("equal") == 2]
        assert len(proved) == 6 and "All 6 tables are equal" in done.stdout
        pages = set(re.findall(r"http://127\.0\.0\.1:\d+/", done.stdout))
        assert len(pages) == 1
        assert done.stdout.count(*pages) == 2  # at the start and at the end
        with urllib.request.urlopen(pages.pop() + "index.json", timeout=60) as answer:
            shown = json.load(answer)
        kind, above = second
        assert {n["name"]: (n["type"], n["provider"]) for n in shown["nodes"]} == {
            "src_digoal_01": ("root", ""),
            "dst1_digoal_01": (kind, "src_digoal_01"),
            "dst2_digoal_02": ("leaf", above),
        }
        _try_what_is_told(base)
    finally:
        assert len(marked(base)) > 3
        stopped = _stop(base)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert running(place) == []
    assert list(place.iterdir()) == []


def _try_what_is_told(base: Path) -> None:
    """The commands of the list, all of them, as a shell takes them."""
    lines = [line.strip() for line in (base / "TRY.txt").read_text().splitlines()]
    told = [line for line in lines if line.startswith(("cd ", "export ", "londiste3 ", "/"))]
    assert len(told) > 8
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(told)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _stop(base: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("vedur"), "demo", "--stop", str(base)],
        capture_output=True, text=True, check=False, timeout=_PATIENCE,
    )  # fmt: skip
