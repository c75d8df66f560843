"""Rows of the quick way by column: found, collapsed and written out without an object for each.

A block of COPY text is cut by the same pattern as in `quick`, but by Arrow, for all rows at once.
What it finds waits in its table's buffer behind the entries that are there (`Waiting`), and becomes
net changes when the buffer is written: keys with one event, with updates only, or with an insert
and updates after it. What else there is (other runs of a key, keys that have an entry already)
goes into entries event by event, and so does all that waits when an event comes that is not alike.

CPU of a task for an event of the walk-through's load, without reading and writing it: 4.7 µs event
by event, 2.3 by column. Of these 1.0 is the pattern (up to four groups; with five RE2 leaves its
fast way and takes 2.0) and 0.9 the names that are cut out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from vedur.change.collapse import Shape
    from vedur.change.quick import Pattern

#: Fewer rows in a row that look alike are not worth columns; twice as many are taken one by one
#: before columns are tried again.
LEAST_RUN = 32
#: Names are cut out one after the other, each in a pass over all rows; where there are more, by a
#: pattern of all names, because a pass grows with the width of a row. With five names a pass takes
#: 0.2 µs a row and the pattern 0.4 µs a name; where the two meet was not measured.
_PASSES = 12
#: What a waiting row takes beside its text: its key once more, the offsets of four columns. While
#: rows are settled they take twice that for a moment.
ROW_BYTES = 40
#: Rows that are made to text at a time.
_AT_ONCE = 20_000
_NAMES = re.compile(rb',\{?"[^"]*":')


def literal(text: str) -> str:
    """A text for a pattern of RE2."""
    return "".join(c if c.isalnum() or c > "\x7f" else f"\\x{ord(c):02x}" for c in text)


class Block:
    """Whole rows of COPY text."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        marks = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(marks == 10).astype(np.int32) + 1
        self.starts = np.concatenate((np.zeros(1, np.int32), ends.astype(np.int32)))
        self.count = len(ends)
        self._found: dict[int, Found] = {}

    def text(self, first: int, end: int) -> str:
        """Some rows."""
        return self.data[self.starts[first] : self.starts[end]].decode()

    def fitting(self, at: int, count: int, room: int) -> int:
        """How many of `count` rows may wait where there is room for some bytes; at least one."""
        sizes = self.starts[at : at + count + 1].astype(np.int64) - int(self.starts[at])
        sizes += ROW_BYTES * np.arange(count + 1)
        return max(1, int(np.searchsorted(sizes, room, "right")) - 1)

    def size(self, at: int, count: int) -> int:
        """What some rows take while they wait."""
        return int(self.starts[at + count] - self.starts[at]) + ROW_BYTES * count

    def found(self, pattern: Pattern, at: int) -> Found:
        """What a pattern finds in the rows from `at` on, and whatever it found before."""
        known = self._found.get(id(pattern))
        if known is None:
            offsets = pa.py_buffer(self.starts[at:])
            count = self.count - at
            rows = pa.Array.from_buffers(
                pa.binary(), count, [None, offsets, pa.py_buffer(self.data)]
            )
            known = self._found[id(pattern)] = Found(at, pattern, rows)
        return known


class Found:
    """The rows of a block that a pattern matches, with the columns of what it takes out."""

    def __init__(self, at: int, pattern: Pattern, rows: pa.BinaryArray) -> None:
        self.at = at
        self.pattern = pattern
        self.columns = pc.extract_regex(rows, pattern.columnar)
        self._matched = self.columns.is_valid().to_numpy(zero_copy_only=False)
        types = self.columns.field(1).dictionary_encode()
        self._codes = types.indices.fill_null(0).to_numpy(zero_copy_only=False)
        self._types = [t.decode() for t in types.dictionary.to_pylist()]
        self._learnt = -1
        self._breaks = np.zeros(0, np.int64)
        self._ops = np.zeros(0, np.uint8)

    def run(self, at: int) -> int:
        """How many rows from `at` on can be taken."""
        ops = self.pattern.ops
        if len(ops) != self._learnt:  # a type that was not known before may be now
            self._learnt = len(ops)
            known = [ord(ops.get(t, "-")) for t in self._types] or [ord("-")]
            self._ops = np.array(known, np.uint8)[self._codes]
            self._breaks = np.flatnonzero(~self._matched | (self._ops == ord("-")))
        here = at - self.at
        place = int(np.searchsorted(self._breaks, here))
        end = int(self._breaks[place]) if place < len(self._breaks) else len(self._ops)
        return end - here

    def take(self, at: int, count: int) -> Piece:
        """The rows of a run."""
        here = at - self.at
        part = self.columns.slice(here, count)
        keys = [part.field(i) for i in range(3, part.type.num_fields)]
        return Piece(part.field(0), part.field(2), keys, self._ops[here : here + count])


