"""Where the copy of a table stands, and where the next one is to begin.

A copy under way goes on at the node that its own consumer stands on (`pgq_node.local_state`),
whatever the table's attributes or the worker's provider have become meanwhile. A copy that begins
goes by the attribute `copy_node`. Where that asks for the nearest node, other nodes have to be
asked, which `SourceSearch` does in a thread of its own. What keeps a table from being copied from
a node, `SourceTables` says. At the end the consumers of copies are ended where they stand.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from vedur import db as vdb
from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.copy_source import climb, find_nearest, quarantined_parts, unready_parts
from vedur.catalog.quarantine import available, forget_stuck_event
from vedur.catalog.tables import missing_part, other_mask
from vedur.errors import StateError, VedurError
from vedur.failpoint import reach
from vedur.node.info import NodeType, get_node_info, get_queue_locations
from vedur.node.position import forget_applied, unregister_consumer
from vedur.sql import query
from vedur.worker.first_copy.context import (
    CopySetup,
    CopySource,
    MakeApplier,
    TableJob,
    Threads,
)
from vedur.worker.quarantine import QuarantinedRows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConsumerPlace:
    """The node on which a consumer of this one stands; `other`: the worker stands elsewhere."""

    node: str
    location: str = field(repr=False)
    other: bool


def read_consumer_node(target: vdb.Database, queue: str, consumer: str) -> ConsumerPlace | None:
    """Read on which node a consumer stands; None for one that keeps no position here."""
    row = target.one(query("copy", "consumer_node"), [queue, consumer])
    return None if row is None else ConsumerPlace(row.node, row.location, row.other)


@dataclass(frozen=True)
class Places:
    """What this node knows of other nodes, at one moment; `provider` is the worker's."""

    provider: CopySource
    locations: Mapping[str, str] = field(repr=False)
    setup: CopySetup

    @classmethod
    def read(cls, target: vdb.Database, setup: CopySetup, provider: str) -> Places:
        """Read the members of the set, and the name of the provider."""
        node = target.value(query("copy", "provider_node"), [setup.queue])
        if node is None:
            raise StateError(f'queue "{setup.queue}" has no node with a provider here')
        found = get_queue_locations(target, setup.queue)
        locations = {member.node_name: member.node_location for member in found}
        return cls(CopySource(str(node), provider), locations, setup)

    def of_copy(self, target: vdb.Database, table: TableInfo) -> CopySource:
        """Read where the copy of a table stands that was begun before."""
        consumer = self.setup.consumer(table.table_name)
        place = read_consumer_node(target, self.setup.queue, consumer)
        return self.provider if place is None else self.named(place.node)

    def named(self, node: str) -> CopySource:
        """Return a node by its name; raises for one that is not in the set."""
        if node == self.provider.node:
            return self.provider
        location = self.locations.get(node)
        if location is None:
            raise StateError(
                f'node "{node}", from which the table is to be copied, is not in the set: run '
                "resync with --copy-node=NODE or --find-copy-node"
            )
        return CopySource(node, self.setup.reach_node(location), other=True)

    def nearest(self, table: TableInfo) -> CopySource:
        """Ask the nodes above, from the provider up, for one that a table can be copied from."""

        def connect(connstr: str) -> vdb.Database:
            db = vdb.connect(
                connstr, name="provider_db", autocommit=True, application_name="vedur copy"
            )
            return opened.enter_context(db)

        with ExitStack() as opened:
            nodes = climb(
                lambda at: connect(self.setup.reach_node(at)),
                self.setup.queue,
                self.locations[self.provider.node],
            )
            found = find_nearest(nodes, table.mapping)
            reach("copy.found")
            return self.named(found.name)


