"""The quarantine as one consumer sees it, a worker or a first copy that catches up.

`read_outlook` is called before a batch is staged, `open_batch` and `close_batch` in its
transaction, `batch_committed` after it, `record_failure` after it failed. In a database of an
earlier version, without the tables for it, there is nothing to read and errors are only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

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
from vedur.change.quarantine import Policy, Skip, SkipRequest, failed_event_of
from vedur.db import Database
from vedur.errors import ConnectError, VedurError, first_line
from vedur.node.endpoint import Endpoint
from vedur.queue.batches import Batch
from vedur.queue.slices import Tick
from vedur.sql import query
from vedur.tables.mapping import TableMap
from vedur.worker.first_copy.states import MergeState, State
from vedur.worker.quarantine.batch import BatchQuarantine, QuarantinedRows

log = logging.getLogger(__name__)


@dataclass
class Outlook:
    """What a batch must know before it is staged."""

    in_order: set[str] = field(default_factory=set)
    skips: list[Skip] = field(default_factory=list)

    def mark(self, tables: Sequence[TableMap]) -> tuple[TableMap, ...]:
        """The tables, and which of them must be staged event by event."""
        every = any(skip.until is not None for skip in self.skips)
        return tuple(
            replace(table, in_order=True) if every or table.name in self.in_order else table
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
        outlook.in_order |= self._read_rows(target).all_tables()
        for request in get_open_skips(target, self.queue, self.consumer):
            skip = self._skip(target, request, ticks)
            if skip is not None:
                outlook.skips.append(skip)
                if request.table_name:
                    outlook.in_order.add(request.table_name)
        return outlook

    def _skip(self, target: Database, request: SkipRequest, ticks: Sequence[Tick]) -> Skip | None:
        """The request, if it is about this batch; one that has been passed is ended."""
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
        """Once: a policy that cannot be followed must not be found out by the first bad event."""
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
        """A table that is copied anew, or is no longer here, has no use for its old events."""
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
        """The batch is applied: write the rest, in its transaction. Returns how many events
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
    """Events of a table leave the quarantine, because of what became of the table."""
    count = end_table(target, queue, name, "obsolete", f"the table {why}")
    if count:
        log.warning(
            "%s: %d event(s) left the quarantine, because the table %s; "
            "vedur.quarantine_log keeps them",
            name,
            count,
            why,
        )
