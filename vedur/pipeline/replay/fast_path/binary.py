"""Rows in the binary form of COPY, as a branch passes them on, taken by column like text.

A row has a count of columns, and before each value its length, -1 for null. So the places of a
column in all rows are found together, from those of the column before it. What a reader asks for is
written as COPY writes text: everything behind this module is the same for both forms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.change.formats import NULL, escape
from vedur.db.copied_rows import CopiedRows
from vedur.errors import InternalError, StateError
from vedur.pipeline.replay.fast_path.columns import DATA, NUMBER, Block
from vedur.pipeline.replay.fast_path.payload import (
    Numbers,
    bytes_and_offsets,
    join_columns,
    take_spans,
)

#: Columns of `raw_read_both`: numbers of eight bytes that are never null, and texts behind them.
_SLICE, _ID, _TIME, _TXID, _TYPE, _TABLE, _PAYLOAD, _EXTRA2, _EXTRA3, _EXTRA4 = range(10)
_COLUMNS, _NUMBERS = 10, 4
#: How a row begins: so many columns, the first of eight bytes.
MARK = _COLUMNS.to_bytes(2, "big") + (8).to_bytes(4, "big")
_HEAD = np.dtype(
    [
        ("count", ">i2"),
        *((f"{n}{c}", t) for c in range(_NUMBERS) for n, t in (("size", ">i4"), ("value", ">i8"))),
    ]
)
#: Null in all columns behind the payload.
_NOTHING = b"\xff" * 4 * (_COLUMNS - _EXTRA2)
#: What COPY escapes in a value that is text, the backslash first.
_ESCAPES = {92: rb"\\", 8: rb"\b", 9: rb"\t", 10: rb"\n", 11: rb"\v", 12: rb"\f", 13: rb"\r"}

_TO_ESCAPE = {byte: written.decode() for byte, written in _ESCAPES.items()}


def require_number(rows: CopiedRows, number: int) -> None:
    """Raise where a row is a retry: those tell another number than the slice's."""
    slices = rows.begins + 6  # behind the count and the length
    words = _windows(rows.data, np.dtype(">i8"))
    others = slices[words[slices] != number]
    if len(others):
        ev_id = int(words[others[0] + 12])
        raise StateError(f"event {ev_id} is a retry: replication has no use for it")


