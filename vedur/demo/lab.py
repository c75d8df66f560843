"""A laboratory: servers, ini files and the installed commands, as an operator has them.

The demo, the acceptance tests and the benchmark drive Vedur through it, so that what they show is
what a user gets. Nothing in here reaches into the package: commands run as subprocesses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from vedur import db as vdb
from vedur.clock import SYSTEM, Clock
from vedur.demo import leftover
from vedur.demo.server import Binaries, Server
from vedur.errors import StateError, UsageError

QUEUE = "replika"
#: The ini files of tickers are called so, or begin so.
_TICKER = "pgqd"
#: Names the servers, so that another process can stop them.
_STATE = "vedur-lab.json"
#: Seconds that a daemon gets to finish its batch.
_PATIENCE = 60.0


def program(name: str) -> str:
    """Return the full path of one of our commands, beside the running interpreter."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise StateError(f'command "{name}" is not installed beside {sys.executable}')
    return str(path)


def sql_text(name: str) -> str:
    """Read one of the SQL files of the walk-through."""
    return (files("vedur.demo") / "sql" / name).read_text("utf-8")


@dataclass
class Lab:
    """Servers and files below one directory; `close()` leaves nothing behind.

    `tidy` keeps copies of binaries there, too, which others share between runs.
    """

    base: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="vedur-lab-")))
    clock: Clock = SYSTEM
    servers: dict[str, Server] = field(default_factory=dict)
    inis: dict[str, Path] = field(default_factory=dict)
    tidy: bool = False

    def __post_init__(self) -> None:
        for name in ("log", "pid", "ini", "scratch", "pg"):
            (self.base / name).mkdir(parents=True, exist_ok=True)
        self._save()

    @classmethod
    def reopen(cls, base: Path) -> Lab:
        """Open a laboratory that another process made and left running."""
        try:
            found = json.loads((base / _STATE).read_text())
        except (OSError, ValueError):
            raise UsageError(f'"{base}" is not the directory of a demo that was kept') from None
        servers = {
            name: Server(Binaries(item["major"], Path(item["bindir"])), base / name, item["port"])
            for name, item in found.items()
            if (base / name / "data").exists()
        }
        inis = {path.stem: path for path in sorted((base / "ini").glob("*.ini"))}
        return cls(base, servers=servers, inis=inis)

    def _save(self) -> None:
        found = {
            name: {"major": server.version, "bindir": server.binaries.path(""), "port": server.port}
            for name, server in self.servers.items()
        }
        (self.base / _STATE).write_text(json.dumps(found, indent=1) + "\n")

    # -- servers and databases -----------------------------------------------------------------

    def server(self, name: str, binaries: Binaries, **settings: str) -> Server:
        """Start a server. It is recorded before it runs, so that cleaning up finds it."""
        server = Server(
            binaries,
            self.base / name,
            settings=settings,
            copies=self.base / "pg" if self.tidy else None,
            environ=leftover.marks(self.base),
        )
        self.servers[name] = server
        self._save()
        return server.init().start()

    def database(self, server: str, dbname: str, schema: str) -> str:
        """Create a database with a role and a schema of the same name, as in the walk-through."""
        host = self.servers[server]
        with vdb.connect(host.connstr(), autocommit=True) as admin:
            if not admin.value("select 1 from pg_roles where rolname = %s", [schema]):
                admin.execute(f'create role "{schema}" login')
            admin.execute(f'create database "{dbname}"')
        with vdb.connect(host.connstr(dbname), autocommit=True) as db:
            db.execute(f'create schema "{schema}" authorization "{schema}"')
        return host.connstr(dbname)

    def psql(self, server: str, dbname: str, text: str, user: str = "postgres", **vars: str) -> str:
        """Run text through psql; returns the output as psql prints it, tuples only."""
        host = self.servers[server]
        command = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        for key, value in vars.items():
            command += ["-v", f"{key}={value}"]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [host.binaries.path("psql"), *command, host.connstr(dbname, user)],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            **self._manners(),
        )
        if done.returncode != 0:
            raise StateError(f"psql failed: {done.stderr.strip()}")
        return done.stdout.strip()

    # -- ini files and commands ----------------------------------------------------------------

    def worker_ini(
        self,
        name: str,
        connstr: str,
        extra: Mapping[str, str] | None = None,
        spark: str = "",
        queue: str = QUEUE,
    ) -> Path:
        """Write an ini file as the walk-through has it."""
        lines = [
            "[londiste3]",
            f"job_name = {name}",
            f"db = {connstr}",
            f"queue_name = {queue}",
            f"logfile = {self.base}/log/{name}.log",
            f"pidfile = {self.base}/pid/{name}.pid",
            *(f"{key} = {value}" for key, value in (extra or {}).items()),
        ]
        return self._write_ini(name, "\n".join(lines) + "\n" + spark)

    def ticker_ini(
        self, server: str, extra: Mapping[str, str] | None = None, name: str = _TICKER
    ) -> Path:
        """Write the ini file of the ticker of a server."""
        host = self.servers[server]
        keys = {
            "base_connstr": f"host=127.0.0.1 port={host.port} user={host.superuser}",
            "initial_database": "template1",
            "logfile": f"{self.base}/log/{name}.log",
            "pidfile": f"{self.base}/pid/{name}.pid",
            **(extra or {}),
        }
        lines = ["[pgqd]", *(f"{key} = {value}" for key, value in keys.items())]
        return self._write_ini(name, "\n".join(lines) + "\n")

    def _write_ini(self, name: str, text: str) -> Path:
        path = self.base / "ini" / f"{name}.ini"
        path.write_text(text)
        path.chmod(0o600)
        self.inis[name] = path
        return path

    def run(
        self, command: str, *args: str, check: bool = True, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of our commands and wait for its end."""
        words = " ".join([command, *args])
        try:
            done = subprocess.run(
                [program(command), *args],
                capture_output=True,
                text=True,
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                check=False,
                **self._manners(),
            )
        except subprocess.TimeoutExpired:
            raise StateError(f"{words}: no end after {timeout:.0f} s") from None
        if check and done.returncode != 0:
            raise StateError(f"{words}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    def _manners(self) -> dict[str, Any]:
        """Return how processes are started: ^C at the terminal must not reach them."""
        return {"env": os.environ | leftover.marks(self.base), "start_new_session": True}

    def londiste(
        self, ini: str, *args: str, check: bool = True, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `londiste3 <ini> args` and wait; the ini is given by its name here."""
        return self.run("londiste3", str(self.inis[ini]), *args, check=check, timeout=timeout)

    def start_worker(self, ini: str) -> None:
        """Run `londiste3 -d <ini> worker` and wait; on a busy machine Java takes its time."""
        self.run("londiste3", "-d", str(self.inis[ini]), "worker", timeout=300.0)

    def start_ticker(self, ini: str = _TICKER) -> None:
        """Run `pgqd -d pgqd.ini` and wait until it serves databases."""
        self.run("pgqd", "-d", str(self.inis[ini]))

    def stop_daemon(self, ini: str) -> None:
        """Stop a daemon with `-s` and wait for its end."""
        pid = self._pid(ini)
        if pid is not None:
            self._tell(ini, "-s")
            self.wait(lambda: not leftover.alive(pid), f"{ini} to stop", _PATIENCE)

    def _pid(self, ini: str) -> int | None:
        try:
            return int((self.base / "pid" / f"{ini}.pid").read_text())
        except (OSError, ValueError):
            return None

    def _tell(self, ini: str, signal: str) -> None:
        self.run(
            "pgqd" if ini.startswith(_TICKER) else "londiste3",
            signal,
            str(self.inis[ini]),
            check=False,
        )

    def log_text(self, ini: str) -> str:
        """Read what a daemon has logged so far."""
        path = self.base / "log" / f"{ini}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- waiting and load ----------------------------------------------------------------------

    def wait(self, done: Callable[[], object], what: str, timeout: float) -> None:
        """Wait until `done()` is true."""
        deadline = self.clock.monotonic() + timeout
        while not done():
            if self.clock.monotonic() > deadline:
                raise StateError(f"waited {timeout:.0f} s in vain for {what}")
            self.clock.sleep(0.1)

    def pgbench(
        self, server: str, dbname: str, script: str, *args: str, user: str, users: int
    ) -> subprocess.Popen[str]:
        """Start pgbench with one of the scripts, two clients as in the walk-through."""
        host = self.servers[server]
        path = self.base / script
        path.write_text(sql_text(script))
        return subprocess.Popen(
            [
                host.binaries.path("pgbench"), "-M", "prepared", "-f", str(path), "-j", "1",
                "-c", "2", "-n", "-D", f"users={users}", "-h", "127.0.0.1", "-p", str(host.port),
                "-U", user, *args, dbname,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **self._manners(),
        )  # fmt: skip

    def close(self, keep: bool = False, hurry: bool = False) -> None:
        """Stop daemons and servers and remove the files; `hurry` lets no batch finish."""
        running = {ini: pid for ini in self.inis if (pid := self._pid(ini)) is not None}
        for ini in running:
            self._tell(ini, "-k" if hurry else "-s")
        try:
            self.wait(lambda: not any(map(leftover.alive, running.values())), "the end", _PATIENCE)
        except StateError:
            for ini in running:
                self._tell(ini, "-k")
        for server in self.servers.values():
            server.stop("immediate")
        leftover.end(self.base, clock=self.clock)
        if not keep:
            shutil.rmtree(self.base, ignore_errors=True)

    def strip(self) -> None:
        """Remove everything except logs and ini files, which show what went wrong."""
        bulk = [self.base / "scratch", self.base / "pg", *(s.data for s in self.servers.values())]
        for path in bulk:
            shutil.rmtree(path, ignore_errors=True)
