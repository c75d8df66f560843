"""No replication at all: `psql copy to stdout | psql copy from stdin`, the measure of a copy."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.field import CopyState, Field
from vedur.errors import StateError


@dataclass
class Pipe:
    """One table after the other, keys in place."""

    ground: Field
    name: str = "pipe"
    options: str = ""

    @staticmethod
    def missing() -> str:
        """psql is beside the server."""
        return ""

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Nothing."""

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Copy all tables and wait."""
        psql = self.ground.lab.servers["root"].binaries.path("psql")
        for table in tables:
            ends = []
            for side, way in (("root", "to stdout"), ("leaf", "from stdin")):
                text = f"copy {table} {way} {self.options}"
                ends.append([psql, "-X", "-q", "-c", text, self.ground.connstr(side, self.name)])
            out = subprocess.Popen(ends[0], stdout=subprocess.PIPE)
            into = subprocess.run(ends[1], stdin=out.stdout, check=False)
            if out.wait() or into.returncode:
                raise StateError(f"{self.name}: psql failed")

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """It waits for its own end."""
        return "ready"

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
