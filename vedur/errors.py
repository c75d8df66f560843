"""The errors of Vedur, and the exit code that each one gives a command.

    VedurError               1   anything that a command reports in one line
    ├── UsageError           1   the command line itself is wrong
    ├── ConfigError          2   an ini file cannot be read or holds a bad value
    ├── StateError           3   the nodes are not in the state that the command needs
    │   ├── LaggingError     7   the worker is too far behind for a common moment
    │   ├── StaleStage       3   what was staged no longer fits; the worker stages it again
    │   ├── TableChanged     3   a table was rewritten during its first copy, which begins anew
    │   ├── LostPosition     3   the target's tick fits neither end of the batch
    │   ├── OtherEpoch       3   the histories of a node and its provider do not fit
    │   └── AlreadyRunning   1   another process has the pidfile
    ├── DatabaseError        4   a statement failed
    │   ├── ConnectError     5   a server cannot be reached or refuses the login
    │   └── PrivilegeError   6   the role lacks a right; the message names the GRANT
    ├── RefusedError         1   a SQL function of the contract answered with a code >= 400
    ├── EngineLost           1   Spark has ended on its own; the worker starts it again
    └── InternalError       12   a state that should be impossible; message starts with "BUG:"

A message is one lower-case sentence without a full stop: what failed, with names in double
quotes; what was found; what to do. Values stay available as attributes, and every error
pickles, because errors cross from Spark executors to the driver. Nobody edits an error on its way:
whoever knows more raises `error.with_values(...) from error`.

    ControlFlow                  tells a caller of ours how to go on; never reaches an operator
    ├── RowByRowNeeded           the net changes of a table cannot be merged
    ├── CopyAbandoned            a first copy is no longer wanted
    ├── CopyStateChanged         a first copy is not in the state that a step was for
    ├── CopyMustWait             a table cannot begin with the others of its group
    ├── MomentPassed             the worker went past the tick of a common moment
    ├── SessionNotShared         the worker's Spark session is not there, or refuses
    └── ResidentLost             the task that stays is gone, or cannot be relied on
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class VedurError(Exception):
    """The command failed."""

    exit_code = 1
    #: What to do about it in general, for the manual; the message says it for the case.
    remedy: ClassVar[str] = "The message says what to do."

    def __init__(self, message: str | None = None, **values: Any) -> None:
        super().__init__(message or self.__doc__ or type(self).__name__)
        self.message = str(self.args[0])
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.values))

    def with_values(self, message: str | None = None, **values: Any) -> Self:
        """Return the same error with another message, or with more values."""
        return type(self)(message or self.message, **{**self.values, **values})


def _rebuild(cls: type[VedurError], message: str, values: dict[str, Any]) -> VedurError:
    return cls(message, **values)


def first_line(error: object) -> str:
    """Return the first line of an error's text, or its class where it has none: for log lines,
    stored errors and messages that quote another's."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def error_to_json(error: VedurError) -> dict[str, Any]:
    """Return an error as values of JSON, with which it can leave its process; plain values go
    along."""
    values = {k: v for k, v in error.values.items() if isinstance(v, str | int | None)}
    return {"error": type(error).__name__, "message": error.message, "values": values}


def error_from_json(said: dict[str, Any]) -> VedurError:
    """Return the error that `error_to_json` has made these values of."""
    cls = globals().get(said["error"])
    known = isinstance(cls, type) and issubclass(cls, VedurError)
    return (cls if known else VedurError)(said["message"], **said["values"])  # type: ignore[misc]


class UsageError(VedurError):
    """The command line is wrong, use --help for help."""

    remedy = "`COMMAND --help` shows the arguments of a command with examples."


class ConfigError(VedurError):
    """The configuration is wrong."""

    exit_code = 2
    remedy = "Correct the ini file; `--ini` prints a sample with every key."


class StateError(VedurError):
    """The node is not in the state that this command needs."""

    exit_code = 3
    remedy = "`status`, `tables` and `node-info` show the states; nothing was changed."


