"""Replay on Spark: stage a range of ticks in parallel, merge it in the caller's transaction.

`stage` runs Spark jobs and writes staging tables only; it may be called for the next range while
the current one is being merged, and calling it twice leaves nothing but debris. `apply` runs on
the driver's connection, inside the transaction that will also store the position.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vedur.change.event import Event, EventRange
from vedur.change.table import Replica, TableSpec
from vedur.db import Database
from vedur.errors import DatabaseError, InternalError, StateError
from vedur.pipeline.apply.merge import NeedsRowByRow, TableMerge
from vedur.pipeline.apply.rowwise import RowWise
from vedur.pipeline.apply.truncate import truncate, truncate_together
from vedur.pipeline.plan import Staged, StagedTable, check, combined
from vedur.pipeline.stage.job import run_job
from vedur.pipeline.stage.tables import (
    clear_stages,
    drop_stages,
    ensure_stages,
    load_specs,
    log_name,
    stage_name,
)
from vedur.pipeline.stage.task import FLUSH_BYTES, StageTask
from vedur.sql import query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A batch is staged again at most this often: for scripts, for mixed formats, for new columns.
_ATTEMPTS = 4
#: Staged rows after which a slot is emptied at once; fewer wait for company.
_CLEAR_ROWS = 5_000
_NO_END = (1 << 63) - 1

Handler = Callable[[Event], None]


@dataclass
class Result:
    """What a batch did, for the log."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    missing: int = 0
    missing_tables: dict[str, int] = field(default_factory=dict)

    def miss(self, table: str, count: int) -> None:
        """Updates that found no row: counted, never invented."""
        if count:
            self.missing += count
            self.missing_tables[table] = self.missing_tables.get(table, 0) + count


