"""Where the copy of a table stands, and where the next one is to begin.

A copy under way goes on at the node that its own consumer stands on (`pgq_node.local_state`),
whatever the table's attributes or the worker's provider have become meanwhile. A copy that begins
goes by the attribute `copy_node`. Where that asks for the nearest node, other nodes have to be
asked, which `find_source` does in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from vedur import db as vdb
from vedur.catalog import TableInfo
from vedur.catalog.copy_source import climb, find_nearest
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.node.info import get_queue_locations
from vedur.sql import query
from vedur.worker.first_copy.context import CopySetup, CopySource


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
