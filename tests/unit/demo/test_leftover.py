"""Processes of a laboratory are found by their mark, and ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.wants import wanting
from vedur.demo.leftover import alive, end, marked, marks

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason=wanting("/proc"))

#: A daemon that has renamed itself and does not listen to SIGTERM.
STUBBORN = """
import os, signal, sys, time
import setproctitle
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
os.setsid()
setproctitle.setproctitle("vedur: worker " + "x" * 500)
print(os.getpid(), flush=True)
sys.stdout.close(); os.close(1)
time.sleep(600)
"""


def start(base: Path, code: str) -> int:
    """The process id that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | marks(base), stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


def test_a_daemon_is_found_by_its_mark_and_ended(tmp_path: Path) -> None:
    pid = start(tmp_path, STUBBORN)
    assert marked(tmp_path) == [pid]
    assert marked(tmp_path / "x") == [] and marked(tmp_path.parent) == []
    assert alive(pid)
    end(tmp_path, patience=0.5)
    assert marked(tmp_path) == []
    assert not alive(pid)


def test_each_is_told_although_time_is_over(tmp_path: Path) -> None:
    """On a busy machine one look at all processes may take longer than the patience."""
    pid = start(tmp_path, STUBBORN)
    end(tmp_path, patience=0.0)
    assert marked(tmp_path) == [] and not alive(pid)


def test_only_the_own_are_ended(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a", tmp_path / "ab"
    mine, other = start(ours, STUBBORN), start(theirs, STUBBORN)
    try:
        end(ours, patience=0.5)
        assert (alive(mine), alive(other)) == (False, True)
    finally:
        end(theirs, patience=0.5)


def test_a_zombie_does_not_live() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(process.pid)
    process.wait()
    assert not alive(process.pid)
    assert alive(os.getpid())
