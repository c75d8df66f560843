"""Rows of the quick way by column: found, collapsed and written out without an object for each.

A block of COPY text is cut into fields and parted by table, and the payloads of one table into
values (`values`), for all rows at once. What looks alike waits in its table's buffer behind the
entries that are there (`Waiting`), and becomes net changes when the buffer is written: keys with
one event, with updates only, or with an insert and updates after it. What else there is (other runs
of a key, keys that have an entry already) goes into entries event by event, and so does all that
waits when an event comes that is not alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.change.values import raw

if TYPE_CHECKING:
    from vedur.change.collapse import Shape
    from vedur.change.quick import Pattern

#: Fewer rows in a row that look alike are not worth columns; twice as many are taken one by one
#: before columns are tried again.
LEAST_RUN = 32
#: So many times that a table must have in a block. Columns cost some 1.5 ms for each table of a
#: block, a row taken alone some 7 µs: 200,000 events over 100 tables took tasks 2.3 s of CPU with 1
#: here and 1.3 s with 6, over 500 tables 4.8 and 2.4 s.
WORTH_RUNS = 6
#: What a waiting row takes beside its text: its key once more, the offsets of its columns. While
#: rows are settled they take twice that for a moment.
ROW_BYTES = 60
#: Rows that are made to text at a time.
_AT_ONCE = 20_000
#: Of a row: number, transaction, retries, extra fields, type, table, payload.
FIELDS = 7
_RETRIES, _DATA = 2, 6

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Block:
    """Whole rows of COPY text."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._buffer = pa.py_buffer(data)
        marks = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(marks == ord("\n"))
        self.count = len(ends)
        tabs = np.flatnonzero(marks == ord("\t")).reshape(self.count, FIELDS - 1)
        #: Where a row's fields begin, each but the first behind its tab, and the end of the last.
        self._begins = np.empty((self.count, FIELDS + 1), np.int64)
        self._begins[:1, 0] = 0
        self._begins[1:, 0] = ends[:-1] + 1
        self._begins[:, 1:FIELDS] = tabs + 1
        self._begins[:, FIELDS] = ends + 1

    def tables(self) -> list[Rows]:
        """Its rows by table, in their order."""
        if not self.count:
            return []
        found = self.fields(np.arange(self.count), _RETRIES, _DATA).dictionary_encode()
        codes = found.indices.to_numpy(zero_copy_only=False)
        kinds = [what.decode().split("\t") for what in found.dictionary.to_pylist()]
        places: dict[str, int] = {}
        table_of = np.array([places.setdefault(kind[-1], len(places)) for kind in kinds])[codes]
        order = np.argsort(table_of, kind="stable")
        borders = np.searchsorted(table_of[order], np.arange(len(places) + 1))
        # One that was retried, or has extra fields, or is written with escapes, is like no other.
        types = [k if not (retries or extra or "\\" in k) else "" for retries, extra, k, _ in kinds]
        return [
            Rows(self, table, order[borders[at] : borders[at + 1]], types, codes)
            for table, at in places.items()
        ]

    def fields(self, rows: Numbers, first: int, end: int = 0) -> pa.BinaryArray:
        """A field of some rows, or those from `first` up to `end` with the tabs between them."""
        count = len(rows)
        # Every second value is what lies between: values of an array follow each other.
        places = np.empty(2 * count + 1, np.int32)
        places[0:-1:2] = self._begins[rows, first]
        places[1::2] = self._begins[rows, end or first + 1] - 1
        places[-1] = places[-2]
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(places), self._buffer]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2)))

    def sizes(self, rows: Numbers) -> Numbers:
        """Bytes of some rows."""
        sizes: Numbers = self._begins[rows, FIELDS] - self._begins[rows, 0]
        return sizes

    def text(self, rows: Numbers) -> str:
        """Some rows as they are."""
        begins, ends = self._begins[rows, 0].tolist(), self._begins[rows, FIELDS].tolist()
        parts = [self.data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return b"".join(parts).decode()


class Rows:
    """The rows of one table in a block."""

    def __init__(
        self, block: Block, table: str, rows: Numbers, types: list[str], codes: Numbers
    ) -> None:
        self.block = block
        self.table = table  # as COPY writes it
        self.rows = rows
        self.types = types
        self.codes = codes[rows]
        self._ends = np.cumsum(block.sizes(rows) + ROW_BYTES)
        self._found: dict[int, Found] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, first: int, end: int) -> str:
        """Some of them as they are."""
        return self.block.text(self.rows[first:end])

    def fitting(self, at: int, count: int, room: int) -> int:
        """How many of `count` rows may wait where there is room for some bytes; at least one."""
        ends = self._ends[at : at + count] - (self._ends[at - 1] if at else 0)
        return max(1, int(np.searchsorted(ends, room, "right")))

    def size(self, at: int, count: int) -> int:
        """What some rows take while they wait."""
        return int(self._ends[at + count - 1] - (self._ends[at - 1] if at else 0))

    @property
    def cut(self) -> bool:
        """Has anybody looked for patterns here?"""
        return bool(self._found)

    def found(self, pattern: Pattern, at: int) -> Found:
        """Which rows from `at` on are like a pattern, and whatever was found before."""
        known = self._found.get(id(pattern))
        if known is None:
            known = self._found[id(pattern)] = Found(at, pattern, self)
        return known


