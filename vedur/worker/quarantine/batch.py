"""The quarantine of one batch: decides in the order of events, and writes what it takes.

It lives in the batch's transaction, so an event is either applied or in `vedur.quarantine`,
whatever happens to the worker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from json import loads
from typing import Any

from vedur.catalog.quarantine import end_skip, end_table
from vedur.change.event import Event, parse_type
from vedur.change.quarantine import FailedEvent, Policy, RowKey, Skip, is_about_event
from vedur.db import Database
from vedur.errors import VedurError
from vedur.sql import query

log = logging.getLogger(__name__)

#: Rows gathered before they are written.
_WRITE_ROWS = 500


@dataclass
class QuarantinedRows:
    """What is in quarantine: tables as a whole, and rows by key."""

    tables: set[str] = field(default_factory=set)
    keys: dict[str, set[str]] = field(default_factory=dict)
    names: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def read(cls, db: Database, queue: str) -> QuarantinedRows:
        """Read what is in quarantine now."""
        rows = cls()
        for row in db.query(query("quarantine", "held"), {"queue": queue}):
            if row.whole or row.row_key is None:
                rows.tables.add(row.table_name)
            else:
                rows.add(row.table_name, RowKey(tuple(sorted(loads(row.row_key))), row.row_key))
        return rows

    def of(self, table: str) -> QuarantinedRows:
        """Return what of it is about one table."""
        return QuarantinedRows(
            self.tables & {table},
            {table: self.keys[table]} if table in self.keys else {},
            {table: self.names[table]} if table in self.names else {},
        )

    def __contains__(self, table: str) -> bool:
        return table in self.tables or table in self.keys

    def all_tables(self) -> set[str]:
        """Return the tables that are in quarantine, or of which rows are."""
        return self.tables | self.keys.keys()

    def add(self, table: str, key: RowKey | None) -> None:
        """Add one row, or the whole table when the row's key is unknown."""
        if key is None:
            self.tables.add(table)
            return
        self.keys.setdefault(table, set()).add(key.text)
        self.names.setdefault(table, set()).add(key.names)

    def covers(self, table: str, key: RowKey | None) -> bool:
        """Is this row in quarantine? One whose key has other columns than those there may be."""
        if table in self.tables:
            return True
        if table not in self.keys:
            return False
        return key is None or key.text in self.keys[table] or key.names not in self.names[table]

    def release(self, table: str) -> None:
        """Remove all that is about a table."""
        self.tables.discard(table)
        self.keys.pop(table, None)
        self.names.pop(table, None)


@dataclass(frozen=True)
class _Taken:
    event: Event
    table: str | None
    key: str | None
    holds: str
    cause: str
    sqlstate: str | None = None
    message: str | None = None
    reason: str | None = None
    decided_by: str | None = None


