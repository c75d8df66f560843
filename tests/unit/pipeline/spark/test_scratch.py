"""Files of Spark go with their session, also where a process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vedur.pipeline.spark.scratch import Scratch

LEAVE = """
import os
from vedur.pipeline.spark.scratch import Scratch
scratch = Scratch()
(scratch.path / "blockmgr").mkdir()
print(scratch.path, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_it_is_private_and_goes_with_the_session(place: Path) -> None:
    scratch = Scratch()
    assert scratch.path.parent == place
    assert scratch.path.stat().st_mode & 0o077 == 0
    scratch.remove()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVE], capture_output=True, text=True, env=dict(os.environ)
    )
    left = Path(done.stdout.strip())
    assert left.is_dir()
    scratch = Scratch()
    assert not left.exists()
    assert list(place.iterdir()) == [scratch.path]
    scratch.remove()


def test_what_belongs_to_a_living_session_stays(place: Path) -> None:
    one, two = Scratch(), Scratch()
    assert one.path.exists() and two.path.exists()
    foreign = place / "vedur-spark-without-lock"
    foreign.mkdir()
    Scratch().remove()
    assert one.path.exists() and two.path.exists() and foreign.exists()
    one.remove()
    two.remove()


def test_an_operator_who_says_where_files_go_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch()
    monkeypatch.setattr(
        "vedur.pipeline.spark.scratch._LONGEST", 10
    )  # no room for the name of a socket
    assert not any("socket" in key for key in scratch.settings({}))
    monkeypatch.setattr("vedur.pipeline.spark.scratch._LONGEST", 1000)
    assert scratch.settings({}) == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch.path),
        "spark.local.dir": str(scratch.path),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch.path}",
    }
    given = {
        "spark.local.dir": "/big",
        "spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/x",
        "spark.python.unix.domain.socket.enabled": "false",
    }
    assert scratch.settings(given) == {}
    both = scratch.settings({"spark.driver.extraJavaOptions": "-Xss4m"})
    assert both["spark.driver.extraJavaOptions"].startswith("-Xss4m -Djava.io.tmpdir=")
    scratch.remove()
