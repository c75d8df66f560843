"""Merge a staged range in the caller's transaction: truncates, tables, scripts, in that order.

A Spark job may run inside the open transaction. That happens for a table whose net changes cannot
be merged (`RowByRowNeeded`: keys that occur twice, runs that interleave) or are refused by the
server: its events are then staged once more, as they are (`restage`), and replayed one by one in
this transaction. The job reads the provider and writes staging tables on connections of its own, so
it does not wait for locks of this transaction; but the transaction, with the position and the rows
that are already merged locked, stays open until the job has ended.

Replay of single events also shows which one the server refuses. A `Quarantine` then decides whether
that event stops the batch or is quarantined. Every error that leaves here because of one event
names it (`vedur.change.quarantine.FailedEvent`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vedur.change.event import Event
from vedur.change.quarantine import (
    FailedEvent,
    Quarantine,
    is_about_event,
    name_failed_event,
)
from vedur.db import Database
from vedur.errors import DatabaseError, RowByRowNeeded, StaleStage, StateError, VedurError
from vedur.pipeline.replay.in_order import Ordered
from vedur.pipeline.replay.merge import Merged, Step, TableMerge, merge_together
from vedur.pipeline.replay.partitions import find_partition, read_moment
from vedur.pipeline.replay.row_by_row import RowWise
from vedur.pipeline.replay.staged import TOGETHER, Staged, StagedTable
from vedur.pipeline.replay.staging_tables import log_name
from vedur.sql import query
from vedur.tables.mapping import TableMap, TableSpec
from vedur.tables.part_rows import why_untold

log = logging.getLogger(__name__)

_NO_END = (1 << 63) - 1

_Known = tuple[str, TableMerge, list[Step]]
Handler = Callable[[Event], None]
#: Stage one table's events again, as they are.
Restage = Callable[[Staged, str], Staged]
#: Tell why a table is replayed row by row; the same is told once.
Tell = Callable[[str, str], None]
#: Look at the target's tables, as a script may have left them.
LoadSpecs = Callable[[Iterable[TableMap]], dict[str, TableSpec]]


@dataclass
class Result:
    """What a batch did, for the log."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    missing: int = 0
    missing_tables: dict[str, int] = field(default_factory=dict)
    missing_columns: dict[str, set[str]] = field(default_factory=dict)  # left out, by table

    def miss(self, table: str, count: int) -> None:
        """Count updates that found no row: they are counted, never invented."""
        if count:
            self.missing += count
            self.missing_tables[table] = self.missing_tables.get(table, 0) + count


