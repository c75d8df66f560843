"""pglogical: logical decoding as an extension, before servers had it by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.field import MAJOR, TABLES, CopyState, Field
from bench.peers.base import run
from vedur.demo.server import available

#: A setting of some builds of the server; unknown names would keep others from starting.
TRUST = "output_plugin_libraries"


@dataclass
class Pglogical:
    """postgresql-15-pglogical; the library must be loaded at the start of the server."""

    ground: Field
    name: str = "pglogical"

    @property
    def needs(self) -> dict[str, str]:
        """Return its settings: the library, and on some servers the list of trusted decoders."""
        found = {"shared_preload_libraries": "pglogical"}
        postgres = available("debian")[MAJOR].path("postgres")
        if TRUST in run([postgres, "--describe-config"]):
            found[TRUST] = "pgoutput, test_decoding, pglogical_output"
        return found

    @staticmethod
    def missing() -> str:
        """Check for the extension."""
        control = Path(f"/usr/share/postgresql/{MAJOR}/extension/pglogical.control")
        return "" if control.exists() else f"not installed: postgresql-{MAJOR}-pglogical"

    def prepare(self) -> None:
        """Both sides have the same rows, so nothing is copied."""
        self.ground.database(self.name)
        self.set_up({"bench": TABLES})
        self._subscribe("bench", copy=False)
        self.ground.lab.wait(lambda: self.state("bench", TABLES) == "ready", "pglogical", 120)
        self.ground.work(self.name, 20_000)
        self.ground.seen(self.name, self.ground.mark(self.name), 120)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Disable the subscription."""
        self._leaf("select pglogical.alter_subscription_disable('bench', true)")
        yield

    def up(self) -> None:
        """Enable the subscription."""
        self._leaf("select pglogical.alter_subscription_enable('bench', true)")

    def _leaf(self, text: str) -> None:
        with self.ground.open("leaf", self.name) as db:
            db.execute(text)

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Create nodes, and a replication set for each part."""
        for side in ("root", "leaf"):
            with self.ground.open(side, self.name) as db:
                db.execute("create extension pglogical")
                dsn = self.ground.connstr(side, self.name)
                db.execute(f"select pglogical.create_node('{side}', '{dsn}')")
        with self.ground.open("root", self.name) as db:
            for part, tables in parts.items():
                db.execute(f"select pglogical.create_replication_set('{part}')")
                for table in tables:
                    db.execute(
                        f"select pglogical.replication_set_add_table('{part}', 'public.{table}')"
                    )

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Create a subscription, which copies."""
        self._subscribe(part, copy=True)

    def _subscribe(self, part: str, copy: bool) -> None:
        source = self.ground.connstr("root", self.name)
        self._leaf(
            f"select pglogical.create_subscription('{part}', '{source}', array['{part}'],"
            f" synchronize_structure := false, synchronize_data := {copy})"
        )

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Read its own status; it has none for rows that are there before it follows."""
        text = f"select status from pglogical.show_subscription_status('{part}')"
        with self.ground.open("leaf", self.name) as db:
            return "ready" if db.value(text) == "replicating" else "copying"

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Drop the subscription and its slot."""
        self._leaf(f"select pglogical.drop_subscription('{part}')")

    def close(self) -> None:
        """It ends with the server."""
