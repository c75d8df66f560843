"""A script of the set (`execute`), replayed on this node inside the batch's transaction.

Statements run one by one in role `local`, so no trigger logs them. Transaction control inside
the script is left out: the batch is the transaction. Tables that have another name here are
renamed in the parsed statement.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import postgast

from vedur.catalog import get_seq_list, get_table_list
from vedur.catalog.execute import execute_finish, execute_start
from vedur.change.event import Event
from vedur.change.rename import rename_tables
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.sql import query
from vedur.worker.script_attrs import ScriptAttrs, matches

log = logging.getLogger(__name__)


def set_role(db: Database, role: str) -> None:
    """Session role until the end of the transaction: replica, local or origin."""
    try:
        with db.transaction():
            db.query(query("worker", "set_role"), [role])
    except DatabaseError as error:
        if error.sqlstate not in ("42883", "3F000"):  # no such function, no such schema
            raise
        db.query(query("worker", "set_role_plain"), [role])


def statements(script: str) -> Iterator[str]:
    """The statements of a script without BEGIN, COMMIT and the like."""
    try:
        tree = postgast.parse(script)
    except postgast.PgQueryError:
        yield script  # newer syntax than the parser's: the server decides
        return
    data = script.encode()
    for raw in tree.stmts:
        if raw.stmt.WhichOneof("node") == "transaction_stmt":
            continue
        end = raw.stmt_location + raw.stmt_len if raw.stmt_len else len(data)
        yield data[raw.stmt_location : end].decode().strip()


def run_script(db: Database, queue: str, event: Event) -> None:
    """Replay an EXECUTE event."""
    name, script = event.ev_extra1 or "", event.ev_data or ""
    attrs = ScriptAttrs.parse(event.ev_extra2)
    tables = {t.table_name: t.dest_table for t in get_table_list(db, queue) if t.local}
    sequences = {s.seq_name for s in get_seq_list(db, queue) if s.local}
    answer = execute_start(
        db, queue, name, script, expect_root=False, attrs=event.ev_extra2 or None
    )
    if answer.code > 200:
        return
    fits = matches(db, attrs, tables, sequences)
    if fits is None:
        raise StateError(event.named(f"{name}: SQL only partially matches local setup"))
    if fits:
        _run(db, attrs.substitute(script, tables, sequences), tables)
    else:
        log.info("%s: This SQL does not need to run on this node.", name)
    execute_finish(db, queue, name)
    set_role(db, "replica")


def _run(db: Database, script: str, tables: dict[str, str]) -> None:
    renames = {old: new for old, new in tables.items() if old != new}
    set_role(db, "local")
    for statement in statements(rename_tables(script, renames) if renames else script):
        log.debug("%s", statement)
        db.execute(statement)
