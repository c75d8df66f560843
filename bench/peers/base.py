"""What the benchmark asks of a way to replicate tables."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from bench.field import CopyState, Field
from vedur.clock import SYSTEM
from vedur.errors import StateError


class Peer(Protocol):
    """A way to replicate the tables of the field. Every peer runs with its own defaults."""

    name: str

    @staticmethod
    def missing() -> str:
        """Return why the peer cannot take part; empty if it can."""

    def prepare(self) -> None:
        """Set replication up and start it, without a copy: both sides have the same rows."""

    def down(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is replicated."""

    def up(self) -> None:
        """Resume replication."""

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Do what comes before a first copy: the provider knows the tables of each part."""

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Begin the first copy of a part."""

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Return whether the rows are there, and whether changes follow."""

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Take the part out of replication again; rows may stay."""

    def close(self) -> None:
        """Stop the peer's programs."""


def time_backlog(
    ground: Field, peer: Peer, work: Callable[[], object], *, settle: float, patience: float
) -> float:
    """Do some work while replication rests, and measure the seconds from resuming it until the last
    change is visible; `settle` is what tickers need to have seen it."""
    with peer.down():
        work()
        mark = ground.mark(peer.name)
        SYSTEM.sleep(settle)
        ground.checkpoint()
    began = SYSTEM.monotonic()
    peer.up()
    ground.seen(peer.name, mark, patience)
    return SYSTEM.monotonic() - began


def run(
    command: Sequence[str], text: str | None = None, cwd: str | None = None, **variables: str
) -> str:
    """Run a peer's command and wait for its end; returns what it printed."""
    done = subprocess.run(
        list(command), input=text, capture_output=True, text=True, check=False, timeout=600,
        cwd=cwd, env={**os.environ, **variables},
    )  # fmt: skip
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-800:]
        raise StateError(f"{' '.join(command)}: exit {done.returncode}: {said}")
    return done.stdout
