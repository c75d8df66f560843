"""libpq as COPY uses it past the driver: waits on the socket, results, errors in our words.

psycopg's own calls would block all threads while they wait, or go through generators. What is here
leaves libpq in a state that psycopg knows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import POLLIN, POLLOUT, poll

import psycopg
from psycopg import pq

from vedur.db.database import Database
from vedur.db.driver_errors import error_class
from vedur.db.row_security import explain, is_row_security
from vedur.errors import ConnectError, DatabaseError

_ENCRYPTED = """
select coalesce((select ssl from pg_catalog.pg_stat_ssl
                 where pid = pg_catalog.pg_backend_pid()), false)
    or coalesce((select encrypted from pg_catalog.pg_stat_gssapi
                 where pid = pg_catalog.pg_backend_pid()), false)
"""


@contextmanager
def libpq_errors(text: str) -> Iterator[None]:
    """Translate what libpq itself notices: always a lost connection."""
    try:
        yield
    except psycopg.Error as error:
        lines = str(error).strip().splitlines()
        message = lines[0] if lines else "connection lost during copy"
        raise ConnectError(message, query=text, sqlstate=None) from error


def is_plain(db: Database) -> bool:
    """Do the bytes of this connection go over the wire as they are? Asks once. Behind a pooler
    the server knows of the pooler's connection only, and libpq of ours."""
    if db.encrypted is None:
        db.encrypted = bool(db.raw.pgconn.ssl_in_use or db.value(_ENCRYPTED))
    return not db.encrypted


def wait(pgconn: pq.abc.PGconn, for_what: int) -> None:
    """Wait until the socket can be read from, or written to."""
    waiter = poll()
    waiter.register(pgconn.socket, for_what)
    waiter.poll()


def flush(pgconn: pq.abc.PGconn) -> None:
    """Send all that libpq holds."""
    while pgconn.flush():
        wait(pgconn, POLLOUT)


def result_of(pgconn: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """Wait for the next result. psycopg's own call would block all threads while it waits."""
    flush(pgconn)
    while pgconn.is_busy():
        wait(pgconn, POLLIN)
        pgconn.consume_input()
    return pgconn.get_result()


def start(db: Database, text: str, expected: pq.ExecStatus) -> None:
    """Send a COPY, and wait until its data may come or go."""
    db.raw.pgconn.send_query(text.encode())
    expect(db, expected, text)


def expect(db: Database, status: pq.ExecStatus, text: str) -> None:
    """Wait for a result of that status; raises what the server says instead."""
    result = result_of(db.raw.pgconn)
    if result is None or result.status != status:
        failure = failure_of(db, result, text)
        with suppress(psycopg.Error):  # where the connection is lost, too, that is not the cause
            drain(db.raw.pgconn)
        raise failure


def drain(pgconn: pq.abc.PGconn) -> None:
    """Wait until the statement has no further result."""
    while result_of(pgconn) is not None:
        pass


def failure_of(db: Database, result: pq.abc.PGresult | None, text: str) -> DatabaseError:
    """Return the error that a result tells, or a lost connection."""
    pgconn = db.raw.pgconn
    if result is None or pgconn.status != pq.ConnStatus.OK:
        message = pgconn.get_error_message() or "the server closed the connection"
        return ConnectError(message.splitlines()[0], connection=db.name, query=text, sqlstate=None)
    field = pq.DiagnosticField
    wanted = (field.SQLSTATE, field.MESSAGE_DETAIL, field.MESSAGE_HINT, field.CONTEXT)
    fields = {
        f: value.decode("utf-8", "replace") if (value := result.error_field(f)) else None
        for f in (*wanted, field.SOURCE_FUNCTION)
    }
    primary = result.error_field(field.MESSAGE_PRIMARY) or result.error_message
    message = primary.decode("utf-8", "replace")
    if is_row_security(fields[field.SQLSTATE], fields[field.SOURCE_FUNCTION]):
        message = explain(message, db.role)
    return error_class(fields[field.SQLSTATE])(
        message,
        connection=db.name,
        query=text,
        sqlstate=fields[field.SQLSTATE],
        detail=fields[field.MESSAGE_DETAIL],
        hint=fields[field.MESSAGE_HINT],
        context=fields[field.CONTEXT],
    )


def end_copy_in(target: Database, text: str) -> int:
    """End the COPY on the target; returns the number of rows."""
    pgconn = target.raw.pgconn
    try:
        pgconn.put_copy_end()
        result = result_of(pgconn)
    except psycopg.OperationalError:
        result = None
    if result is None or result.status != pq.ExecStatus.COMMAND_OK:
        failure = failure_of(target, result, text)
        if pgconn.status == pq.ConnStatus.OK:
            drain(pgconn)
        raise failure
    rows = int(result.command_tuples or 0)
    drain(pgconn)
    return rows


def put(pgconn: pq.abc.PGconn, data: bytes | memoryview) -> None:
    """Send COPY data."""
    while not pgconn.put_copy_data(data):
        flush(pgconn)
    flush(pgconn)


@contextmanager
def blocking(db: Database) -> Iterator[socket.socket]:
    """Make the connection's socket blocking; libpq needs it back as it was."""
    with socket.socket(fileno=os.dup(db.raw.pgconn.socket)) as sock:
        sock.setblocking(True)
        try:
            yield sock
        finally:
            sock.setblocking(False)


def end_copy_out(db: Database, text: str) -> None:
    """Read what follows the data of a COPY to stdout."""
    expect(db, pq.ExecStatus.COMMAND_OK, text)
    drain(db.raw.pgconn)
