"""The ordered DDL channel: start, run and finish of one script."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import get_table_list
from vedur.catalog.watch import accept_script, begin_script
from vedur.db import Answer, Database, command, kept_settings, set_replication_role
from vedur.errors import DatabaseError, PrivilegeError, StateError
from vedur.names import parse_name, quote_ident
from vedur.script.attrs import ScriptAttrs
from vedur.script.held_tables import Relation, relations_to_hold
from vedur.script.on_node import LocalNames
from vedur.sql import query

log = logging.getLogger(__name__)

LOCK_NOT_AVAILABLE = "55P03"


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


@dataclass(frozen=True)
class Holding:
    """Holds other writers off the tables of a set while a script runs: it takes its place in the
    stream at its end, and until then nobody may change what it has read or passed over.

    `wait`: seconds for the locks; None to wait as the session does.
    """

    script: str
    names: LocalNames
    attrs: ScriptAttrs
    wait: float | None = None

    def plan(self, statements: Sequence[str]) -> tuple[frozenset[Relation], ...]:
        """Return what to lock before each statement."""
        return relations_to_hold(
            statements, [parse_name(name) for name in self.attrs.tables(self.names.tables)]
        )

    def lock(self, db: Database, relations: Collection[Relation]) -> None:
        """Lock those of the relations that are of the set, and what views of them read."""
        schemas, names = [s for s, _ in relations], [n for _, n in relations]
        dests = [parse_name(dest).quoted for dest in self.names.tables.values()]
        rows = db.query(query("catalog", "tables_of_script"), [schemas, names, dests])
        if not rows:
            return
        tables = ", ".join(row.name for row in rows)
        before = db.value(query("compare", "lock_timeout"))
        if self.wait is not None:
            db.value(query("compare", "set_lock_timeout"), [f"{self.wait}s"])
        try:
            db.execute(query("catalog", "hold_off_writers").format(tables=tables))
        except PrivilegeError as error:
            raise error.with_values(
                f'script "{self.script}" must keep other sessions from writing to {tables} while '
                f"it runs: {error.message}: grant update on these tables to {quote_ident(db.role)}"
            ) from error
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE or self.wait is None:
                raise
            raise StateError(
                f'script "{self.script}" must keep other sessions from writing to {tables} while '
                f"it runs, and other sessions have held these for more than {self.wait:g} s "
                "(lock_timeout): nothing was changed; run it when transactions that write there "
                "are shorter, or set lock_timeout higher"
            ) from error
        db.value(query("compare", "set_lock_timeout"), [before])


def run_statements(db: Database, statements: Sequence[str], holding: Holding | None) -> None:
    """Run a script in the transaction that began it, in role `local`, in which no trigger of ours
    logs or refuses. What it sets is set back: it holds for the script alone, on every node."""
    plan = holding.plan(statements) if holding is not None else ()
    with kept_settings(db):
        set_replication_role(db, "local")
        for number, statement in enumerate(statements):
            if holding is not None and plan[number]:
                holding.lock(db, plan[number])
            log.debug("%s", statement)
            db.execute(statement)


def execute_finish(db: Database, queue: str, name: str) -> Answer:
    """Record that the script has run here; on the root this sends it to all nodes."""
    accept_script(db, queue)
    return command(db, "londiste.execute_finish", queue, name)


def refresh_stale_captures(db: Database) -> None:
    """Write the generated capture anew for tables that changed; a foreign installation has none."""
    if db.value(query("catalog", "has_refresh_stale_captures")):
        db.call("vedur.refresh_stale_captures")


def applied_script(db: Database, name: str) -> str | None:
    """Read the text that has run here under this name, None if none has."""
    text = db.value(query("catalog", "applied_script"), [name])
    return None if text is None else str(text)


def read_local_names(db: Database, queue: str) -> LocalNames:
    """Read which tables and sequences of the set the node has, and what they are called there."""
    return LocalNames(
        get_table_list(db, queue).local_names,
        {s.seq_name for s in get_seq_list(db, queue) if s.local},
    )
