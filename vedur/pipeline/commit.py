"""Merge a staged range in the caller's transaction: truncates, tables, scripts, in that order.

A table whose net changes the server refuses is replayed event by event, so that the event to blame
is known; an `Aside` then decides whether it stops the batch or is put aside. Every error that
leaves here because of one event names it (`vedur.change.aside.Blame`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vedur.change.aside import Aside, Blame, blame, blames_event
from vedur.change.event import Event
from vedur.change.table import Replica, TableSpec
from vedur.db import Database
from vedur.errors import DatabaseError, StaleStage, StateError, VedurError
from vedur.pipeline.apply.merge import Merged, NeedsRowByRow, Step, TableMerge, merge_together
from vedur.pipeline.apply.ordered import Ordered
from vedur.pipeline.apply.rowwise import RowWise
from vedur.pipeline.apply.truncate import truncate, truncate_together
from vedur.pipeline.plan import TOGETHER, Staged, StagedTable
from vedur.pipeline.stage.tables import log_name
from vedur.sql import query

log = logging.getLogger(__name__)

_NO_END = (1 << 63) - 1

_Known = tuple[str, TableMerge, list[Step]]
Handler = Callable[[Event], None]
#: Stage one table's events again, as they are.
Restage = Callable[[Staged, str], Staged]
#: Look at the target's tables, as a script may have left them.
LoadSpecs = Callable[[Iterable[Replica]], dict[str, TableSpec]]


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
        """Updates that found no row: counted, never invented."""
        if count:
            self.missing += count
            self.missing_tables[table] = self.missing_tables.get(table, 0) + count


@dataclass
class Commit:
    """One batch on its way into the tables."""

    db: Database
    staged: Staged
    wanted: tuple[Replica, ...]
    handle: Handler
    restage: Restage
    load_specs: LoadSpecs
    aside: Aside | None = None
    replace: bool = False
    alone: set[str] = field(default_factory=set)  # tables that were in the way of others
    result: Result = field(default_factory=Result)

    def run(self) -> Result:
        """Merge into the tables, calling `handle` for events that are not about rows."""
        staged = self.staged
        scripts = staged.scripts
        first = min(scripts, default=_NO_END)
        self._require_order()
        self._require_shapes()
        self._require_logged(staged)
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

    def _renamed(self) -> tuple[Replica, ...]:
        """The tables under the names that they have here now: a script may have renamed some."""
        rows = self.db.query(query("replay", "dest_names"), [self.staged.queue])
        now = {row.table_name: row.dest_table for row in rows}
        self.wanted = tuple(replace(w, dest=now.get(w.name, w.dest)) for w in self.wanted)
        return self.wanted

    def _as_they_are(self) -> dict[str, TableSpec]:
        """Nobody has looked at columns of events that are staged as they came: a column that
        the target lacked when its tables were last read may be there now."""
        logged = [w for w in self.wanted if (t := self.staged.tables.get(w.name)) and t.logged]
        return {**self.staged.specs, **self.load_specs(logged)}

    def _require_order(self) -> None:
        """Net changes do not show the events that the quarantine must see."""
        if self.aside is None:
            return
        net = {name for name, table in self.staged.tables.items() if table.rows}
        for name in sorted(net | self.staged.truncates.keys()):
            if self.aside.watches(name):
                raise StaleStage(
                    f'table "{name}" has events in quarantine since its changes were staged: '
                    "they are staged again"
                )

    def _require_shapes(self) -> None:
        """Staging columns have the types that the tables had when they were last read: a value
        would be rounded or cut on its way through an old one. Nobody can alter the tables from
        here on."""
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
        """All events that were announced are there. A crash of the server empties staging tables,
        and so would a second worker; once they have been counted they stay."""
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
            if not blames_event(error):
                raise
            self._blame_truncate(names, error)
            raise

    def _blame_truncate(self, names: list[str], error: DatabaseError | StateError) -> None:
        for name in names:
            try:
                with self.db.transaction():
                    truncate(self.db, self.staged.specs[name])
            except (DatabaseError, StateError):
                event = Event(self.staged.truncates[name], 0, "R", "", name)
                blame(error, Blame(event, name, self.staged.specs[name].dest))
                return

    def _barrier(self, event: Event) -> None:
        if self.aside is not None and self.aside.skips(event):
            return
        try:
            self.handle(event)
        except VedurError as error:
            if not isinstance(error, DatabaseError) or error.sqlstate is not None:
                error.values["blame"] = Blame(event)  # the message stays the script's own
            raise

    def _merge_all(self, before: int) -> None:
        """Merge what all tables have before event `before`, the first script.

        In no order that matters: in the role of a replica no foreign key looks at it.
        """
        known: list[_Known] = []
        for name, table in self.staged.tables.items():
            if not table.rows:
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

    def _merge_together(self, group: Sequence[_Known], before: int) -> None:
        """Several small tables at once; if the server refuses, by halves to see which it is."""
        try:
            with self.db.transaction():
                done = merge_together(self.db, [(merge, steps) for _, merge, steps in group])
        except DatabaseError as error:
            if not blames_event(error):
                names = ", ".join(name for name, _, _ in group)
                error.values["query"] = f"merge of {names}"  # the first statement tells nothing
                raise
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
        except NeedsRowByRow:
            self._again(name, after, before)
            return
        except DatabaseError as error:
            if not blames_event(error):
                raise
            self._try_in_order(name, after, before, error)
            return
        self._count(name, merge, done)

    def _count(self, name: str, merge: TableMerge, done: Merged) -> None:
        self.result.inserted += done.inserted
        self.result.updated += done.updated
        self.result.deleted += done.deleted
        self.result.miss(name, done.missing + merge.table.noop)

    def _again(self, name: str, after: int, before: int) -> None:
        log.debug("%s: replayed row by row", name)
        again = self.restage(self.staged, name)
        self._require_logged(again)
        self._in_order(again, {name: self.staged.specs[name]}, after, before)

    def _try_in_order(self, name: str, after: int, before: int, error: DatabaseError) -> None:
        """The server refused net changes: replay the table's events one by one.

        If one fails it is the one to blame. If none does, then only the net changes were in each
        other's way, and the events in their order are what counts.
        """
        log.debug("%s: %s", name, error)
        try:
            with self.db.transaction():
                self._again(name, after, before)
        except VedurError as better:
            raise better from error

    def _in_order(
        self, staged: Staged, specs: dict[str, TableSpec], after: int, before: int
    ) -> None:
        db, aside, result = self.db, self.aside, self.result
        rows = RowWise(db, specs, lambda spec: truncate(db, spec), replace=self.replace)
        words = {
            "log": log_name(staged.queue, staged.slot),
            "slices": ", ".join(map(str, staged.slices)),
            "after": after,
            "before": before,
        }
        whole = sorted(aside.whole) if aside is not None else []
        if aside is not None and whole:
            aside.move(words["log"], words["slices"], after, before)  # type: ignore[arg-type]
            text = query("quarantine", "staged_rest").format(**words)
            source = db.stream(text, [whole])
        else:
            source = db.stream(query("replay", "log_read").format(**words))
        Ordered(rows, aside).run(_known(source, specs))
        for name, columns in rows.missing_columns.items():
            result.missing_columns.setdefault(name, set()).update(columns)
        result.inserted += rows.counts["I"]
        result.updated += rows.counts["U"]
        result.deleted += rows.counts["D"]
        for name, count in rows.missing.items():
            result.miss(name, count)


def _known(rows: Iterable[tuple[object, ...]], specs: dict[str, TableSpec]) -> Iterator[Event]:
    for row in rows:
        event = Event(*row)  # type: ignore[arg-type]
        if event.ev_extra1 in specs:
            yield event
