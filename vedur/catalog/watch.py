"""Tables that were changed by hand: partitions attached or dropped, new names, other columns.

No event tells other nodes of such a change. The root remembers what its tables look like
(`vedur.watch_tables`) and tells what it finds until every node is repaired or it is dismissed.
Sequences of the queue that were altered are set right (`vedur.mend_queue`).
A database with foreign schemas has none of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database
from vedur.sql import query


@dataclass(frozen=True)
class TableProblem:
    """One table (name in the set), what is wrong with it, what to do. `severity`: fail or warn."""

    table_name: str
    severity: str
    what: str
    action: str


def watch_tables(db: Database, queue: str, *, accept: bool = False) -> int:
    """Look at the tables of a node and record what changed; returns how many changes were found.

    With `accept` what changed was replicated, and is taken as it is.
    """
    if not db.value(query("watch", "installed")):
        return 0
    return int(db.value(query("watch", "watch"), [queue, accept]))


def mend_queue(db: Database, queue: str) -> int:
    """Set sequences of a node's queue right that were altered by hand; returns how many faults
    there were. Never in a script's transaction: writers would wait for its end."""
    if not db.value(query("watch", "installed")):
        return 0
    return int(db.value(query("watch", "mend_queue"), [queue]))


def begin_script(db: Database, queue: str) -> None:
    """Record what was changed by hand so far, and keep other looks away until the script's
    transaction ends: its own changes are replicated, and `accept_script` takes them as they are."""
    if db.value(query("watch", "installed")):
        db.value(query("watch", "lock"), [queue])
        watch_tables(db, queue)


def accept_script(db: Database, queue: str) -> None:
    """Take the tables as the script has left them."""
    watch_tables(db, queue, accept=True)


def read_table_problems(db: Database, queue: str) -> tuple[TableProblem, ...]:
    """Read what is wrong with the tables of a node; nothing where the role may not ask."""
    if not db.value(query("watch", "readable")):
        return ()
    rows = db.query(query("watch", "problems"), [queue])
    return tuple(TableProblem(**row._asdict()) for row in rows)


def read_lacks_of_dead(db: Database, queue: str) -> list[tuple[str, str, str]]:
    """Read what only nodes that are tagged as dead have not got of changes by hand: the table, the
    change, the nodes; nothing where the role may not ask."""
    if not db.value(query("watch", "changes_readable")):
        return []
    rows = db.query(query("watch", "dead_lack"), [queue])
    return [(row.table_name, row.what, row.nodes) for row in rows]


def last_change(db: Database, queue: str, table: str) -> int | None:
    """Read which change of a table the root knows as the newest; None for none."""
    if not db.value(query("watch", "installed")):
        return None
    found = db.value(query("watch", "last_change"), [queue, table])
    return None if found is None else int(found)


def mend_changes(
    db: Database, queue: str, table: str, *, node: str, provider: str, last: int
) -> None:
    """Record on the root that a node was made equal to its provider, for changes up to `last`."""
    db.value(query("watch", "mend"), [queue, table, node, provider, last])
