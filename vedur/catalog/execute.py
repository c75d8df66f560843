"""The ordered DDL channel: start and finish of one script."""

from __future__ import annotations

from vedur.catalog.watch import accept_script, begin_script
from vedur.db import Database
from vedur.errors import DatabaseError, PrivilegeError
from vedur.node.command import Answer, command
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


def set_role(db: Database, role: str) -> None:
    """Session role until the end of the transaction: replica, local or origin.

    Works for a plain role where the SQL was installed by a superuser, or where the one who
    installed it was given the parameter. A foreign installation without the function needs the
    right itself.
    """
    try:
        with db.transaction():
            db.call("londiste.set_session_replication_role", role, True)
    except PrivilegeError as error:
        remedy = _REMEDY_14 if db.server_version < 150000 else _REMEDY
        raise PrivilegeError(f"{error.message}: as superuser {remedy}", **error.values) from error
    except DatabaseError as error:
        if error.sqlstate not in ("42883", "3F000"):  # no such function, no such schema
            raise
        db.query(query("catalog", "set_role_plain"), [role])


#: PostgreSQL 14 has no rights on parameters.
_REMEDY = (
    'run "grant set on parameter session_replication_role to" the owner of '
    "londiste.set_session_replication_role"
)
_REMEDY_14 = "own londiste.set_session_replication_role"
