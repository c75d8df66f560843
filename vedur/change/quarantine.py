"""Quarantine: events that are kept instead of applied, so that others can go on. Pure.

One rule keeps rows right: while an event is in quarantine, later events of its row (or, where the
row is unknown, of its table) join it. So replaying what is there, in order, ends in the row that
the provider has. Here are the policies, the keys of rows, and which event an error is about.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from vedur.change.event import Event
from vedur.change.snapshot import Snapshot
from vedur.errors import DatabaseError, StateError, VedurError

E = TypeVar("E", bound=VedurError)

#: Classes of SQLSTATE that say nothing about the event: connections, deadlocks, full disks,
#: locks, administrators, internal errors. Trying again is right, quarantine is not.
_NOT_THE_EVENT = frozenset(("08", "25", "26", "28", "2D", "40", "53", "55", "57", "58", "F0", "XX"))
#: insufficient_privilege: every event of the table would fail until somebody grants.
_PRIVILEGE = "42501"


class Policy(StrEnum):
    """What to do with an event that the target refuses."""

    STOP = "stop"
    ROW = "quarantine-row"
    TABLE = "quarantine-table"


@dataclass(frozen=True, slots=True)
class RowKey:
    """The key of an event's row: its columns, and columns with values as JSON."""

    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The event that an error is about; errors carry it as the value `failed_event`."""

    event: Event
    table: str | None = None
    dest: str | None = None
    key: str | None = None


class Quarantine(Protocol):
    """Decides about events in the order in which they are applied, and keeps what it takes.

    Called in the transaction that applies the events, so that an event is either applied or kept.
    """

    @property
    def whole_tables(self) -> Collection[str]:
        """Tables that are in quarantine as a whole from the start: `take_staged` is for them."""

    def watches(self, table: str) -> bool:
        """Must `takes` be asked about every event of this table?"""

    def takes(self, event: Event, table: str, key: RowKey | None) -> bool:
        """Take an event because its row or table is in quarantine, or because of a skip; False if
        it must be applied."""

    def takes_refused(self, failed: FailedEvent, key: RowKey | None, error: VedurError) -> bool:
        """Take an event that the server has refused; False if it must stop the batch."""

    def takes_system_event(self, event: Event) -> bool:
        """Take an event that is not about rows because of a skip; False if it must be handled."""

    def release_truncated(self, table: str, event: Event) -> None:
        """Release the events of a table that a truncate was just applied to: they are obsolete."""

    def take_staged(self, log: str, slices: str, after: int, before: int) -> None:
        """Take the staged events of all `whole_tables`, between two events."""

    def flush(self) -> None:
        """Write what was taken so far; called outside of savepoints that may be undone."""


def is_about_event(error: VedurError) -> bool:
    """Is this about the event and the table, so that trying again will not help?"""
    if isinstance(error, DatabaseError):
        state = error.sqlstate
        return state is not None and state[:2] not in _NOT_THE_EVENT and state != _PRIVILEGE
    return isinstance(error, StateError)


def name_failed_event(error: E, failed: FailedEvent) -> E:
    """Return the same error with a message that names its event and table."""
    message = error.message
    if not message.startswith("[ev_id="):
        place = f'table "{failed.table}": ' if failed.table else ""
        message = failed.event.named(place + message)
    return error.with_values(message, failed_event=failed)


def failed_event_of(error: BaseException) -> FailedEvent | None:
    """Return the event that an error is about, if it is known."""
    failed = error.values.get("failed_event") if isinstance(error, VedurError) else None
    return failed if isinstance(failed, FailedEvent) else None


@dataclass(frozen=True)
class SkipRequest:
    """An operator's decision to skip an event, or all events of a tick."""

    id: int
    reason: str
    asked_by: str
    ev_id: int | None = None
    ev_txid: int | None = None
    table_name: str | None = None
    tick_id: int | None = None


@dataclass(frozen=True)
class Skip:
    """A request that concerns a batch; for a tick also the snapshots that enclose it."""

    request: SkipRequest
    after: Snapshot | None = None
    until: Snapshot | None = None

    def covers(self, event: Event) -> bool:
        """Is this one of the events to skip?"""
        if self.after is not None and self.until is not None:
            return self.until.contains(event.ev_txid) and not self.after.contains(event.ev_txid)
        return event.ev_id == self.request.ev_id and event.ev_txid == self.request.ev_txid
