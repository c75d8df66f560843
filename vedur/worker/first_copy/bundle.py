"""Steps 3 to 7 of a first copy for several tables at a time, none of them larger than a slice.

For such tables statements, commits and connections cost more than rows. So each step is done for
all of them at once: one statement on each side, one transaction, one Spark job. What a table of its
own would do in the same step is in `table.py`, and the states, slices, positions and progress that
are stored are the same: after a crash each table is found as if it had been alone.

A bundle is a short cut and never the only way. It takes plain tables only, waits for nobody, and a
table that does not fit, is locked by others or fails is left to the ordinary way. A step that fails
as a whole is tried again with each half of the tables, so that one of them cannot hold up the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Generic

from vedur import db as vdb
from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.quarantine import available
from vedur.catalog.tables import change_table_states, hold_tables, is_as_seen
from vedur.db import set_replication_role
from vedur.errors import ConnectError, ControlFlow, DatabaseError, StateError, VedurError
from vedur.failpoint import reach
from vedur.names import QualifiedName
from vedur.sql import query
from vedur.threads import Pool
from vedur.worker.first_copy.context import CopySetup, PlanT, ProgressTogether, Step, TableJob
from vedur.worker.first_copy.states import MergeState, State
from vedur.worker.first_copy.table import ProviderSnapshot, SnapshotLoad, drop_fkeys, strip_indexes
from vedur.worker.quarantine import end_obsolete

log = logging.getLogger(__name__)

_LOCK_NOT_AVAILABLE = "55P03"

Jobs = dict[str, TableJob]


class Bundle(Generic[PlanT]):
    """Takes tables up to catching-up; the snapshot is that of their group."""

    def __init__(self, load: SnapshotLoad[PlanT], snapshot: ProviderSnapshot) -> None:
        self.load = load
        self.snapshot = snapshot
        self.setup: CopySetup = load.setup
        self.queue = load.setup.queue

    def run(self, jobs: Sequence[TableJob]) -> list[TableJob]:
        """Load tables and return those that are loaded; the others are to be loaded one by one."""
        if len(jobs) < 2:
            return []
        try:
            with self.setup.connect() as target:
                return self._run(target, {job.name: job for job in jobs})
        except ConnectError:
            raise
        except (VedurError, ControlFlow) as error:
            log.debug("%d tables cannot be loaded together: %s", len(jobs), error)
        middle = len(jobs) // 2
        return self.run(jobs[:middle]) + self.run(jobs[middle:])

    def _run(self, target: vdb.Database, jobs: Jobs) -> list[TableJob]:
        places = self._begin(target, jobs)
        plans = self._plan(target, {name: jobs[name] for name in places})
        jobs = {name: jobs[name] for name in plans}
        jobs = self._empty(target, jobs, plans)
        jobs = self._load(target, jobs, {name: plans[name] for name in jobs})
        return self._end(target, jobs)

    # -- step 3 -----------------------------------------------------------------------------------

    def _begin(self, target: vdb.Database, jobs: Jobs) -> dict[str, int]:
        """Mark the tables as in copy; returns the oids of those that go on."""
        with target.transaction():
            now = get_table_list(target, self.queue).by_name
        fit: Jobs = {}
        for name, job in jobs.items():
            table = now.get(name)
            if job.cancelled or table is None or not _is_to_load(table, job.table):
                continue
            job.table = table
            try:
                self.load.view.tables.require(job)
            except StateError:
                continue
            fit[name] = job
        self.setup.enter_together(target, list(fit.values()), Step.IN_COPY)
        places = self._places(target, fit)
        with target.transaction():
            held = hold_tables(target, self.queue, [fit[name].table for name in places])
            tables = [fit[name].table for name in places if name in held]
            state = State.IN_COPY.value
            moved = change_table_states(target, self.queue, tables, state, keep_snapshot=False)
            for table in moved:
                fit[table.table_name].table = table
            reach("copy.begun_together")
        self.setup.enter_together(target, [fit[name] for name in held], Step.STRIP)
        self._drop_fkeys(target, {oid: fit[name] for name, oid in places.items() if name in held})
        return {name: oid for name, oid in places.items() if name in held}

    def _places(self, target: vdb.Database, jobs: Jobs) -> dict[str, int]:
        """Read the oids of the tables here, of those that are plain ones with nobody else's rows,
        and whose indexes are ours."""
        words = {
            "names": list(jobs),
            "schemas": [job.dest.schema for job in jobs.values()],
            "tables": [job.dest.name for job in jobs.values()],
        }
        rows = target.query(query("copies", "places"), words)
        return {row.name: row.oid for row in rows if row.owned or jobs[row.name].small}

    def _drop_fkeys(self, target: vdb.Database, jobs: Mapping[int, TableJob]) -> None:
        for row in target.query(query("copies", "with_fkeys"), [list(jobs)]):
            drop_fkeys(self.setup, target, jobs[row.oid])

    # -- steps 4 and 5 ----------------------------------------------------------------------------

    def _plan(self, target: vdb.Database, jobs: Jobs) -> dict[str, PlanT]:
        """Plan the tables, and leave out those that are not what the snapshot saw of them."""
        if not jobs:
            return {}
        with self.load.view.planning:
            mappings = [self.load.map_table(job) for job in jobs.values()]
            plans = self.load.loader.plan_together(
                self.snapshot.holder, target, self.queue, mappings
            )
        return self._sound(plans)

    def _sound(self, plans: Mapping[str, PlanT]) -> dict[str, PlanT]:
        """Leave out tables that were rewritten; raises if the snapshot was not there all along."""
        if not plans:
            return {}
        with self.load.view.planning:
            present = self.load.view.see_present(self.snapshot)
            same = self.load.loader.unchanged_together(present, plans)
        return {name: plan for name, plan in plans.items() if name in same}

    def _empty(self, target: vdb.Database, jobs: Jobs, plans: Mapping[str, PlanT]) -> Jobs:
        """Empty the tables, take the indexes of larger ones away and write the slices: one
        transaction. Returns the tables that nobody else uses just now."""
        tasks = [plan.task_name for plan in plans.values()]
        target.execute(query("copies", "end_left_tasks"), [tasks])
        with target.transaction():
            dests = [job.table.dest_table for job in jobs.values()]
            # a command that adds another part of a table waits, and so do the parts' copies
            target.query(query("copies", "lock_destinations"), [dests])
            held = hold_tables(target, self.queue, [job.table for job in jobs.values()])
            # the same again, now that nobody can add another part
            places = self._places(target, {name: jobs[name] for name in held})
            # before the lock of a table, as a task that is left over takes these two
            self.load.loader.store_together(target, self.queue, {n: plans[n] for n in places})
            words = [self.snapshot.visible, self.snapshot.mark, self.queue, list(places)]
            target.execute(query("copies", "set_snapshots"), words)
            free = self._lock(target, {n: jobs[n] for n in jobs if n in places})
            set_replication_role(target, "replica")
            self._end_quarantine(target, list(free))
            for job in free.values():
                if not job.small:
                    strip_indexes(self.setup, target, job)
            self.setup.enter_together(target, list(free.values()), Step.TRUNCATE)
            oids = {places[name]: job.dest for name, job in free.items()}
            self._truncate(target, oids)
            reach("copy.emptied_together")
        return free

    def _lock(self, target: vdb.Database, jobs: Jobs) -> Jobs:
        """Lock the tables until the end of the transaction; returns those that nobody has locked.

        Somebody who reads two of them would wait for one while we wait for the other.
        """
        if not jobs:
            return {}
        names = ", ".join(job.dest.quoted for job in jobs.values())
        try:
            with target.transaction():
                target.execute(query("copies", "lock_tables").format(tables=names))
            return jobs
        except DatabaseError as error:
            if error.sqlstate != _LOCK_NOT_AVAILABLE:
                raise
        if len(jobs) == 1:
            return {}
        some = list(jobs.items())
        middle = len(some) // 2
        return self._lock(target, dict(some[:middle])) | self._lock(target, dict(some[middle:]))

    def _end_quarantine(self, target: vdb.Database, names: Sequence[str]) -> None:
        """End the events that waited in quarantine for the old rows: they have no use for the new
        ones."""
        if available(target):
            rows = target.query(query("copies", "in_quarantine"), [self.queue, list(names)])
            for row in rows:
                end_obsolete(target, self.queue, row.table_name, "is copied anew")

    @staticmethod
    def _truncate(target: vdb.Database, tables: Mapping[int, QualifiedName]) -> None:
        """Empty the tables that have rows: a new file for each index of an empty one costs more
        than all else that is done with it."""
        rows = target.query(query("copies", "to_empty"), [list(tables)])
        if rows:
            names = ", ".join(f"only {tables[row.oid].quoted}" for row in rows)
            target.execute(f"truncate {names}")

    # -- step 6 -----------------------------------------------------------------------------------

    def _load(self, target: vdb.Database, jobs: Jobs, plans: Mapping[str, PlanT]) -> Jobs:
        """Load the tables; returns those that are loaded."""
        if not plans:
            return {}
        self.setup.enter_together(target, list(jobs.values()), Step.LOAD)
        began = self.load.clock.monotonic()
        with ProgressTogether(self.setup, plans, self.load.clock) as progress:
            self.load.loader.load_together(
                self.load.provider, target, self.snapshot.exported, self.snapshot.visible,
                list(plans.values()), lambda: all(job.cancelled for job in jobs.values()),
            )  # fmt: skip
        progress.finish(target)
        rows = target.query(query("copies", "loaded"), [self.queue, list(plans)])
        reach("copy.loaded_together")
        seconds = max(self.load.clock.monotonic() - began, 0.001)
        for row in rows:
            log.info("%s: %d rows copied", row.table_name, row.rows)
        log.info("%d tables copied together in %.1f s", len(rows), seconds)
        sound = self._sound({row.table_name: plans[row.table_name] for row in rows})
        return {name: jobs[name] for name in sound}

    # -- step 7 -----------------------------------------------------------------------------------

    def _end(self, target: vdb.Database, jobs: Jobs) -> list[TableJob]:
        if not jobs:
            return []
        self.setup.enter_together(target, list(jobs.values()), Step.REBUILD)
        larger = [job for job in jobs.values() if not job.small]
        with Pool(max(1, min(len(larger), self.setup.build_connections))) as pool:
            built = pool.map(self._rebuild, larger)
            whole = self._end_whole(target, [job for job in jobs.values() if job.small])
            return whole + [job for job, fine in zip(larger, built, strict=True) if fine]

    def _rebuild(self, job: TableJob) -> bool:
        """Build the indexes of a larger table as if it were alone; False where that fails."""
        try:
            with self.setup.connect() as target:
                self.load.rebuild(target, job, self.snapshot.visible, connections=1)
        except (VedurError, ControlFlow) as error:
            log.debug("%s: its indexes are built when it is loaded alone: %s", job.name, error)
            return False
        return True

    def _end_whole(self, target: vdb.Database, jobs: Sequence[TableJob]) -> list[TableJob]:
        """Move tables that have their indexes on to catching-up in one transaction, or in several
        where one of them cannot; returns those that went."""
        if not jobs:
            return []
        try:
            return self._end_some(target, {job.name: job for job in jobs})
        except ConnectError:
            raise
        except (VedurError, ControlFlow) as error:
            log.debug("%d tables cannot go on together: %s", len(jobs), error)
        if len(jobs) == 1:
            return []
        middle = len(jobs) // 2
        return self._end_whole(target, jobs[:middle]) + self._end_whole(target, jobs[middle:])

    def _end_some(self, target: vdb.Database, jobs: Jobs) -> list[TableJob]:
        names = ", ".join(job.dest.quoted for job in jobs.values())
        visible, state = self.snapshot.visible, State.CATCHING_UP.value
        with target.transaction():
            target.execute(f"analyze {names}")
            held = hold_tables(target, self.queue, [job.table for job in jobs.values()])
            own = [name for name in self._own(target, jobs) if name in held]
            target.execute(query("copies", "end_loads"), [visible, state, self.queue, own])
            target.execute(query("copies", "forget_slices"), [self.queue, own])
            reach("copy.ended_together")
        for name in own:
            job = jobs[name]
            job.table = replace(job.table, custom_snapshot=visible, merge_state=state)
        return [jobs[name] for name in own]

    def _own(self, target: vdb.Database, jobs: Jobs) -> list[str]:
        """Read which tables have the rows of this snapshot, and the position from before it
        (`CopyConsumers.require_own`)."""
        words = {
            "queue": self.queue,
            "names": list(jobs),
            "consumers": [job.consumer for job in jobs.values()],
        }
        rows = target.query(query("copies", "copied_snapshots"), words)
        return [
            row.table_name
            for row in rows
            if row.snapshot == self.snapshot.visible
            and row.last_tick_id == self.load.consumers.ticks.get(row.table_name, row.last_tick_id)
        ]


def _is_to_load(now: TableInfo, seen: TableInfo) -> bool:
    """Is a table what it was when its copy began, and whole? Pure."""
    state = MergeState.parse(now.merge_state).state
    whole = now.local and now.dropped_ddl is None
    return whole and state in (State.NONE, State.IN_COPY) and is_as_seen(now, seen)
