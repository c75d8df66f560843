"""The session's replication role: whose triggers fire, and whether foreign keys are checked."""

from __future__ import annotations

from vedur.db.database import Database
from vedur.errors import PrivilegeError
from vedur.sql import query

#: PostgreSQL 14 has no rights on parameters.
_REMEDY = (
    'run "grant set on parameter session_replication_role to" the owner of '
    "londiste.set_session_replication_role"
)
_REMEDY_14 = "own londiste.set_session_replication_role"


def set_replication_role(db: Database, role: str) -> None:
    """Set the session's role until the end of the transaction: replica, local or origin.

    Works for a plain role where the SQL was installed by a superuser, or where the one who
    installed it was given the parameter. A foreign installation without the function of the
    contract needs the right itself.
    """
    if not db.value(query("db", "has_set_role")):
        db.query(query("db", "set_role"), [role])
        return
    try:
        db.call("londiste.set_session_replication_role", role, True)
    except PrivilegeError as error:
        remedy = _REMEDY_14 if db.server_version < 150000 else _REMEDY
        raise PrivilegeError(f"{error.message}: as superuser {remedy}", **error.values) from error