class BinaryBlock(Block):
    """Whole rows of binary COPY."""

    def __init__(self, rows: CopiedRows) -> None:
        self._data, self._buffer = rows.data, pa.py_buffer(rows.data)
        self._starts, self._bytes = rows.begins, rows.sizes
        self.count = len(rows.sizes)
        self._heads = np.zeros(0, _HEAD)
        #: Where each text begins, and ends; one that is null begins behind its end.
        self._from: list[Numbers] = []
        self._to: list[Numbers] = []
        try:
            known = not self.count or self._find_values()
        except IndexError:
            known = False
        if not known:
            raise InternalError("BUG: events did not come in the form in which they are passed on")

    def _find_values(self) -> bool:
        """Find the values of all rows; False where these are other columns."""
        if not self.count:
            return True
        # What comes before the texts is alike in all rows.
        self._heads = _windows(self._data, _HEAD)[self._starts]
        known = self._heads["count"] == _COLUMNS
        for column in range(_NUMBERS):
            known &= self._heads[f"size{column}"] == 8
        ends, lengths = self._starts + self._bytes, _windows(self._data, np.dtype(">i4"))
        at = self._starts + _HEAD.itemsize
        for column in range(_NUMBERS, _COLUMNS):
            if column == _EXTRA2 and self._nothing_at(at, ends):
                for _ in range(column, _COLUMNS):
                    self._from.append(at + 5)
                    self._to.append(at + 4)
                break
            length = lengths[at].astype(np.int64)
            self._from.append(at + np.where(length < 0, 5, 4))
            at = at + 4 + np.maximum(length, 0)
            self._to.append(at)
        else:
            known &= at == ends
        return bool(known.all())

    def _nothing_at(self, begins: Numbers, ends: Numbers) -> bool:
        """Are the last fields null in all rows? They most often are, and then one look tells."""
        if not (ends - begins == len(_NOTHING)).all():
            return False
        found = _windows(self._data, np.dtype(f"V{len(_NOTHING)}"))[begins]
        return bool(found.tobytes() == _NOTHING * len(begins))

    def heads(self) -> tuple[Numbers, list[tuple[str, str]]]:
        """Return for each row a code, and for each code the type and the table."""
        spans = take_spans(self._buffer, self._starts + _HEAD.itemsize, self._to[_TABLE - _NUMBERS])
        known = spans.dictionary_encode()
        codes: Numbers = known.indices.to_numpy(zero_copy_only=False)
        return codes, [_head(head) for head in known.dictionary.to_pylist()]

    def fields(self, rows: Numbers, first: int, end: int = 0) -> pa.LargeBinaryArray:
        """Return a field of some rows: the number of the event, or its payload."""
        if first == NUMBER and not end:
            return _numerals(self.numbers(_ID)[rows])
        if first == DATA and not end:
            return self._texts(rows, _PAYLOAD)
        raise InternalError(f"BUG: field {first} of a binary row is not known by itself")

    def numbers(self, column: int) -> Numbers:
        """Return a column of numbers."""
        if not self.count:
            return np.zeros(0, np.int64)
        values: Numbers = self._heads[f"value{column}"].astype(np.int64)
        return values

    def sizes(self, rows: Numbers) -> Numbers:
        """Return how many bytes some rows have."""
        sizes: Numbers = self._bytes[rows]
        return sizes

    def text(self, rows: Numbers) -> str:
        """Return some rows as COPY would have sent them to `read_events`."""
        if not len(rows):
            return ""
        kinds = self._texts(rows, _TYPE)
        lines = join_columns(
            b"\t",
            _numerals(self.numbers(_ID)[rows]),
            _numerals(self.numbers(_TXID)[rows]),
            b"",
            pa.array(self._extras(rows, kinds), pa.large_binary()),
            kinds,
            self._texts(rows, _TABLE),
            self._texts(rows, _PAYLOAD),
        )
        ended = join_columns(b"\n", lines, b"")
        text, offsets = bytes_and_offsets(ended)
        return text[: offsets[-1]].tobytes().decode()

    def _texts(self, rows: Numbers, column: int) -> pa.LargeBinaryArray:
        """Return a column of some rows as COPY writes it; rows must ascend."""
        begins, ends = self._from[column - _NUMBERS][rows], self._to[column - _NUMBERS][rows]
        null = begins > ends
        texts = take_spans(self._buffer, np.minimum(begins, ends), ends)
        found = bytes_and_offsets(texts)[0]
        # All that COPY escapes, in two passes: the backslash and the bytes from 8 to 13.
        if ((found - 8 < 6) | (found == 92)).any():
            counts = np.bincount(found, minlength=256)
            for byte, written in _ESCAPES.items():
                if counts[byte]:
                    texts = pc.replace_substring(texts, bytes([byte]), written)
        if null.any():
            texts = pc.if_else(pa.array(null), pa.scalar(NULL.encode(), texts.type), texts)
        return texts

    def _extras(self, rows: Numbers, kinds: pa.LargeBinaryArray) -> Iterator[bytes]:
        """Yield what events that are not about rows have besides, as `read_events` has it."""
        for row, kind in zip(rows.tolist(), kinds.to_pylist(), strict=True):
            if not _is_system(kind):
                yield b""
                continue
            values = [self._value(row, column) for column in (_EXTRA2, _EXTRA3, _EXTRA4)]
            yield escape(json.dumps(values)).encode()

    def _value(self, row: int, column: int) -> str | None:
        begin, end = int(self._from[column - _NUMBERS][row]), int(self._to[column - _NUMBERS][row])
        return None if begin > end else self._data[begin:end].decode()


def _windows(data: bytes, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a view in which each byte begins a value."""
    count = max(0, len(data) - kind.itemsize + 1)
    return np.ndarray((count,), kind, data if count else None, strides=(1,))


def _head(data: bytes) -> tuple[str, str]:
    """Return the type and the table of a head: both with their lengths before them."""
    size = int.from_bytes(data[:4], signed=True)
    at = 4 + max(size, 0)
    kind = data[4:at] if size >= 0 else None
    table = data[at + 4 :] if int.from_bytes(data[at : at + 4], signed=True) >= 0 else None
    name = NULL if table is None else table.decode().translate(_TO_ESCAPE)
    # A type that is not about rows, or has escapes, matches no pattern.
    if kind is None or _is_system(kind):
        return "", name
    text = kind.decode()
    return text if text.translate(_TO_ESCAPE) == text else "", name


def _is_system(kind: bytes) -> bool:
    """Is this the type of an event that is not about rows? As `is_system` in replay.sql."""
    return kind == b"EXECUTE" or kind.startswith((b"pgq.", b"londiste."))


def _numerals(values: Numbers) -> pa.LargeBinaryArray:
    return pa.array(values).cast(pa.large_string()).cast(pa.large_binary())
