"""The ordered DDL channel: start and finish of one script."""

from __future__ import annotations

from vedur.db import Database
from vedur.errors import PrivilegeError
from vedur.node.command import Answer, command
from vedur.sql import query


def execute_start(
    db: Database, queue: str, name: str, script: str, *, expect_root: bool, attrs: str | None
) -> Answer:
    """Reserve a script; 201 says that it has run here before, 401 that this is not the root."""
    args = (queue, name, script, expect_root)
    return command(db, "londiste.execute_start", *args, *((attrs,) if attrs else ()))


def execute_finish(db: Database, queue: str, name: str) -> Answer:
    """The script has run; on the root this sends it to all nodes."""
    return command(db, "londiste.execute_finish", queue, name)


def refresh_stale_captures(db: Database) -> None:
    """Generated capture written anew for tables that changed; a foreign installation has none."""
    if db.value(query("catalog", "has_refresh_stale_captures")):
        db.call("vedur.refresh_stale_captures")


def set_session_replication_role(db: Database, role: str) -> None:
    """Role of the running transaction. Works for a plain role where the SQL was installed by a
    superuser, or where the one who installed it was given the parameter."""
    try:
        db.call("londiste.set_session_replication_role", role, True)
    except PrivilegeError as error:
        remedy = _REMEDY_14 if db.server_version < 150000 else _REMEDY
        raise PrivilegeError(f"{error.message}: as superuser {remedy}", **error.values) from error


#: PostgreSQL 14 has no rights on parameters.
_REMEDY = (
    'run "grant set on parameter session_replication_role to" the owner of '
    "londiste.set_session_replication_role"
)
_REMEDY_14 = "own londiste.set_session_replication_role"