@dataclass
class SparkReplay:
    """The applier of a worker. Connect strings are kept out of its repr."""

    spark: SparkSession
    queue: str
    provider: str = field(repr=False)
    target: str = field(repr=False)
    flush_bytes: int = FLUSH_BYTES
    keep_links: bool = True
    log_tables: set[str] = field(default_factory=set)
    _specs: dict[int, dict[Replica, TableSpec]] = field(default_factory=lambda: {0: {}, 1: {}})
    _used: dict[int, set[str]] = field(default_factory=lambda: {0: set(), 1: set()})
    _rows: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def start(self, db: Database) -> None:
        """Remove what an earlier run left on the target; needs autocommit."""
        drop_stages(db, self.queue)
        self.forget()

    def forget(self) -> None:
        """Look at the target's tables again before the next batch."""
        for known in self._specs.values():
            known.clear()

    def specs(self, db: Database, wanted: Iterable[Replica], slot: int) -> dict[str, TableSpec]:
        """The tables of a batch with their staging tables in place; needs autocommit.

        The other slot is left alone: its changes may be about to be merged.
        """
        tables = tuple(wanted)
        known = self._specs[slot]
        fresh = [w for w in tables if w not in known]
        if fresh:
            found = load_specs(db, self.queue, fresh)
            ensure_stages(db, self.queue, found.values(), slot)
            known.update({w: found[w.name] for w in fresh})
        return {w.name: known[w] for w in tables}

    # -- stage ----------------------------------------------------------------------------------

    def stage(
        self, db: Database, events: EventRange, wanted: Iterable[Replica], slot: int
    ) -> Staged:
        """Stage all events of a range; `db` is an autocommit connection to the target."""
        tables = tuple(wanted)
        log_tables, log_from = frozenset(self.log_tables), None
        looked_again = False
        for _ in range(_ATTEMPTS):
            specs = self.specs(db, tables, slot)
            staged = self._run(events, specs, slot, log_tables, log_from)
            again = check(staged)
            if again is not None:
                log.debug("staging again: %s", again.reason)
                log_tables |= again.log_tables
                log_from = log_from or again.log_from
                self.log_tables |= again.log_tables
                continue
            if not staged.faults:
                return staged
            if looked_again:
                raise StateError(str(staged.faults[0]))
            self.forget()
            looked_again = True
        raise InternalError("BUG: a batch cannot be staged in a form that can be merged")

    def extend(
        self, db: Database, staged: Staged, events: EventRange, wanted: Iterable[Replica]
    ) -> Staged:
        """Stage a further range behind a staged one; both become one."""
        more = self.stage(db, events, wanted, staged.slot)
        both = combined(staged, more)
        if check(both) is None:
            return both
        assert both.source is not None
        return self.stage(db, both.source, wanted, staged.slot)

    def _run(
        self,
        events: EventRange,
        specs: dict[str, TableSpec],
        slot: int,
        log_tables: frozenset[str],
        log_from: int | None,
    ) -> Staged:
        task = StageTask(
            provider=self.provider,
            target=self.target,
            queue=self.queue,
            events=events.events,
            owner=events.owner,
            slot=slot,
            tables=specs,
            slices=events.slices,
            log_tables=log_tables,
            log_from=log_from,
            flush_bytes=self.flush_bytes,
            keep_links=self.keep_links,
        )
        staged = Staged(self.queue, slot, log_from=log_from)
        for summary in run_job(self.spark, task):
            staged.add(summary, specs)
        staged.source = events
        staged.specs = specs
        for name, table in staged.tables.items():
            self._rows[slot] += table.rows + table.logged
            if table.rows:
                self._used[slot].add(stage_name(specs[name], slot))
            if table.logged:
                self._used[slot].add(log_name(self.queue, slot))
        return staged

    # -- apply ----------------------------------------------------------------------------------

    def apply(
        self, db: Database, staged: Staged, wanted: Iterable[Replica], handle: Handler
    ) -> Result:
        """Merge into the tables, calling `handle` for events that are not about rows."""
        result = Result()
        scripts = staged.scripts
        first = min(scripts, default=_NO_END)
        truncated = [staged.specs[name] for name, ev in staged.truncates.items() if ev < first]
        truncate_together(db, truncated)
        for name, table in staged.tables.items():
            if table.rows:
                self._merge(db, staged, name, table, first, result)
        logged = any(t.logged for t in staged.tables.values())
        if logged:
            self._row_wise(db, staged, staged.specs, 0, first, result)
        for event in staged.barriers:
            handle(event)
            if event.ev_type == "EXECUTE" and logged:
                end = min((s for s in scripts if s > event.ev_id), default=_NO_END)
                specs = load_specs(db, self.queue, wanted, lenient=True)
                self._row_wise(db, staged, specs, event.ev_id, end, result)
        if scripts:
            self.forget()
        return result

    def _merge(
        self,
        db: Database,
        staged: Staged,
        name: str,
        table: StagedTable,
        before: int,
        result: Result,
    ) -> None:
        """Merge what the table has before event `before`, the first script."""
        after = staged.truncates.get(name, 0)
        merge = TableMerge(db, table, staged.slot, list(staged.slices), after)
        try:
            done = merge.run()
        except NeedsRowByRow:
            self._restage_as_log(db, staged, name, after, before, result)
            return
        except DatabaseError as error:
            if error.sqlstate is None or error.sqlstate[:2] not in ("22", "23"):
                raise
            self._try_in_order(db, staged, name, after, before, result, error)
            return
        result.inserted += done.inserted
        result.updated += done.updated
        result.deleted += done.deleted
        result.miss(name, done.missing + table.noop)

    def _restage_as_log(
        self, db: Database, staged: Staged, name: str, after: int, before: int, result: Result
    ) -> None:
        log.debug("%s: replayed row by row", name)
        specs = {name: staged.specs[name]}
        source = staged.source
        assert source is not None
        again = self._run(source, specs, staged.slot, frozenset(specs), None)
        self._row_wise(db, again, specs, after, before, result)

    def _try_in_order(
        self,
        db: Database,
        staged: Staged,
        name: str,
        after: int,
        before: int,
        result: Result,
        error: DatabaseError,
    ) -> None:
        """The server refused net changes: replay the table's events one by one.

        If one fails it gives the better message. If none does, then only the net changes were in
        each other's way, and the events in their order are what counts.
        """
        log.debug("%s: %s", name, error)
        try:
            with db.transaction():
                self._restage_as_log(db, staged, name, after, before, result)
        except DatabaseError as better:
            raise better from error

    def _row_wise(
        self,
        db: Database,
        staged: Staged,
        specs: dict[str, TableSpec],
        after: int,
        before: int,
        result: Result,
    ) -> None:
        rows = RowWise(db, specs, lambda spec: truncate(db, spec))
        text = query("replay", "log_read").format(
            log=log_name(self.queue, staged.slot),
            slices=", ".join(map(str, staged.slices)),
            after=after,
            before=before,
        )
        rows.run(self._known(db.stream(text), specs))
        result.inserted += rows.counts["I"]
        result.updated += rows.counts["U"]
        result.deleted += rows.counts["D"]
        result.miss("row by row", rows.missing)

    @staticmethod
    def _known(rows: Iterable[tuple[object, ...]], specs: dict[str, TableSpec]) -> Iterator[Event]:
        for row in rows:
            event = Event(*row)  # type: ignore[arg-type]
            if event.ev_extra1 in specs:
                yield event

    def done(self, db: Database, slot: int) -> None:
        """The slot was merged (or given up): empty it when it pays; needs autocommit."""
        if self._rows[slot] >= _CLEAR_ROWS and clear_stages(db, self._used[slot]):
            self._rows[slot] = 0
            self._used[slot].clear()
