"""First copies of several parts into one table: who strips it, who waits, who brings indexes back.

The roles are those of `londiste._coordinate_copy`, so workers of other programs may copy other
parts. Of the parts that are to be copied one leads: it takes the indexes away, empties the table
once and keeps what it took away in its own row (`dropped_ddl`); that it has such a row is what the
others wait for. All parts load, each in one transaction, so a part whose copy died has left no
rows, and nothing that others have loaded need be removed. When the last part is loaded, the lead
builds the indexes; the others catch up after that.

A part that is copied while others are in sync (added later, or copied anew) leaves the indexes
where they are, and removes its own rows by its condition or part column.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vedur import db as vdb
from vedur.catalog.parts import TablePart, find_part, read_parts
from vedur.catalog.tables import TableInfo, change_table_state, hold_table, sharing
from vedur.change.attrs import MAX_PARALLEL_COPY, MERGE
from vedur.clock import Clock
from vedur.errors import CopyAbandoned, StateError, VedurError
from vedur.failpoint import reach
from vedur.sql import query
from vedur.tables.indexes import Part, TableDdl, build_jobs, build_part, finish_parts, parse_script
from vedur.tables.part_rows import name_conflict, why_untold
from vedur.threads import Pool
from vedur.worker.first_copy.context import CopySetup, Step, TableJob
from vedur.worker.first_copy.states import State

log = logging.getLogger(__name__)

#: Roles of a part (`copy_role`).
WAIT_COPY = "wait-copy"
WAIT_REPLAY = "wait-replay"
#: Seconds between two lines about a part that waits for another.
_SAY_AGAIN = 300.0


def is_merged(table: TableInfo, shared: Mapping[str, bool]) -> bool:
    """Is the copy of a table one of several into the same table, or may it become one? Pure.

    One that was added as a part leaves room for others from its beginning.
    """
    return shared.get(table.table_name, False) or MERGE in table.attrs


def must_wait_for_parts(table: TableInfo) -> bool:
    """Must the load of a part wait: for the lead, or because enough parts are loaded at a time?
    Pure."""
    most = table.attrs.get(MAX_PARALLEL_COPY)
    too_many = most is not None and most.isdecimal() and table.copy_pos >= max(int(most), 1)
    return table.copy_role == WAIT_COPY or too_many


def awaited_parts(parts: Sequence[TablePart], queue: str, table: TableInfo) -> list[TablePart]:
    """Return the parts that the load of one waits for (`must_wait_for_parts`). Pure.

    The lead is the first by its queue's name of those that are not in sync, as the roles have it.
    """
    me = find_part(parts, queue, table.table_name)
    if me is None:
        return []
    before = sorted(
        (part for part in parts
         if part.merges_with(me) and part.queue < queue and not part.ready),
        key=lambda part: part.queue,
    )  # fmt: skip
    if table.copy_role == WAIT_COPY:
        return before[:1]
    return [part for part in before if part.merge_state == "in-copy"]


def read_kept_load(
    target: vdb.Database, queue: str, table: TableInfo, *, merged: bool
) -> str | None:
    """Read the snapshot of a load that a crash left complete; only where rows must be kept.

    Rows that were there before, or come from other parts, cannot be told from loaded ones, so
    such a table is never loaded twice; every other table is emptied and loaded again.
    """
    if not (table.keeps_rows or merged) or table.merge_state != State.IN_COPY.value:
        return None
    found = target.value(query("copy", "complete_snapshot"), [queue, table.table_name])
    return None if found is None else str(found)


class PartWaits:
    """Parts whose load waits for other parts of the table that it goes to.

    For whom they wait is said in the log now and then, as that one may be gone for long.
    `announced` is called when a part has got its role, `traced` with the name of a part that,
    removed now, would leave something behind.
    """

    def __init__(
        self,
        setup: CopySetup,
        clock: Clock,
        announced: Callable[[], None],
        traced: Callable[[str], None],
    ) -> None:
        self.setup = setup
        self._clock = clock
        self._announced = announced
        self._traced = traced
        self._say_again: dict[str, float] = {}  # when to say anew for whom a part waits

    def must_wait(self, target: vdb.Database, table: TableInfo) -> bool:
        """Must the load of a part wait? One that has not begun is announced first: the parts have
        roles only then."""
        if table.merge_state is None:
            state = State.IN_COPY.value
            announced = change_table_state(target, self.setup.queue, table, None, state)
            reach("copy.announced")
            if announced is not None:
                self._announced()
            return True
        if must_wait_for_parts(table) and not self._is_loaded(target, table):
            self._say_awaited(target, table)
            return True
        self._say_again.pop(table.table_name, None)
        return False

    def _is_loaded(self, target: vdb.Database, table: TableInfo) -> bool:
        return read_kept_load(target, self.setup.queue, table, merged=True) is not None

    def _say_awaited(self, target: vdb.Database, table: TableInfo) -> None:
        """Say for whom the load of a part waits, in the log now and then, and beside its
        progress."""
        name, now = table.table_name, self._clock.monotonic()
        due = self._say_again.get(name)
        if due is not None and now < due:
            return
        self._say_again[name] = now + _SAY_AGAIN
        awaited = awaited_parts(read_parts(target, table.dest_table), self.setup.queue, table)
        if not awaited:
            return  # it has gone on meanwhile
        names = ", ".join(map(str, awaited))
        self.setup.wait(target, table, f"wait for {names}")
        self._traced(name)
        if table.copy_role != WAIT_COPY:
            log.info("%s: its copy waits for that of %s", name, names)
            return
        log.log(
            logging.INFO if due is None else logging.WARNING,
            "%s: its copy waits until %s, the first of the parts, has made %s ready; the worker of "
            "that queue must run, and reach its provider", name, names, table.dest_table,
        )  # fmt: skip


@dataclass(frozen=True)
class SharedPlace:
    """The table that parts are loaded into, as one of them finds it."""

    me: TablePart
    others: Sequence[TablePart]
    strangers: Sequence[TablePart]  # they share the table, and their copies are not coordinated

    @classmethod
    def read(cls, target: vdb.Database, queue: str, job: TableJob) -> SharedPlace:
        """Read who shares the table; good as long as the caller holds the destination's lock."""
        parts = read_parts(target, job.table.dest_table)
        me = find_part(parts, queue, job.name)
        if me is None:
            raise CopyAbandoned
        rest = [part for part in parts if part is not me]
        others = [part for part in rest if part.merges_with(me)]
        return cls(me, others, [part for part in rest if part not in others])

    @property
    def stripped(self) -> bool:
        """Has this part taken the structure away before, in an attempt that died?"""
        return self.me.has_ddl

    @property
    def leads(self) -> bool:
        """Is it this part that strips the table? The one that comes first under the lock does: by
        its row the others see that they do not."""
        return self.stripped or not any(part.has_ddl or part.copied for part in self.others)

    @property
    def ready(self) -> bool:
        """Is another part in sync, so that its changes are replayed meanwhile?"""
        return any(part.ready for part in self.others)

    @property
    def empties(self) -> bool:
        """May the table be emptied: by the lead, once, with nobody's rows in it? A part that is
        alone may do it again: what is there came from its own earlier copies."""
        if self.me.keeps_rows:
            return False
        if not self.others:
            return True
        if not self.leads or self.stripped:
            return False
        return not any(p.loaded or p.copied or p.ready or p.keeps_rows for p in self.others)

    def require_merge(self, target: vdb.Database, queue: str, job: TableJob) -> None:
        """Raise where tables come together in another way than by a merge: they are not
        coordinated."""
        if job.table.mapping.partitions is not None:
            raise StateError(
                f'table "{job.name}" is spread over partitions by its handler, and "{job.dest}" '
                "has rows of other parts: such tables cannot be merged"
            )
        merged = {part.table for part in self.others}
        others = [name for name in sharing(target, queue, job.table)
                  if name not in merged]  # fmt: skip
        if others or self.strangers:
            names = ", ".join([*others, *map(str, self.strangers)])
            raise StateError(
                f'the copy of "{job.name}" cannot be coordinated with {names}, whose rows are in '
                f'"{job.dest}", too: remove one of the tables, or add this one with --expect-sync'
            )


