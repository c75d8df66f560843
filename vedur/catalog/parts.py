"""Parts: tables of several sets whose rows come together in one local table.

Which rows belong to which part is asked in `vedur/tables/part_rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedur.catalog.tables import is_in_sync
from vedur.change.attrs import MERGE, decode_attrs, keeps_rows
from vedur.db import Database
from vedur.sql import query


@dataclass(frozen=True)
class TablePart:
    """One of the tables that bring rows to a local table; `node` is the one that they come from.

    `has_ddl`: it leads the first copies and keeps what it has taken away from the table; `loaded`:
    rows of its first copy are there, and it is not in sync yet.
    """

    queue: str
    table: str
    node: str | None
    merge_state: str | None
    table_attrs: str | None
    has_ddl: bool
    node_type: str
    combined_queue: str | None
    loaded: bool

    def __str__(self) -> str:
        where = f' (node "{self.node}")' if self.node else ""
        return f'table "{self.table}" of queue "{self.queue}"{where}'

    @property
    def copied(self) -> bool:
        """Are all rows of its first copy there, and the table not yet in sync?"""
        return self.merge_state not in (None, "in-copy") and not self.ready

    @property
    def ready(self) -> bool:
        """Is it in sync?"""
        return is_in_sync(self.merge_state)

    @property
    def keeps_rows(self) -> bool:
        """Is its first copy to leave the rows that it finds?"""
        return keeps_rows(decode_attrs(self.table_attrs))

    @property
    def joined(self) -> bool:
        """Was it added as a part of a merge, so that its copy leaves room for others?"""
        return MERGE in decode_attrs(self.table_attrs)

    def merges_with(self, other: TablePart) -> bool:
        """Are the first copies of the two coordinated (`londiste._coordinate_copy`)?"""
        leafs = self.node_type == other.node_type == "leaf"
        return leafs and self.queue != other.queue and self.combined_queue == other.combined_queue


def read_parts(db: Database, dest: str) -> list[TablePart]:
    """Read the tables that bring rows to a local table (its name in the contract's form)."""
    loaded = {tuple(row) for row in db.query(query("copy", "loaded_parts"))}
    return [
        TablePart(
            row.queue_name,
            row.table_name,
            row.provider_node,
            row.merge_state,
            row.table_attrs,
            row.has_ddl,
            row.node_type,
            row.combined_queue,
            (row.queue_name, row.table_name) in loaded,
        )
        for row in db.query(query("catalog", "parts"), [dest])
    ]


def forget_loaded_before(
    db: Database, queue: str, table: str, dest: str, *, all_parts: bool
) -> None:
    """Forget what an earlier registration of a table that was just added had loaded; with
    `all_parts`, of the tables of all queues that were added with it."""
    if db.value(query("copy", "may_forget_loaded")):
        words = {"queue": queue, "table": table, "dest": dest, "all": all_parts}
        db.execute(query("copy", "forget_loaded_before"), words)


def find_part(parts: Sequence[TablePart], queue: str, table: str) -> TablePart | None:
    """Return the part that a table of a queue is. Pure."""
    return next((p for p in parts if (p.queue, p.table) == (queue, table)), None)
