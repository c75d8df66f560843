"""What the worker needs of those who move the data; `ops/processes/worker.py` brings them together.

The Spark applier and the plain one of the tests both satisfy `Applier`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from vedur.change.event import Event, EventRange
from vedur.change.quarantine import Quarantine
from vedur.db import Database
from vedur.tables.mapping import TableMap

log = logging.getLogger(__name__)


class RawRange(Protocol):
    """Events of a range as they are, in the raw staging table of a slot."""

    @property
    def slices(self) -> tuple[int, ...]:
        """The numbers under which they were written."""

    @property
    def events(self) -> int:
        """How many there are."""


class StagedRange(Protocol):
    """A range of events that lies on the target, waiting to be merged."""

    @property
    def events(self) -> int:
        """How many events it was made of."""

    @property
    def ignored(self) -> int:
        """How many of them are about tables that this node does not have."""

    @property
    def scripts(self) -> list[int]:
        """The numbers of its EXECUTE events."""

    @property
    def raw(self) -> RawRange | None:
        """Its events as they are, where they are passed on."""


#: What an applier stages is its own: the worker hands it from `stage` to `apply`.
S = TypeVar("S", bound=StagedRange)


class Outcome(Protocol):
    """What a merge did."""

    inserted: int
    updated: int
    deleted: int
    missing_tables: dict[str, int]


def warn_missing(outcome: Outcome) -> None:
    """Log which updates found no row; whoever applies changes calls this."""
    for table, count in outcome.missing_tables.items():
        log.warning("%s: %d update(s) found no row on this node", table, count)


class Applier(Protocol[S]):
    """Moves changes. `stage` may run in another thread than `apply`, in the other slot."""

    def start(self, db: Database) -> None:
        """Drop the staging tables that an earlier run left."""

    def forget(self) -> None:
        """Read the target's tables anew before the next range: they may have changed."""

    def stage(self, db: Database, source: EventRange, tables: Sequence[TableMap], slot: int) -> S:
        """Read a range, collapse it and write it to staging tables; `db` is in autocommit mode."""

    def extend(self, db: Database, staged: S, source: EventRange, tables: Sequence[TableMap]) -> S:
        """Stage a further range behind a staged one; both become one."""

    def apply(
        self,
        db: Database,
        staged: S,
        tables: Sequence[TableMap],
        handle: Callable[[Event], None],
        quarantine: Quarantine | None = None,
    ) -> Outcome:
        """Merge, in the transaction of the caller; `quarantine` takes what cannot be applied."""

    def done(self, db: Database, slot: int) -> None:
        """Free the slot: what it held is merged."""
