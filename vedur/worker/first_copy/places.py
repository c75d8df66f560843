"""Where the copy of a table stands, and where the next one is to begin.

A copy under way goes on at the node that its own consumer stands on (`pgq_node.local_state`),
whatever the table's attributes or the worker's provider have become meanwhile. A copy that begins
goes by the attribute `copy_node`. Where that asks for the nearest node, other nodes have to be
asked, which `SourceSearch` does in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from vedur import db as vdb
from vedur.catalog import TableInfo
from vedur.catalog.copy_source import climb, find_nearest
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.node.info import get_queue_locations
from vedur.sql import query
from vedur.worker.first_copy.context import CopySetup, CopySource, Threads

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

    def seeks(self, table: TableInfo) -> bool:
        """Is a node looked for just now?"""
        with self._lock:
            return table.table_name in self._sought

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
