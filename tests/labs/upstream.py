"""Upstream's programs as Debian installs them: Londiste, the C ticker, a consumer in Python."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures.wants import wanting
from vedur.db import Database

LONDISTE = shutil.which("londiste") or ""
C_PGQD = "/usr/bin/pgqd"
SYSTEM_PYTHON = "/usr/bin/python3"

#: A consumer as upstream's manual has it: collects events, puts one off when it first sees it.
_CONSUMER = """
import json, sys
import pgq

class Collector(pgq.Consumer):
    def process_event(self, db, event):
        if event.ev_data == "later" and not event.ev_retry:
            event.tag_retry(0)
            print(json.dumps(["put off", event.ev_type, event.ev_data]), flush=True)
            return
        print(json.dumps(["got", event.ev_type, event.ev_data, event.ev_extra1]), flush=True)
        event.tag_done()

Collector("collector", "db", sys.argv[1:]).start()
"""


def require_c_ticker() -> None:
    """Skip the test where upstream's ticker is not installed."""
    if not shutil.which(C_PGQD):
        pytest.skip(wanting("upstream's pgqd"))


def require_londiste() -> None:
    """Skip the test where upstream's Londiste is not installed."""
    if not LONDISTE:
        pytest.skip(wanting("upstream's londiste"))


@contextmanager
def ticking(
    command: list[str], directory: Path, port: int, dbs: Sequence[Database]
) -> Iterator[None]:
    """Run a ticker in the foreground, and end it by SIGINT."""
    names = [db.value("select current_database()") for db in dbs]
    ini = directory / "pgqd.ini"
    ini.write_text(
        f"[pgqd]\nbase_connstr = host=127.0.0.1 port={port} user=postgres\n"
        f"database_list = {', '.join(names)}\nsyslog = 0\n"
        f"logfile = {directory}/pgqd.log\npidfile = {directory}/pgqd.pid\n"
        "ticker_period = 0.1\nretry_period = 0.2\nmaint_period = 0.2\ncheck_period = 1\n"
    )
    process = subprocess.Popen([*command, "-q", str(ini)])
    try:
        yield
        assert process.poll() is None, (directory / "pgqd.log").read_text()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)
    assert "ERROR" not in (directory / "pgqd.log").read_text()


class Collector:
    """A consumer of python3-pgq that reads what there is and ends."""

    def __init__(self, directory: Path, queue: str) -> None:
        if not _has_python_pgq():
            pytest.skip(wanting("python3-pgq"))
        self.directory, self.queue = directory, queue
        self.script = directory / "collector.py"
        self.script.write_text(_CONSUMER)

    def __call__(self, db: Database, *options: str) -> list[list[str]]:
        """Run it on a database; returns its reports."""
        ini = self.directory / "collector.ini"
        # loop_delay = 0: end when there is nothing to do.
        ini.write_text(
            f"[collector]\njob_name = collector\ndb = {db.connstr}\nqueue_name = {self.queue}\n"
            f"loop_delay = 0\nlogfile = {self.directory}/collector.log\npidfile =\n"
        )
        done = subprocess.run(
            [SYSTEM_PYTHON, str(self.script), "-q", *options, str(ini)],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def _has_python_pgq() -> bool:
    if not Path(SYSTEM_PYTHON).exists():
        return False
    done = subprocess.run([SYSTEM_PYTHON, "-c", "import pgq, psycopg2"], capture_output=True)
    return done.returncode == 0
