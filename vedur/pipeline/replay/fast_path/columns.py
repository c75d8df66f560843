"""Rows of the fast path by column: found, collapsed and written out without an object for each.

A block of COPY text is cut into fields and divided by table, and the payloads of one table into
values (`payload`), for all rows at once. Rows that match a pattern wait in their table's buffer
behind the entries that are there (`Waiting`). When the buffer is written they become net changes:
keys with one event, with updates only, or with an insert and updates after it. All other waiting
rows (other runs of a key, keys that have an entry already) go into entries event by event; and all
of them do when an event comes that does not match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.change.event import Kind
from vedur.pipeline.replay.fast_path.made import MadePayloads
from vedur.pipeline.replay.fast_path.payload import (
    Numbers,
    Pattern,
    Payloads,
    bytes_and_offsets,
    join_columns,
    take_spans,
)
from vedur.pipeline.replay.shape import Shape

#: Shorter runs are not worth columns; twice as many rows are taken one by one before columns are
#: tried again.
LEAST_RUN = 32
#: How many least runs a table must have in a block to be taken by column. Columns cost some 1.5 ms
#: for each table of a block, a row taken alone some 7 µs: 200,000 events over 100 tables took tasks
#: 2.3 s of CPU with 1 here and 1.3 s with 6, over 500 tables 4.8 and 2.4 s.
WORTH_RUNS = 6
#: Memory of a waiting row beside its text: its key once more, and the offset of each value. While
#: rows are collapsed they take twice that for a moment. A payload that does not match stays in
#: memory with those around it that wait; it is counted with the entry that is made of it.
ROW_BYTES, VALUE_BYTES = 60, 8
#: Rows that are converted to text at a time.
_AT_ONCE = 20_000
#: The fields of a row: number, transaction, retries, extra fields, type, table, payload.
FIELDS = 7
NUMBER, _RETRIES, DATA = 0, 2, 6
#: Operations and kinds as bytes, as arrays have them; no operation is known for `_UNKNOWN`.
_INSERT, _UPDATE, _DELETE = (ord(kind.value) for kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE))
_UNKNOWN = ord("-")

Operations = np.ndarray[Any, np.dtype[np.uint8]]
#: Operation, event number, payload and key of one row.
PayloadRow = tuple[Kind, str, str, Any]


class Block:
    """Whole rows of COPY text."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._buffer = pa.py_buffer(data)
        marks = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero((marks == ord("\t")) | (marks == ord("\n"))).reshape(-1, FIELDS)
        self.count = len(ends)
        #: The offsets of a row's fields, each behind the end of another, and of the next row.
        self._begins = np.empty((self.count, FIELDS + 1), np.int64)
        self._begins[:, 1:] = ends + 1
        self._begins[:1, 0] = 0
        self._begins[1:, 0] = self._begins[:-1, FIELDS]

    def tables(self) -> list[TableRows]:
        """Divide the rows by table; those of a table stay in order."""
        if not self.count:
            return []
        codes, heads = self.heads()
        number_of: dict[str, int] = {}
        numbers = [number_of.setdefault(table, len(number_of)) for _, table in heads]
        # Small integers are sorted in a fraction of the time.
        table_of = np.array(numbers, np.min_scalar_type(len(number_of)))[codes]
        order = np.argsort(table_of, kind="stable")
        borders = np.searchsorted(table_of[order], np.arange(len(number_of) + 1))
        types = [kind for kind, _ in heads]
        return [
            TableRows(self, table, order[borders[at] : borders[at + 1]], types, codes)
            for table, at in number_of.items()
        ]

    def heads(self) -> tuple[Numbers, list[tuple[str, str]]]:
        """Return for each row a code, and for each code the type and the table; no type where a row
        was retried, has extra fields or a type with escapes: it matches no pattern."""
        # Everything between the transaction and the payload is one text: few different ones occur.
        heads = self.fields(np.arange(self.count), _RETRIES, DATA).dictionary_encode()
        codes: Numbers = heads.indices.to_numpy(zero_copy_only=False)
        parts = [head.decode().split("\t") for head in heads.dictionary.to_pylist()]
        return codes, [
            (kind if not (retries or extra or "\\" in kind) else "", table)
            for retries, extra, kind, table in parts
        ]

    def fields(self, rows: Numbers, first: int, end: int = 0) -> pa.LargeBinaryArray:
        """Return a field of some rows, or those from `first` up to `end` with tabs in between."""
        begins, ends = self._begins[rows, first], self._begins[rows, end or first + 1] - 1
        return take_spans(self._buffer, begins, ends)

    def sizes(self, rows: Numbers) -> Numbers:
        """Return how many bytes some rows have."""
        sizes: Numbers = self._begins[rows, FIELDS] - self._begins[rows, 0]
        return sizes

    def text(self, rows: Numbers) -> str:
        """Return some rows as they are."""
        begins, ends = self._begins[rows, 0].tolist(), self._begins[rows, FIELDS].tolist()
        parts = [self.data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return b"".join(parts).decode()


class TableRows:
    """The rows of one table in a block; `table` is its name as COPY writes it."""

    def __init__(
        self, block: Block, table: str, rows: Numbers, types: list[str], codes: Numbers
    ) -> None:
        self.block = block
        self.table = table
        self.rows = rows
        self.types = types
        self.codes = codes[rows]
        self._matched: dict[int, PatternRows] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, first: int, end: int) -> str:
        """Return some of them as they are."""
        return self.block.text(self.rows[first:end])

    @property
    def is_split(self) -> bool:
        """Were these rows split into values already? Then columns cost little more."""
        return bool(self._matched)

    def match(self, pattern: Pattern, at: int) -> PatternRows:
        """Return which rows from `at` on match a pattern; split once for all later calls."""
        known = self._matched.get(id(pattern))
        if known is None:
            pattern.learn_types(lambda: [self.types[code] for code in np.unique(self.codes[at:])])
            known = self._matched[id(pattern)] = PatternRows(at, pattern, self)
        return known


