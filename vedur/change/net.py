"""The net change of a key: what a run of events on one key amounts to.

Each kind says what becomes of a row that is missing and of one that exists; composing two kinds
gives a kind again, so runs can be cut anywhere and put together later, here or in SQL:

    kind   row missing   row exists   arises from
    I      inserted      error        insert (then updates)
    U      nothing       updated      updates
    D      nothing       deleted      a delete last
    P      inserted      replaced     a delete, then an insert
    N      nothing       error        an insert, then a delete
    X      error         error        an insert of a row that the run itself left in place

"error" is the duplicate key that row-by-row replay would hit at the same event.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["I", "U", "D", "P", "N", "X"]

#: STEP[kind][op] is the kind after one more event.
STEP: dict[str, dict[str, str]] = {
    "": {"I": "I", "U": "U", "D": "D"},
    "I": {"I": "X", "U": "I", "D": "N"},
    "U": {"I": "I", "U": "U", "D": "D"},
    "D": {"I": "P", "U": "D", "D": "D"},
    "P": {"I": "X", "U": "P", "D": "D"},
    "N": {"I": "I", "U": "N", "D": "N"},
    "X": {"I": "X", "U": "X", "D": "X"},
}

_OPS = {"I": "I", "U": "U", "D": "D", "P": "DI", "N": "ID"}

#: Kinds whose last event left a row, so that its values matter.
WITH_ROW = frozenset("IUP")


def compose(first: str, second: str) -> str:
    """The kind of two runs in order."""
    if "X" in (first, second):
        return "X"
    kind = first
    for op in _OPS[second]:
        kind = STEP[kind][op]
    return kind
