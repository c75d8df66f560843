"""Text of PostgreSQL into Arrow columns, exactly or not at all.

Arrow's own casts refuse what does not fit (a tenth digit, year 12000, NaN as decimal); the error
then says which event and column it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from vedur.errors import StateError

Texts = Sequence[str | None]

_BOOLEANS = {None: None, "t": True, "true": True, "f": False, "false": False}


def to_arrow(texts: Texts, kind: pa.DataType, column: str, event_ids: Sequence[str]) -> pa.Array:
    """Return one column of a batch; `event_ids` name the rows in errors."""
    make = _maker(kind)
    try:
        return make(texts)
    except (pa.ArrowInvalid, ValueError, KeyError):
        at = _first_bad(texts, make)
        raise StateError(
            f'[ev_id={event_ids[at]}] column "{column}": its value is no {kind} for Spark: '
            "declare the column as string with .schema(...)"
        ) from None


def _maker(kind: pa.DataType) -> Callable[[Texts], pa.Array]:
    if pa.types.is_string(kind):
        return lambda texts: pa.array(texts, kind)
    if pa.types.is_boolean(kind):
        return lambda texts: pa.array([_BOOLEANS[t] for t in texts], kind)
    if pa.types.is_binary(kind):
        return lambda texts: pa.array([_bytes(t) for t in texts], kind)
    return lambda texts: pa.array(texts, pa.string()).cast(kind)


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith("\\x"):
        raise ValueError
    return bytes.fromhex(text[2:])


def _first_bad(texts: Texts, make: Callable[[Texts], pa.Array]) -> int:
    for at, text in enumerate(texts):
        try:
            make([text])
        except (pa.ArrowInvalid, ValueError, KeyError):
            return at
    return 0


def micros(texts: Texts, kind: Any) -> pa.Array:
    """Return microseconds since 1970, as the server counted them."""
    return pa.array(texts, pa.string()).cast(pa.int64()).cast(kind)
