"""Rows of the quick way by column: found, collapsed and written out without an object for each.

A block of COPY text is cut into fields and parted by table, and the payloads of one table into
values (`values`), for all rows at once. What looks alike waits in its table's buffer behind the
entries that are there (`Waiting`), and becomes net changes when the buffer is written: keys with
one event, with updates only, or with an insert and updates after it. What else there is (other runs
of a key, keys that have an entry already) goes into entries event by event, and so does all that
waits when an event comes that is not alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.change.values import Cut, Numbers, joined, raw, spans

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
#: What a waiting row takes beside its text: its key once more, and where each value begins. While
#: rows are settled they take twice that for a moment. A payload that is not alike stays in memory
#: with those around it that wait; it is counted with the entry that is made of it.
ROW_BYTES, VALUE_BYTES = 60, 8
#: Rows that are made to text at a time.
_AT_ONCE = 20_000
#: Of a row: number, transaction, retries, extra fields, type, table, payload.
FIELDS = 7
_RETRIES, _DATA = 2, 6


class Block:
    """Whole rows of COPY text."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._buffer = pa.py_buffer(data)
        marks = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero((marks == ord("\t")) | (marks == ord("\n"))).reshape(-1, FIELDS)
        self.count = len(ends)
        #: Where a row's fields begin, each behind the end of another, and the end of the last.
        self._begins = np.empty((self.count, FIELDS + 1), np.int64)
        self._begins[:, 1:] = ends + 1
        self._begins[:1, 0] = 0
        self._begins[1:, 0] = self._begins[:-1, FIELDS]

    def tables(self) -> list[Rows]:
        """Its rows by table, in their order."""
        if not self.count:
            return []
        found = self.fields(np.arange(self.count), _RETRIES, _DATA).dictionary_encode()
        codes = found.indices.to_numpy(zero_copy_only=False)
        kinds = [what.decode().split("\t") for what in found.dictionary.to_pylist()]
        places: dict[str, int] = {}
        numbers = [places.setdefault(kind[-1], len(places)) for kind in kinds]
        # Small numbers are sorted in a fraction of the time.
        table_of = np.array(numbers, np.min_scalar_type(len(places)))[codes]
        order = np.argsort(table_of, kind="stable")
        borders = np.searchsorted(table_of[order], np.arange(len(places) + 1))
        # One that was retried, or has extra fields, or is written with escapes, is like no other.
        types = [k if not (retries or extra or "\\" in k) else "" for retries, extra, k, _ in kinds]
        return [
            Rows(self, table, order[borders[at] : borders[at + 1]], types, codes)
            for table, at in places.items()
        ]

    def fields(self, rows: Numbers, first: int, end: int = 0) -> pa.LargeBinaryArray:
        """A field of some rows, or those from `first` up to `end` with the tabs between them."""
        begins, ends = self._begins[rows, first], self._begins[rows, end or first + 1] - 1
        return spans(self._buffer, begins, ends)

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
        self._found: dict[int, Found] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, first: int, end: int) -> str:
        """Some of them as they are."""
        return self.block.text(self.rows[first:end])

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
    """The rows of a table from `at` on that are like a pattern, cut into their values."""

    def __init__(self, at: int, pattern: Pattern, rows: Rows) -> None:
        self.at = at
        self.pattern = pattern
        self._types = rows.types
        self._codes = rows.codes[at:]
        self._ids = rows.block.fields(rows.rows[at:], 0)
        self._alike, self._cut = pattern.layout.cut(rows.block.fields(rows.rows[at:], _DATA))
        self._places = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._alike)))
        beside = ROW_BYTES + VALUE_BYTES * len(pattern.shape.names)
        self._sizes = np.cumsum(rows.block.sizes(rows.rows[at:]) + beside)
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

    def fitting(self, at: int, count: int, room: int) -> int:
        """How many of `count` rows may wait where there is room for some bytes; at least one."""
        here = at - self.at
        sizes = self._sizes[here : here + count] - (self._sizes[here - 1] if here else 0)
        return max(1, int(np.searchsorted(sizes, room, "right")))

    def size(self, at: int, count: int) -> int:
        """What some rows take while they wait."""
        here = at - self.at
        return int(self._sizes[here + count - 1] - (self._sizes[here - 1] if here else 0))

    def take(self, at: int, count: int) -> Piece:
        """The rows of a run."""
        here = at - self.at
        place = int(self._places[here])
        return Piece(
            self.pattern,
            self._ids.slice(here, count),
            self._cut.rows(slice(place, place + count)),
            self._ops[here : here + count],
        )


