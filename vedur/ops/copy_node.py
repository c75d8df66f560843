"""--copy-node and --find-copy-node of add-table and resync: the node that a first copy reads from.

All is asked before anything is changed: whether the node is of this set, answers, is not below this
one, and has each table whole and in sync. The worker asks again when the copy begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vedur.catalog.copy_source import (
    NEAREST,
    TableNode,
    climb,
    find_nearest,
    read_table_node,
)
from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError, StateError, UsageError
from vedur.log import mask
from vedur.node.info import NodeInfo
from vedur.ops.session import Session
from vedur.tables.mapping import TableMap


def copy_node_option(node: str | None, find: bool) -> str | None:
    """Return what is stored for the two options; None for the provider."""
    if node is not None and find:
        raise UsageError("--copy-node and --find-copy-node: give one of them")
    if node is not None and not node.strip("? "):
        raise UsageError("--copy-node needs the name of a node")
    return NEAREST if find else node


@dataclass
class CopyNodes:
    """The nodes that tables of the local node may be copied from; `wanted` is a name, `?` for the
    nearest that has the table, None for the provider. Nodes are read once."""

    session: Session
    info: NodeInfo
    wanted: str | None = None
    force: bool = False
    _above: list[TableNode] = field(default_factory=list)
    _node: TableNode | None = None

    def of(self, table: TableMap) -> TableNode:
        """Read the node that a table is copied from; raises where none can be."""
        if self.wanted == NEAREST:
            return find_nearest(iter(self._climb()), table)
        return self._only()

    def why_not(self, table: TableMap) -> str:
        """Read why a table cannot be copied; empty if it can, or if --force says so."""
        if self.wanted == NEAREST:
            try:
                self.of(table)
            except DatabaseError:
                raise
            except StateError as error:
                return error.message
            return ""
        node = self._only()
        reason = node.why_not(table)
        if not reason or (self.wanted is None and self.force):
            return ""
        if self.wanted is not None:
            return f'it cannot be copied from node "{node.name}": {reason}'
        there = node.tables.find(table.name)
        if there is None or not there.ready or node.unready_parts(table.name):
            return ""  # the provider may have it soon: the copy waits
        return (
            f'it cannot be copied from the provider, node "{node.name}": {reason}; copy it from '
            "another node (--find-copy-node or --copy-node), or give this node another provider "
            "(change-provider)"
        )

    def require(self, table: TableMap, *, expect_sync: bool = False) -> None:
        """Raise unless a table can be copied; one that is in sync already is not."""
        if not expect_sync and (reason := self.why_not(table)):
            raise StateError(f'table "{table.name}": {reason}')

    def _only(self) -> TableNode:
        """Read the node that is named, or the provider."""
        if self._node is None:
            if self.wanted is None:
                try:
                    db = self.session.provider(self.info)
                except ConnectError as error:
                    way = "copy it from another node (--copy-node)"
                    raise self._silent("", way, error) from error
                self._node = read_table_node(db, self.session.queue)
            else:
                self._node = self._named(self.wanted)
        return self._node

    def _named(self, name: str) -> TableNode:
        if name == self.info.node_name:
            raise StateError(f'node "{name}" is the local one: name another node to copy from')
        member = {m.node_name: m for m in self.session.members()}.get(name)
        if member is None:
            raise StateError(f"Unknown node: {name}")
        if member.dead:
            raise StateError(f'node "{name}" is tagged as dead: nothing can be copied from it')
        try:
            path = list(climb(self._open, self.session.queue, member.node_location))
        except DatabaseError as error:
            raise StateError(
                f'node "{name}", or one above it, does not answer: nothing is changed '
                f"({mask(error.message)})"
            ) from error
        node = path[0]
        if node.name != name:
            raise StateError(f'the location of node "{name}" leads to node "{node.name}"')
        if self.info.node_name in [n.name for n in path]:
            raise StateError(
                f'node "{name}" is below this one ({" reads from ".join(n.name for n in path)}): '
                "nothing can be copied from it"
            )
        return node

    def _climb(self) -> list[TableNode]:
        if not self._above:
            start = self.info.provider_location
            if not start:
                raise StateError(f'node "{self.info.node_name}" knows no location of its provider')
            try:
                self._above = list(climb(self._open, self.session.queue, start))
            except ConnectError as error:
                way = "name the node to copy from (--copy-node)"
                raise self._silent(", or one above it,", way, error) from error
        return self._above

    def _silent(self, others: str, way: str, error: ConnectError) -> ConnectError:
        """Say what can be done without the provider."""
        return error.with_values(
            f'provider "{self.info.provider_node}" of this node{others} does not answer: nothing '
            f"is changed; {way}, or let this node read from another one first (change-provider): "
            f"{mask(error.message)}"
        )

    def _open(self, location: str) -> Database:
        return self.session.remote(location, "copy_db")
