"""Look at a table again before something is written that was worked out earlier."""

from __future__ import annotations

from vedur.catalog.tables import TableInfo, hold_ready
from vedur.db import Database
from vedur.errors import StateError


def hold_at_tick(db: Database, queue: str, seen: TableInfo, command: str) -> None:
    """Rows of the worker's tick may be written until the transaction ends; raises if they may not.

    Where another command has begun a new copy, they would be written into it. After such a copy,
    until the worker has passed its snapshot, the table is ahead of the tick, and the worker leaves
    out the events that would bring older rows up to date.
    """
    now = hold_ready(db, queue, seen)
    if now is None:
        raise StateError(
            f'table "{seen.table_name}" was changed by another command meanwhile: '
            f"nothing is changed, run {command} again"
        )
    if now.custom_snapshot is not None:
        raise StateError(
            f'table "{seen.table_name}" was copied just now and is ahead of the worker: '
            f"nothing is changed, run {command} again in a moment"
        )
