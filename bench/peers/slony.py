"""Slony-I: triggers, and a daemon for each node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.field import MAJOR, TABLES, CopyState, Field
from bench.peers.base import run

NODES = {"root": 1, "leaf": 2}


@dataclass
class Slony:
    """slony1-2-bin and postgresql-15-slony1-2; slonik configures, slon replicates."""

    ground: Field
    name: str = "slony"
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    sets: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def missing() -> str:
        """Check for its programs and its server part."""
        lacking = [p for p in ("slon", "slonik") if shutil.which(p) is None]
        if not list(Path(f"/usr/lib/postgresql/{MAJOR}/lib").glob("slony1_funcs*.so")):
            lacking.append(f"postgresql-{MAJOR}-slony1-2")
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    def prepare(self) -> None:
        """Both sides have the same rows, so nothing is copied."""
        self.ground.database(self.name)
        self.set_up({"bench": TABLES})
        self._subscribe("bench", "omit copy = true")
        self.ground.lab.wait(lambda: self.state("bench", TABLES) == "ready", "slony", 120)
        self.ground.work(self.name, 2_000)
        self.ground.seen(self.name, self.ground.mark(self.name), 120)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop the leaf's daemon: Slony has no pause."""
        self._stop("leaf")
        yield

    def up(self) -> None:
        """Start the daemon again, within the measured time."""
        self._start("leaf")

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Create nodes, paths and a set for each part, and start the daemons."""
        lines = [
            "init cluster (id = 1, comment = 'root');",
            "store node (id = 2, comment = 'leaf', event node = 1);",
            f"store path (server = 1, client = 2, conninfo = '{self._dsn('root')}');",
            f"store path (server = 2, client = 1, conninfo = '{self._dsn('leaf')}');",
        ]
        number = 0
        for at, (part, tables) in enumerate(parts.items(), 1):
            self.sets[part] = at
            lines.append(f"create set (id = {at}, origin = 1, comment = '{part}');")
            for table in tables:
                number += 1
                lines.append(
                    f"set add table (set id = {at}, origin = 1, id = {number},"
                    f" fully qualified name = 'public.{table}');"
                )
        self._slonik(*lines)
        for side in NODES:
            self._start(side)

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Run `subscribe set`, which copies."""
        self._subscribe(part, "omit copy = false")

    def _subscribe(self, part: str, how: str) -> None:
        self._slonik(
            f"subscribe set (id = {self.sets[part]}, provider = 1, receiver = 2, forward = no,"
            f" {how});"
        )

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Read the leaf's own row of the subscription."""
        text = (
            "select coalesce(bool_or(sub_active), false) from _bench.sl_subscribe"
            f" where sub_set = {self.sets[part]} and sub_receiver = 2"
        )
        with self.ground.open("leaf", self.name) as db:
            return "ready" if db.value(text) else "copying"

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Run `unsubscribe set` and wait until both sides know."""
        self._slonik(f"unsubscribe set (id = {self.sets[part]}, receiver = 2);")
        text = f"select count(*) from _bench.sl_subscribe where sub_set = {self.sets[part]}"

        def gone() -> bool:
            for side in NODES:
                with self.ground.open(side, self.name) as db:
                    if db.value(text):
                        return False
            return True

        self.ground.lab.wait(gone, "slony to unsubscribe", 120)

    def _dsn(self, side: str) -> str:
        return self.ground.connstr(side, self.name)

    def _slonik(self, *lines: str) -> None:
        head = ["cluster name = bench;"]
        head += [f"node {at} admin conninfo = '{self._dsn(side)}';" for side, at in NODES.items()]
        run(["slonik"], "\n".join([*head, *lines, ""]))

    def _start(self, side: str) -> None:
        log = (self.ground.lab.base / "log" / f"slon_{side}.log").open("ab")
        with log:
            self.daemons[side] = subprocess.Popen(
                ["slon", "bench", self._dsn(side)], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def _stop(self, side: str) -> None:
        daemon = self.daemons.pop(side)
        daemon.terminate()
        daemon.wait(60)

    def close(self) -> None:
        """Stop its daemons."""
        for side in list(self.daemons):
            self._stop(side)
