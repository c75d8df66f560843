"""remove-table: stop replicating tables here; on the root, in the whole set."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vedur.catalog.tables import TableInfo, get_table_list, local_remove_table
from vedur.errors import UsageError
from vedur.ops.choose import choose
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def remove_table(session: Session, tables: Sequence[str], *, everything: bool = False) -> None:
    """Remove tables; the sequences of their columns go with them."""
    if not tables and not everything:
        raise UsageError("remove-table needs TABLE... or --all, use --help for help")
    session.require_node()
    local = {
        table.table_name: table
        for table in get_table_list(session.db, session.queue)
        if table.local
    }
    for name in choose(tables, local, everything=everything):
        with session.db.transaction():
            _restore_dropped(session, local[name])
            local_remove_table(session.db, session.queue, name)


def _restore_dropped(session: Session, table: TableInfo) -> None:
    """A copy was cut short: its table is half full, and lacks the DDL that was put aside."""
    if table.dropped_ddl:
        log.info("%s: Restoring objects that the copy had dropped", table.dest_table)
        session.db.execute(table.dropped_ddl)
