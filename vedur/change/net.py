"""The net change of a key: what a run of events on one key amounts to. Pure.

Each kind says what happens to a row that is missing and to one that exists. Two kinds one after
the other are a kind again, so runs can be cut anywhere and put together later, here or in SQL:

    kind             row missing   row exists   arises from
    I  insert        inserted      error        an insert (then updates)
    U  update        nothing       updated      updates
    D  delete        nothing       deleted      a delete last
    P  replace       inserted      replaced     a delete, then an insert
    N  nothing       nothing       error        an insert, then a delete
    X  conflict      error         error        an insert of a row that the run itself left in place
    !  interleaved   unknown       unknown      runs of one key whose events interleave

"error" is the duplicate key that row-by-row replay would hit at the same event. Only the server
finds interleaved runs, when it composes what several tasks have staged (`fold` in
`sql/queries/replay.sql`); a table that has conflicts or interleaved runs is replayed row by row.

The letters are what staging tables store.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """See the table above."""

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
