"""One connection to one database, with our errors and our log lines.

Rows come back as named tuples. Every error of the driver leaves this module as a `DatabaseError`
(or its `ConnectError`, `PrivilegeError`) whose message is the server's own first line; the
statement stays available in `.values["query"]`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Self, cast

import psycopg
from psycopg import sql as pgsql
from psycopg.rows import namedtuple_row

from vedur.db.conninfo import cut_password, with_defaults
from vedur.db.of_job import keep_in_mind
from vedur.db.pooler import require_own_session
from vedur.db.row_security import explain, is_row_security
from vedur.db.silence import Connection
from vedur.errors import ConnectError, DatabaseError, PrivilegeError, first_line
from vedur.sql import query

log = logging.getLogger(__name__)
# A pipeline that fails says so twice: by an exception, which we handle, and in the log.
logging.getLogger("psycopg").setLevel(logging.ERROR)

#: Values must read the same whatever a role or database has configured: events are text, and
#: compare hashes text. UTF8 because event text of any database must fit. Ticks and rotation need
#: read committed; who wants another level says so at the begin of the transaction. A commit that a
#: crash can undo would break the chain of positions: a tick must outlive what was read up to it,
#: and applied changes the batch that is finished on the provider (waiting for a standby stays).
#: Row level security must refuse and not filter (`row_security.py`). Statements and not startup
#: options, which poolers refuse.
_PIN = (
    "set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; set extra_float_digits = 1; "
    "set bytea_output = 'hex'; set lc_monetary = 'C'; set standard_conforming_strings = on; "
    "set client_encoding = 'UTF8'; "
    "set default_transaction_isolation = 'read committed'; set default_transaction_read_only = off"
    "; set row_security = off"
    "; select pg_catalog.set_config('synchronous_commit', 'on', false)"
    " where pg_catalog.current_setting('synchronous_commit') = 'off'"
)

#: libpq keeps the SQLSTATE of a refused connection to itself; these are the sentences of 57P03.
_NOT_READY = re.compile(
    r"the database system is "
    r"(starting up|shutting down|in recovery mode|not (yet )?accepting connections)"
)
_SHUT = re.compile(r'FATAL: +database ".*" (does not exist|is not currently accepting connections)')
#: What the system and libpq say where no server was reached. Everything else was said by a server,
#: or because of what a server has said, in any language.
_SILENCE = re.compile(
    r"Connection refused|timeout expired|timed out|could not translate host name|failed to resolve"
    r"|Name or service not known|No route to host|Network is unreachable|Host is (down|unreachable)"
    r"|No such file or directory|Connection reset by peer|server closed the connection unexpectedly"
)
_SPEECH = re.compile(r"failed: [^:\n]+:  ")  # libpq writes two spaces behind a server's severity
_ATTEMPT = re.compile(r"^- .*$", re.MULTILINE)

Row = Any
Params = Sequence[Any] | Mapping[str, Any] | None


class Notification(NamedTuple):
    """A NOTIFY that arrived."""

    channel: str
    payload: str


class CopyReader(Protocol):
    """What `Database.copy_out` yields: blocks of COPY data as the server sent them."""

    def __iter__(self) -> Iterator[bytes]: ...


class CopyWriter(Protocol):
    """What `Database.copy_in` yields: takes blocks of COPY data."""

    def write(self, block: bytes, /) -> None: ...


def _connect_state(error: psycopg.Error) -> str | None:
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


def _translate(error: psycopg.Error, name: str, query: str | None, role: str) -> DatabaseError:
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


class Database:
    """A connection. Without autocommit a transaction opens by itself and waits for commit()."""

    def __init__(self, raw: psycopg.Connection[Any], name: str, connstr: str) -> None:
        self.raw = raw
        self.name = name
        self.connstr = connstr
        self.role = raw.info.user  # who logged in; libpq forgets it with the connection

    # -- statements ---------------------------------------------------------------------------

    def query(self, text: str, params: Params = None) -> list[Row]:
        """Run a statement and return its rows."""
        with self._errors(text), self.raw.cursor() as cur:
            cur.execute(text, params)
            # among statements whose answers are not waited for, nothing is known before the fetch
            waits = cur.description or self.raw.pgconn.pipeline_status
            return cur.fetchall() if waits else []

    def one(self, text: str, params: Params = None) -> Row:
        """Run a statement; returns its only row, or None when it has none."""
        rows = self.query(text, params)
        return rows[0] if rows else None

    def value(self, text: str, params: Params = None) -> Any:
        """Run a statement; returns the first column of its first row, or None."""
        row = self.one(text, params)
        return None if row is None else row[0]

    def execute(self, text: str, params: Params = None) -> int:
        """Run a statement (or several, without parameters); returns the number of affected rows."""
        with self._errors(text), self.raw.cursor() as cur:
            cur.execute(text, params)
            return cur.rowcount

    def each(self, texts: Sequence[str]) -> list[Any]:
        """Run several statements in one round trip; returns, for each, its rows or row count."""
        if not texts:
            return []
        text = ";\n".join(texts)
        results: list[Any] = []
        with self._errors(text), self.raw.cursor() as cur:
            cur.execute(cast(Any, text))
            while not results or cur.nextset():
                results.append(cur.fetchall() if cur.description else cur.rowcount)
        return results

    def executemany(self, text: str, rows: Sequence[Params]) -> None:
        """Run one statement for many parameter sets, pipelined."""
        with self._errors(text), self.raw.cursor() as cur:
            cur.executemany(text, cast(Any, rows))

    def call(self, function: str, *args: Any) -> list[Row]:
        """Run `select * from function(args)`; `function` is `schema.name` of the contract."""
        return self.query(self.call_text(function, len(args)), args)

    @staticmethod
    def call_text(function: str, nargs: int) -> str:
        """Return the statement that `call` runs."""
        schema, _, name = function.partition(".")
        marks = pgsql.SQL(", ").join([pgsql.Placeholder()] * nargs)
        statement = pgsql.SQL("select * from {}({})").format(pgsql.Identifier(schema, name), marks)
        return statement.as_string(None).replace('"', "")

    def mogrify(self, text: str, params: Params = None) -> str:
        """Return the statement with its parameters as literals, for log lines."""
        cursor = psycopg.ClientCursor(self.raw)
        return str(cursor.mogrify(text, params))

    def stream(self, text: str, params: Params = None, size: int = 2000) -> Iterator[Row]:
        """Yield rows through a server-side cursor, `size` at a time; needs a transaction."""
        with self._errors(text), self.raw.cursor(name="vedur_stream") as cur:
            cur.itersize = size
            cur.execute(text, params)
            yield from cur

    # -- COPY ---------------------------------------------------------------------------------

    @contextmanager
    def copy_out(self, text: str, params: Params = None) -> Iterator[CopyReader]:
        """Run `copy ... to stdout`; iterate over the value for raw blocks."""
        with self._errors(text), self.raw.cursor() as cur, cur.copy(text, params) as copy:
            yield cast(CopyReader, copy)

    @contextmanager
    def copy_in(self, text: str) -> Iterator[CopyWriter]:
        """Run `copy ... from stdin`; call `.write(bytes)` on the value."""
        with self._errors(text), self.raw.cursor() as cur, cur.copy(text) as copy:
            yield copy

    # -- transactions and the session ----------------------------------------------------------

    def commit(self) -> None:
        with self._errors("commit"):
            self.raw.commit()

    def rollback(self) -> None:
        with self._errors("rollback"):
            self.raw.rollback()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Open a transaction that commits at the end; inside another one, a savepoint."""
        with self._errors("transaction"), self.raw.transaction():
            yield self

    @property
    def autocommit(self) -> bool:
        """Whether each statement is its own transaction."""
        return self.raw.autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        self.raw.autocommit = on

    @property
    def closed(self) -> bool:
        """Return True after close(), or after the connection was found broken."""
        return self.raw.closed

    @property
    def server_version(self) -> int:
        """Return `server_version_num`, e.g. 160014."""
        return self.raw.info.server_version

    @property
    def encoding(self) -> str:
        """Return the encoding of the database; SQL_ASCII means any bytes."""
        return self.raw.info.parameter_status("server_encoding") or ""

    @property
    def backend_pid(self) -> int:
        """Return the id of the server process of this connection."""
        return self.raw.info.backend_pid

    def without_timeouts(self) -> Self:
        """Lift the time limits that a server or role sets for sessions: work may take hours."""
        names = ["statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"]
        if self.server_version >= 170000:
            names.append("transaction_timeout")
        self.execute("; ".join(f"set {name} = 0" for name in names))
        return self

    def with_memory(self, setting: str, size: str) -> Self:
        """Set `work_mem` or `maintenance_work_mem` of this session to at least this size."""
        self.execute(
            "select pg_catalog.set_config(%(setting)s, %(size)s, false)"
            " where pg_catalog.pg_size_bytes(pg_catalog.current_setting(%(setting)s))"
            " < pg_catalog.pg_size_bytes(%(size)s)",
            {"setting": setting, "size": size},
        )
        return self

    def notifications(self, timeout: float) -> list[Notification]:
        """Wait up to `timeout` seconds for the first NOTIFY; needs autocommit and LISTEN."""
        with self._errors("wait for notify"):
            received = self.raw.notifies(timeout=timeout, stop_after=1)
            return [Notification(n.channel, n.payload) for n in received]

    def fileno(self) -> int:
        """Return the socket, so that a loop can wait on several connections."""
        return self.raw.fileno()

    def cancel(self) -> None:
        """Ask the server to stop the running statement; callable from another thread."""
        self.raw.cancel_safe(timeout=5.0)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back by the server."""
        self.raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _errors(self, query: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise _translate(error, self.name, query, self.role) from error


def connect(
    connstr: str,
    *,
    name: str = "db",
    autocommit: bool = False,
    application_name: str = "vedur",
) -> Database:
    """Open a connection; `name` is what log lines and errors call it."""
    log.debug("Connect '%s' to '%s'", name, cut_password(connstr))
    try:
        conninfo = with_defaults(connstr, application_name)
        raw = Connection.connect(conninfo, autocommit=True, row_factory=namedtuple_row)
        try:
            raw.knock = conninfo
            require_own_session(raw, conninfo, name)
            raw.execute(_PIN)
        except BaseException:
            raw.close()
            raise
        raw.autocommit = autocommit
        keep_in_mind(raw)
    except psycopg.Error as error:
        first = error.diag.message_primary or first_line(error)
        state = _connect_state(error)
        text = str(error)
        raise ConnectError(
            first, sqlstate=state, connection=name, query=None,
            silent=is_silence(text), shut=_SHUT.search(text) is not None,
        ) from error  # fmt: skip
    return Database(raw, name, connstr)


# The session's replication role: whose triggers fire, and whether foreign keys are checked.

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
