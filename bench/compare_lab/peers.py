"""Two sets over the same rows, ours and upstream's, each driven by its own commands.

Both have a database of their own on the same two servers, with workers and a ticker running. The
rows are there from the start, so no first copy is waited for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from vedur import db as vdb
from vedur.clock import SYSTEM
from vedur.demo.lab import QUEUE, Lab, program
from vedur.demo.server import available
from vedur.errors import StateError

MAJOR = 15
TABLE = "public.account"
SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "autovacuum": "off",
    "checkpoint_timeout": "30min",
}
SCHEMA = """
create table account (
    id bigint primary key, owner int not null, amount numeric(14, 4), note text, weight float8,
    opened timestamptz);
"""
ROWS = """
insert into account
select g, g %% 100003, (g * 1.37)::numeric(14, 4), case when g %% 7 = 0 then null else 'note ' || g
    end, sqrt(g), '2024-01-01 00:00+00'::timestamptz + g * interval '37 s'
from generate_series(1, %s) g
"""
#: A busy machine takes its time to start Java.
_PATIENCE = 600.0
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \d+ \w+ (\w+)", re.M)


@dataclass
class Ground:
    """Two servers, and one database that all others are copied from."""

    rows: int
    lab: Lab = field(default_factory=Lab)

    def start(self) -> Ground:
        """Start both servers and create the rows."""
        binaries = available("debian").get(MAJOR)
        if binaries is None:
            raise StateError("PostgreSQL 15 of Debian is missing: apt install postgresql-15")
        for side in ("root", "leaf"):
            self.lab.server(side, binaries, **SETTINGS)
            with self.admin(side) as db:
                db.execute("create database base")
            with self.open(side, "base") as db:
                db.execute(SCHEMA)
                db.execute(ROWS, [self.rows])
                db.execute("vacuum analyze account")
                db.execute("checkpoint")
        return self

    def admin(self, side: str) -> vdb.Database:
        """Open a connection that can create databases."""
        return vdb.connect(self.lab.servers[side].connstr(), autocommit=True)

    def connstr(self, side: str, name: str) -> str:
        """Return the connect string of a database."""
        return self.lab.servers[side].connstr(name)

    def open(self, side: str, name: str) -> vdb.Database:
        """Open a connection in autocommit mode."""
        return vdb.connect(self.connstr(side, name), autocommit=True)

    def database(self, name: str) -> None:
        """Create a database with the same rows on both sides."""
        for side in ("root", "leaf"):
            with self.admin(side) as db:
                db.execute(f"create database {name} template base")

    def close(self) -> None:
        """Stop the servers and remove their files."""
        self.lab.close()


@dataclass
class Ran:
    """One compare: seconds in all, until the table is looked at, while the writers' table is being
    brought to one moment, and while rows are hashed."""

    total: float
    start: float
    sync: float
    count: float
    code: int
    text: str

    @classmethod
    def run(cls, command: list[str]) -> Ran:
        """Run a command and read the times of its log lines."""
        began = SYSTEM.now()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ended = SYSTEM.now()
        text = done.stdout + done.stderr
        stamps = {word: _time(stamp) for stamp, word in _STAMP.findall(text)}
        try:
            steps = [stamps[w] for w in ("Locking", "Counting", "dstdb")]
        except KeyError:
            raise StateError(f"{' '.join(command)}: exit {done.returncode}: {text}") from None
        return cls(
            (ended - began).total_seconds(),
            steps[0] - began.timestamp(),
            steps[1] - steps[0],
            steps[2] - steps[1],
            done.returncode,
            text,
        )


def _time(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()


@dataclass
class Ours:
    """Vedur."""

    ground: Ground
    name: str = "ours"

    def prepare(self) -> None:
        """Create the nodes and wait until the table is in sync; ticker and workers keep running."""
        ground, lab = self.ground, self.ground.lab
        ground.database(self.name)
        root, leaf = (ground.connstr(side, self.name) for side in ("root", "leaf"))
        lab.worker_ini("root", root)
        lab.worker_ini("leaf", leaf)
        lab.ticker_ini("root", {"database_list": self.name})
        lab.londiste("root", "create-root", "root", root)
        lab.londiste("leaf", "create-leaf", "leaf", leaf, f"--provider={root}")
        lab.start_ticker()
        for side in ("root", "leaf"):
            lab.run("londiste3", "-d", str(lab.inis[side]), "worker", timeout=_PATIENCE)
        lab.londiste("root", "add-table", TABLE)
        lab.londiste("leaf", "add-table", "--expect-sync", TABLE)

    def compare(self, *args: str) -> Ran:
        """Run the command as an operator does."""
        ini = str(self.ground.lab.inis["leaf"])
        return Ran.run([program("londiste3"), ini, "compare", TABLE, *args])

    def close(self) -> None:
        """Nothing: the lab stops what it started."""


@dataclass
class Theirs:
    """Londiste 3 with its C ticker and extensions, as Debian has them."""

    ground: Ground
    name: str = "theirs"
    pids: list[Path] = field(default_factory=list)

    @staticmethod
    def at_hand() -> bool:
        """Return True if upstream's programs are installed."""
        return bool(shutil.which("londiste") and Path("/usr/bin/pgqd").exists())

    def prepare(self) -> None:
        """Do the same with upstream's programs."""
        ground = self.ground
        ground.database(self.name)
        base = ground.lab.base / "theirs"
        base.mkdir()
        for side in ("root", "leaf"):
            with ground.open(side, self.name) as db:
                for extension in ("pgq", "pgq_node", "londiste"):
                    db.execute(f"create extension {extension}")
            (base / f"{side}.ini").write_text(
                f"[londiste]\njob_name = {side}\ndb = {ground.connstr(side, self.name)}\n"
                f"queue_name = {QUEUE}\nlogfile = {base}/{side}.log\npidfile = {base}/{side}.pid\n"
            )
        port = ground.lab.servers["root"].port
        (base / "pgqd.ini").write_text(
            f"[pgqd]\nbase_connstr = host=127.0.0.1 port={port} user=postgres\n"
            f"initial_database = template1\ndatabase_list = {self.name}\n"
            f"logfile = {base}/pgqd.log\npidfile = {base}/pgqd.pid\n"
        )
        root, leaf = (ground.connstr(side, self.name) for side in ("root", "leaf"))
        self._run("root", "create-root", "root", root)
        self._run("leaf", "create-leaf", "leaf", leaf, f"--provider={root}")
        self._start(["/usr/bin/pgqd", "-d", str(base / "pgqd.ini")], base / "pgqd.pid")
        for side in ("root", "leaf"):
            ini = str(base / f"{side}.ini")
            self._start(["/usr/bin/londiste", "-d", ini, "worker"], base / f"{side}.pid")
        self._run("root", "add-table", TABLE)
        self._run("leaf", "add-table", "--expect-sync", TABLE)

    def _ini(self, side: str) -> str:
        return str(self.ground.lab.base / "theirs" / f"{side}.ini")

    def _run(self, side: str, *args: str) -> None:
        self._check(["/usr/bin/londiste", self._ini(side), *args])

    def _start(self, command: list[str], pidfile: Path) -> None:
        self._check(command)
        self.pids.append(pidfile)

    @staticmethod
    def _check(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StateError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def compare(self, *args: str) -> Ran:
        """Run upstream's compare, with patience for its own worker."""
        return Ran.run(["/usr/bin/londiste", self._ini("leaf"), "compare", "--force", TABLE, *args])

    def close(self) -> None:
        """Stop upstream's daemons."""
        for pidfile in self.pids:
            try:
                os.kill(int(pidfile.read_text()), 15)
            except (OSError, ValueError):
                continue
