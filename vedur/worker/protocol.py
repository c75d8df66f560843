"""What the worker needs of the one who moves the data; `ops/run_worker.py` brings them together.

The Spark applier and the plain one in the tests both satisfy it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from vedur.catalog import TableInfo
from vedur.change.aside import Aside
from vedur.change.event import Event, EventRange
from vedur.change.table import Replica
from vedur.db import Database

log = logging.getLogger(__name__)


class Prepared(Protocol):
    """A range that lies on the target, waiting for the commit."""

    @property
    def events(self) -> int: ...
    @property
    def ignored(self) -> int: ...
    @property
    def scripts(self) -> list[int]: ...


class Outcome(Protocol):
    """What a commit did."""

    inserted: int
    updated: int
    deleted: int
    missing_tables: dict[str, int]


def warn_missing(outcome: Outcome) -> None:
    """Say which updates found no row; whoever applies changes calls this."""
    for table, count in outcome.missing_tables.items():
        log.warning("%s: %d update(s) found no row on this node", table, count)


class Applier(Protocol):
    """Moves changes. `stage` may run in another thread than `apply`, in the other slot."""

    def start(self, db: Database) -> None:
        """Clean up after an earlier run."""

    def forget(self) -> None:
        """The target's tables may have changed."""

    def stage(self, db: Database, source: EventRange, tables: Sequence[Replica], slot: int) -> Any:
        """Read, collapse, put aside. `db` is in autocommit mode."""

    def extend(
        self, db: Database, prepared: Any, source: EventRange, tables: Sequence[Replica]
    ) -> Any:
        """Stage a further range behind a prepared one."""

    def apply(
        self,
        db: Database,
        prepared: Any,
        tables: Sequence[Replica],
        handle: Callable[[Event], None],
        aside: Aside | None = None,
    ) -> Outcome:
        """Merge, in the transaction of the caller; `aside` takes what cannot be applied."""

    def done(self, db: Database, slot: int) -> None:
        """The slot is free."""


class CopyControl(Protocol):
    """First copies, as the worker sees them."""

    def advance(
        self, target: Database, provider: str, tables: Sequence[TableInfo], position: int
    ) -> bool:
        """Start copies, answer those that ask to meet; True if the worker must wait."""

    def stop(self) -> None:
        """The worker ends."""
