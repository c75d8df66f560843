"""remove-table: stop replicating tables here; on the root, in the whole set."""

from __future__ import annotations

from collections.abc import Sequence

from vedur.catalog.tables import get_table_list, local_remove_table
from vedur.errors import UsageError
from vedur.ops.session import Session, choose


def remove_table(session: Session, tables: Sequence[str], *, everything: bool = False) -> None:
    """Remove tables; the sequences of their columns go with them.

    Of a table whose copy is cut short the contract's function takes the rows away and brings back
    what the copy has dropped; where another set brings rows to the same table, all rows stay.
    """
    if not tables and not everything:
        raise UsageError("remove-table needs TABLE... or --all, use --help for help")
    session.require_node()
    local = get_table_list(session.db, session.queue).local.names
    for name in choose(tables, local, everything=everything):
        with session.db.transaction():
            local_remove_table(session.db, session.queue, name)
