"""The ordered DDL channel: start and finish of one script."""

from __future__ import annotations

from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import get_table_list
from vedur.catalog.watch import accept_script, begin_script
from vedur.db import Answer, Database, command
from vedur.script.on_node import LocalNames
from vedur.sql import query


def execute_start(
    db: Database, queue: str, name: str, script: str, *, expect_root: bool, attrs: str | None
) -> Answer:
    """Reserve a script; 201 says that it has run here before, 401 that this is not the root.

    What was changed by hand until now is looked for first: the script's own changes of tables
    are taken as replicated when it finishes.
    """
    args = (queue, name, script, expect_root)
    answer = command(db, "londiste.execute_start", *args, *((attrs,) if attrs else ()))
    if answer.code <= 200:
        begin_script(db, queue)
    return answer


def note_script(db: Database, name: str, script: str, origin: str) -> bool:
    """Write that a set has brought a script here; True where it has run because of another set.

    Waits for another transaction that is bringing a script of this name."""
    return bool(db.value(query("catalog", "note_script"), [name, script, origin]))


def execute_finish(db: Database, queue: str, name: str) -> Answer:
    """The script has run; on the root this sends it to all nodes."""
    accept_script(db, queue)
    return command(db, "londiste.execute_finish", queue, name)


def refresh_stale_captures(db: Database) -> None:
    """Generated capture written anew for tables that changed; a foreign installation has none."""
    if db.value(query("catalog", "has_refresh_stale_captures")):
        db.call("vedur.refresh_stale_captures")


def applied_script(db: Database, name: str) -> str | None:
    """The text that has run here under this name, None if none has."""
    text = db.value(query("catalog", "applied_script"), [name])
    return None if text is None else str(text)


def read_local_names(db: Database, queue: str) -> LocalNames:
    """Read which tables and sequences of the set the node has, and what they are called there."""
    return LocalNames(
        get_table_list(db, queue).local_names,
        {s.seq_name for s in get_seq_list(db, queue) if s.local},
    )
