"""What a script (`execute`) means for tables under first copy: their copies begin anew behind it.

A script runs once on the whole database, at the worker's place in the stream. A table that is not
in sync is at no place of the stream that the worker knows: its rows may be older, because the copy
has yet to catch up, or newer, because the snapshot or the catch-up is ahead of the worker, and then
the script is in them already. What the script does to such rows cannot be undone, and no event
follows that would bring it to rows that come later: it would be lost, or done twice.

So in the script's own transaction the tables that it may touch lose the place of their copy, unless
they are in sync. The next copy takes its snapshot behind the script (`table.py` sees to that where
it reads another node than the provider), which is in its rows then and will not run here again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vedur.catalog.tables import TableInfo, get_table_list, is_in_sync, local_set_table_state
from vedur.db import Database
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.names import QualifiedName, parse_name
from vedur.node.position import set_consumer_completed
from vedur.script.touched import read_touched
from vedur.sql import query
from vedur.worker.first_copy.states import State

log = logging.getLogger(__name__)

#: Where the consumer of a copy has no place any more: no tick has this number.
NOWHERE = 0


def begin_copies_anew(db: Database, queue: str, script: str, statements: Sequence[str]) -> None:
    """Set back the copies of tables that a script may touch; belongs in the script's transaction,
    before its first statement.

    Waits for copies that are just taking a step, and holds them up until the transaction ends.
    """
    unready = [t for t in get_table_list(db, queue).local if not _stands_with_worker(t)]
    touched = read_touched(statements)
    for table in sorted(unready, key=lambda t: t.table_name):
        if table.mapping.partitions is not None or touched.reaches(_relatives(db, table)):
            _begin_anew(db, queue, table, script)
    reach("script.copies")


def _stands_with_worker(table: TableInfo) -> bool:
    """Is the table where the worker is? One that is in sync with a snapshot, as Londiste leaves it,
    may be ahead."""
    return is_in_sync(table.merge_state) and table.custom_snapshot is None


def _relatives(db: Database, table: TableInfo) -> list[QualifiedName]:
    """Read the names of a table, here and in the set, and of all that it inherits from, or that
    inherits from these: a statement that names one may reach the others."""
    dest = parse_name(table.dest_table)
    rows = db.query(query("copy", "relatives"), [dest.schema, dest.name])
    return [
        parse_name(table.table_name),
        dest,
        *(QualifiedName(row.schema, row.name) for row in rows),
    ]


def _begin_anew(db: Database, queue: str, seen: TableInfo, script: str) -> None:
    """Lock the row of a table and take the place of its copy away, whatever step that is at.

    A copy that has not begun to load is known by its consumer alone.
    """
    name = seen.table_name
    row = db.query(query("copy", "hold_table"), [queue, name])
    if not row or (is_in_sync(row[0].merge_state) and row[0].custom_snapshot is None):
        return
    state, snapshot = row[0].merge_state, row[0].custom_snapshot
    if seen.keeps_rows and _has_loaded(db, queue, name, state):
        raise StateError(
            f'script "{script}" may touch table "{name}", whose first copy is not done and was to '
            "leave the rows that it found (--skip-truncate): it cannot begin anew, as nobody can "
            "tell these rows from its own. Take the table out (remove-table), delete what was "
            "copied, and add the table again behind the script; the worker tries again"
        )
    consumers = [
        r.consumer_name
        for r in db.query(query("copy", "consumers"), {"queue": queue, "table": name})
    ]
    if state is not None or snapshot is not None:
        local_set_table_state(db, queue, name, None, None)
    for consumer in consumers:
        set_consumer_completed(db, queue, consumer, NOWHERE)
    if state is not None or consumers:
        log.warning(
            '%s: script "%s" runs before its first copy is done: the copy begins anew', name, script
        )


def _has_loaded(db: Database, queue: str, name: str, state: str | None) -> bool:
    """Has a copy whose load is one transaction brought its rows?"""
    if state in (None, State.IN_COPY.value):
        return db.value(query("copy", "complete_snapshot"), [queue, name]) is not None
    return True
