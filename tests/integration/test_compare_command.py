"""The commands `compare` and `repair` as an operator runs them, in a process of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.test_compare import ready
from tests.labs.compare import Lab, make_lab  # noqa: F401
from tests.labs.pair import QUEUE
from vedur.pipeline.compare import SessionServer, socket_path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MakeLab = Callable[..., Lab]


def command(ini: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    code = "from vedur.cli.main import londiste3; londiste3()"
    return subprocess.run(
        [sys.executable, "-c", code, str(ini), *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **more},
    )


@pytest.mark.draw("programs")
def test_compare_and_repair(make_lab: MakeLab, tmp_path: Path) -> None:  # noqa: F811
    lab = ready(make_lab, 300)
    ini = tmp_path / "leaf.ini"
    ini.write_text(
        f"[londiste3]\njob_name = leaf\ndb = {lab.leaf.connstr}\nqueue_name = {QUEUE}\n"
        f"logfile = {tmp_path}/leaf.log\npidfile = {tmp_path}/leaf.pid\n"
        "[spark]\nspark.master = local[2]\n"
    )
    lab.plant("delete from users where id = 9; update users set note = 'x' where id = 10")
    done = command(ini, "compare", "--limit", "1")
    assert done.returncode == 1, done.stderr
    stamp = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ ")
    said = [
        stamp.sub("", line)
        for line in (done.stdout + done.stderr).splitlines()
        # a slow machine is told about
        if not re.search(r" parts(, about [^,]* left)?$|, waiting$", line)
    ]
    assert said[:3] == [
        "INFO Locking public.users",
        "INFO Syncing public.users",
        "INFO Counting public.users",
    ]
    assert re.fullmatch(r"INFO srcdb: 300 rows, checksum=-?\d+", said[3])
    assert re.fullmatch(r"INFO dstdb: 299 rows, checksum=-?\d+", said[4])
    assert said[5:] == [
        "WARNING public.users: Results do not match!",
        "INFO public.users: different id=10 columns: note",
        "INFO public.users: 1 missing, 0 extra, 1 different row(s), 1 not shown",
        "WARNING Compared 1 table: 0 equal, 1 different (public.users)",
    ]
    done = command(ini, "repair", "--apply", "--json")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    assert (table["inserts"], table["updates"], table["deletes"]) == (1, 1, 0)
    # A worker that runs beside it lends its session: the command needs no Java of its own.
    server = SessionServer(lab.spark, socket_path(f"{tmp_path}/leaf.pid"), lambda: 4)
    done = command(ini, "compare", "--json", JAVA_HOME="/nowhere", PATH="/nowhere")
    server.stop()
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    assert table["match"] and table["status"] == "equal"
    assert table["source"] == table["target"]
    assert table["source"]["cnt"] == 300
