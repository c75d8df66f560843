"""resync: copy tables again; the worker begins as soon as it sees the state."""

from __future__ import annotations

from collections.abc import Sequence

from vedur.catalog.rejoin import end_rejoin
from vedur.catalog.tables import get_table_list, local_set_table_state, sharing
from vedur.errors import StateError, UsageError
from vedur.ops.call_worker import call_worker
from vedur.ops.choose import choose
from vedur.ops.session import Session


def resync(session: Session, tables: Sequence[str], *, everything: bool = False) -> None:
    """Set the state of tables back to the beginning."""
    if not tables and not everything:
        raise UsageError("resync needs TABLE... or --all, use --help for help")
    info = session.require_node()
    if info.is_root:
        raise StateError("resync cannot be used on the root: there is nothing to copy from")
    local = {t.table_name: t for t in get_table_list(session.db, session.queue) if t.local}
    names = choose(tables, local, everything=everything)
    provider = session.provider(info)
    there = {t.table_name for t in get_table_list(provider, session.queue) if t.local}
    for name in names:
        if name not in there:
            raise UsageError(
                f"Table {name} does not exist on provider, need to switch to different provider"
            )
        table = local[name]
        if not table.keeps_rows and (others := sharing(session.db, session.queue, table)):
            raise StateError(
                f'resync of "{name}" would empty "{table.dest_table}", which has rows of '
                f"{', '.join(others)}, too: use repair, which needs a condition (--where) that "
                "tells its rows from theirs"
            )
    for name in names:
        with session.db.transaction():
            # DDL that a half-done copy put aside stays recorded: the next copy finds it there
            local_set_table_state(session.db, session.queue, name, None, None)
            end_rejoin(session.db, session.queue, name)  # a copy instead of a repair
    if names:
        call_worker(provider, session.queue)