@dataclass(frozen=True)
class Piece:
    """Rows as columns: numbers, payloads, keys, operations."""

    ids: pa.BinaryArray
    data: pa.BinaryArray
    keys: list[pa.BinaryArray]
    ops: np.ndarray[Any, np.dtype[np.uint8]]

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def last(self) -> str:
        """The number of its last event."""
        return str(self.ids[-1].as_py().decode())

    def rows(self) -> Iterator[tuple[str, str, str, Any]]:
        """Operation, number, payload and key of each, as the quick way has them."""
        ids, data = _texts(self.ids), _texts(self.data)
        keys: list[Any] = [_texts(k) for k in self.keys]
        plain = keys[0] if len(keys) == 1 else zip(*keys, strict=True)
        return zip(self.ops.tobytes().decode(), ids, data, plain, strict=True)

    def chosen(self, which: np.ndarray[Any, Any]) -> Piece:
        """Some of its rows, by their places."""
        places = pa.array(which)
        return Piece(
            self.ids.take(places),
            self.data.take(places),
            [k.take(places) for k in self.keys],
            self.ops[which],
        )


def _texts(column: pa.BinaryArray) -> list[str]:
    return [v.decode() for v in column.to_pylist()]


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return Piece(
        pa.concat_arrays([p.ids for p in pieces]),
        pa.concat_arrays([p.data for p in pieces]),
        [pa.concat_arrays(list(k)) for k in zip(*(p.keys for p in pieces), strict=True)],
        np.concatenate([p.ops for p in pieces]),
    )


@dataclass
class Waiting:
    """Rows of one table with one set of columns that came after all of its entries."""

    pattern: Pattern
    pieces: list[Piece] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The number of the first event."""
        return int(self.pieces[0].ids[0].as_py())

    def rows(self) -> Iterator[tuple[str, str, str, Any]]:
        """All of them, in order."""
        for piece in self.pieces:
            yield from piece.rows()

    def settle(self, taken: list[Any]) -> tuple[list[Net], Piece]:
        """Net changes, and the rows that must be taken one by one: those of keys that are
        `taken`, and runs that are more than an insert and updates."""
        rows = _joined(self.pieces)
        keys = rows.keys[0] if len(rows.keys) == 1 else _together(rows.keys)
        encoded = keys.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        distinct, count = len(encoded.dictionary), len(rows)
        numbers = np.arange(count)
        first, last = np.empty(distinct, np.int64), np.empty(distinct, np.int64)
        last[codes] = numbers  # the last one stays
        first[codes[::-1]] = numbers[::-1]
        events = np.bincount(codes, minlength=distinct)
        others = np.bincount(codes, weights=rows.ops != ord("U"), minlength=distinct)
        begin = rows.ops[first]
        updates = others == 0
        inserts = (others == 1) & (begin == ord("I"))
        deletes = (events == 1) & (begin == ord("D"))
        if taken:
            texts = taken if len(rows.keys) == 1 else ["\t".join(k) for k in taken]
            known = pa.array([t.encode() for t in texts], pa.binary())
            free = ~pc.is_in(encoded.dictionary, value_set=known).to_numpy(zero_copy_only=False)
            updates, inserts, deletes = updates & free, inserts & free, deletes & free
        nets = []
        for kind, which in (("U", updates), ("I", inserts), ("D", deletes)):
            if which.any():
                chosen = rows.chosen(last[which])
                nets.append(Net(kind, rows.ids.take(pa.array(first[which])), chosen, self.pattern))
        rest = ~(updates | inserts | deletes)
        return nets, rows.chosen(np.flatnonzero(rest[codes]))


def _together(keys: list[pa.BinaryArray]) -> pa.BinaryArray:
    """Keys of several columns as one: a tab is never in a text that the pattern takes."""
    return pc.binary_join_element_wise(*keys, b"\t")


@dataclass(frozen=True)
class Net:
    """Net changes of one kind, a key each."""

    kind: str
    firsts: pa.BinaryArray
    rows: Piece
    pattern: Pattern

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> Shape:
        """The columns of its rows."""
        return self.pattern.shape

    @property
    def mark(self) -> int:
        """What the staged rows say of their columns: a delete has its key only."""
        return 0 if self.kind == "D" else self.shape.id

    @cached_property
    def _columns(self) -> list[pa.BinaryArray]:
        if self.kind != "D":
            return [self.rows.data]
        quoted = self.pattern.quoted
        return [
            pc.binary_join_element_wise(b'"', k, b'"', b"") if q else k
            for k, q in zip(self.rows.keys, quoted, strict=True)
        ]

    def csv(self, slice_id: int) -> Iterator[bytes]:
        """Rows of the staging table, columns in the order of the event; of a delete the key's."""
        head = f"\n{slice_id}".encode()
        tail = [self.kind.encode(), str(self.mark).encode()]
        for at in range(0, len(self), _AT_ONCE):
            parts = [c.slice(at, _AT_ONCE) for c in (self.firsts, self.rows.ids, *self._columns)]
            lines = pc.binary_join_element_wise(head, *parts[:2], *tail, *parts[2:], b",")
            text = _bytes(lines)[1:] + b"\n"
            yield text if self.kind == "D" else self._without_names(text)

    def _without_names(self, text: bytes) -> bytes:
        names = self.shape.names
        if len(names) > _PASSES:
            text = _NAMES.sub(b",", text)
        else:
            for at, name in enumerate(names):
                text = text.replace(
                    (',{"' if at == 0 else ',"').encode() + name.encode() + b'":', b","
                )
        return text.replace(b"}\n", b"\n")


def _bytes(lines: pa.BinaryArray) -> bytes:
    """All values of a fresh array, one after the other."""
    _, offsets, data = lines.buffers()
    places = np.frombuffer(offsets, np.int32)
    return bytes(data.slice(int(places[0]), int(places[len(lines)] - places[0])))
