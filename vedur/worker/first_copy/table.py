"""Steps 1 to 7 of a first copy: from a registered consumer to a loaded, indexed table.

Tables that are copied together share one snapshot of the provider. Each step leaves the databases
in a state from which the whole list can be run again: what was dropped is stored in the same
transaction, a load begins with an empty table, an index that exists is not built again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic
from uuid import uuid4

from vedur import db as vdb
from vedur.catalog.quarantine import available, forget_stuck_event, forget_stuck_events
from vedur.catalog.tables import (
    change_table_state,
    hold_table,
    hold_tables,
    is_as_seen,
    local_set_table_struct,
)
from vedur.clock import Clock
from vedur.db import set_replication_role
from vedur.errors import (
    ConnectError,
    CopyAbandoned,
    CopyMustWait,
    DatabaseError,
    StateError,
    TableChanged,
    VedurError,
)
from vedur.failpoint import reach
from vedur.names import parse_name
from vedur.node.info import get_node_info
from vedur.node.position import (
    forget_applied,
    read_newest_tick,
    read_position,
    read_worker_position,
    register_consumer,
    register_consumers,
)
from vedur.sql import query
from vedur.tables.indexes import (
    NOTHING_GONE,
    TableDdl,
    drop_parts,
    drop_table_fkey,
    find_table_fkeys,
    finish_parts,
    parse_script,
    read_ddl,
)
from vedur.tables.mapping import TableMap
from vedur.tables.part_rows import name_conflict
from vedur.worker.first_copy.columns import accept_columns, let_worker_pass
from vedur.worker.first_copy.context import (
    CopySetup,
    CopySource,
    Loader,
    PlanT,
    Progress,
    Step,
    TableJob,
)
from vedur.worker.first_copy.parts import (
    SharedPlace,
    build_indexes,
    has_left_rows,
    read_kept_load,
    remove_own_rows,
    require_own_rows,
)
from vedur.worker.first_copy.places import SourceTables, leave_node, read_consumer_node
from vedur.worker.first_copy.states import State
from vedur.worker.quarantine import end_obsolete

log = logging.getLogger(__name__)

_POLL = 0.1


@dataclass(frozen=True)
class ProviderSnapshot:
    """The provider at one moment; good as long as `holder` stays in its transaction."""

    holder: vdb.Database
    exported: str
    visible: str
    mark: str | None = None  # what is written there behind it (source_check.py)


class CopyConsumers:
    """The consumers that hold the queue of a node for the tables of one snapshot: step 1.

    A consumer stands at a tick from before the snapshot. Whoever writes rows of the snapshot asks
    in the same transaction whether it still stands there, for another session, or a script, may
    have begun the copy anew.
    """

    def __init__(self, setup: CopySetup, source: CopySource) -> None:
        self.setup = setup
        self.source = source
        self.ticks: dict[str, int] = {}  # where each table's consumer was registered
        self.subscriptions: list[int] = []  # of the consumers that were registered

    def register(
        self,
        provider: vdb.Database,
        target: vdb.Database,
        jobs: Sequence[TableJob],
        *,
        by_tick: bool,
    ) -> list[tuple[TableJob, Exception]]:
        """Register the consumers of all tables; returns those that are left, with the reason.

        `by_tick`: the provider is a branch, whose snapshots are ticks.
        """
        left: list[tuple[TableJob, Exception]] = []
        for job in self._register_together(provider, target, jobs, by_tick):
            left.append((job, CopyMustWait()))
        done = {*self.ticks, *(job.name for job, _ in left)}
        for job in jobs:
            if job.name in done:
                continue
            try:
                self._begin(target, job)
                self.setup.enter(target, job, Step.REGISTER)
                self._register(provider, target, job, by_tick)
            except (VedurError, CopyAbandoned) as error:
                if len(jobs) == 1 or isinstance(error, ConnectError):
                    raise
                left.append((job, error))
        return left

    def _begin(self, target: vdb.Database, job: TableJob) -> None:
        row = [self.setup.queue, job.name, str(job.dest)]
        if self._kept_load(target, job) is None:
            text = query("copy", "start_progress")
            target.execute(text, [*row, int(Step.REGISTER), Step.REGISTER.title])

    def _register_together(
        self, provider: vdb.Database, target: vdb.Database, jobs: Sequence[TableJob], by_tick: bool
    ) -> list[TableJob]:
        """Register the consumers of all tables at once, as far as that can be done; returns the
        tables that somebody else has locked or changed.

        Those whose consumer stands on another node, or whose rows are kept, are left to
        `_register`.
        """
        plain = {job.consumer: job for job in jobs if not (job.in_one or job.cancelled)}
        if len(plain) < 2:
            return []
        try:
            nodes = [self.setup.queue, list(plain)]
            for row in target.query(query("copies", "consumer_nodes"), nodes):
                if row.provider_node != self.source.node:
                    del plain[row.consumer_name]
            begun = list(plain.values())
            self.setup.start_together(target, begun)
            self.setup.enter_together(target, begun, Step.REGISTER)
            with target.transaction():
                held = hold_tables(target, self.setup.queue, [job.table for job in begun])
                names = {name: job.name for name, job in plain.items() if job.name in held}
                ticks = self._move(provider, list(names), by_tick)
                register_consumers(target, self.setup.queue, ticks, self.source.node)
                forget_applied(target, self.setup.queue, list(names))
                forget_stuck_events(target, self.setup.queue, list(names))
                reach("copy.registered_together")
        except VedurError as error:
            log.debug("consumers are registered one by one: %s", error)
            return []
        self.ticks = {names[consumer]: tick for consumer, tick in ticks.items()}
        return [job for job in begun if job.name not in self.ticks]

    def _move(self, provider: vdb.Database, consumers: list[str], by_tick: bool) -> dict[str, int]:
        """Register consumers on the provider, at its newest tick; returns where they stand."""
        asked = [self.setup.queue, consumers]
        with provider.transaction():
            provider.query(query("copies", "unregister_consumers"), asked)
            provider.query(query("copies", "register_consumers"), asked)
            if by_tick:
                provider.query(query("copies", "mark_tick_copies"), asked)
        rows = provider.query(query("copies", "consumer_ticks"), asked)
        self.subscriptions += [int(row.sub_id) for row in rows]
        return {row.co_name: int(row.sub_last_tick) for row in rows}

    def _register(
        self, provider: vdb.Database, target: vdb.Database, job: TableJob, by_tick: bool
    ) -> None:
        queue, consumer = self.setup.queue, job.consumer
        if self._kept_load(target, job) is not None:
            return  # the position belongs to the snapshot that was used
        before = read_consumer_node(target, queue, consumer)
        if before is not None and before.node != self.source.node:
            leave_node(self.setup, before, consumer)
            reach("copy.left")
        with target.transaction():
            if not hold_table(target, queue, job.table):
                job.cancel()  # another copy is ahead of this one: its position must stay
                return
            with provider.transaction():
                provider.call("pgq.unregister_consumer", queue, consumer)
                provider.call("pgq.register_consumer", queue, consumer)
                if by_tick:
                    provider.value(query("publish", "mark_tick_copy"), [queue, consumer])
            at = provider.one(query("copy", "consumer_tick"), [queue, consumer])
            register_consumer(target, queue, consumer, self.source.node, at.sub_last_tick)
            forget_applied(target, queue, [consumer])
            forget_stuck_event(target, queue, consumer)
        self.ticks[job.name] = int(at.sub_last_tick)
        self.subscriptions.append(int(at.sub_id))

    def _kept_load(self, target: vdb.Database, job: TableJob) -> str | None:
        return read_kept_load(target, self.setup.queue, job.table, merged=job.merged)

    def require_place(self, target: vdb.Database, job: TableJob) -> None:
        """Raise if the copy has lost its place: a script ran since its consumer was registered."""
        at = read_position(target, self.setup.queue, job.consumer)
        if at != self.ticks.get(job.name, at):
            raise CopyAbandoned

    def require_own(self, target: vdb.Database, job: TableJob, visible: str) -> None:
        """Raise unless the rows are those of this snapshot, and the position is the one from before
        it.

        Another worker of the node that began the same copy anew has changed one or both, and
        events between its position and this snapshot would be lost.
        """
        queue = self.setup.queue
        loaded = target.value(query("copy", "copied_snapshot"), [queue, job.name])
        at = read_position(target, queue, job.consumer)
        if loaded != visible or at != self.ticks.get(job.name, at):
            raise StateError(f'the copy of table "{job.name}" was begun anew by another session')


class SourceView:
    """The node that tables are copied from, as the snapshot of their group sees it, and as it is
    now: step 2.

    The snapshot is good as long as its session stays in its transaction. Both connections are for
    several tables: whoever uses one has `planning`.
    """

    def __init__(self, setup: CopySetup, source: CopySource, clock: Clock) -> None:
        self.setup = setup
        self.source = source
        self.clock = clock
        self.planning = threading.Lock()
        self.by_tick = False  # it is a branch, whose snapshots are ticks
        self._keeps_marks = False  # what is copied from it can be marked there
        self._snapshot: ProviderSnapshot | None = None
        self.tables = SourceTables(source)  # in the snapshot, once there is one
        self._present: vdb.Database | None = None  # sees it as it is now

    def close(self) -> None:
        """Let go of the snapshot."""
        if self._snapshot is not None:
            self._snapshot.holder.close()
        if self._present is not None:
            self._present.close()

    @property
    def snapshot(self) -> ProviderSnapshot:
        """The snapshot of the tables; raises where none was taken."""
        if self._snapshot is None:
            raise CopyAbandoned
        return self._snapshot

    def look(self, provider: vdb.Database) -> None:
        """Read what the node is; raises where nothing can be copied from it."""
        self._require_node(provider)
        able = provider.one(query("publish", "source_abilities"), [self.setup.queue])
        self.by_tick, self._keeps_marks = able.shows_ticks, able.keeps_marks

    def _require_node(self, provider: vdb.Database) -> None:
        """Raise unless the location of another node leads to that node, and to a queue."""
        if not self.source.other:
            return
        info = get_node_info(provider, self.setup.queue)
        found = info.node_name if info is not None else "no node"
        if info is None or found != self.source.node:
            raise StateError(f"the location of {self.source} leads to {found}: nothing is copied")
        if not info.node_type.has_queue:
            raise StateError(f"{self.source} is a leaf: it has no queue to go on with")

    def take_snapshot(
        self, provider: vdb.Database, here: int, jobs: Sequence[TableJob]
    ) -> ProviderSnapshot:
        """Take a snapshot that has all that the worker has applied when the consumers were
        registered, at tick `here`; waits where another node than the provider is behind.

        A script that the worker runs later takes their places away. One that it has run by then
        would not run again: the rows must have it.
        """
        while True:
            if all(job.cancelled for job in jobs):
                raise CopyAbandoned
            provider.execute("set transaction isolation level repeatable read, read only")
            snapshot = self._export(provider)
            if (read_newest_tick(provider, self.setup.queue) or 0) >= here:
                self._snapshot = snapshot
                return snapshot
            provider.rollback()
            self.clock.sleep(_POLL)

    def _export(self, provider: vdb.Database) -> ProviderSnapshot:
        """Export the snapshot, and read in it which events are in its rows and what its tables are.

        A branch changes tables, events and ticks in one transaction, so its snapshot shows a tick:
        what that tick has seen is in the rows. On a root the snapshot itself tells, and on a branch
        of upstream's, which gives events the number of the transaction that brings the rows.
        """
        queue = self.setup.queue
        row = provider.one(query("copy", "snapshot"))
        visible = row.visible
        if self.by_tick:
            visible = provider.one(query("publish", "shown_tick"), [queue]).tick_snapshot
        self.tables = SourceTables.read(provider, self.source, queue)
        mark = uuid4().hex if self._keeps_marks else None
        return ProviderSnapshot(provider, row.exported, visible, mark)

    def write_mark(self, subscriptions: Sequence[int]) -> None:
        """Write on the provider, behind the snapshot, what a provider that was set back lacks."""
        mark = self.snapshot.mark
        if mark is None:
            return
        words = [self.setup.queue, list(subscriptions), mark]
        self._connect_present().value(query("publish", "mark_copies"), words)
        reach("copy.marked")

    def see_present(self, snapshot: ProviderSnapshot) -> vdb.Database:
        """Return a connection that sees the provider as it is now, for those who have `planning`.

        Raises unless the session that keeps the snapshot is still there.
        """
        try:
            snapshot.holder.value(query("copy", "holder_alive"))
        except DatabaseError as error:
            raise StateError(
                f"the session that keeps the snapshot of the copy on {self.source} has ended: "
                f"the copy begins anew ({error.message})"
            ) from error
        return self._connect_present()

    def _connect_present(self) -> vdb.Database:
        if self._present is None or self._present.closed:
            self._present = vdb.connect(
                self.source.connstr,
                name="provider_db",
                autocommit=True,
                application_name="vedur copy",
            ).without_timeouts()
        return self._present


class SnapshotLoad(Generic[PlanT]):
    """Tables that are loaded from one snapshot. `open` does steps 1 and 2 for all of them, `load`
    the others for each; may be called from several threads."""

    def __init__(
        self, setup: CopySetup, loader: Loader[PlanT], source: CopySource, clock: Clock
    ) -> None:
        self.setup = setup
        self.loader = loader
        self.clock = clock
        self.source = source
        self.provider = source.connstr
        self.consumers = CopyConsumers(setup, source)
        self.view = SourceView(setup, source, clock)

    def __enter__(self) -> SnapshotLoad[PlanT]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.view.close()

    # -- steps 1 and 2: the group ---------------------------------------------------------------

    def open(self, jobs: Sequence[TableJob]) -> list[tuple[TableJob, Exception]]:
        """Hold the queue for every table, then take the snapshot: no event falls between.

        Returns the tables that cannot begin now, with the reason; the others do.
        """
        view = self.view
        provider = vdb.connect(
            self.provider, name="provider_db", autocommit=True, application_name="vedur copy"
        )
        try:
            provider.without_timeouts()
            view.look(provider)
            with self.setup.connect() as target:
                left = self.consumers.register(provider, target, jobs, by_tick=view.by_tick)
                begun = [job for job in jobs if job.name not in {other.name for other, _ in left}]
                if not begun:
                    provider.close()
                    return left
                self.setup.enter_together(target, begun, Step.SNAPSHOT)
                here = read_worker_position(target, self.setup.queue) or 0
            provider.autocommit = False
            view.take_snapshot(provider, here, jobs)
            view.write_mark(self.consumers.subscriptions)
        except BaseException:
            provider.close()
            raise
        self._find_small(begun, provider)
        return left

    def _find_small(self, jobs: Sequence[TableJob], holder: vdb.Database) -> None:
        """Mark tables that may be loaded together with others, and those for which new indexes
        would take longer than the rows.

        One with indexes put aside by an earlier attempt is not among them, and none whose rows
        are kept: such a load is one transaction of its own.
        """
        wanted = {j.name: j for j in jobs if not j.in_one and not j.table.dropped_ddl}
        named = {
            n: parse_name(s.dest_table) for n, s in self.view.tables.by_name.items() if n in wanted
        }
        asked = {
            "names": list(named),
            "schemas": [name.schema for name in named.values()],
            "tables": [name.name for name in named.values()],
            "most": self.loader.bundle_bytes,
        }
        for row in holder.query(query("copy", "small_tables"), asked):
            job = wanted[row.name]
            job.bundled, job.size = True, row.size
            job.small = row.size <= self.loader.small_bytes

    # -- steps 3 to 7: one table ----------------------------------------------------------------

    def load(self, job: TableJob, *, begun: bool = False) -> None:
        """Do everything up to catching-up, in a thread of its own. With `begun` others have begun
        it, and it is given up if the table is not as they have left it."""
        snapshot = self.view.snapshot
        with self.setup.connect() as target:
            table = self.setup.table(target, job.name)
            if begun and not is_as_seen(table, job.table):
                raise CopyAbandoned
            job.table = table
            done = read_kept_load(target, self.setup.queue, table, merged=job.merged)
            if done is None:
                plan = self._prepare(target, job, snapshot)
                done = self._load(target, job, plan, snapshot)
            self._end(target, job, done)

    def _end(self, target: vdb.Database, job: TableJob, visible: str) -> None:
        """Do step 7; the indexes of a merged table come back after its last part (catch_up.py)."""
        if job.merged:
            self._end_part(target, job, visible)
        else:
            self.setup.enter(target, job, Step.REBUILD)
            self.rebuild(target, job, visible)

    def _prepare(self, target: vdb.Database, job: TableJob, snapshot: ProviderSnapshot) -> PlanT:
        """Do steps 3 to 5: empty the table, and write down its slices; returns the plan."""
        self.setup.enter(target, job, Step.IN_COPY)
        self.view.tables.require(job)
        with target.transaction():
            self._set_state(target, job, None, State.IN_COPY)
            self.consumers.require_place(target, job)
        self.setup.enter(target, job, Step.STRIP)
        drop_fkeys(self.setup, target, job)
        plan = self._plan(target, job, snapshot)
        if plan.only_source:
            let_worker_pass(self.setup, job, target, snapshot.visible, self.clock, plan)
            plan = self._plan(target, job, snapshot)
            accept_columns(self.setup, job, plan)
        self._require_sound(job, plan, snapshot)
        self._strip(target, job, plan, snapshot)
        return plan

    def _load(
        self, target: vdb.Database, job: TableJob, plan: PlanT, snapshot: ProviderSnapshot
    ) -> str:
        self.setup.enter(target, job, Step.LOAD)
        started = self.clock.monotonic()
        with Progress(self.setup, job.name, plan, self.clock) as progress:
            try:
                names = snapshot.exported, snapshot.visible
                rows = self.loader.load(self.provider, target, *names, plan, lambda: job.cancelled)
            except VedurError as error:
                raise name_conflict(target, job.table.dest_table, error) from error
        progress.finish(target)
        reach("copy.loaded")
        self._require_sound(job, plan, snapshot)
        seconds = max(self.clock.monotonic() - started, 0.001)
        log.info("%s: %d rows copied in %.1f s, %.0f rows/s", job.name, rows, seconds,
                 rows / seconds)  # fmt: skip
        return snapshot.visible

    def _plan(self, target: vdb.Database, job: TableJob, snapshot: ProviderSnapshot) -> PlanT:
        with self.view.planning:  # one connection, several tables
            mapping = self.map_table(job)
            return self.loader.plan(snapshot.holder, target, self.setup.queue, mapping)

    def map_table(self, job: TableJob) -> TableMap:
        """Return how a table is to be copied, from the provider's name for it to the one here."""
        return replace(
            job.table.mapping_from(self.view.tables.by_name.get(job.name)), keeps_rows=job.in_one
        )

    def _require_sound(self, job: TableJob, plan: PlanT, snapshot: ProviderSnapshot) -> None:
        """Raise unless the snapshot was there all along, and the table is what it was in it.

        A rewrite leaves an older snapshot without rows, or moves them to pages that were read. No
        lock keeps it away: the production's DDL must not wait for a copy of hours. Tasks look at
        the file of each slice under a lock; here partitions and columns count too.
        """
        with self.view.planning:
            same = self.loader.unchanged(self.view.see_present(snapshot), plan)
        if not same:
            raise TableChanged(
                f'table "{job.name}" was rewritten, altered or truncated on {self.source} since '
                "its copy began: its copy begins anew"
            )

    def _set_state(
        self, target: vdb.Database, job: TableJob, snapshot: str | None, state: State
    ) -> None:
        moved = change_table_state(target, self.setup.queue, job.table, snapshot, state.value)
        if moved is None:
            raise CopyAbandoned  # another registration, or a resync: another copy begins
        job.table = moved

    def _strip(
        self, target: vdb.Database, job: TableJob, plan: PlanT, snapshot: ProviderSnapshot
    ) -> None:
        """Store and drop indexes, empty the table, write the slices: one transaction."""
        queue = self.setup.queue
        target.execute(query("copy", "end_left_tasks"), [plan.task_name])
        with target.transaction():
            # a command that adds another part of the table waits, and so do the parts' copies
            target.value(query("admin", "lock_destination"), [job.table.dest_table])
            if not hold_table(target, queue, job.table):
                raise CopyAbandoned  # the table may be somebody else's now: it must not be emptied
            set_replication_role(target, "replica")
            place = SharedPlace.read(target, queue, job) if job.merged else None
            if available(target):  # what waited for the old rows has no use for the new ones
                end_obsolete(target, queue, job.name, "is copied anew")
            self.loader.store(target, plan)
            words = [snapshot.visible, snapshot.mark, queue, job.name]
            target.execute(query("copy", "set_snapshot"), words)
            if place is not None:
                self._join(target, job, place)
            elif not job.keeps_rows:
                spread = job.table.mapping.partitions
                # partitions that are made meanwhile get their indexes from the table
                if job.table.dropped_ddl or not (job.small or spread):
                    strip_indexes(self.setup, target, job)
                self.setup.enter(target, job, Step.TRUNCATE)
                require_own_rows(target, self.setup.queue, job)
                relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
                tree = spread is not None and spread.field is not None
                only = "" if relation.kind == "p" or tree else "only "
                target.execute(f"truncate {only}{job.dest.quoted}")
            reach("copy.emptied")

    def _join(self, target: vdb.Database, job: TableJob, place: SharedPlace) -> None:
        """Make the table ready for the rows of one part: the first part strips and empties it, and
        no part ever touches what others have brought."""
        place.require_merge(target, self.setup.queue, job)
        if place.leads and not place.stripped:
            # nobody loads now: what others have loaded is seen from here on
            target.execute(query("copy", "lock_table").format(table=job.dest.quoted))
            # (of this part it was read before its slices were planned anew)
            place = replace(SharedPlace.read(target, self.setup.queue, job), me=place.me)
            if not place.ready:  # parts that are replayed need the indexes
                strip_indexes(self.setup, target, job)
            if self.setup.table(target, job.name).dropped_ddl is None:
                script = TableDdl((NOTHING_GONE,)).script()
                local_set_table_struct(target, self.setup.queue, job.name, script)
            reach("copy.led")
        self.setup.enter(target, job, Step.TRUNCATE)
        if place.empties and not has_left_rows(target, job):
            relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
            only = "" if relation.kind == "p" else "only "
            target.execute(f"truncate {only}{job.dest.quoted}")
        elif not job.keeps_rows:
            remove_own_rows(target, job, place)

    def _end_part(self, target: vdb.Database, job: TableJob, visible: str) -> None:
        """Write that the rows of a part are there; the structure stays as it is until all parts
        are."""
        with target.transaction():
            target.value(query("admin", "lock_destination"), [job.table.dest_table])
            if not hold_table(target, self.setup.queue, job.table):
                raise CopyAbandoned
            self.consumers.require_own(target, job, visible)
            state = State.CATCHING_UP.value
            words = [visible, state, self.setup.queue, job.name]
            target.execute(query("copy", "end_part"), words)
            job.table = replace(job.table, custom_snapshot=visible, merge_state=state)
            target.execute(query("copy", "forget_slices"), [self.setup.queue, job.name])
            target.execute(query("copy", "mark_loaded"), [self.setup.queue, job.name])
            reach("copy.joined")

    def rebuild(
        self,
        target: vdb.Database,
        job: TableJob,
        visible: str,
        *,
        connections: int | None = None,
    ) -> None:
        """Build indexes side by side, then constraints with the change of state in one
        transaction."""
        ddl = parse_script(self.setup.table(target, job.name).dropped_ddl) or TableDdl(())
        then = build_indexes(self.setup, target, job, ddl, connections)
        relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
        with target.transaction():
            if not hold_table(target, self.setup.queue, job.table):
                raise CopyAbandoned
            self.consumers.require_own(target, job, visible)
            finish_parts(target, relation.oid, then)
            self._end_load(target, job, visible)
            target.execute(query("copy", "forget_slices"), [self.setup.queue, job.name])
            reach("copy.rebuilt")

    def _end_load(self, target: vdb.Database, job: TableJob, visible: str) -> None:
        """Write structure and state in one UPDATE; the caller holds the table's row.

        With two, the second would have the server look at the node's row for the foreign key, which
        upstream's functions lock while they wait for this table's.
        """
        state = State.CATCHING_UP.value
        target.execute(query("copy", "end_load"), [visible, state, self.setup.queue, job.name])
        job.table = replace(job.table, custom_snapshot=visible, merge_state=state, dropped_ddl=None)


