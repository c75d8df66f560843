"""Debian's Londiste 3 with its C ticker and its C triggers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.field import QUEUE, TABLES, CopyState, Field, copy_state
from bench.peers.base import run


@dataclass
class Londiste:
    """python3-londiste, pgqd, postgresql-15-pgq3, -pgq-node, -londiste-sql."""

    ground: Field
    name: str = "londiste"

    @staticmethod
    def missing() -> str:
        """Check for its two programs."""
        lacking = [p for p in ("/usr/bin/londiste", "/usr/bin/pgqd") if shutil.which(p) is None]
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    def prepare(self) -> None:
        """Create nodes and tables, and start ticker and workers."""
        ground = self.ground
        ground.database(self.name)
        self.set_up({"bench": TABLES})
        self._run("leaf", "add-table", "--expect-sync", *TABLES)
        ground.work(self.name, 2_000)
        ground.seen(self.name, ground.mark(self.name), 120)

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Create nodes with tables on the provider, and start ticker and workers."""
        ground, base = self.ground, self.ground.lab.base
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
        run(["/usr/bin/pgqd", "-d", str(base / "up_pgqd.ini")])
        for side in ("root", "leaf"):
            self._run(side, "-d", "worker")
        for tables in parts.values():
            self._run("root", "add-table", *tables)

    def start(self) -> None:
        """Start the leaf's worker."""
        self._run("leaf", "-d", "worker")

    def stop(self) -> None:
        """Stop the leaf's worker and wait for its end."""
        pidfile = self.ground.lab.base / "pid" / "up_leaf.pid"
        self._run("leaf", "-s")
        self.ground.lab.wait(lambda: not pidfile.exists(), "upstream's worker to stop", 60.0)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Pause the node."""
        self._pause(True)
        yield

    def up(self) -> None:
        """Resume the node."""
        self._pause(False)

    def _pause(self, on: bool) -> None:
        with self.ground.open("leaf", self.name) as db:
            db.execute(f"select pgq_node.set_consumer_paused('{QUEUE}', 'up_leaf', {on})")

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Run add-table on the leaf."""
        self._run("leaf", "add-table", *tables)

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Read the states from its own table."""
        return copy_state(self.ground, self.name, tables)

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Run remove-table on the leaf."""
        self._run("leaf", "remove-table", *tables)

    def _run(self, side: str, *args: str) -> None:
        run(["/usr/bin/londiste", str(self.ground.lab.base / f"up_{side}.ini"), *args])

    def close(self) -> None:
        """Stop its daemons."""
        base = self.ground.lab.base
        for side in ("leaf", "root"):
            subprocess.run(["/usr/bin/londiste", str(base / f"up_{side}.ini"), "-s"], check=False)
        subprocess.run(["/usr/bin/pgqd", "-s", str(base / "up_pgqd.ini")], check=False)
