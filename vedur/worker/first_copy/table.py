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
from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.copy_source import quarantined_parts, unready_parts
from vedur.catalog.quarantine import available, forget_stuck_event, forget_stuck_events
from vedur.catalog.tables import (
    change_table_state,
    hold_table,
    hold_tables,
    is_as_seen,
    local_set_table_struct,
    missing_part,
    sharing,
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
from vedur.node.info import NodeType, get_node_info
from vedur.node.position import (
    forget_applied,
    read_newest_tick,
    read_position,
    read_worker_position,
    register_consumer,
    register_consumers,
    unregister_consumer,
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
    MakeApplier,
    PlanT,
    Progress,
    Step,
    TableJob,
)
from vedur.worker.first_copy.parts import (
    SharedPlace,
    build_indexes,
    has_left_rows,
    remove_own_rows,
)
from vedur.worker.first_copy.places import ConsumerPlace, read_consumer_node
from vedur.worker.first_copy.states import State
from vedur.worker.quarantine import QuarantinedRows, end_obsolete

log = logging.getLogger(__name__)

_POLL = 0.1


@dataclass(frozen=True)
class ProviderSnapshot:
    """The provider at one moment; good as long as `holder` stays in its transaction."""

    holder: vdb.Database
    exported: str
    visible: str
    mark: str | None = None  # what is written there behind it (source_check.py)


class SnapshotLoad(Generic[PlanT]):
    """Tables that are loaded from one snapshot."""

    def __init__(
        self, setup: CopySetup, loader: Loader[PlanT], source: CopySource, clock: Clock
    ) -> None:
        self.setup = setup
        self.loader = loader
        self.source = source
        self.provider = source.connstr
        self.clock = clock
        self._snapshot: ProviderSnapshot | None = None
        self._sources: dict[str, TableInfo] = {}
        self.ticks: dict[str, int] = {}  # where each table's consumer was registered
        self._present: vdb.Database | None = None  # sees the provider as it is now
        self.planning = threading.Lock()
        self._by_tick = False  # the provider is a branch, whose snapshots are ticks
        self._keeps_marks = False  # what is copied from it can be marked there
        self._subscriptions: list[int] = []  # of the consumers that were registered
        self._quarantined: set[str] = set()  # tables of which the provider has events in quarantine
        self._type = NodeType.ROOT  # of the node that is copied from
        self._unready_parts: dict[str, list[str]] = {}  # by table, where it is a combined root
        self._quarantined_parts: dict[str, list[str]] = {}

    def __enter__(self) -> SnapshotLoad[PlanT]:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._snapshot is not None:
            self._snapshot.holder.close()
        if self._present is not None:
            self._present.close()

    # -- steps 1 and 2: the group ---------------------------------------------------------------

    def open(self, jobs: Sequence[TableJob]) -> list[tuple[TableJob, Exception]]:
        """Hold the queue for every table, then take the snapshot: no event falls between.

        Returns the tables that cannot begin now, with the reason; the others do.
        """
        queue = self.setup.queue
        provider = vdb.connect(
            self.provider, name="provider_db", autocommit=True, application_name="vedur copy"
        )
        try:
            provider.without_timeouts()
            self._require_node(provider)
            able = provider.one(query("publish", "source_abilities"), [queue])
            self._by_tick, self._keeps_marks = able.shows_ticks, able.keeps_marks
            with self.setup.connect() as target:
                left = self._register_all(provider, target, jobs)
                begun = [job for job in jobs if job.name not in {other.name for other, _ in left}]
                if not begun:
                    provider.close()
                    return left
                self.setup.enter_together(target, begun, Step.SNAPSHOT)
                here = read_worker_position(target, queue) or 0
            provider.autocommit = False
            self._snapshot = self._take_snapshot_behind(provider, here, jobs)
            self._write_mark(self._snapshot)
        except BaseException:
            provider.close()
            raise
        self._find_small(begun, provider)
        return left

    def _register_all(
        self, provider: vdb.Database, target: vdb.Database, jobs: Sequence[TableJob]
    ) -> list[tuple[TableJob, Exception]]:
        """Register the consumers of all tables; returns those that are left, with the reason."""
        left: list[tuple[TableJob, Exception]] = []
        for job in self._register_together(provider, target, jobs):
            left.append((job, CopyMustWait()))
        done = {*self.ticks, *(job.name for job, _ in left)}
        for job in jobs:
            if job.name in done:
                continue
            try:
                self._begin(target, job)
                self.setup.enter(target, job, Step.REGISTER)
                self._register(provider, target, job)
            except (VedurError, CopyAbandoned) as error:
                if len(jobs) == 1 or isinstance(error, ConnectError):
                    raise
                left.append((job, error))
        return left

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

    def _take_snapshot_behind(
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
            snapshot = self._take_snapshot(provider)
            if (read_newest_tick(provider, self.setup.queue) or 0) >= here:
                return snapshot
            provider.rollback()
            self.clock.sleep(_POLL)

    def _take_snapshot(self, provider: vdb.Database) -> ProviderSnapshot:
        """Export the snapshot, and read in it which events are in its rows and what its tables are.

        A branch changes tables, events and ticks in one transaction, so its snapshot shows a tick:
        what that tick has seen is in the rows. On a root the snapshot itself tells, and on a branch
        of upstream's, which gives events the number of the transaction that brings the rows.
        """
        queue = self.setup.queue
        row = provider.one(query("copy", "snapshot"))
        visible = row.visible
        if self._by_tick:
            visible = provider.one(query("publish", "shown_tick"), [queue]).tick_snapshot
        self._sources = get_table_list(provider, queue).by_name
        info = get_node_info(provider, queue)
        self._type = info.node_type if info is not None else NodeType.ROOT
        if info is not None and info.is_root and info.target_for:
            self._unready_parts = unready_parts(provider, queue)
            self._quarantined_parts = quarantined_parts(provider, queue)
        if self._type is NodeType.BRANCH and available(provider):
            self._quarantined = QuarantinedRows.read(provider, queue).all_tables()
        mark = uuid4().hex if self._keeps_marks else None
        return ProviderSnapshot(provider, row.exported, visible, mark)

    def _write_mark(self, snapshot: ProviderSnapshot) -> None:
        """Write on the provider, behind the snapshot, what a provider that was set back lacks."""
        if snapshot.mark is None:
            return
        words = [self.setup.queue, self._subscriptions, snapshot.mark]
        self._connect_present().value(query("publish", "mark_copies"), words)
        reach("copy.marked")

    def _find_small(self, jobs: Sequence[TableJob], holder: vdb.Database) -> None:
        """Mark tables that may be loaded together with others, and those for which new indexes
        would take longer than the rows.

        One with indexes put aside by an earlier attempt is not among them, and none whose rows
        are kept: such a load is one transaction of its own.
        """
        wanted = {j.name: j for j in jobs if not j.in_one and not j.table.dropped_ddl}
        named = {n: parse_name(s.dest_table) for n, s in self._sources.items() if n in wanted}
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

    def _begin(self, target: vdb.Database, job: TableJob) -> None:
        row = [self.setup.queue, job.name, str(job.dest)]
        if self._loaded_before(target, job) is None:
            text = query("copy", "start_progress")
            target.execute(text, [*row, int(Step.REGISTER), Step.REGISTER.title])

    def _loaded_before(self, target: vdb.Database, job: TableJob) -> str | None:
        """Read the snapshot of a load that a crash left complete; only where rows must be kept.

        Rows that were there before, or come from other parts, cannot be told from loaded ones, so
        such a table is never loaded twice; every other table is emptied and loaded again.
        """
        if not job.in_one or job.table.merge_state != State.IN_COPY.value:
            return None
        found = target.value(query("copy", "complete_snapshot"), [self.setup.queue, job.name])
        return None if found is None else str(found)

    def _register_together(
        self, provider: vdb.Database, target: vdb.Database, jobs: Sequence[TableJob]
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
                ticks = self._move_consumers(provider, list(names))
                register_consumers(target, self.setup.queue, ticks, self.source.node)
                forget_applied(target, self.setup.queue, list(names))
                forget_stuck_events(target, self.setup.queue, list(names))
                reach("copy.registered_together")
        except VedurError as error:
            log.debug("consumers are registered one by one: %s", error)
            return []
        self.ticks = {names[consumer]: tick for consumer, tick in ticks.items()}
        return [job for job in begun if job.name not in self.ticks]

    def _move_consumers(self, provider: vdb.Database, consumers: list[str]) -> dict[str, int]:
        """Register consumers on the provider, at its newest tick; returns where they stand."""
        asked = [self.setup.queue, consumers]
        with provider.transaction():
            provider.query(query("copies", "unregister_consumers"), asked)
            provider.query(query("copies", "register_consumers"), asked)
            if self._by_tick:
                provider.query(query("copies", "mark_tick_copies"), asked)
        rows = provider.query(query("copies", "consumer_ticks"), asked)
        self._subscriptions += [int(row.sub_id) for row in rows]
        return {row.co_name: int(row.sub_last_tick) for row in rows}

    def _register(self, provider: vdb.Database, target: vdb.Database, job: TableJob) -> None:
        queue, consumer = self.setup.queue, job.consumer
        if self._loaded_before(target, job) is not None:
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
                if self._by_tick:
                    provider.value(query("publish", "mark_tick_copy"), [queue, consumer])
            at = provider.one(query("copy", "consumer_tick"), [queue, consumer])
            register_consumer(target, queue, consumer, self.source.node, at.sub_last_tick)
            forget_applied(target, queue, [consumer])
            forget_stuck_event(target, queue, consumer)
        self.ticks[job.name] = int(at.sub_last_tick)
        self._subscriptions.append(int(at.sub_id))

    # -- steps 3 to 7: one table ----------------------------------------------------------------

    def load(self, job: TableJob, *, begun: bool = False) -> None:
        """Do everything up to catching-up, in a thread of its own. With `begun` others have begun
        it, and it is given up if the table is not as they have left it."""
        snapshot = self.snapshot
        with self.setup.connect() as target:
            table = self.setup.table(target, job.name)
            if begun and not is_as_seen(table, job.table):
                raise CopyAbandoned
            job.table = table
            done = self._loaded_before(target, job)
            if done is None:
                done = self._fill(target, job, snapshot)
            self._end(target, job, done)

    def _end(self, target: vdb.Database, job: TableJob, visible: str) -> None:
        """Do step 7; the indexes of a merged table come back after its last part (catch_up.py)."""
        if job.merged:
            self._end_part(target, job, visible)
        else:
            self.setup.enter(target, job, Step.REBUILD)
            self.rebuild(target, job, visible)

    @property
    def snapshot(self) -> ProviderSnapshot:
        """The snapshot of the tables; raises where none was taken."""
        if self._snapshot is None:
            raise CopyAbandoned
        return self._snapshot

    def _fill(self, target: vdb.Database, job: TableJob, snapshot: ProviderSnapshot) -> str:
        plan = self._prepare(target, job, snapshot)
        return self._load(target, job, plan, snapshot)

    def _prepare(self, target: vdb.Database, job: TableJob, snapshot: ProviderSnapshot) -> PlanT:
        """Do steps 3 to 5: empty the table, and write down its slices; returns the plan."""
        self.setup.enter(target, job, Step.IN_COPY)
        self.require_source(job)
        with target.transaction():
            self._set_state(target, job, None, State.IN_COPY)
            self._require_place(target, job)
        self.setup.enter(target, job, Step.STRIP)
        self.drop_fkeys(target, job)
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
        with self.planning:  # one connection, several tables
            mapping = self.map_table(job)
            return self.loader.plan(snapshot.holder, target, self.setup.queue, mapping)

    def map_table(self, job: TableJob) -> TableMap:
        """Return how a table is to be copied, from the provider's name for it to the one here."""
        return replace(job.table.mapping_from(self._sources.get(job.name)), keeps_rows=job.in_one)

    def _require_sound(self, job: TableJob, plan: PlanT, snapshot: ProviderSnapshot) -> None:
        """Raise unless the snapshot was there all along, and the table is what it was in it.

        A rewrite leaves an older snapshot without rows, or moves them to pages that were read. No
        lock keeps it away: the production's DDL must not wait for a copy of hours. Tasks look at
        the file of each slice under a lock; here partitions and columns count too.
        """
        with self.planning:
            same = self.loader.unchanged(self.see_present(snapshot), plan)
        if not same:
            raise TableChanged(
                f'table "{job.name}" was rewritten, altered or truncated on {self.source} since '
                "its copy began: its copy begins anew"
            )

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
                self.provider, name="provider_db", autocommit=True, application_name="vedur copy"
            ).without_timeouts()
        return self._present

    def require_source(self, job: TableJob) -> TableInfo:
        """Return the provider's row of a table; raises where it cannot be copied from there."""
        source = self._sources.get(job.name)
        where = self.source
        if source is None or not source.ready:
            raise StateError(f'table "{job.name}" is not ready on {where}, its copy waits')
        if parts := self._unready_parts.get(job.name):
            raise StateError(
                f'table "{job.name}" is not ready on {where}, its copy waits: of part(s) '
                f"{', '.join(parts)} the first copy there is not done"
            )
        if parts := self._quarantined_parts.get(job.name):
            raise StateError(
                f'table "{job.name}" has events of part(s) {", ".join(parts)} in quarantine on '
                f"{where}, and they do not come again; its copy waits: quarantine replay (or "
                "quarantine drop) them there, with the ini of the part"
            )
        part = missing_part(source, job.table.mapping) if self._type is NodeType.BRANCH else ""
        if part:
            raise StateError(
                f'table "{job.name}" is on {where} in part only ({part}): copy it from a node that '
                "has it whole (resync with --find-copy-node or --copy-node), or give this node "
                "another provider (change-provider)"
            )
        if job.name in self._quarantined:
            raise StateError(
                f'table "{job.name}" has events in quarantine on {where}, so its rows are not '
                'those of the set; its copy waits: see "errors" there, or copy it from another '
                "node (resync with --find-copy-node or --copy-node), or give this node another "
                "provider (change-provider)"
            )
        return source

    def _set_state(
        self, target: vdb.Database, job: TableJob, snapshot: str | None, state: State
    ) -> None:
        moved = change_table_state(target, self.setup.queue, job.table, snapshot, state.value)
        if moved is None:
            raise CopyAbandoned  # another registration, or a resync: another copy begins
        job.table = moved

    def _require_place(self, target: vdb.Database, job: TableJob) -> None:
        """Raise if the copy has lost its place: a script ran since its consumer was registered."""
        at = read_position(target, self.setup.queue, job.consumer)
        if at != self.ticks.get(job.name, at):
            raise CopyAbandoned

    def drop_fkeys(self, target: vdb.Database, job: TableJob) -> None:
        """Drop foreign keys one by one, as each locks two tables; what is dropped waits in
        pending_fkeys."""
        for fkey in find_table_fkeys(target, str(job.dest)):
            with target.transaction():
                if not hold_table(target, self.setup.queue, job.table):
                    raise CopyAbandoned
                drop_table_fkey(target, fkey.from_table, fkey.fkey_name)
            log.debug("%s: foreign key %s put aside", job.name, fkey.fkey_name)

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
                    self.strip_indexes(target, job)
                self.setup.enter(target, job, Step.TRUNCATE)
                self._require_own_rows(target, job)
                relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
                tree = spread is not None and spread.field is not None
                only = "" if relation.kind == "p" or tree else "only "
                target.execute(f"truncate {only}{job.dest.quoted}")
            reach("copy.emptied")

    def _join(self, target: vdb.Database, job: TableJob, place: SharedPlace) -> None:
        """Make the table ready for the rows of one part: the first part strips and empties it, and
        no part ever touches what others have brought."""
        self._require_parts(target, job, place)
        if place.leads and not place.stripped:
            # nobody loads now: what others have loaded is seen from here on
            target.execute(query("copy", "lock_table").format(table=job.dest.quoted))
            # (of this part it was read before its slices were planned anew)
            place = replace(SharedPlace.read(target, self.setup.queue, job), me=place.me)
            if not place.ready:  # parts that are replayed need the indexes
                self.strip_indexes(target, job)
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

    def _require_parts(self, target: vdb.Database, job: TableJob, place: SharedPlace) -> None:
        """Raise where tables come together in another way than by a merge: they are not
        coordinated."""
        if job.table.mapping.partitions is not None:
            raise StateError(
                f'table "{job.name}" is spread over partitions by its handler, and "{job.dest}" '
                "has rows of other parts: such tables cannot be merged"
            )
        merged = {part.table for part in place.others}
        others = [name for name in sharing(target, self.setup.queue, job.table)
                  if name not in merged]  # fmt: skip
        if others or place.strangers:
            names = ", ".join([*others, *map(str, place.strangers)])
            raise StateError(
                f'the copy of "{job.name}" cannot be coordinated with {names}, whose rows are in '
                f'"{job.dest}", too: remove one of the tables, or add this one with --expect-sync'
            )

    def _end_part(self, target: vdb.Database, job: TableJob, visible: str) -> None:
        """Write that the rows of a part are there; the structure stays as it is until all parts
        are."""
        with target.transaction():
            target.value(query("admin", "lock_destination"), [job.table.dest_table])
            if not hold_table(target, self.setup.queue, job.table):
                raise CopyAbandoned
            self._require_own(target, job, visible)
            state = State.CATCHING_UP.value
            words = [visible, state, self.setup.queue, job.name]
            target.execute(query("copy", "end_part"), words)
            job.table = replace(job.table, custom_snapshot=visible, merge_state=state)
            target.execute(query("copy", "forget_slices"), [self.setup.queue, job.name])
            target.execute(query("copy", "mark_loaded"), [self.setup.queue, job.name])
            reach("copy.joined")

    def _require_own_rows(self, target: vdb.Database, job: TableJob) -> None:
        """Raise where rows of others are in the table: a copy begins with an empty one."""
        others = sharing(target, self.setup.queue, job.table)
        if others:
            raise StateError(
                f'the copy of "{job.name}" would empty "{job.dest}", which has rows of '
                f"{', '.join(others)}, too: remove one of the tables, or add this one with "
                "--skip-truncate or --expect-sync"
            )

    def strip_indexes(self, target: vdb.Database, job: TableJob) -> None:
        relation = target.one(query("copy", "relation"), [job.dest.schema, job.dest.name])
        if not relation.owned:
            log.warning('%s: indexes stay during the copy, "%s" belongs to another role',
                        job.name, job.dest)  # fmt: skip
            return
        stored_text = self.setup.table(target, job.name).dropped_ddl
        stored = parse_script(stored_text)
        if stored is None:
            # written by another program: its objects come back first, then they are ours
            target.execute(stored_text or "")
            stored = TableDdl(())
        present = read_ddl(target, relation.oid, job.dest)
        gone = drop_parts(target, relation.oid, job.dest, present)
        script = stored.merge(gone).script()
        local_set_table_struct(target, self.setup.queue, job.name, script)

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
            self._require_own(target, job, visible)
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

    def _require_own(self, target: vdb.Database, job: TableJob, visible: str) -> None:
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


def clean_up(setup: CopySetup, make_applier: MakeApplier, provider: str, name: str) -> None:
    """Leave nothing behind of a copy that nobody wants."""
    consumer = setup.consumer(name)
    try:
        with setup.connect() as target:
            target.execute(query("copy", "forget_slices"), [setup.queue, name])
            make_applier(setup.staging(name), provider).start(target)
            place = read_consumer_node(target, setup.queue, consumer)
            if place is not None and place.other:
                leave_node(setup, place, consumer)
                forget_place(setup, target, consumer)
            else:
                forget_consumer(setup, provider, consumer)
            target.execute(query("copy", "forget_progress"), [setup.queue, name])
    except VedurError as error:
        log.warning("%s: cannot clean up after the copy: %s", name, error)


def leave_node(setup: CopySetup, place: ConsumerPlace, consumer: str) -> None:
    """End the consumer of a copy on a node that the table is no longer copied from.

    One that does not answer must not keep the table from being copied from another: there the
    consumer stays, and that is said.
    """
    try:
        with vdb.connect(
            setup.reach_node(place.location), name="provider_db", autocommit=True
        ) as db:
            db.call("pgq.unregister_consumer", setup.queue, consumer)
    except VedurError as error:
        log.warning(
            'consumer "%s" stays on node "%s", which does not answer, and keeps its queue from '
            "rotating: unregister it there (pgq.unregister_consumer) if the node comes back: %s",
            consumer, place.node, error,
        )  # fmt: skip


def forget_consumer(setup: CopySetup, provider: str, consumer: str) -> None:
    """Unregister the consumer of a copy, for which the queue need not be held any more."""
    with (
        vdb.connect(provider, name="provider_db", autocommit=True) as db,
        setup.connect() as target,
    ):
        forget_consumer_with(setup, db, target, consumer)


def forget_consumer_with(
    setup: CopySetup, provider: vdb.Database, target: vdb.Database, consumer: str
) -> None:
    """Unregister the consumer, as `forget_consumer` does, on connections that are there."""
    provider.call("pgq.unregister_consumer", setup.queue, consumer)
    forget_place(setup, target, consumer)


def forget_place(setup: CopySetup, target: vdb.Database, consumer: str) -> None:
    """Forget the position of a copy's consumer on this node."""
    with target.transaction():
        unregister_consumer(target, setup.queue, consumer)
        forget_applied(target, setup.queue, [consumer])
        forget_stuck_event(target, setup.queue, consumer)
