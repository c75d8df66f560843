"""Events of a replication queue: what their type says, and what several of one key amount to. Pure.

`ev_type` tells the payload format by its shape: `I:id` is urlencoded and carries the key columns,
`{"op":...` is JSON and carries table and key, a bare `I`, `U`, `D` is a SQL fragment. `R` is a
truncate in every format but JSON. Everything else is for the worker, not for a table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

Op = Literal["I", "U", "D", "R", "-"]
Format = Literal["urlenc", "json", "sql", ""]

_JSON_OPS: dict[str, Op] = {"INSERT": "I", "UPDATE": "U", "DELETE": "D", "TRUNCATE": "R"}


#: What decoders raise for data that no trigger writes, or that is nested beyond measure.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, StopIteration, RecursionError)


def unreadable(error: BaseException) -> str:
    """Return what is said of an event whose data cannot be decoded."""
    why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return f"its data cannot be read: {why or type(error).__name__}"


@dataclass(frozen=True, slots=True)
class EventType:
    """`op` is "-" for events that are not about rows; `keys` is empty where unknown."""

    op: Op
    format: Format = ""
    keys: tuple[str, ...] = ()
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event as the queue stores it. Only those that are given to a handler whole tell their
    `ev_time`, and those from the quarantine the tick `tick` that they were to be applied with; the
    owner is of no use to replay."""

    ev_id: int
    ev_txid: int
    ev_type: str
    ev_data: str | None
    ev_extra1: str | None = None
    ev_extra2: str | None = None
    ev_extra3: str | None = None
    ev_extra4: str | None = None
    ev_time: str | None = None
    tick: int | None = None

    def named(self, message: str) -> str:
        """Return a message that says which event it is about, as upstream writes it."""
        return f"[ev_id={self.ev_id},ev_txid={self.ev_txid}] {message}"


@dataclass(frozen=True, slots=True)
class PassedOn:
    """What a branch does with events that are not to go on just as they are: those of tables in
    `plain` do, those of `masked` (their `TableMap`) go on masked, and those of any other table stop
    the batch."""

    plain: frozenset[str]
    masked: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class EventRange:
    """Where events are read: a table of the provider, conditions of slices, the subscription, the
    time of the last tick as a clock on the wall shows it there, empty where there is none, and the
    number of that tick. `passing` is None where all events go on as they are, or none does."""

    events: str
    slices: tuple[str, ...]
    owner: int
    time: str = field(default="", compare=False)
    tick: int | None = field(default=None, compare=False)
    passing: PassedOn | None = None


@lru_cache(maxsize=4096)
def parse_type(ev_type: str | None) -> EventType:
    """Read an `ev_type`; system events come back with op "-", and so does what means nothing."""
    if not ev_type:
        return EventType(op="-")
    if ev_type in ("I", "U", "D"):
        return EventType(op=ev_type, format="sql")  # type: ignore[arg-type]
    if ev_type == "R":
        return EventType(op="R")
    if ev_type[:2] in ("I:", "U:", "D:"):
        keys = tuple(k for k in ev_type[2:].split(",") if k)
        return EventType(op=ev_type[0], format="urlenc", keys=keys)  # type: ignore[arg-type]
    if ev_type.startswith("{"):
        return _parse_json_type(ev_type)
    return EventType(op="-")


def _parse_json_type(ev_type: str) -> EventType:
    try:
        said = json.loads(ev_type)
        op = _JSON_OPS[said["op"]]
        table = said.get("table")
        name = ".".join(table) if table else None
        return EventType(op=op, format="json", keys=tuple(said.get("pkey") or ()), table=name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # no trigger writes such a type; the worker says that it cannot handle it, and which it is
        return EventType(op="-")


# -- net changes ----------------------------------------------------------------------------------


class Kind(StrEnum):
    """The net change of a key: what a run of events on one key amounts to.

    Each kind says what happens to a row that is missing and to one that exists. Two kinds one after
    the other are a kind again, so runs can be cut anywhere and put together later, here or in SQL:

        kind             row missing   row exists   arises from
        I  insert        inserted      error        an insert (then updates)
        U  update        nothing       updated      updates
        D  delete        nothing       deleted      a delete last
        P  replace       inserted      replaced     a delete, then an insert
        N  nothing       nothing       error        an insert, then a delete
        X  conflict      error         error        an insert of a row that the run left there
        !  interleaved   unknown       unknown      runs of one key whose events interleave

    "error" is the duplicate key that row-by-row replay would hit at the same event. Only the server
    finds interleaved runs, when it composes what several tasks have staged (`fold` in
    `sql/queries/replay.sql`); a table that has conflicts or interleaved runs is replayed row by
    row.

    The letters are what staging tables store.
    """

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"
    REPLACE = "P"
    NOTHING = "N"
    CONFLICT = "X"
    INTERLEAVED = "!"


_I, _U, _D = Kind.INSERT, Kind.UPDATE, Kind.DELETE
_P, _N, _X = Kind.REPLACE, Kind.NOTHING, Kind.CONFLICT

#: STEP[kind][op] is the kind after one more event. An event by itself is a net change too: its
#: operation is a kind, one of the first three.
STEP: dict[Kind, dict[Kind, Kind]] = {
    _I: {_I: _X, _U: _I, _D: _N},
    _U: {_I: _I, _U: _U, _D: _D},
    _D: {_I: _P, _U: _D, _D: _D},
    _P: {_I: _X, _U: _P, _D: _D},
    _N: {_I: _I, _U: _N, _D: _N},
    _X: {_I: _X, _U: _X, _D: _X},
}

#: Kinds whose last event left a row, so that its values matter.
WITH_ROW = frozenset((_I, _U, _P))
#: Kinds that statements over whole tables can apply without asking the server anything first.
MERGEABLE = frozenset((_I, _U, _D, _P))
#: Kinds that only row-by-row replay gets right.
NOT_MERGEABLE = frozenset((_X, Kind.INTERLEAVED))
