"""Native logical replication: a publication and a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.field import TABLES, CopyState, Field


@dataclass
class Native:
    """It is in every server, so nothing is installed."""

    ground: Field
    name: str = "native"

    @staticmethod
    def missing() -> str:
        """Return nothing: it is part of PostgreSQL."""
        return ""

    def prepare(self) -> None:
        """Both sides have the same rows, so nothing is copied."""
        self.ground.database(self.name)
        self.set_up({"bench": TABLES})
        self._subscribe("bench", copy=False)
        self.ground.work(self.name, 20_000)
        self.ground.seen(self.name, self.ground.mark(self.name), 120)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Disable the subscription."""
        self._alter("disable")
        yield

    def up(self) -> None:
        """Enable the subscription."""
        self._alter("enable")

    def _alter(self, word: str) -> None:
        with self.ground.open("leaf", self.name) as db:
            db.execute(f"alter subscription bench {word}")

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Create a publication for each part."""
        with self.ground.open("root", self.name) as db:
            for part, tables in parts.items():
                db.execute(f"create publication {part} for table {', '.join(tables)}")

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Create a subscription, which copies."""
        self._subscribe(part, copy=True)

    def _subscribe(self, part: str, copy: bool) -> None:
        source = self.ground.connstr("root", self.name)
        with self.ground.open("leaf", self.name) as db:
            db.execute(
                f"create subscription {part} connection '{source}' publication {part}"
                f" with (copy_data = {copy})"
            )

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Read the states: `f` is copied, `s` in step, `r` taken over by the subscription's own
        worker."""
        text = (
            "select srsubstate::text from pg_subscription_rel r"
            f" join pg_subscription s on s.oid = r.srsubid where s.subname = '{part}'"
        )
        with self.ground.open("leaf", self.name) as db:
            states = {str(row[0]) for row in db.query(text)}
        if states == {"r"}:
            return "ready"
        return "loaded" if states <= {"f", "s", "r"} else "copying"

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Drop the subscription and its slot."""
        with self.ground.open("leaf", self.name) as db:
            db.execute(f"drop subscription {part}")

    def close(self) -> None:
        """It ends with the server."""
