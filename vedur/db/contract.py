"""Calls of contract functions that answer with `(ret_code, ret_note, ...)`, and their log lines.

The code decides what an operator sees: 1xx is a DEBUG line `code note`, 2xx an INFO line with the
note, 3xx a WARNING; 4xx and above raise `RefusedError` with the note. With `-v` each call is shown
before it runs, as `exec_cmd:` (an answer is judged) or `exec_query:` (rows are only read).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vedur.db import Database, Row
from vedur.errors import InternalError, RefusedError
from vedur.log import mask_connstr
from vedur.names import quote_literal

log = logging.getLogger(__name__)


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
