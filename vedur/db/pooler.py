"""Poolers between us and a server: only those that leave a session to one client are accepted.

In transaction or statement mode a pooler gives every transaction another session of the server.
Settings that we make would be those of other clients, LISTEN would hear nothing, and locks of a
session would be held by nobody. Nothing of that is an error for the pooler, so it is found out here
before the first setting is made.
"""

from __future__ import annotations

import select
from typing import Any

import psycopg

from vedur.errors import ConnectError

#: Seconds to wait for a second session: a pool in session mode may have none left.
_PATIENCE = 3.0
_ROUNDS = 3
_PID = "select pg_catalog.pg_backend_pid()"
_REFUSAL = (
    "the connection goes through a pooler that gives every transaction another session of the "
    "server: connect to the server itself, or to a pool in session mode (pool_mode = session)"
)
#: Connect strings whose pooler was seen to leave sessions alone, in this process.
_proven: set[str] = set()


def require_own_session(raw: psycopg.Connection[Any], conninfo: str, name: str) -> None:
    """Raise unless the session behind a connection is its own; asks the server, and changes
    nothing there.

    A server tells the number of its process when it is connected to. A pooler tells a number of its
    own then: where the two are the same there is none.
    """
    first = _ask(raw)
    if first == raw.info.backend_pid or conninfo in _proven:
        return
    other = psycopg.connect(conninfo, autocommit=True)
    try:
        for _ in range(_ROUNDS):
            mine, theirs = _ask(raw), _ask_patiently(other)
            if theirs is None:
                break  # no session was left, so this one is taken
            if mine == theirs or mine != first:
                raise ConnectError(_REFUSAL, sqlstate=None, connection=name, query=None)
    finally:
        other.close()
    _proven.add(conninfo)


def _ask(raw: psycopg.Connection[Any]) -> int:
    row = raw.execute(_PID).fetchone()
    assert row is not None
    return int(row[0])


def _ask_patiently(raw: psycopg.Connection[Any]) -> int | None:
    """Ask for the process behind a connection; None where it does not answer soon."""
    raw.pgconn.send_query(_PID.encode())
    raw.pgconn.flush()
    if not select.select([raw.fileno()], [], [], _PATIENCE)[0]:
        return None
    found = None
    while (result := raw.pgconn.get_result()) is not None:
        value = result.get_value(0, 0) if result.ntuples else None
        found = int(value) if value is not None else found
    return found
