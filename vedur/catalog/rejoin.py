"""Tables that `rejoin` has in hand (`vedur.rejoin`): their rows are yet to be made equal.

Such a table has no state, so nothing takes it for in sync, and the worker neither applies its
changes nor copies it. `resync` takes it out of here: then it is copied like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from vedur.db import Database
from vedur.sql import query


def get_rejoin_tables(db: Database, queue: str) -> frozenset[str]:
    """Read the names of the tables in hand; none where an earlier version made the schemas."""
    if not db.value(query("rejoin", "available")):
        return frozenset()
    return frozenset(row.table_name for row in db.query(query("rejoin", "tables"), [queue]))


def begin_rejoin(db: Database, queue: str, tables: Sequence[str]) -> None:
    """Take tables in hand, and no others."""
    db.execute(query("rejoin", "forget_all"), [queue])
    db.execute(query("rejoin", "begin"), [queue, list(tables)])


def end_rejoin(db: Database, queue: str, table: str) -> None:
    """Forget a table that is equal now, or is to be copied instead."""
    if db.value(query("rejoin", "available")):
        db.execute(query("rejoin", "forget"), [queue, table])
