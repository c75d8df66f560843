"""A Spark session whose task process begins beside Java: all of it ends, however the start does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.wait import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

RUN = """
import json, os, signal, sys
from pathlib import Path
from vedur.pipeline.spark.early import PLACE
from vedur.pipeline.spark.session import start_session, stop_session
from vedur.pipeline.spark.tasks import run_tasks

def parent(_item):
    import os
    from pathlib import Path
    above = os.getppid()
    words = Path(f"/proc/{above}/cmdline").read_bytes().decode().split("\\0")
    stat = Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()
    threads = len(list(Path(f"/proc/{above}/task").iterdir()))
    return {"pid": above, "words": words, "above": int(stat[1]), "threads": threads,
            "hashes": os.environ.get("PYTHONHASHSEED"), "reuse": "SPARK_REUSE_WORKER" in os.environ}

settings = json.loads(sys.argv[1])
said = {"driver": os.getpid()}
spark = start_session("early", settings)
said["place"] = PLACE in os.environ
said["first"] = run_tasks(spark, parent, ["x"])[0]
os.killpg(said["first"]["pid"], signal.SIGKILL)
said["again"] = run_tasks(spark, parent, ["x", "y", "z"])[0]
stop_session(spark)
said["left"] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
print(json.dumps(said))
"""
FAIL = """
import json, os, sys
from pathlib import Path
from vedur.errors import StateError
from vedur.pipeline.spark.session import start_session
try:
    start_session("early", json.loads(sys.argv[1]))
except StateError:
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for temporary files, which no other process has in its command line."""
    made = Path(tempfile.mkdtemp(prefix="early"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def begin(code: str, place: Path, **settings: str) -> subprocess.Popen[str]:
    """Start a driver whose temporary files are in a place."""
    env = {**os.environ, "TMPDIR": str(place), "PYSPARK_PYTHON": sys.executable}
    words = [sys.executable, "-c", code, json.dumps(settings)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=env)


def of_place(place: Path) -> list[str]:
    """The command lines of the processes that have to do with a place."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(place) in line:
                found.append(line.replace("\0", " "))
    return found


def test_tasks_are_forked_from_it(place: Path) -> None:
    driver = begin(RUN, place)
    out, err = driver.communicate(timeout=250)
    assert driver.returncode == 0, err
    said = json.loads(out)
    first, again = said["first"], said["again"]
    assert "--early" in first["words"] and first["above"] == said["driver"]
    assert not said["place"]
    # Where it is gone, Spark starts another one, as ever.
    assert "--early" not in again["words"] and again["above"] != said["driver"]
    for process in (first, again):
        assert "vedur.pipeline.spark.task_process" in process["words"]
        assert (process["threads"], process["hashes"], process["reuse"]) == (1, "0", True)
    assert said["left"] == []
    assert until(lambda: not of_place(place), 30)


def test_it_ends_with_a_start_that_fails(place: Path) -> None:
    driver = begin(FAIL, place, **{"spark.driver.extraJavaOptions": "-agentlib:nosuch"})
    out, err = driver.communicate(timeout=250)
    assert out == "[]\n", err


def test_nothing_is_left_of_a_driver_that_is_killed_meanwhile(place: Path) -> None:
    driver = begin(RUN, place)
    assert until(lambda: any("--early" in line for line in of_place(place)), 60)
    assert until(lambda: any("java" in line.split()[0] for line in of_place(place)), 60)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert until(lambda: not of_place(place), 60), of_place(place)