def require_own_rows(target: vdb.Database, queue: str, job: TableJob) -> None:
    """Raise where rows of others are in the table: a copy begins with an empty one."""
    others = sharing(target, queue, job.table)
    if others:
        raise StateError(
            f'the copy of "{job.name}" would empty "{job.dest}", which has rows of '
            f"{', '.join(others)}, too: remove one of the tables, or add this one with "
            "--skip-truncate or --expect-sync"
        )


def has_left_rows(target: vdb.Database, job: TableJob) -> bool:
    """Has a table that could be emptied rows that are not of this part, by what tells them?

    Parts that were removed have left them (remove-table). From here on nobody loads the table.
    """
    condition = job.own
    if (
        MERGE not in job.table.attrs
        or condition is None
        or why_untold(target, job.table.dest_table)
    ):
        return False
    target.execute(query("copy", "lock_table").format(table=job.dest.quoted))
    words = {"dest": job.dest.quoted, "condition": condition}
    return bool(target.query(query("copy", "has_other_rows").format(**words))[0][0])


def remove_own_rows(target: vdb.Database, job: TableJob, place: SharedPlace) -> None:
    """Remove the rows that an earlier copy of this part has brought, and no others.

    The load is one transaction: an attempt that died has left nothing. Only rows that were in sync
    once (resync), that were loaded before other parts came, or whose copy was set back when they
    were loaded, can be there, and a condition or a part column must tell them.
    """
    dest = job.table.dest_table
    why = why_untold(target, dest)
    if not why:
        condition = job.own
        words = {"dest": job.dest.quoted, "condition": condition}
        target.execute(query("copy", "remove_part").format(**words))
    elif place.me.loaded:
        raise StateError(
            f'the copy of "{job.name}" would begin anew, but its rows are in "{dest}" already, and '
            f"cannot be told from the rows of other parts: {why}. Remove all parts of the table "
            "(remove-table), and add them again with --merge-all"
        )