class PatternRows:
    """The rows of a table from `at` on, split into their values where they match a pattern."""

    def __init__(self, at: int, pattern: Pattern, rows: TableRows) -> None:
        self.at = at
        self.pattern = pattern
        self._types = rows.types
        self._codes = rows.codes[at:]
        self._ids = rows.block.fields(rows.rows[at:], NUMBER)
        self._types_known = -1
        self._breaks = np.zeros(0, np.int64)
        self._ops = self._read_ops()
        data = rows.block.fields(rows.rows[at:], DATA)
        self._alike, self._payloads = pattern.split(data, self._ops != _UNKNOWN)
        #: For each row how many rows before it match: its place in `_payloads`.
        self._places = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._alike)))
        beside = ROW_BYTES + VALUE_BYTES * len(pattern.layout.names) + self._payloads.size
        self._sizes = np.cumsum(rows.block.sizes(rows.rows[at:]) + beside)

    def _read_ops(self) -> Operations:
        """Return the operation of each row, as far as they are known by now."""
        ops = self.pattern.ops
        known = [ord(ops[t].value) if t in ops else _UNKNOWN for t in self._types]
        return np.array(known, np.uint8)[self._codes]

    def run_length(self, at: int) -> int:
        """Return how many rows from `at` on are a run."""
        ops = self.pattern.ops
        if len(ops) != self._types_known:  # a type that was not known before may be now
            self._types_known = len(ops)
            self._ops = self._read_ops()
            self._breaks = np.flatnonzero(~self._alike | (self._ops == _UNKNOWN))
        here = at - self.at
        place = int(np.searchsorted(self._breaks, here))
        end = int(self._breaks[place]) if place < len(self._breaks) else len(self._ops)
        return end - here

    def fitting(self, at: int, count: int, room: int) -> int:
        """Return how many of `count` rows fit into `room` bytes; at least one."""
        here = at - self.at
        sizes = self._sizes[here : here + count] - (self._sizes[here - 1] if here else 0)
        return max(1, int(np.searchsorted(sizes, room, "right")))

    def take(self, at: int, count: int) -> Piece:
        """Return the rows of a run."""
        here = at - self.at
        place = int(self._places[here])
        size = int(self._sizes[here + count - 1] - (self._sizes[here - 1] if here else 0))
        return Piece(
            self.pattern,
            self._ids.slice(here, count),
            self._payloads.rows(slice(place, place + count)),
            self._ops[here : here + count],
            size,
        )


@dataclass(frozen=True)
class Piece:
    """A run of rows of one block: event numbers, values, operations, and the memory they take."""

    pattern: Pattern
    ids: pa.LargeBinaryArray
    payloads: Payloads | MadePayloads
    ops: Operations
    size: int = 0

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def last(self) -> str:
        """The number of its last event."""
        return str(self.ids[-1].as_py().decode())

    @property
    def keys(self) -> list[pa.LargeBinaryArray]:
        """The key columns, with values as entries have them."""
        return [self.payloads.column(i) for i in self.pattern.shape.key or ()]

    def rows(self) -> Iterator[PayloadRow]:
        """Yield its rows one by one, as the pattern's regular expression would give them."""
        if not len(self):
            return iter(())
        ids, data = _texts(self.ids), _texts(self.payloads.whole())
        keys: list[Any] = [_texts(k) for k in self.keys]
        plain = keys[0] if len(keys) == 1 else zip(*keys, strict=True)
        ops = map(_KINDS.__getitem__, self.ops.tobytes())
        return zip(ops, ids, data, plain, strict=True)

    def chosen(self, which: Numbers) -> Piece:
        """Return some of its rows, by their places, which must ascend."""
        if len(which) == len(self):
            return self
        ids = self.ids.take(pa.array(which))
        return Piece(self.pattern, ids, self.payloads.rows(which), self.ops[which])

    def parts(self, columns: Sequence[int]) -> Iterator[tuple[pa.Array, list[pa.Array]]]:
        """Yield event numbers, and what makes lines of CSV once commas are put between, so many
        rows at a time."""
        for at in range(0, len(self), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            yield self.ids[some], self.payloads.rows(some).parts(columns)


_KINDS = {ord(kind.value): kind for kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE)}


