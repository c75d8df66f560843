"""From which node a table can be copied: one that has it whole and in sync, and a queue behind it.

A table says with its attribute `copy_node` which node that is: a name, `?` for the nearest one
above this node that can be copied from, or nothing for the provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vedur.catalog.quarantine import available, count_quarantined
from vedur.catalog.tables import TableInfo, TableSet, get_table_list, missing_part, other_mask
from vedur.db import Database
from vedur.errors import StateError
from vedur.node.info import NodeInfo, NodeType, get_node_info, has_schema
from vedur.sql import query
from vedur.tables.mapping import TableMap

#: Value of `copy_node` that means: the nearest node above that has the table.
NEAREST = "?"


@dataclass(frozen=True)
class TableNode:
    """A node, its tables, and a connection to it."""

    info: NodeInfo
    tables: TableSet
    db: Database
    queue: str

    @property
    def name(self) -> str:
        """The name that the node gives itself."""
        return self.info.node_name

    def why_not(self, wanted: TableMap) -> str:
        """Read why a table cannot be copied from the node; empty if it can."""
        found = why_not_copied(self.info.node_type, self.tables.find(wanted.name), wanted)
        if not found and (parts := self.unready_parts(wanted.name)):
            found = f"first copies of parts are not done there ({', '.join(parts)})"
        if not found and (parts := self.quarantined_parts(wanted.name)):
            found = f"events of it wait in quarantine there (parts {', '.join(parts)})"
        if found or self.info.is_root or not available(self.db):
            return found
        count = count_quarantined(self.db, self.queue, wanted.name)
        return f"{count} event(s) of it wait in quarantine there" if count else ""

    def unready_parts(self, table: str) -> list[str]:
        """Read which parts of a combined root have yet to copy a table."""
        if not self.info.is_root or not self.info.target_for:
            return []
        return unready_parts(self.db, self.queue).get(table, [])

    def quarantined_parts(self, table: str) -> list[str]:
        """Read which parts of a combined root have events of a table in quarantine."""
        if not self.info.is_root or not self.info.target_for:
            return []
        return quarantined_parts(self.db, self.queue).get(table, [])

    def why_not_compared(self, wanted: TableMap) -> str:
        """Say why rows of a table cannot be compared with those of the node; empty if they can.

        The provider is taken for what it is said to be: it may have no state for a table that it
        never copied."""
        there = self.tables.find(wanted.name)
        if there is not None and there.local and there.merge_state is None and self.info.is_root:
            other = other_mask(there, wanted)
            return f"it has {other}" if other else ""
        return why_not_copied(self.info.node_type, there, wanted)


def unready_parts(db: Database, queue: str) -> dict[str, list[str]]:
    """Read which parts of a combined root have yet to copy which of its tables. What their copies
    bring does not get into the combined queue, so its tables are whole when all are done; nor may
    events still come that are in the copies already."""
    found: dict[str, list[str]] = {}
    for row in db.query(query("combine", "parts_not_copied"), [queue]):
        found.setdefault(row.table_name, []).append(row.queue_name)
    return found


def quarantined_parts(db: Database, queue: str) -> dict[str, list[str]]:
    """Read which parts of a combined root have events of which of its tables in quarantine. They
    went on into the combined queue when they came, so a copy from there has them neither in its
    rows nor behind them; none where the role may not read the quarantine."""
    found: dict[str, list[str]] = {}
    if not db.value(query("quarantine", "readable")):
        return found
    for row in db.query(query("combine", "parts_quarantined"), [queue]):
        found.setdefault(row.table_name, []).append(row.queue_name)
    return found


def why_not_copied(kind: NodeType, there: TableInfo | None, wanted: TableMap) -> str:
    """Say why a table cannot be copied from a node that has it so; empty if it can. Pure."""
    if kind is NodeType.LEAF:
        return "it is a leaf, which has no queue to go on with"
    if there is None or not there.local:
        return "it does not have the table"
    if not there.ready:
        return "its own first copy of the table is not done"
    if other := other_mask(there, wanted):
        return f"it has {other}"
    part = missing_part(there, wanted) if kind is NodeType.BRANCH else ""
    return f"it has the table in part only ({part})" if part else ""


def read_table_node(db: Database, queue: str) -> TableNode:
    """Read what a node says of itself and of its tables; raises where there is no node."""
    info = get_node_info(db, queue) if has_schema(db) else None
    if info is None:
        raise StateError(f'no node for queue "{queue}" in database "{db.name}"')
    return TableNode(info, get_table_list(db, queue), db, queue)


def climb(open_node: Callable[[str], Database], queue: str, location: str) -> Iterator[TableNode]:
    """Read the nodes from a location up to the root, one after the other."""
    seen: set[str] = set()
    while True:
        node = read_table_node(open_node(location), queue)
        if node.name in seen:
            raise StateError(f'the providers of node "{node.name}" form a ring')
        seen.add(node.name)
        yield node
        if node.info.is_root or not node.info.provider_location:
            return
        location = node.info.provider_location


def find_nearest(nodes: Iterator[TableNode], wanted: TableMap) -> TableNode:
    """Return the first of some nodes from which a table can be copied; raises where there is none,
    with the reason for each."""
    reasons = []
    for node in nodes:
        reason = node.why_not(wanted)
        if not reason:
            return node
        reasons.append(f"{node.name}: {reason}")
    raise StateError(
        f'no node above this one can give table "{wanted.name}" ({"; ".join(reasons)}): name one '
        "that has it whole and in sync (--copy-node)"
    )
