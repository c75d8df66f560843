"""Commands that would let a node take a part of a table's events for the whole: refused in time.

The worker looks at every batch, too (`worker/batch.py`): a branch may begin to publish a part
later. See `vedur/catalog/published.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from vedur.catalog.published import find_unfit, get_open_parts, tells_parts, why_unfit
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import StateError
from vedur.tables.mapping import TableMap


def require_part_fit(provider: Database, queue: str, name: str, tables: Iterable[TableMap]) -> None:
    """Raise where a provider publishes a part of a table that is to be more than that here."""
    if not tells_parts(provider):
        return
    parts = {part.table: part for part in get_open_parts(provider, queue)}
    for table in tables:
        part = parts.get(table.name)
        reason = why_unfit(part, table, name) if part is not None else ""
        if reason:
            raise StateError(f'table "{table.name}": {reason}')


def require_node_fit(node: Database, provider: Database, queue: str, name: str) -> None:
    """Raise where a node cannot read from another one, because that publishes a part of a table."""
    if not tells_parts(provider):
        return
    parts = get_open_parts(provider, queue)
    if parts and (reason := find_unfit(parts, get_table_list(node, queue), name)):
        raise StateError(f"{reason}; nothing is changed")
