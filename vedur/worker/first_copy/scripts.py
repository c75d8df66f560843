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

from vedur.catalog.tables import TableInfo, get_table_list
from vedur.db import Database
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.names import QualifiedName, parse_name
from vedur.script.touched import read_touched
from vedur.sql import query
from vedur.worker.first_copy.anew import begin_anew, stands_with_worker

log = logging.getLogger(__name__)


def begin_copies_anew(db: Database, queue: str, script: str, statements: Sequence[str]) -> None:
    """Set back the copies of tables that a script may touch; belongs in the script's transaction,
    before its first statement.

    Waits for copies that are just taking a step, and holds them up until the transaction ends.
    """
    unready = [t for t in get_table_list(db, queue).local if not stands_with_worker(t)]
    touched = read_touched(statements)
    for table in sorted(unready, key=lambda t: t.table_name):
        if table.mapping.partitions is not None or touched.reaches(_relatives(db, table)):
            _begin_anew(db, queue, table, script)
    reach("script.copies")


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
    """Set the copy of a table back that a script may touch."""
    name = seen.table_name
    try:
        begun = begin_anew(db, queue, seen)
    except StateError as error:
        raise StateError(
            f'script "{script}" may touch table "{name}": {error.message}; the worker tries again'
        ) from error
    if begun:
        log.warning(
            '%s: script "%s" runs before its first copy is done: the copy begins anew', name, script
        )
