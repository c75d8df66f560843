"""Events that are put aside instead of applied: policies, keys of rows, and whom to blame. Pure.

One rule keeps rows right: while an event is in quarantine, later events of its row (or, where the
row cannot be told, of its table) join it. So replaying what is there, in order, ends in the row
that the provider has.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from vedur.change.event import Event, EventType
from vedur.change.table import Snapshot, TableSpec
from vedur.errors import DatabaseError, StateError, VedurError

#: Classes of SQLSTATE that say nothing about the event: connections, deadlocks, full disks,
#: locks, administrators, internal errors. Trying again is right, putting the event aside is not.
_NOT_THE_EVENT = frozenset(("08", "25", "26", "28", "2D", "40", "53", "55", "57", "58", "F0", "XX"))
#: insufficient_privilege: every event of the table would fail until somebody grants.
_PRIVILEGE = "42501"


class Policy(StrEnum):
    """What becomes of an event that the target refuses."""

    STOP = "stop"
    ROW = "quarantine-row"
    TABLE = "quarantine-table"


@dataclass(frozen=True, slots=True)
class RowKey:
    """The key of an event's row: its columns, and columns with values as JSON."""

    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Blame:
    """The event that an error is about; stands in `error.values["blame"]`."""

    event: Event
    table: str | None = None
    dest: str | None = None
    key: str | None = None


class Aside(Protocol):
    """Decides about events in the order in which they are applied."""

    @property
    def whole(self) -> Collection[str]:
        """Tables that are held as a whole from the start: their events are moved in one go."""

    def watches(self, table: str) -> bool:
        """Must every event of this table be asked about?"""

    def keeps(self, event: Event, table: str, key: RowKey | None) -> bool:
        """True if the event is put aside because of what came before, or because of a skip."""

    def refused(self, blame: Blame, key: RowKey | None, error: VedurError) -> bool:
        """The server refused the event: True if it is put aside, False if that stops the batch."""

    def emptied(self, table: str, event: Event) -> None:
        """A truncate was applied: what was aside for the table before is of no consequence."""

    def skips(self, event: Event) -> bool:
        """True if an event that is not about rows is put aside."""

    def move(self, log: str, slices: str, after: int, before: int) -> None:
        """Put aside what is staged for tables that are held as a whole."""

    def flush(self) -> None:
        """Write what was put aside so far; called outside of savepoints that may be undone."""


def row_key(spec: TableSpec, said: EventType, row: Mapping[str, Any] | None) -> RowKey | None:
    """The key of an event's row by its names here; None where text does not tell rows apart."""
    if not said.keys or said.format not in ("json", "urlenc") or row is None:
        return None
    names = spec.local_keys(said.keys)
    if not spec.canonical(names):
        return None
    values = {}
    for name, local in zip(said.keys, names, strict=True):
        value = row.get(name)
        if value is None:
            return None
        values[local] = str(value)
    ordered = tuple(sorted(values))
    return RowKey(ordered, json.dumps({n: values[n] for n in ordered}, ensure_ascii=False))


def blames_event(error: VedurError) -> bool:
    """Is this about the event and the table, so that trying again will not help?"""
    if isinstance(error, DatabaseError):
        state = error.sqlstate
        return state is not None and state[:2] not in _NOT_THE_EVENT and state != _PRIVILEGE
    return isinstance(error, StateError)


def blame(error: VedurError, blamed: Blame) -> None:
    """Make the error name its event and table."""
    error.values["blame"] = blamed
    if error.message.startswith("[ev_id="):
        return
    place = f'table "{blamed.table}": ' if blamed.table else ""
    error.message = blamed.event.named(place + error.message)
    error.args = (error.message,)


def blamed_by(error: BaseException) -> Blame | None:
    """The event that an error names, if any."""
    found = error.values.get("blame") if isinstance(error, VedurError) else None
    return found if isinstance(found, Blame) else None


@dataclass(frozen=True)
class SkipRequest:
    """An operator's decision to leave out an event, or all events of a tick."""

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
        """Is this one of the events to leave out?"""
        if self.after is not None and self.until is not None:
            return self.until.contains(event.ev_txid) and not self.after.contains(event.ev_txid)
        return event.ev_id == self.request.ev_id and event.ev_txid == self.request.ev_txid
