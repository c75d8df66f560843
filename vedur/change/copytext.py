"""COPY's text format, both ways."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterable, Iterator

_SPECIAL = re.compile(r"[\\\t\n\r]")
_TO_ESCAPE = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FROM_ESCAPE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}

NULL = "\\N"
#: What stands before a payload that cannot be text.
NOT_UTF8 = "not UTF-8: "
_SHOWN = "vedur.shown"
_MENDED = "vedur.mended"
#: What stands for a byte that cannot be text.
REPLACEMENT = "\ufffd"
#: Characters of rows that are sent together.
_BLOCK_CHARS = 1 << 18


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


def in_blocks(rows: Iterable[str]) -> Iterator[bytes]:
    """Yield rows joined to blocks that are worth sending."""
    block: list[str] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row)
        if size > _BLOCK_CHARS:
            yield "".join(block).encode()
            block, size = [], 0
    if block:
        yield "".join(block).encode()


def mend(data: bytes) -> str:
    """Text of bytes, in which each byte that UTF-8 cannot have there becomes U+FFFD; so does zero,
    which PostgreSQL cannot store. This is what upstream's `encoding` does."""
    return data.decode("utf-8", _MENDED).replace("\0", REPLACEMENT)


def readable(block: bytes, mended: Collection[bytes] = ()) -> bytes:
    """Rows of events as COPY text that are all UTF-8. Of a row that is not, the last value becomes
    one that no decoder takes and that says why: so it is that one event which is refused. Rows of
    tables in `mended`, which the last value but one names, are mended instead."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return b"".join(_readable(row, mended) + b"\n" for row in block.split(b"\n")[:-1])
    return block


def _readable(row: bytes, mended: Collection[bytes]) -> bytes:
    try:
        row.decode()
    except UnicodeDecodeError:
        parts = row.split(b"\t")
        if len(parts) > 1 and parts[-2] in mended:
            return mend(row).encode()
        *head, last = (part.decode("utf-8", _SHOWN) for part in parts)
        return "\t".join([*head, NOT_UTF8 + last]).encode()
    return row


def _shown(error: UnicodeError) -> tuple[str, int]:
    """Bytes as they are written in hexadecimal; the backslash is doubled as COPY has it."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(f"\\\\x{byte:02x}" for byte in wrong), error.end


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """One character for one byte: what follows it may be text again."""
    assert isinstance(error, UnicodeDecodeError)
    return REPLACEMENT, error.start + 1


codecs.register_error(_SHOWN, _shown)
codecs.register_error(_MENDED, _replaced)


def _unescape(field: str) -> str | None:
    if field == NULL:
        return None
    if "\\" not in field:
        return field
    return _ESCAPED.sub(lambda m: _FROM_ESCAPE.get(m[1], m[1]), field)
