"""Bucardo 5: triggers that note keys, and a daemon in Perl that copies the rows of these keys."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.field import MAJOR, TABLES, CopyState, Field
from bench.peers.base import run
from vedur import db as vdb
from vedur.errors import StateError

ROLE = "bucardo"


@dataclass
class Bucardo:
    """bucardo and postgresql-plperl-15; its own database is on the root server."""

    ground: Field
    #: "bucardo" is the name of its own database
    name: str = "bucardo5"

    @staticmethod
    def missing() -> str:
        """Check for the program and its language."""
        lacking = [] if shutil.which("bucardo") else ["bucardo"]
        if not Path(f"/usr/share/postgresql/{MAJOR}/extension/plperlu.control").exists():
            lacking.append(f"postgresql-plperl-{MAJOR}")
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    def prepare(self) -> None:
        """Both sides have the same rows, so nothing is copied."""
        self.ground.database(self.name)
        self.set_up({"bench": TABLES})
        self._run(
            "add", "sync", "bench", "relgroup=bench", "dbs=root:source,leaf:target", "onetimecopy=0"
        )
        self._run("start")
        self.ground.work(self.name, 2_000)
        self.ground.seen(self.name, self.ground.mark(self.name), 120)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop its daemon; triggers go on. A sync made active again misses what came before."""
        self._run("stop")
        pidfile = self.ground.lab.base / "bucardo" / "bucardo.mcp.pid"
        self.ground.lab.wait(lambda: not pidfile.exists(), "bucardo to stop", 60)
        yield

    def up(self) -> None:
        """Start it again, within the measured time; it then looks for changes."""
        self._run("start")

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Create its own database, both ends, and a group of tables for each part."""
        for side in ("root", "leaf"):
            with vdb.connect(self.ground.lab.servers[side].connstr(), autocommit=True) as db:
                # the installer would make the role with a password and note it in ~/.pgpass
                db.execute(f"create role {ROLE} login superuser")
        (self.ground.lab.base / "bucardo").mkdir()
        self._run("install", "--batch", f"--dbname={ROLE}", user="postgres")
        for side in ("root", "leaf"):
            port = self.ground.lab.servers[side].port
            self._run(
                "add", "db", side, f"dbname={self.name}", "host=127.0.0.1", f"port={port}",
                f"user={ROLE}",
            )  # fmt: skip
        for part, tables in parts.items():
            self._run("add", "table", *tables, "db=root", f"relgroup={part}")

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """It copies once when a sync is new; not driven here."""
        raise StateError("takes no part in the first copy")

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Never asked."""
        return "copying"

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Never asked."""

    def _run(self, *args: str, user: str = ROLE) -> str:
        base = self.ground.lab.base
        place, port = base / "bucardo", self.ground.lab.servers["root"].port
        return run(
            ["bucardo", "--no-bucardorc", "--dbhost=127.0.0.1", f"--dbport={port}",
             f"--dbuser={user}", f"--piddir={place}", f"--log-destination={base / 'log'}",
             *([] if "install" in args else [f"--dbname={ROLE}"]), *args],
            cwd=str(place), HOME=str(place),
        )  # fmt: skip

    def close(self) -> None:
        """Stop its daemon."""
        try:
            self._run("stop")
        except StateError as error:
            print(f"bucardo stop: {error}")