@dataclass
class BatchQuarantine:
    """The `Quarantine` of one batch; see `vedur.change.quarantine` for the rule that it follows."""

    db: Database
    queue: str
    consumer: str
    ticks: tuple[int, int]
    policy: Callable[[str], Policy]
    dests: Mapping[str, str]
    rows: QuarantinedRows
    skipping: Sequence[Skip] = ()
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (table, cause)
    skipped: Counter[int] = field(default_factory=Counter)  # by request
    first: dict[str, str] = field(default_factory=dict)  # table -> message
    _taken: list[_Taken] = field(default_factory=list)

    @property
    def whole_tables(self) -> Collection[str]:
        """See `Quarantine`. Where a skip is about, each event must be looked at."""
        return frozenset(t for t in self.rows.tables if not self._skips_in(t))

    def watches(self, table: str) -> bool:
        """See `Quarantine`."""
        return table in self.rows or self._skips_in(table)

    def takes(self, event: Event, table: str, key: RowKey | None) -> bool:
        """See `Quarantine`."""
        if self._skip(event, table, key):
            return True
        if parse_type(event.ev_type).op == "R" and table not in self.rows.tables:
            return False  # it is applied, and what rows of the table waited for is gone
        if not self.rows.covers(table, key):
            return False
        holds = "table" if table in self.rows.tables or key is None else "row"
        if holds == "row":
            self.rows.add(table, key)
        else:
            self.rows.tables.add(table)
        self._take(_Taken(event, table, key.text if key else None, holds, "held"))
        return True

    def takes_refused(self, failed: FailedEvent, key: RowKey | None, error: VedurError) -> bool:
        """See `Quarantine`."""
        table = failed.table or ""
        policy = self.policy(table)
        if policy is Policy.STOP or not is_about_event(error):
            return False
        if policy is Policy.TABLE:
            key = None
        self.rows.add(table, key)
        self.first.setdefault(table, error.message)
        self._take(
            _Taken(
                failed.event,
                table,
                failed.key,
                "row" if key else "table",
                "error",
                error.values.get("sqlstate"),
                error.message,
            )
        )
        return True

    def release_truncated(self, table: str, event: Event) -> None:
        """See `Quarantine`."""
        self.flush(everything=True)
        end_table(
            self.db, self.queue, table, "obsolete", f"the table was truncated by {event.ev_id}"
        )
        self.rows.release(table)

    def takes_system_event(self, event: Event) -> bool:
        """See `Quarantine`."""
        return self._skip(event, None, None)

    def _skip(self, event: Event, table: str | None, key: RowKey | None) -> bool:
        for skip in self.skipping:
            if skip.covers(event):
                break
        else:
            return False
        request = skip.request
        self.skipped[request.id] += 1
        holds = "nothing"
        if table is not None:
            self.rows.add(table, key)
            holds = "row" if key else "table"
        text = key.text if key else None
        said = {"reason": request.reason, "decided_by": request.asked_by}
        self._take(_Taken(event, table, text, holds, "skipped", **said))
        return True

    def _skips_in(self, table: str) -> bool:
        return any(s.until is not None or s.request.table_name == table for s in self.skipping)

    def take_staged(self, log: str, slices: str, after: int, before: int) -> None:
        """See `Quarantine`."""
        self.flush(everything=True)
        words = {"log": log, "slices": slices, "after": after, "before": before}
        text = query("quarantine", "put_staged").format(**words)
        for table in sorted(self.whole_tables):
            said = self._said() | {"table": table, "dest": self.dests.get(table)}
            self.counts[table, "held"] += self.db.execute(text, said)

    def _take(self, row: _Taken) -> None:
        self._taken.append(row)
        self.counts[row.table or "", row.cause] += 1

    def flush(self, everything: bool = False) -> None:
        """See `Quarantine`."""
        if not self._taken or (len(self._taken) < _WRITE_ROWS and not everything):
            return
        rows = sorted(self._taken, key=lambda r: r.event.ev_id)
        self._taken = []
        fields = ("ev_id", "ev_txid", "ev_type", "ev_data")
        extras = ("ev_extra1", "ev_extra2", "ev_extra3", "ev_extra4")
        said: dict[str, Any] = self._said()
        said |= {name: [getattr(r.event, name) for r in rows] for name in (*fields, *extras)}
        own = ("table", "key", "holds", "cause", "sqlstate", "message", "reason", "decided_by")
        said |= {name: [getattr(r, name) for r in rows] for name in own}
        said["dest"] = [self.dests.get(r.table or "") for r in rows]
        self.db.execute(query("quarantine", "put"), said)

    def _said(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "consumer": self.consumer,
            "prev_tick": self.ticks[0],
            "tick": self.ticks[1],
        }

    def close(self) -> int:
        """Write the rest; returns how many events of the batch it took."""
        self.flush(everything=True)
        for skip in self.skipping:
            count = self.skipped[skip.request.id]
            words = f"{count} event(s) kept in quarantine" if count else "no event for this node"
            end_skip(self.db, skip.request, words)
        return self.counts.total()

    def report(self) -> None:
        """Tell the log, after the commit."""
        for (table, cause), count in sorted(self.counts.items()):
            name = table or "(system events)"
            if cause == "error":
                log.warning(
                    '%s: %d refused event(s) put into quarantine, the first: %s; see "errors"',
                    name,
                    count,
                    self.first[table],
                )
            elif cause == "skipped":
                log.warning("%s: %d event(s) skipped and kept in quarantine", name, count)
            else:
                log.info(
                    "%s: %d event(s) joined earlier ones in quarantine",
                    name,
                    count,
                )