def _texts(column: pa.LargeBinaryArray) -> list[str]:
    return [v.decode() for v in column.to_pylist()]


@dataclass
class Waiting:
    """Rows of one table and one pattern that came after all of the table's entries."""

    pattern: Pattern
    pieces: list[Piece] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The number of the first event."""
        return int(self.pieces[0].ids[0].as_py())

    def rows(self) -> Iterator[PayloadRow]:
        """Yield all of them, in order."""
        for piece in self.pieces:
            yield from piece.rows()

    def collapse(self, taken: list[Any]) -> tuple[list[NetChanges], Waiting]:
        """Return net changes, and the rows that must become entries one by one.

        These are rows of keys that are `taken` by entries, and runs of a key that are more than an
        insert and updates.
        """
        encoded = self._keys().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        ops = np.concatenate([piece.ops for piece in self.pieces])
        distinct, count = len(encoded.dictionary), len(ops)
        numbers = np.arange(count)
        # By key: its first and last row. Of several assignments to one place the last one stays.
        first, last = np.empty(distinct, np.int64), np.empty(distinct, np.int64)
        last[codes] = numbers
        first[codes[::-1]] = numbers[::-1]
        events = np.bincount(codes, minlength=distinct)
        others = np.bincount(codes[ops != _UPDATE], minlength=distinct)
        begin = ops[first]
        updates = others == 0
        inserts = (others == 1) & (begin == _INSERT)
        deletes = (events == 1) & (begin == _DELETE)
        if taken:
            several = len(self.pattern.shape.key or ()) > 1  # waiting rows have no null in the key
            texts = ["\t".join(k) for k in taken if None not in k] if several else taken
            known = pa.array([t.encode() for t in texts if t is not None], pa.large_binary())
            free = ~pc.is_in(encoded.dictionary, value_set=known).to_numpy(zero_copy_only=False)
            updates, inserts, deletes = updates & free, inserts & free, deletes & free
        ids = pa.concat_arrays([piece.ids for piece in self.pieces])
        is_last = last[codes] == numbers
        changes = []
        for kind, which in (
            (Kind.UPDATE, updates),
            (Kind.INSERT, inserts),
            (Kind.DELETE, deletes),
        ):
            if which.any():
                rows = np.flatnonzero(which[codes] & is_last)
                firsts = ids.take(pa.array(first[codes[rows]]))
                changes.append(NetChanges(kind, self.pattern, firsts, self._chosen(rows)))
        rest = ~(updates | inserts | deletes)
        return changes, Waiting(self.pattern, self._chosen(np.flatnonzero(rest[codes])))

    def _keys(self) -> pa.LargeBinaryArray:
        """Return the keys; those of several columns as one text, since a pattern matches no tab."""
        columns = [pa.concat_arrays(c) for c in zip(*(p.keys for p in self.pieces), strict=True)]
        return columns[0] if len(columns) == 1 else join_columns(b"\t", *columns)

    def _chosen(self, rows: Numbers) -> list[Piece]:
        """Return some of the rows, by their places, which must ascend."""
        begins = np.cumsum([0, *map(len, self.pieces)])
        borders = np.searchsorted(rows, begins)
        return [
            piece.chosen(rows[borders[i] : borders[i + 1]] - begins[i])
            for i, piece in enumerate(self.pieces)
            if borders[i] < borders[i + 1]
        ]


@dataclass(frozen=True)
class NetChanges:
    """Net changes of one kind, one per key, in the order of their last events."""

    kind: Kind
    pattern: Pattern
    firsts: pa.LargeBinaryArray
    pieces: list[Piece]

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def shape(self) -> Shape:
        """The columns of the rows."""
        return self.pattern.shape

    @property
    def shape_id(self) -> int:
        """What staged rows say about their columns: a delete has none but its key."""
        return 0 if self.kind is Kind.DELETE else self.shape.id

    @property
    def staged_columns(self) -> tuple[int, ...]:
        """For each value in `csv` the staged column that takes it."""
        columns = self.shape.staged_columns or ()
        return tuple(columns[i] for i in self._values)

    @property
    def _values(self) -> Sequence[int]:
        """The indexes of the values that are written."""
        names = range(len(self.shape.names))
        return (self.shape.key or ()) if self.kind is Kind.DELETE else names

    def csv(self, slice_id: int) -> Iterator[bytes]:
        """Yield rows of the staging table, values in the order of the event."""
        head = f"\n{slice_id}".encode()
        marks = f"{self.kind.value},{self.shape_id}".encode()
        at = 0
        for piece in self.pieces:
            for lasts, values in piece.parts(self._values):
                firsts = self.firsts.slice(at, len(lasts))
                at += len(lasts)
                lines = join_columns(b",", head, firsts, lasts, marks, *values)
                data, offsets = bytes_and_offsets(lines)
                # Each line begins with a line break: the first one's is dropped, the last gets one.
                yield data[int(offsets[0]) + 1 : int(offsets[-1])].tobytes() + b"\n"