@dataclass
class Commit:
    """One batch on its way into the tables."""

    db: Database
    staged: Staged
    wanted: tuple[TableMap, ...]
    handle: Handler
    restage: Restage
    load_specs: LoadSpecs
    quarantine: Quarantine | None = None
    replace: bool = False
    alone: set[str] = field(default_factory=set)  # tables that are not merged with others
    tell: Tell = lambda table, why: None
    result: Result = field(default_factory=Result)

    def run(self) -> Result:
        """Merge into the tables, calling `handle` for events that are not about rows."""
        staged = self.staged
        scripts = staged.scripts
        first = min(scripts, default=_NO_END)
        self._require_order()
        self._require_shapes()
        self._require_logged(staged)
        # Up to the first script no table has both net changes (or a truncate) and logged events:
        # `check` has such a one logged whole, and tables that share a local table, too. So the two
        # groups are about different tables, and which goes first does not matter: in the role of a
        # replica no foreign key looks at another table. What is behind a script is always logged,
        # as its net changes would have been made with the tables as they were before.
        # Of the barriers only scripts have a place among the rows. The others are about nodes,
        # positions and the list of tables, none of which the merge looks at: it goes by the tables
        # that the batch began with.
        self._truncate([name for name, ev_id in staged.truncates.items() if ev_id < first])
        self._merge_all(first)
        logged = any(t.logged for t in staged.tables.values())
        if logged:
            self._in_order(staged, self._as_they_are(), 0, first)
        for event in staged.barriers:
            self._barrier(event)
            if event.ev_type == "EXECUTE" and logged:
                end = min((s for s in scripts if s > event.ev_id), default=_NO_END)
                self._in_order(staged, self.load_specs(self._renamed()), event.ev_id, end)
        return self.result

    def _renamed(self) -> tuple[TableMap, ...]:
        """Read the tables under the names that they have here now: a script may have renamed
        some."""
        rows = self.db.query(query("replay", "dest_names"), [self.staged.queue])
        now = {row.table_name: row.dest_table for row in rows}
        self.wanted = tuple(replace(w, dest=now.get(w.name, w.dest)) for w in self.wanted)
        return self.wanted

    def _as_they_are(self) -> dict[str, TableSpec]:
        """Read the tables of events that are staged as they came. Nobody has looked at the columns
        of those: one that the target lacked when its tables were last read may be there now."""
        logged = [w for w in self.wanted if (t := self.staged.tables.get(w.name)) and t.logged]
        return {**self.staged.specs, **self.load_specs(logged)}

    def _require_order(self) -> None:
        """Raise where net changes would hide events that the quarantine must see."""
        if self.quarantine is None:
            return
        net = {name for name, table in self.staged.tables.items() if table.rows}
        for name in sorted(net | self.staged.truncates.keys()):
            if self.quarantine.watches(name):
                raise StaleStage(
                    f'table "{name}" has events in quarantine since its changes were staged: '
                    "they are staged again"
                )

    def _require_shapes(self) -> None:
        """Lock the tables, and raise where types have changed. Staging columns have those that the
        tables had when they were last read: a value would be rounded or cut on its way through an
        old one. Nobody can alter the tables from here on."""
        specs = [self.staged.specs[n] for n, table in self.staged.tables.items() if table.rows]
        if not specs:
            return
        relations = [spec.dest for spec in specs]
        try:
            # the locks are what counts: no row is read
            some = query("replay", "no_row")
            self.db.query(" union all ".join(some.format(dest=dest) for dest in relations))
        except DatabaseError as error:
            if error.sqlstate != "42P01":
                raise
            raise StaleStage(f"{error.message}: changes are staged again") from error
        params = {"names": [spec.name for spec in specs], "relations": relations}
        now = {row.name: row.shape for row in self.db.query(query("replay", "shapes"), params)}
        for spec in specs:
            if spec.shape is not None and now[spec.name] != spec.shape:
                raise StaleStage(
                    f'table "{spec.name}" was altered since its changes were staged: '
                    "they are staged again"
                )

    def _require_logged(self, staged: Staged) -> None:
        """Raise unless all events that were announced are there. A crash of the server empties
        staging tables, and so would a second worker; once they have been counted they stay."""
        announced = sum(table.logged for table in staged.tables.values())
        if not announced:
            return
        text = query("replay", "logged").format(
            log=log_name(staged.queue, staged.slot), slices=", ".join(map(str, staged.slices))
        )
        found = self.db.value(text)
        if found != announced:
            raise StaleStage(
                f"{found} of {announced} staged events are there; the batch must be staged again"
            )

    def _truncate(self, names: list[str]) -> None:
        specs = self.staged.specs
        try:
            with self.db.transaction():
                truncate_together(self.db, [specs[name] for name in names])
        except (DatabaseError, StateError) as error:
            if not is_about_event(error):
                raise
            failed = self._find_failed_truncate(names)
            if failed is None:
                raise
            raise name_failed_event(error, failed) from error

    def _find_failed_truncate(self, names: list[str]) -> FailedEvent | None:
        """Truncate table by table to see which one the server refuses."""
        for name in names:
            try:
                with self.db.transaction():
                    truncate(self.db, self.staged.specs[name])
            except (DatabaseError, StateError):
                event = Event(self.staged.truncates[name], 0, "R", "", name)
                return FailedEvent(event, name, self.staged.specs[name].dest)
        return None

    def _barrier(self, event: Event) -> None:
        if self.quarantine is not None and self.quarantine.takes_system_event(event):
            return
        try:
            self.handle(event)
        except VedurError as error:
            if isinstance(error, DatabaseError) and error.sqlstate is None:
                raise
            # the message stays the script's own
            raise error.with_values(failed_event=FailedEvent(event)) from error

    def _merge_all(self, before: int) -> None:
        """Merge what all tables have before event `before`, the first script.

        In no order that matters: in the role of a replica no foreign key looks at it.
        """
        known: list[_Known] = []
        for name, table in self.staged.tables.items():
            if not table.rows:
                continue
            if table.spec.partitions is not None and table.spec.partitions.field is None:
                self._merge_partitions(name, table, before)
                continue
            merge = self._merge_of(name, table)
            steps = [] if self.replace or name in self.alone else merge.known_steps()
            if steps:
                known.append((name, merge, steps))
            else:
                self._merge(name, merge, before)
        for at in range(0, len(known), TOGETHER):
            self._merge_together(known[at : at + TOGETHER], before)

    def _merge_of(self, name: str, table: StagedTable) -> TableMerge:
        after = self.staged.truncates.get(name, 0)
        return TableMerge(self.db, table, self.staged.slot, table.slices, after)

    def _merge_partitions(self, name: str, table: StagedTable, before: int) -> None:
        """Merge changes into the partitions of their times. Where one of them cannot be merged, all
        of the table are replayed one by one."""
        merge = self._merge_of(name, table)
        try:
            with self.db.transaction():
                done = [each.run() for each in self._merges_by_partition(merge)]
        except RowByRowNeeded as needed:
            self._again(name, merge.after, before, str(needed))
            return
        except DatabaseError as error:
            if not is_about_event(error):
                raise
            self._try_in_order(name, merge.after, before, error)
            return
        for merged in done:
            self._count(name, merge, merged)

    def _merges_by_partition(self, merge: TableMerge) -> Iterator[TableMerge]:
        """Yield a merge for each partition, which is made if it is not there."""
        spec = merge.spec
        source = self.staged.source
        moments = merge.read_moments() if spec.by_event else [read_moment(self.db, spec, source)]
        for moment in moments:
            partition = find_partition(self.db, spec, moment)
            if partition is not None:
                chosen = moment if spec.by_event else ""
                yield replace(merge, partition=partition, moment=chosen)

    def _merge_together(self, group: Sequence[_Known], before: int) -> None:
        """Merge several small tables at once; if the server refuses, by halves to see which it
        is."""
        try:
            with self.db.transaction():
                done = merge_together(self.db, [(merge, steps) for _, merge, steps in group])
        except DatabaseError as error:
            if not is_about_event(error):
                names = ", ".join(name for name, _, _ in group)
                # the first of their statements would tell nothing
                raise error.with_values(query=f"merge of {names}") from error
            log.debug("%s tables cannot be merged together: %s", len(group), error)
            self._merge_apart(group, before)
            return
        for (name, merge, _), merged in zip(group, done, strict=True):
            self._count(name, merge, merged)

    def _merge_apart(self, group: Sequence[_Known], before: int) -> None:
        half = len(group) // 2
        if half:
            self._merge_together(group[:half], before)
            self._merge_together(group[half:], before)
        else:
            ((name, merge, _),) = group
            self.alone.add(name)
            self._merge(name, merge, before)

    def _merge(self, name: str, merge: TableMerge, before: int) -> None:
        after = merge.after
        try:
            if self.replace:
                merge.clear_way()
            done = merge.run()
        except RowByRowNeeded as needed:
            self._again(name, after, before, str(needed))
            return
        except DatabaseError as error:
            if not is_about_event(error):
                raise
            self._try_in_order(name, after, before, error)
            return
        self._count(name, merge, done)

    def _count(self, name: str, merge: TableMerge, done: Merged) -> None:
        self.result.inserted += done.inserted
        self.result.updated += done.updated
        self.result.deleted += done.deleted
        self.result.miss(name, done.missing + merge.table.noop)

    def _again(self, name: str, after: int, before: int, why: str) -> None:
        self.tell(name, why)
        again = self.restage(self.staged, name)
        self._require_logged(again)
        self._in_order(again, {name: self.staged.specs[name]}, after, before)

    def _try_in_order(self, name: str, after: int, before: int, error: DatabaseError) -> None:
        """Replay a table's events one by one, as the server refused net changes.

        If one fails it is the one to blame. If none does, then only the net changes were in each
        other's way, and the events in their order are what counts.
        """
        log.debug("%s: %s", name, error)
        try:
            with self.db.transaction():
                self._again(name, after, before, refusal(error))
        except VedurError as better:
            raise better from error

    def _in_order(
        self, staged: Staged, specs: dict[str, TableSpec], after: int, before: int
    ) -> None:
        db, quarantine, result = self.db, self.quarantine, self.result
        rows = RowWise(db, specs, lambda spec: truncate(db, spec), replace=self.replace)
        rows.source = staged.source
        words = {
            "log": log_name(staged.queue, staged.slot),
            "slices": ", ".join(map(str, staged.slices)),
            "after": after,
            "before": before,
        }
        whole = sorted(quarantine.whole_tables) if quarantine is not None else []
        if quarantine is not None and whole:
            quarantine.take_staged(words["log"], words["slices"], after, before)  # type: ignore[arg-type]
            text = query("quarantine", "staged_rest").format(**words)
            source = db.stream(text, [whole])
        else:
            source = db.stream(query("replay", "log_read").format(**words))
        Ordered(rows, quarantine).run(_known(source, specs))
        for name, columns in rows.missing_columns.items():
            result.missing_columns.setdefault(name, set()).update(columns)
        result.inserted += rows.counts["I"]
        result.updated += rows.counts["U"]
        result.deleted += rows.counts["D"]
        for name, count in rows.missing.items():
            result.miss(name, count)


