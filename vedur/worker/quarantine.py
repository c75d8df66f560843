"""The quarantine at work: of one consumer over many batches, and of one batch.

A consumer is a worker or a first copy that catches up. `read_outlook` is called before a batch is
staged, `open_batch` and `close_batch` in its transaction, `batch_committed` after it,
`record_failure` after it failed. In a database of an earlier version, without the tables for it,
there is nothing to read and errors are only logged.

The quarantine of a batch decides in the order of events, and writes what it takes. It lives in the
batch's transaction, so an event is either applied or in `vedur.quarantine`, whatever happens to the
worker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from json import loads
from typing import Any

from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.quarantine import (
    available,
    clear_stuck_event,
    end_skip,
    end_table,
    get_open_skips,
    record_stuck_event,
)
from vedur.catalog.tables import hold_table
from vedur.change.attrs import ON_ERROR
from vedur.change.event import Event, parse_type
from vedur.change.quarantine import (
    FailedEvent,
    Policy,
    RowKey,
    Skip,
    SkipRequest,
    failed_event_of,
    is_about_event,
)
from vedur.db import Database
from vedur.errors import ConnectError, VedurError, first_line
from vedur.node.endpoint import Endpoint
from vedur.queue.batches import Batch, Tick
from vedur.sql import query
from vedur.tables.mapping import TableMap
from vedur.worker.first_copy.states import MergeState, State

log = logging.getLogger(__name__)


@dataclass
class Outlook:
    """What a batch must know before it is staged."""

    event_by_event: set[str] = field(default_factory=set)
    skips: list[Skip] = field(default_factory=list)

    def mark(self, tables: Sequence[TableMap]) -> tuple[TableMap, ...]:
        """Return the tables, with a mark on those that must be staged event by event."""
        every = any(skip.until is not None for skip in self.skips)
        return tuple(
            replace(table, event_by_event=True)
            if every or table.name in self.event_by_event
            else table
            for table in tables
        )


@dataclass
class ConsumerQuarantine:
    """The quarantine of one consumer. `connstr` opens a connection of its own for what must survive
    a rollback; `on_error` is the policy of tables that have none of their own. `only` is the table
    of a first copy that catches up."""

    queue: str
    consumer: str
    connstr: str = field(repr=False)
    on_error: Policy = Policy.STOP
    only: str | None = None
    suspects: set[str] = field(default_factory=set)
    _ready: bool | None = None
    _warned: bool = False
    _recorded: bool = True  # an earlier run may have left an error

    def read_outlook(self, target: Database, ticks: Sequence[Tick]) -> Outlook:
        """Read what concerns the batch of these ticks; `target` is in autocommit mode."""
        outlook = Outlook(set(self.suspects))
        if not self._ready:
            self._ready = available(target)
            if not self._ready:
                return outlook
        outlook.event_by_event |= self._read_rows(target).all_tables()
        for request in get_open_skips(target, self.queue, self.consumer):
            skip = self._skip(target, request, ticks)
            if skip is not None:
                outlook.skips.append(skip)
                if request.table_name:
                    outlook.event_by_event.add(request.table_name)
        return outlook

    def _skip(self, target: Database, request: SkipRequest, ticks: Sequence[Tick]) -> Skip | None:
        """Return the request if it is about this batch; writes the end of one that has been
        passed."""
        first, last = ticks[0], ticks[-1]
        if request.tick_id is not None:
            for before, tick in pairwise(ticks):
                if tick.id == request.tick_id:
                    return Skip(request, before.snapshot, tick.snapshot)
            if request.tick_id <= last.id:
                end_skip(target, request, "tick was already applied, or there is none")
            return None
        txid = request.ev_txid or 0
        if first.snapshot.contains(txid):
            end_skip(target, request, "event was already applied")
            return None
        return Skip(request) if last.snapshot.contains(txid) else None

    def open_batch(
        self, target: Database, batch: Batch, tables: Sequence[TableInfo], outlook: Outlook
    ) -> BatchQuarantine | None:
        """Open the quarantine of a batch, in its transaction."""
        known = {t.table_name: t for t in tables if t.local}

        def policy(table: str) -> Policy:
            own = known[table].attrs.get(ON_ERROR) if table in known else None
            return Policy(own) if own else self.on_error

        if not self._ready:
            self._warn_unable(target, [t for t in known if policy(t) is not Policy.STOP])
            return None
        rows = self._read_rows(target)
        if self.only is None:
            self._end_obsolete(target, rows, known)
        return BatchQuarantine(
            target,
            self.queue,
            self.consumer,
            (batch.prev_tick, batch.tick),
            policy,
            {t.table_name: t.dest_table for t in known.values()},
            rows,
            outlook.skips,
        )

    def _warn_unable(self, target: Database, tables: Sequence[str]) -> None:
        """Warn, once: a policy that cannot be followed must not be found out by the first bad
        event."""
        if not tables or self._warned:
            return
        self._warned = True
        role = target.value(query("quarantine", "this_role"))
        log.warning(
            "on_error asks for the quarantine, for %s%s, but role %s may not use vedur.quarantine: "
            'a refused event will stop the worker; "grant londiste_writer to %s" (where there is '
            'no such table, "create-leaf" again brings the SQL up to date)',
            ", ".join(tables[:3]),
            f" and {len(tables) - 3} more" if len(tables) > 3 else "",
            role,
            role,
        )

    def _read_rows(self, target: Database) -> QuarantinedRows:
        rows = QuarantinedRows.read(target, self.queue)
        return rows if self.only is None else rows.of(self.only)

    def _end_obsolete(
        self, target: Database, rows: QuarantinedRows, known: Mapping[str, TableInfo]
    ) -> None:
        """End the old events of a table that is copied anew, or is no longer here: it has no use
        for them."""
        here = [name for name, table in known.items() if table.ready]
        suspects = sorted(rows.all_tables().difference(here))
        if not suspects:
            return
        # A copy that catches up may quarantine events itself: look at it as it is now.
        now = get_table_list(target, self.queue).local.by_name
        for name in suspects:
            if name not in now:
                end_obsolete(target, self.queue, name, "is not replicated here any more")
            elif not _unfilled(now[name]) or not hold_table(target, self.queue, now[name]):
                continue
            else:
                end_obsolete(target, self.queue, name, "is copied anew")
            rows.release(name)

    def close_batch(self, target: Database, quarantine: BatchQuarantine | None) -> int:
        """Write the rest of a batch that is applied, in its transaction. Returns how many events
        were quarantined."""
        if quarantine is None:
            return 0
        count = quarantine.close()
        if self._recorded:
            clear_stuck_event(target, self.queue, self.consumer)
        return count

    def batch_committed(self, quarantine: BatchQuarantine | None) -> None:
        """Log what was quarantined, and forget what was suspected: the batch is committed."""
        self._recorded = False
        self.suspects.clear()
        if quarantine is not None:
            quarantine.report()

    def suspect_table(self, error: BaseException) -> bool:
        """Is it worth trying again at once, with a table's events one by one?

        A truncate that was taken out of its order is known by its number alone.
        """
        failed = failed_event_of(error)
        if failed is None or failed.table is None or failed.event.ev_txid:
            return False
        if failed.table in self.suspects:
            return False
        self.suspects.add(failed.table)
        return True

    def record_failure(
        self, batch: Batch, tables: Sequence[TableInfo], error: BaseException
    ) -> None:
        """Record why a batch failed, in a transaction of its own."""
        if not self._ready or not isinstance(error, Exception) or isinstance(error, ConnectError):
            return
        failed = failed_event_of(error)
        if failed is not None:
            dests = {t.table_name: t.dest_table for t in tables}
            failed = replace(failed, dest=dests.get(failed.table or ""))
        known = error if isinstance(error, VedurError) else VedurError(first_line(error))
        ticks = (batch.prev_tick, batch.tick)
        self._recorded = True
        try:
            with Endpoint(self.connstr).open("db") as db:
                record_stuck_event(db, self.queue, self.consumer, ticks, known, failed)
        except VedurError as again:
            log.warning("the error could not be recorded in vedur.replay_error: %s", again)


def _unfilled(table: TableInfo) -> bool:
    return MergeState.parse(table.merge_state).state in (State.NONE, State.IN_COPY)


def end_obsolete(target: Database, queue: str, name: str, why: str) -> None:
    """Take events of a table out of the quarantine, because of what became of the table."""
    count = end_table(target, queue, name, "obsolete", f"the table {why}")
    if count:
        log.warning(
            "%s: %d event(s) left the quarantine, because the table %s; "
            "vedur.quarantine_log keeps them",
            name,
            count,
            why,
        )


# -- one batch ------------------------------------------------------------------------------------

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