def build_indexes(
    setup: CopySetup,
    target: vdb.Database,
    job: TableJob,
    ddl: TableDdl,
    connections: int | None = None,
) -> list[Part]:
    """Build indexes side by side, each unless it is there; returns what must follow in order, in
    the transaction that ends the work."""
    most = connections or setup.build_connections
    first, then = build_jobs(ddl)

    def build(part: Part) -> None:
        with setup.connect() as db:
            db.with_memory("maintenance_work_mem", setup.maintenance_work_mem)
            build_part(db, part)

    if first:
        with Pool(min(len(first), most)) as pool:
            list(pool.map(build, first))
    target.execute(f"analyze {job.dest.quoted}")
    return then


def restore_structure(setup: CopySetup, target: vdb.Database, job: TableJob) -> None:
    """Do step 7 of the part that leads, when all parts are loaded: build the indexes again."""
    setup.enter(target, job, Step.REBUILD)
    table = setup.table(target, job.name)
    text = table.dropped_ddl
    if text is None:
        return
    ddl = parse_script(text)
    try:
        then = build_indexes(setup, target, job, ddl or TableDdl(()))
    except VedurError as error:
        raise name_conflict(target, table.dest_table, error) from error
    relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
    with target.transaction():
        target.value(query("admin", "lock_destination"), [table.dest_table])
        if not hold_table(target, setup.queue, table):
            raise CopyAbandoned
        if ddl is None:
            target.execute(text)  # written by another program
        finish_parts(target, relation.oid, then)
        target.execute(query("copy", "end_lead"), [setup.queue, job.name])
        job.table = replace(table, dropped_ddl=None)
        reach("copy.restored")