def _known(rows: Iterable[tuple[Any, ...]], specs: dict[str, TableSpec]) -> Iterator[Event]:
    for *fields, rest in rows:
        event = Event(*fields)
        if event.ev_extra1 in specs:
            yield event if rest is None else _with_rest(event, json.loads(rest))


def _with_rest(event: Event, rest: list[Any]) -> Event:
    time, extra2, extra3, extra4, tick = rest
    return replace(
        event, ev_extra2=extra2, ev_extra3=extra3, ev_extra4=extra4, ev_time=time, tick=tick
    )


def refusal(error: DatabaseError) -> str:
    """Say that the server refused net changes, without the values that its message may have."""
    return f"the server refused its changes as a whole (SQLSTATE {error.sqlstate})"


# -- TRUNCATE that never reaches a table which was not truncated at the provider ------------------


def truncate(db: Database, spec: TableSpec) -> None:
    """Empty one table."""
    truncate_together(db, [spec])


def truncate_together(db: Database, specs: Sequence[TableSpec]) -> None:
    """Empty tables; those that others reference are truncated only in the others' company.

    The server refuses to truncate a referenced table, and CASCADE would empty tables that are
    nobody's business here. A delete in replica role does the same without either.
    """
    shared = [spec for spec in specs if spec.part is not None or _shared(db, spec)]
    for spec in shared:
        _empty_part(db, spec)
    left = {spec.dest: spec for spec in specs if spec not in shared}
    references = {d: _referencing(db, d) for d in left}
    by_delete: list[TableSpec] = []
    while True:
        blocked = [d for d in left if not references[d] <= set(left)]
        if not blocked:
            break
        by_delete += [left.pop(d) for d in blocked]
    if left:
        # One command: the server accepts references among the tables named together.
        names = [f"{s.only} {s.dest}" for s in left.values()]
        db.execute(query("replay", "truncate").format(tables=", ".join(names)))
    for spec in by_delete:
        db.execute(query("replay", "truncate_by_delete").format(only=spec.only, dest=spec.dest))