@dataclass(frozen=True)
class SourceTables:
    """The tables of a node that is copied from, as a snapshot sees them, and what keeps some of
    them from being copied from there."""

    source: CopySource
    type: NodeType = NodeType.ROOT
    by_name: Mapping[str, TableInfo] = field(default_factory=dict)
    unready_parts: Mapping[str, list[str]] = field(default_factory=dict)  # of a combined root
    quarantined_parts: Mapping[str, list[str]] = field(default_factory=dict)
    quarantined: Collection[str] = ()  # tables of which a branch has events in quarantine

    @classmethod
    def read(cls, provider: vdb.Database, source: CopySource, queue: str) -> SourceTables:
        """Read them in the transaction of the snapshot."""
        tables = get_table_list(provider, queue).by_name
        info = get_node_info(provider, queue)
        kind = info.node_type if info is not None else NodeType.ROOT
        unready: dict[str, list[str]] = {}
        parts: dict[str, list[str]] = {}
        if info is not None and info.is_root and info.target_for:
            unready = unready_parts(provider, queue)
            parts = quarantined_parts(provider, queue)
        rows: Collection[str] = ()
        if kind is NodeType.BRANCH and available(provider):
            rows = QuarantinedRows.read(provider, queue).all_tables()
        return cls(source, kind, tables, unready, parts, rows)

    def require(self, job: TableJob) -> TableInfo:
        """Return the provider's row of a table; raises where it cannot be copied from there."""
        source = self.by_name.get(job.name)
        where = self.source
        if source is None or not source.ready:
            raise StateError(f'table "{job.name}" is not ready on {where}, its copy waits')
        if parts := self.unready_parts.get(job.name):
            raise StateError(
                f'table "{job.name}" is not ready on {where}, its copy waits: of part(s) '
                f"{', '.join(parts)} the first copy there is not done"
            )
        if parts := self.quarantined_parts.get(job.name):
            raise StateError(
                f'table "{job.name}" has events of part(s) {", ".join(parts)} in quarantine on '
                f"{where}, and they do not come again; its copy waits: quarantine replay (or "
                "quarantine drop) them there, with the ini of the part"
            )
        mapping = job.table.mapping
        part = other_mask(source, mapping)
        if not part and self.type is NodeType.BRANCH:
            part = missing_part(source, mapping)
        if part:
            raise StateError(
                f'table "{job.name}" is on {where} in part only ({part}): copy it from a node that '
                "has it whole (resync with --find-copy-node or --copy-node), or give this node "
                "another provider (change-provider)"
            )
        if job.name in self.quarantined:
            raise StateError(
                f'table "{job.name}" has events in quarantine on {where}, so its rows are not '
                'those of the set; its copy waits: see "errors" there, or copy it from another '
                "node (resync with --find-copy-node or --copy-node), or give this node another "
                "provider (change-provider)"
            )
        return source


class SourceSearch:
    """The nearest nodes that tables can be copied from: looked for without keeping the worker
    waiting, and kept until their copies begin. Safe to use from several threads.

    `found` is called when there is one, `failed` with the table, the provider and the error where
    none is found.
    """

    def __init__(
        self,
        threads: Threads,
        found: Callable[[], None],
        failed: Callable[[TableInfo, CopySource, Exception], None],
    ) -> None:
        self._threads = threads
        self._tell_found = found
        self._tell_failed = failed
        self._lock = threading.Lock()  # of the two that follow
        self._sought: set[str] = set()
        self._found: dict[str, CopySource] = {}

    def sought(self) -> frozenset[str]:
        """Return the tables for which a node is looked for just now."""
        with self._lock:
            return frozenset(self._sought)

    def find(self, places: Places, table: TableInfo) -> CopySource | None:
        """Return the node that was found for a table; begins to look for one where there is none.
        Never waits."""
        with self._lock:
            found = self._found.get(table.table_name)
            if found is None:
                self._sought.add(table.table_name)
        if found is None:
            self._threads.start(lambda: self._seek(places, table), "vedur-copy-node")
        return found

    def forget(self, table: TableInfo) -> None:
        """Forget what was found: the copy begins, and the next one asks anew."""
        with self._lock:
            self._found.pop(table.table_name, None)

    def _seek(self, places: Places, table: TableInfo) -> None:
        name = table.table_name
        try:
            found = places.nearest(table)
        except Exception as error:  # whatever it is, the table must be looked for again
            self._tell_failed(table, places.provider, error)
            with self._lock:
                self._sought.discard(name)
            return
        if found.other:
            log.info('%s: copied from node "%s"', name, found.node)
        with self._lock:
            self._sought.discard(name)
            self._found[name] = found
        self._tell_found()


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