def drop_fkeys(setup: CopySetup, target: vdb.Database, job: TableJob) -> None:
    """Drop foreign keys one by one, as each locks two tables; what is dropped waits in
    pending_fkeys."""
    for fkey in find_table_fkeys(target, str(job.dest)):
        with target.transaction():
            if not hold_table(target, setup.queue, job.table):
                raise CopyAbandoned
            drop_table_fkey(target, fkey.from_table, fkey.fkey_name)
        log.debug("%s: foreign key %s put aside", job.name, fkey.fkey_name)


def strip_indexes(setup: CopySetup, target: vdb.Database, job: TableJob) -> None:
    """Take the indexes away, in the caller's transaction; what is gone is stored with the table."""
    relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
    if not relation.owned:
        log.warning('%s: indexes stay during the copy, "%s" belongs to another role',
                    job.name, job.dest)  # fmt: skip
        return
    stored_text = setup.table(target, job.name).dropped_ddl
    stored = parse_script(stored_text)
    if stored is None:
        # written by another program: its objects come back first, then they are ours
        target.execute(stored_text or "")
        stored = TableDdl(())
    present = read_ddl(target, relation.oid, job.dest)
    gone = drop_parts(target, relation.oid, job.dest, present)
    script = stored.merge(gone).script()
    local_set_table_struct(target, setup.queue, job.name, script)