class Found:
    """The rows of a table from `at` on that are like a pattern, with their values by column."""

    def __init__(self, at: int, pattern: Pattern, rows: Rows) -> None:
        self.at = at
        self.pattern = pattern
        self._types = rows.types
        self._codes = rows.codes[at:]
        self._ids = rows.block.fields(rows.rows[at:], 0)
        data = rows.block.fields(rows.rows[at:], _DATA)
        self._alike, self.columns = pattern.layout.cut(data)
        self._places = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._alike)))
        self._learnt = -1
        self._breaks = np.zeros(0, np.int64)
        self._ops = np.zeros(0, np.uint8)

    def run(self, at: int) -> int:
        """How many rows from `at` on can be taken."""
        ops = self.pattern.ops
        if len(ops) != self._learnt:  # a type that was not known before may be now
            self._learnt = len(ops)
            known = [ord(ops.get(t, "-")) for t in self._types]
            self._ops = np.array(known, np.uint8)[self._codes]
            self._breaks = np.flatnonzero(~self._alike | (self._ops == ord("-")))
        here = at - self.at
        place = int(np.searchsorted(self._breaks, here))
        end = int(self._breaks[place]) if place < len(self._breaks) else len(self._ops)
        return end - here

    def take(self, at: int, count: int) -> Piece:
        """The rows of a run."""
        here = at - self.at
        place = int(self._places[here])
        columns = [column.slice(place, count) for column in self.columns]
        return Piece(
            self.pattern,
            self._ids.slice(here, count),
            columns,
            self.pattern.keys(columns),
            self._ops[here : here + count],
        )


@dataclass(frozen=True)
class Piece:
    """Rows as columns: numbers, values, keys, operations."""

    pattern: Pattern
    ids: pa.BinaryArray
    columns: list[pa.BinaryArray]
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
        if not len(self):
            return iter(())
        ids, data = _texts(self.ids), _texts(self.pattern.layout.whole(self.columns))
        keys: list[Any] = [_texts(k) for k in self.keys]
        plain = keys[0] if len(keys) == 1 else zip(*keys, strict=True)
        return zip(self.ops.tobytes().decode(), ids, data, plain, strict=True)

    def chosen(self, which: np.ndarray[Any, Any]) -> Piece:
        """Some of its rows, by their places."""
        places = pa.array(which)
        return Piece(
            self.pattern,
            self.ids.take(places),
            [c.take(places) for c in self.columns],
            [k.take(places) for k in self.keys],
            self.ops[which],
        )


def _texts(column: pa.BinaryArray) -> list[str]:
    return [v.decode() for v in column.to_pylist()]


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return Piece(
        pieces[0].pattern,
        pa.concat_arrays([p.ids for p in pieces]),
        [pa.concat_arrays(list(c)) for c in zip(*(p.columns for p in pieces), strict=True)],
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
            several = len(rows.keys) > 1  # a row that waits has no null in its key
            texts = ["\t".join(k) for k in taken if None not in k] if several else taken
            known = pa.array([t.encode() for t in texts if t is not None], pa.binary())
            free = ~pc.is_in(encoded.dictionary, value_set=known).to_numpy(zero_copy_only=False)
            updates, inserts, deletes = updates & free, inserts & free, deletes & free
        nets = []
        for kind, which in (("U", updates), ("I", inserts), ("D", deletes)):
            if which.any():
                chosen = rows.chosen(last[which])
                nets.append(Net(kind, rows.ids.take(pa.array(first[which])), chosen))
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

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> Shape:
        """The columns of its rows."""
        return self.rows.pattern.shape

    @property
    def mark(self) -> int:
        """What the staged rows say of their columns: a delete has its key only."""
        return 0 if self.kind == "D" else self.shape.id

    @property
    def _columns(self) -> list[pa.BinaryArray]:
        columns = self.rows.columns
        return [columns[i] for i in self.shape.key or ()] if self.kind == "D" else columns

    def csv(self, slice_id: int) -> Iterator[bytes]:
        """Rows of the staging table, columns in the order of the event; of a delete the key's."""
        head = f"\n{slice_id}".encode()
        marks = [self.kind.encode(), str(self.mark).encode()]
        columns = [self.firsts, self.rows.ids, *self._columns]
        for at in range(0, len(self), _AT_ONCE):
            first, last, *values = (c.slice(at, _AT_ONCE) for c in columns)
            lines = pc.binary_join_element_wise(head, first, last, *marks, *values, b",")
            data, places = raw(lines)
            yield data[int(places[0]) + 1 : int(places[-1])].tobytes() + b"\n"