@dataclass(frozen=True)
class Piece:
    """Rows of one block: numbers, values, operations."""

    pattern: Pattern
    ids: pa.LargeBinaryArray
    cut: Cut
    ops: np.ndarray[Any, np.dtype[np.uint8]]

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def last(self) -> str:
        """The number of its last event."""
        return str(self.ids[-1].as_py().decode())

    @property
    def keys(self) -> list[pa.LargeBinaryArray]:
        """The key's columns, as the entries have them."""
        return [self.cut.column(i) for i in self.pattern.shape.key or ()]

    def rows(self) -> Iterator[tuple[str, str, str, Any]]:
        """Operation, number, payload and key of each, as the quick way has them."""
        if not len(self):
            return iter(())
        ids, data = _texts(self.ids), _texts(self.cut.whole())
        keys: list[Any] = [_texts(k) for k in self.keys]
        plain = keys[0] if len(keys) == 1 else zip(*keys, strict=True)
        return zip(self.ops.tobytes().decode(), ids, data, plain, strict=True)

    def chosen(self, which: Numbers) -> Piece:
        """Some of its rows, by their places."""
        ids = self.ids.take(pa.array(which))
        return Piece(self.pattern, ids, self.cut.rows(which), self.ops[which])

    def lines(self, columns: Sequence[int]) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Numbers and the values of some columns as CSV, so many rows at a time."""
        for at in range(0, len(self), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            yield self.ids[some], self.cut.rows(some).lines(columns)


def _texts(column: pa.LargeBinaryArray) -> list[str]:
    return [v.decode() for v in column.to_pylist()]


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

    def settle(self, taken: list[Any]) -> tuple[list[Net], Waiting]:
        """Net changes, and the rows that must be taken one by one: those of keys that are
        `taken`, and runs that are more than an insert and updates."""
        encoded = self._keys().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        ops = np.concatenate([piece.ops for piece in self.pieces])
        distinct, count = len(encoded.dictionary), len(ops)
        numbers = np.arange(count)
        first, last = np.empty(distinct, np.int64), np.empty(distinct, np.int64)
        last[codes] = numbers  # the last one stays
        first[codes[::-1]] = numbers[::-1]
        events = np.bincount(codes, minlength=distinct)
        others = np.bincount(codes[ops != ord("U")], minlength=distinct)
        begin = ops[first]
        updates = others == 0
        inserts = (others == 1) & (begin == ord("I"))
        deletes = (events == 1) & (begin == ord("D"))
        if taken:
            several = len(self.pattern.shape.key or ()) > 1  # what waits has no null in its key
            texts = ["\t".join(k) for k in taken if None not in k] if several else taken
            known = pa.array([t.encode() for t in texts if t is not None], pa.large_binary())
            free = ~pc.is_in(encoded.dictionary, value_set=known).to_numpy(zero_copy_only=False)
            updates, inserts, deletes = updates & free, inserts & free, deletes & free
        ids = pa.concat_arrays([piece.ids for piece in self.pieces])
        is_last = last[codes] == numbers
        nets = []
        for kind, which in (("U", updates), ("I", inserts), ("D", deletes)):
            if which.any():
                rows = np.flatnonzero(which[codes] & is_last)
                firsts = ids.take(pa.array(first[codes[rows]]))
                nets.append(Net(kind, self.pattern, firsts, self._chosen(rows)))
        rest = ~(updates | inserts | deletes)
        return nets, Waiting(self.pattern, self._chosen(np.flatnonzero(rest[codes])))

    def _keys(self) -> pa.LargeBinaryArray:
        """A key of several columns as one text: a tab is never in what the pattern takes."""
        columns = [pa.concat_arrays(c) for c in zip(*(p.keys for p in self.pieces), strict=True)]
        return columns[0] if len(columns) == 1 else joined(b"\t", *columns)

    def _chosen(self, rows: Numbers) -> list[Piece]:
        """Some of the rows, by their places, which ascend."""
        begins = np.cumsum([0, *map(len, self.pieces)])
        borders = np.searchsorted(rows, begins)
        return [
            piece.chosen(rows[borders[i] : borders[i + 1]] - begins[i])
            for i, piece in enumerate(self.pieces)
            if borders[i] < borders[i + 1]
        ]


@dataclass(frozen=True)
class Net:
    """Net changes of one kind, a key each, in the order of their last events."""

    kind: str
    pattern: Pattern
    firsts: pa.LargeBinaryArray
    pieces: list[Piece]

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def shape(self) -> Shape:
        """The columns of its rows."""
        return self.pattern.shape

    @property
    def mark(self) -> int:
        """What the staged rows say of their columns: a delete has its key only."""
        return 0 if self.kind == "D" else self.shape.id

    def csv(self, slice_id: int) -> Iterator[bytes]:
        """Rows of the staging table, columns in the order of the event; of a delete the key's."""
        head, marks = f"\n{slice_id}".encode(), f"{self.kind},{self.mark}".encode()
        columns = (self.shape.key or ()) if self.kind == "D" else range(len(self.shape.names))
        at = 0
        for piece in self.pieces:
            for lasts, values in piece.lines(columns):
                firsts = self.firsts.slice(at, len(lasts))
                at += len(lasts)
                lines = joined(b",", head, firsts, lasts, marks, values)
                data, places = raw(lines)
                yield data[int(places[0]) + 1 : int(places[-1])].tobytes() + b"\n"
