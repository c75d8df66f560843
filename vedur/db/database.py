"""One connection to one database, with our errors and our log lines, and the calls of functions of
the contract through it.

Rows come back as named tuples. Every error of the driver leaves this module as a `DatabaseError`
(or its `ConnectError`, `PrivilegeError`) whose message is the server's own first line; the
statement stays available in `.values["query"]`.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, cast

import psycopg
from psycopg import sql as pgsql
from psycopg.rows import namedtuple_row

from vedur.db.conninfo import cut_password, with_defaults
from vedur.db.driver_errors import SHUT, connect_state, is_silence, translate
from vedur.db.of_job import keep_in_mind
from vedur.db.pooler import require_own_session
from vedur.db.settings import PIN
from vedur.db.silence import Connection
from vedur.errors import ConnectError, InternalError, PrivilegeError, RefusedError, first_line
from vedur.log import mask_connstr
from vedur.names import quote_literal
from vedur.sql import query

log = logging.getLogger(__name__)
# A pipeline that fails says so twice: by an exception, which we handle, and in the log.
logging.getLogger("psycopg").setLevel(logging.ERROR)

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


class Database:
    """A connection. Without autocommit a transaction opens by itself and waits for commit()."""

    def __init__(self, raw: psycopg.Connection[Any], name: str, connstr: str) -> None:
        self.raw = raw
        self.name = name
        self.connstr = connstr
        self.role = raw.info.user  # who logged in; libpq forgets it with the connection
        self.sets_roles: bool | None = None  # is there a function of the contract that does?
        self.encrypted: bool | None = None  # is what goes through it? None: nobody has asked
        self._zone: str | None = None

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

    def database_zone(self) -> str:
        """Read the time zone that the database has for others: our sessions use UTC. Asks once,
        since the server lists all of its settings for the answer (1.2 ms)."""
        if self._zone is None:
            self._zone = str(self.value(query("db", "database_zone")))
        return self._zone

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

    def wait_for_notice(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for any NOTIFY, asleep: `notifications` wakes ten times a
        second. Needs autocommit and LISTEN."""
        if self.notifications(0):
            return True
        waiter = select.poll()
        waiter.register(self.fileno(), select.POLLIN)
        return bool(waiter.poll(timeout * 1000)) and bool(self.notifications(0))

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
            raise translate(error, self.name, query, self.role) from error


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
            raw.execute(PIN)
        except BaseException:
            raw.close()
            raise
        raw.autocommit = autocommit
        keep_in_mind(raw)
    except psycopg.Error as error:
        first = error.diag.message_primary or first_line(error)
        state = connect_state(error)
        text = str(error)
        raise ConnectError(
            first, sqlstate=state, connection=name, query=None,
            silent=is_silence(text), shut=SHUT.search(text) is not None,
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
    if db.sets_roles is None:
        db.sets_roles = bool(db.value(query("db", "has_set_role")))
    if not db.sets_roles:
        db.query(query("db", "set_role"), [role])
        return
    try:
        db.call("londiste.set_session_replication_role", role, True)
    except PrivilegeError as error:
        remedy = _REMEDY_14 if db.server_version < 150000 else _REMEDY
        raise PrivilegeError(f"{error.message}: as superuser {remedy}", **error.values) from error


# -- functions of the contract --------------------------------------------------------------------

# They answer with `(ret_code, ret_note, ...)`, and the code decides what an operator sees: 1xx is a
# DEBUG line `code note`, 2xx an INFO line with the note, 3xx a WARNING; 4xx and above raise
# `RefusedError` with the note. With `-v` each call is shown before it runs, as `exec_cmd:` (an
# answer is judged) or `exec_query:` (rows are only read).


@dataclass(frozen=True)
class Answer:
    """What a command answered; `row` also holds the columns beside code and note."""

    code: int
    note: str
    row: Row


def literal(value: object) -> str:
    """Format a value for the log. For reading only: statements get real parameters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return quote_literal(mask_connstr(str(value)))


def _shown(function: str, args: tuple[Any, ...]) -> str:
    return f"select * from {function}({', '.join(literal(arg) for arg in args)})"


def exec_query(db: Database, function: str, *args: Any) -> list[Row]:
    """Call a function that only reads; returns its rows."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug("exec_query: %s", _shown(function, args))
    return db.call(function, *args)


def command(db: Database, function: str, *args: Any, node: str = "", quiet: bool = False) -> Answer:
    """Call a function of the contract and judge its answer.

    `node` names the node when it is not the local one: the notes are prefixed with it. `quiet`
    keeps a success at DEBUG, for bookkeeping that the operator did not ask for.
    """
    if log.isEnabledFor(logging.DEBUG):
        log.debug("exec_cmd: %s", _shown(function, args))
    rows = db.call(function, *args)
    if not rows:
        raise InternalError(f"BUG: {function} answered nothing")
    answer = Answer(rows[-1].ret_code, rows[-1].ret_note, rows[-1])
    report(answer, node, quiet=quiet)
    return answer


def log_contract_call(call: Callable[..., object], db: Database, function: str, *args: Any) -> None:
    """Make a call (`exec_query` or `command`) for its lines in the log alone.

    With -v, operators and their scripts read the transcript that Londiste prints; it makes calls
    whose results we have already, or do not need.
    """
    call(db, function, *args)


def report(answer: Answer, node: str = "", *, quiet: bool = False) -> None:
    """Log an answer by its code. Raises `RefusedError` from 400 on."""
    prefix = f"[{node}] " if node else ""
    if answer.code >= 400:
        raise RefusedError(f"{prefix}{answer.note}", code=answer.code, note=answer.note)
    if answer.code >= 300:
        log.warning("%s%s", prefix, answer.note)
    elif answer.code >= 200 and not quiet:
        log.info("%s%s", prefix, answer.note)
    else:
        log.debug("%s%s %s", prefix, answer.code, answer.note)