def _shared(db: Database, spec: TableSpec) -> bool:
    """Has the table rows of others, too?"""
    # The cursor waits for its row also inside a pipeline, where a truncate among other events is.
    rows = db.raw.execute(query("catalog", "sharing"), {"dest": spec.dest}).fetchall()
    return len(rows) > 1  # itself, and others


def _empty_part(db: Database, spec: TableSpec) -> None:
    """Remove the rows of one of several tables that come together."""
    why, condition = why_untold(db, spec.home), spec.own() or spec.condition
    if why or not condition:
        why = why or "no condition (--where) and no part column (--part-column) tells them apart"
        parts = db.query(query("catalog", "parts"), [spec.home])
        if combined := next((p.combined_queue for p in parts if p.combined_queue), None):
            raise StateError(
                f"TRUNCATE would empty {spec.dest}, which has rows of other tables, too, and "
                f"{why}: delete what should go, here and on every node below combined queue "
                f'"{combined}" (in the role of a replica, so that it gets into no queue), then '
                "skip the event, which nodes below do not get"
            )
        raise StateError(
            f"TRUNCATE would empty {spec.dest}, which has rows of other tables, too, and {why}: "
            "delete what should go, then skip the event; to let every TRUNCATE pass by, give the "
            "table a handler with ignore_truncate (change-handler --handler=londiste "
            "--handler-arg=ignore_truncate=1)"
        )
    words = {"only": spec.only, "dest": spec.dest, "condition": condition}
    db.execute(query("replay", "truncate_part").format(**words))


def _referencing(db: Database, dest: str) -> set[str]:
    return {row.from_table for row in db.query(query("replay", "referencing"), [dest])}
