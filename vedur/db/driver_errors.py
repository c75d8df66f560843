"""What an error of the driver is in our terms: which exception, which SQLSTATE, which sentence."""

from __future__ import annotations

import re

import psycopg

from vedur.db.row_security import explain, is_row_security
from vedur.errors import ConnectError, DatabaseError, PrivilegeError, first_line

#: libpq keeps the SQLSTATE of a refused connection to itself; these are the sentences of 57P03.
_NOT_READY = re.compile(
    r"the database system is "
    r"(starting up|shutting down|in recovery mode|not (yet )?accepting connections)"
)
SHUT = re.compile(r'FATAL: +database ".*" (does not exist|is not currently accepting connections)')
#: What the system and libpq say where no server was reached. Everything else was said by a server,
#: or because of what a server has said, in any language.
_SILENCE = re.compile(
    r"Connection refused|timeout expired|timed out|could not translate host name|failed to resolve"
    r"|Name or service not known|No route to host|Network is unreachable|Host is (down|unreachable)"
    r"|No such file or directory|Connection reset by peer|server closed the connection unexpectedly"
)
_SPEECH = re.compile(r"failed: [^:\n]+:  ")  # libpq writes two spaces behind a server's severity
_ATTEMPT = re.compile(r"^- .*$", re.MULTILINE)


def connect_state(error: psycopg.Error) -> str | None:
    """Return the SQLSTATE of a failed connect, as far as the message shows it."""
    if error.sqlstate is None and _NOT_READY.search(str(error)):
        return "57P03"
    return error.sqlstate


def is_silence(text: str) -> bool:
    """Tell from the text of a failed connect whether no server was there to refuse it. Where
    several addresses were tried, none may have had one."""
    attempts = _ATTEMPT.findall(text) or [text]
    return all(_SILENCE.search(each) and not _SPEECH.search(each) for each in attempts)


def error_class(state: str | None) -> type[DatabaseError]:
    """Return the error class for a SQLSTATE."""
    if state == "42501":
        return PrivilegeError
    if state is None or state.startswith("08") or state in ("57P01", "57P02", "57P03"):
        return ConnectError
    return DatabaseError


def translate(error: psycopg.Error, name: str, query: str | None, role: str) -> DatabaseError:
    message = error.diag.message_primary or first_line(error)
    if is_row_security(error.sqlstate, error.diag.source_function):
        message = explain(message, role)
    return error_class(error.sqlstate)(
        message,
        sqlstate=error.sqlstate,
        connection=name,
        query=query,
        detail=error.diag.message_detail,
        hint=error.diag.message_hint,
        context=error.diag.context,
    )