class LaggingError(StateError):
    """The worker of this node is too far behind its provider."""

    exit_code = 7
    remedy = (
        "See that the worker runs and catches up (`status`), or give it more time with "
        "`--max-wait`. Nothing was changed."
    )


class StaleStage(StateError):
    """What was staged does not fit what is there now: it is staged again."""

    remedy = "None is needed: the worker stages the batch again by itself."


class TableChanged(StateError):
    """The table was rewritten on the provider during its first copy."""

    remedy = "None is needed: the worker begins the copy of this table anew by itself."


class LostPosition(StateError):
    """The position of the target fits neither end of the batch."""

    remedy = (
        "One of the two databases was restored from a backup, or the root is a standby now that "
        "was behind. Nothing was applied. `rejoin` on the node says what it would do, `rejoin "
        "--apply` brings the node back. Where two workers run for one node, stop one of them."
    )


class OtherEpoch(StateError):
    """The node and its provider follow different roots."""

    remedy = (
        "A root was replaced, and one of the nodes does not know it yet or has changes that the "
        "new root never had. Nothing was applied. `change-provider` moves a node that is behind, "
        "`rejoin` brings back a leaf, `resurrect` a root that was deposed."
    )


class AlreadyRunning(StateError):
    """Pidfile exists, another process running?"""

    exit_code = 1
    remedy = "`-s` stops the process that has the pidfile; a file without a process is replaced."


class DatabaseError(VedurError):
    """A statement failed."""

    exit_code = 4
    remedy = "The server's own message; its log has the statement. A worker tries again by itself."

    @property
    def sqlstate(self) -> str | None:
        """The SQLSTATE that the server gave, None where there was no server to give one."""
        return self.values.get("sqlstate")

    @property
    def is_transient(self) -> bool:
        """Deadlock, failed serialization, a lock that did not come in time: another session was in
        the way, and the same may work in a moment."""
        return self.sqlstate in ("40P01", "40001", "55P03")


class ConnectError(DatabaseError):
    """The server cannot be reached."""

    exit_code = 5
    remedy = "Check address, port, `pg_hba.conf` and password. A worker tries again by itself."

    @property
    def is_silent(self) -> bool:
        """Nobody was there: no server has answered, not even by turning this client away."""
        return bool(self.values.get("silent"))

    @property
    def is_shut(self) -> bool:
        """The server is there, and the database is not, or lets nobody in."""
        return bool(self.values.get("shut"))


class PrivilegeError(DatabaseError):
    """The role lacks a right."""

    exit_code = 6
    remedy = "docs/reference/privileges.md lists what each program needs, as GRANT statements."


class RefusedError(VedurError):
    """A function of the contract refused."""

    remedy = "The message is the function's `ret_note`; nothing was changed."

    @property
    def code(self) -> int:
        """The ret_code of the contract, 400 or above."""
        return int(self.values.get("code", 400))


class EngineLost(VedurError):
    """Spark has ended on its own: it is started again"""

    remedy = "None is needed: the worker starts Spark again by itself. Spark's own log says why."


class InternalError(VedurError):
    """BUG: a state that should be impossible was reached."""

    exit_code = 12
    remedy = "Please report it, with the log of the worker or the output of `-v`."


class ControlFlow(Exception):
    """Not an error: tells a caller how to go on."""


class RowByRowNeeded(ControlFlow):
    """The net changes of a table cannot be merged: its events must be replayed one by one. Its text
    is the reason, for the log."""


class CopyAbandoned(ControlFlow):
    """The table is no longer this copy's business: removed, set back, or the worker ends."""


class CopyStateChanged(ControlFlow):
    """The table is no longer in the state that a step of its copy was for."""


class CopyMustWait(ControlFlow):
    """Somebody else has locked or changed a table: those of its group must not wait for that."""


class MomentPassed(ControlFlow):
    """The worker went past the tick at which both nodes were to be looked at."""


class SessionNotShared(ControlFlow):
    """There is no shared Spark session, it does not take this question, or it has ended."""


class ResidentLost(ControlFlow):
    """The resident task is gone, or cannot be relied on."""
