"""COPY's text format, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPECIAL = re.compile(r"[\\\t\n\r]")
_TO_ESCAPE = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FROM_ESCAPE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}

NULL = "\\N"


def escape(value: str) -> str:
    """A value as COPY wants it."""
    if _SPECIAL.search(value) is None:
        return value
    return _SPECIAL.sub(lambda m: _TO_ESCAPE[m[0]], value)


def line(values: Iterable[str | None]) -> str:
    """One row, newline included."""
    return "\t".join([NULL if v is None else escape(v) for v in values]) + "\n"


def fields(row: str) -> list[str | None]:
    """The values of one row that COPY sent, newline already off."""
    parts: list[str | None] = list(row.split("\t"))
    if "\\" not in row:
        return parts
    return [_unescape(p) for p in parts]  # type: ignore[arg-type]


def _unescape(field: str) -> str | None:
    if field == NULL:
        return None
    if "\\" not in field:
        return field
    return _ESCAPED.sub(lambda m: _FROM_ESCAPE.get(m[1], m[1]), field)
