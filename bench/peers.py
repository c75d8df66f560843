"""The others: native logical replication, and Debian's Londiste where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from bench.field import TABLES, Field, Vedur
from vedur.demo.lab import QUEUE
from vedur.errors import StateError


class Peer(Protocol):
    """A way to replicate the tables of the field."""

    name: str

    def prepare(self) -> None:
        """In sync and running."""

    def down(self) -> AbstractContextManager[None]:
        """A context in which nothing is replicated."""

    def up(self) -> None:
        """Go on."""


@dataclass
class Native:
    """A publication and a subscription."""

    ground: Field
    name: str = "native"

    def prepare(self) -> None:
        """Both sides have the same rows, so nothing is copied."""
        self.ground.database(self.name)
        with self.ground.open("root", self.name) as db:
            db.execute(f"create publication bench for table {', '.join(TABLES)}")
        source = self.ground.connstr("root", self.name)
        with self.ground.open("leaf", self.name) as db:
            db.execute(
                f"create subscription bench connection '{source}' publication bench"
                " with (copy_data = false)"
            )
        self.ground.work(self.name, 20_000)
        self.ground.seen(self.name, self.ground.mark(self.name), 120)

    @contextmanager
    def down(self) -> Iterator[None]:
        """A disabled subscription."""
        self._alter("disable")
        yield

    def up(self) -> None:
        """Enabled again."""
        self._alter("enable")

    def _alter(self, word: str) -> None:
        with self.ground.open("leaf", self.name) as db:
            db.execute(f"alter subscription bench {word}")


@dataclass
class Londiste:
    """Debian's python3-londiste with the C ticker and its C triggers."""

    ground: Field
    name: str = "londiste"

    @staticmethod
    def missing() -> str:
        """Why it cannot take part; empty if it can."""
        lacking = [p for p in ("/usr/bin/londiste", "/usr/bin/pgqd") if shutil.which(p) is None]
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    def prepare(self) -> None:
        """Nodes, tables, ticker, workers."""
        ground, base = self.ground, self.ground.lab.base
        ground.database(self.name)
        for side in ("root", "leaf"):
            with ground.open(side, self.name) as db:
                for extension in ("pgq", "pgq_node", "londiste"):
                    db.execute(f"create extension {extension}")
            (base / f"up_{side}.ini").write_text(
                f"[londiste]\njob_name = up_{side}\ndb = {ground.connstr(side, self.name)}\n"
                f"queue_name = {QUEUE}\nlogfile = {base}/log/up_{side}.log\n"
                f"pidfile = {base}/pid/up_{side}.pid\n"
            )
        port = ground.lab.servers["root"].port
        (base / "up_pgqd.ini").write_text(
            f"[pgqd]\nbase_connstr = host=127.0.0.1 port={port} user=postgres\n"
            f"database_list = {self.name}\nlogfile = {base}/log/up_pgqd.log\n"
            f"pidfile = {base}/pid/up_pgqd.pid\n"
        )
        self._run("root", "create-root", "up_root", ground.connstr("root", self.name))
        self._run(
            "leaf", "create-leaf", "up_leaf", ground.connstr("leaf", self.name),
            f"--provider={ground.connstr('root', self.name)}",
        )  # fmt: skip
        subprocess.run(["/usr/bin/pgqd", "-d", str(base / "up_pgqd.ini")], check=True)
        for side in ("root", "leaf"):
            self._run(side, "-d", "worker")
        self._run("root", "add-table", *TABLES)
        self._run("leaf", "add-table", "--expect-sync", *TABLES)
        ground.work(self.name, 2_000)
        ground.seen(self.name, ground.mark(self.name), 120)

    @contextmanager
    def down(self) -> Iterator[None]:
        """A paused node."""
        self._pause(True)
        yield

    def up(self) -> None:
        """Resumed."""
        self._pause(False)

    def _pause(self, on: bool) -> None:
        with self.ground.open("leaf", self.name) as db:
            db.execute(f"select pgq_node.set_consumer_paused('{QUEUE}', 'up_leaf', {on})")

    def _run(self, side: str, *args: str) -> None:
        ini = self.ground.lab.base / f"up_{side}.ini"
        command = ["/usr/bin/londiste", str(ini), *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StateError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")

    def close(self) -> None:
        """Its daemons end."""
        base = self.ground.lab.base
        for side in ("leaf", "root"):
            subprocess.run(["/usr/bin/londiste", str(base / f"up_{side}.ini"), "-s"], check=False)
        subprocess.run(["/usr/bin/pgqd", "-s", str(base / "up_pgqd.ini")], check=False)


def chosen(ground: Field, names: str) -> tuple[list[Peer], dict[str, str]]:
    """The peers of a run, and why others do not take part."""
    peers: list[Peer] = []
    absent: dict[str, str] = {}
    for name in names.split(","):
        if name == "londiste" and Londiste.missing():
            absent[name] = Londiste.missing()
        elif name == "londiste":
            peers.append(Londiste(ground))
        elif name == "native":
            peers.append(Native(ground))
        elif name == "vedur":
            peers.append(Vedur(ground))
        else:
            absent[name] = "not known"
    return peers, absent
