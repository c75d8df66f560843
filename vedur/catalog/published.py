"""Tables of which a branch publishes a part: what it notes, and what nodes below make of that.

A node that takes the part for the whole would miss rows, and one that was moved from such a branch
to a whole queue would get rows that it never had. So a table that takes changes must have the
condition of the part itself, by its handler or `--where`: then the events of the part and those of
the whole make the same rows of it, and it can be moved between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vedur.catalog.tables import TableInfo
from vedur.db import Database
from vedur.sql import query
from vedur.tables.columns import keeps_names
from vedur.tables.mapping import TableMap

#: Behind every tick.
_NEWEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, order=True)
class PublishedPart:
    """A table by its name in the set, and the condition of the rows that are published of it."""

    table: str
    condition: str


def tells_parts(db: Database) -> bool:
    """Read whether a node can tell of which tables it publishes a part; one of Londiste cannot."""
    return bool(db.value(query("publish", "tells_parts")))


def get_published_parts(
    db: Database, queue: str, after: int, until: int | None = None
) -> tuple[PublishedPart, ...]:
    """Read of which tables a node has published a part between two ticks, or does so now."""
    rows = db.query(query("publish", "parts"), [queue, after, until])
    return tuple(PublishedPart(row.table_name, row.condition) for row in rows)


def get_open_parts(db: Database, queue: str) -> tuple[PublishedPart, ...]:
    """Read of which tables a node publishes a part from now on."""
    return get_published_parts(db, queue, _NEWEST)


def note_published_parts(
    db: Database, queue: str, after: int, parts: Sequence[PublishedPart]
) -> None:
    """Write of which tables this branch publishes a part behind a tick; of others all."""
    names, conditions = [part.table for part in parts], [part.condition for part in parts]
    db.value(query("publish", "note_parts"), [queue, after, names, conditions])


def find_unfit(parts: Iterable[PublishedPart], tables: Iterable[TableInfo], provider: str) -> str:
    """Say which table of a node cannot take the events of such parts; empty if all can. Pure."""
    by_name = {table.table_name: table for table in tables if table.local}
    for part in parts:
        table = by_name.get(part.table)
        reason = why_unfit(part, table.mapping, provider) if table is not None else ""
        if reason:
            return f'table "{part.table}": {reason}'
    return ""


def why_unfit(part: PublishedPart, table: TableMap, provider: str) -> str:
    """Say why a table cannot take the events of a part; empty if it can. Pure."""
    if not table.applies:
        return ""
    if table.condition == part.condition and keeps_names(table.columns):
        return ""
    condition = " ".join(part.condition.split())
    return (
        f'node "{provider}" passes on only events of rows where {condition}, and this node does '
        "not have that condition: rows would be missing; give the table the same handler here "
        "(change-handler), or the node a provider that passes on all events (change-provider)"
    )
