"""Payloads that look alike, given to a handler's function as columns, and what it makes of them.

The offsets of values are there already (`payload`); the columns that the function looks at become
Arrow text, and what it answers takes their place. No row becomes a Python object. A row goes the
slow path, where the function sees it again, if its new values would need escapes, if its key became
null, or if the function fails: what is wrong with which event is told there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.change.event import Kind, parse_type
from vedur.errors import StateError
from vedur.pipeline.replay.fast_path.payload import (
    PLAIN_NAME,
    Layout,
    Mask,
    Pattern,
    Payloads,
    Tally,
    bytes_and_offsets,
    join_columns,
    take_spans,
)
from vedur.pipeline.replay.handled import moment_in_utc
from vedur.pipeline.replay.shape import Shape
from vedur.tables.mapping import TableSpec
from vedur.tables.row_function import ROW_NUMBER, RowFunction

_QUOTE, _BACKSLASH, _SPACE = b'"\\ '
_NULL = ord("n")
_TRUE, _FALSE = b"tf"
#: A moment with a zone as PostgreSQL writes most of them in JSON, the length of its zone, and that
#: of what is before the seconds; a minute in UTC.
_REGULAR = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d(\.\d{0,5}[1-9])?[+-]\d\d:\d\d$"
_ZONE, _MINUTE = 6, 16
_MOVED = r"^\d{4}-\d\d-\d\d \d\d:\d\d:00\+00$"


@dataclass(frozen=True)
class MadePayloads:
    """Payloads of which a handler has replaced values; asked as `Payloads` are.

    For each column that the rows have now: `values` as CSV has them, or None where `places` says
    which value of the event it still is.
    """

    source: Payloads
    names: tuple[str, ...]
    places: tuple[int, ...]
    values: tuple[pa.LargeBinaryArray | None, ...]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def size(self) -> int:
        """The memory of a row's new values."""
        made = sum(values.nbytes for values in self.values if values is not None)
        return int(made // max(len(self), 1))

    def rows(self, which: slice | np.ndarray[Any, Any]) -> MadePayloads:
        """Return some of them."""
        if not isinstance(which, slice) and which.dtype == np.bool_:
            which = np.flatnonzero(which)
        taken = [
            values
            if values is None
            else values[which]
            if isinstance(which, slice)
            else values.take(pa.array(which))
            for values in self.values
        ]
        return MadePayloads(self.source.rows(which), self.names, self.places, tuple(taken))

    def column(self, column: int) -> pa.LargeBinaryArray:
        """Return one value of each as text, none of which is null."""
        values = self.values[column]
        if values is None:
            return self.source.column(self.places[column])
        _, offsets = bytes_and_offsets(values)
        return take_spans(values.buffers()[2], offsets[:-1] + 1, offsets[1:] - 1)

    def whole(self) -> pa.LargeBinaryArray:
        """Return payloads of the new values, as a trigger would write them."""
        parts: list[Any] = []
        for at, name in enumerate(self.names):
            parts += [f'{"," if at else "{"}"{name}":'.encode(), *self.parts((at,))]
        return join_columns(b"", *parts, b"}")

    def parts(self, columns: Sequence[int]) -> list[pa.LargeBinaryArray]:
        """Return texts that are values of some columns, in their order, once commas are put between
        them."""
        found, kept = [], list[int]()
        for column in columns:
            values, place = self.values[column], self.places[column]
            if kept and (values is not None or place < kept[-1]):
                found.append(self.source.lines(kept))
                kept = []
            if values is None:
                kept.append(place)
            else:
                found.append(values)
        return [*found, self.source.lines(kept)] if kept else found


@dataclass
class HandledPattern(Pattern):
    """Recognises rows before their handler has seen them; `shape` is what it makes of them.

    `shown` are the columns that the function is given, those in `moments` hold moments, `keys` are
    those of the key. `operations` are those that may go by column.
    """

    function: RowFunction = field(kw_only=True)
    shown: tuple[str, ...] = field(kw_only=True)
    moments: frozenset[str] = field(kw_only=True)
    keys: tuple[str, ...] = field(kw_only=True)
    operations: str = field(kw_only=True)

    def learn_types(self, read: Callable[[], Iterable[str]]) -> None:
        """Know all of them that are about single rows of this key: rows of a type that is not known
        when they are split take the slow path."""
        for ev_type in read():
            said = parse_type(ev_type)
            if said.format == "json" and said.keys == self.keys and said.op in self.operations:
                self.ops[ev_type] = Kind(said.op)

    def split(self, data: pa.LargeBinaryArray, known: Mask) -> tuple[Mask, MadePayloads]:
        """Return which payloads have this layout, are of a known type and have plain values now;
        and the values of those."""
        alike, payloads = self.layout.split(data)
        if not known.all():
            payloads = payloads.rows(known[alike])
            alike = alike & known
        try:
            made, good = self._make(payloads)
        except StateError:  # the slow path will tell
            return np.zeros(len(alike), np.bool_), self._unmade(payloads.rows(slice(0, 0)))
        if not good.all():
            alike[alike] = good
            made = made.rows(good)
        return alike, made

    def _make(self, payloads: Payloads) -> tuple[MadePayloads, Mask]:
        good = np.ones(len(payloads), np.bool_)
        made = self._unmade(payloads)
        if not len(payloads):
            return made, good
        texts = [
            _as_text(payloads, self.layout.names.index(name), name in self.moments)
            for name in self.shown
        ]
        numbers = pa.array(np.arange(len(payloads)))
        batch = pa.RecordBatch.from_arrays(
            [*(text for text, _ in texts), numbers], [*self.shown, ROW_NUMBER]
        )
        answer = self.function.columns(batch, self.keys)
        if set(answer) != {n for n in made.names if n in self.shown or n not in self.layout.names}:
            return made, ~good  # columns of which a call without rows does not tell
        same = {name for name, (_, is_same) in zip(self.shown, texts, strict=True) if is_same}
        values: list[pa.LargeBinaryArray | None] = []
        for at, name in enumerate(made.names):
            column = answer.get(name)
            if column is None or (name in same and _is(column, batch.column(name))):
                values.append(None)
                continue
            if column.null_count and at in (self.shape.key or ()):
                good &= column.is_valid().to_numpy(zero_copy_only=False)
            good &= _needs_no_escape(column)
            values.append(_quoted(column))
        return MadePayloads(payloads, made.names, made.places, tuple(values)), good

    def _unmade(self, payloads: Payloads) -> MadePayloads:
        names = self.shape.names
        known = self.layout.names
        places = tuple(known.index(name) if name in known else -1 for name in names)
        return MadePayloads(payloads, names, places, (None,) * len(names))


def _as_text(payloads: Payloads, column: int, moment: bool) -> tuple[pa.StringArray, bool]:
    """Return one value of each as a function is shown it, and whether that is what the payload has.

    Text without quotes, null for null, and `t` and `f`; moments in UTC.
    """
    text = np.frombuffer(payloads.data, np.uint8)
    begins, ends = payloads.begins[:, column], payloads.ends(column)
    first = text[begins]
    quoted = first == _QUOTE
    null = first == _NULL
    switch = (first == _TRUE) | (first == _FALSE)
    begins, ends = begins + quoted, ends - quoted
    if switch.any():
        ends = np.where(switch, begins + 1, ends)
    validity = None
    if null.any():
        ends = np.where(null, begins, ends)
        validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    _, offsets, data = take_spans(payloads.data, begins, ends).buffers()
    places = np.frombuffer(offsets, np.int64)[: len(begins) + 1].astype(np.int32)
    buffers = [validity, pa.py_buffer(places), data]
    column_text = pa.Array.from_buffers(pa.string(), len(begins), buffers)
    if moment:
        return moments_in_utc(column_text), False
    return column_text, not switch.any()


def moments_in_utc(column: pa.StringArray) -> pa.StringArray:
    """Return what `moment_in_utc` makes of each: where all look alike, of each minute once."""
    if pc.all(pc.match_substring_regex(column, _REGULAR)).as_py():
        zones = pc.utf8_slice_codeunits(column, -_ZONE)
        minutes = pc.utf8_slice_codeunits(column, 0, _MINUTE)
        moved = _each_once(pc.binary_join_element_wise(minutes, ":00", zones, ""))
        if pc.all(pc.match_substring_regex(moved, _MOVED)).as_py():
            rest = pc.utf8_slice_codeunits(column, _MINUTE, -_ZONE)
            here = pc.utf8_slice_codeunits(moved, 0, _MINUTE)
            return pc.binary_join_element_wise(here, rest, "+00", "")
    return _each_once(column)


def _each_once(column: pa.StringArray) -> pa.StringArray:
    encoded = column.dictionary_encode()
    moved = [moment_in_utc(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(moved, pa.string()).take(encoded.indices)


def _is(one: pa.StringArray, other: pa.StringArray) -> bool:
    """Is this the same column, not another one with the same values?"""
    places = [
        (array.offset, [buffer and buffer.address for buffer in array.buffers()])
        for array in (one, other)
    ]
    return places[0] == places[1]


def _needs_no_escape(column: pa.StringArray) -> Mask:
    """Return which values stand between quotes as they are, in CSV and in JSON."""
    _, places, data = column.buffers()
    offsets = np.frombuffer(places, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data or b"", np.uint8)[: int(offsets[-1])]
    marks = (text == _QUOTE) | (text == _BACKSLASH) | (text < _SPACE)
    if not marks.any():
        return np.ones(len(column), np.bool_)
    within = offsets.astype(np.int64)
    plain: Mask = Tally(marks).between(within[:-1], within[1:]) == 0
    return plain


def _quoted(column: pa.StringArray) -> pa.LargeBinaryArray:
    """Return the values as CSV has them: in quotes, or the mark of NULL."""
    even = _evenly_quoted(column)
    if even is not None:
        return even
    text = column.cast(pa.large_binary())
    quoted = join_columns(b"", b'"', text, b'"')
    return quoted.fill_null(b"null") if column.null_count else quoted


def _evenly_quoted(column: pa.StringArray) -> pa.LargeBinaryArray | None:
    """Quote values that are there and have one length, as hashes do, without a look at each of
    them. Returns None where that is not so."""
    _, places, data = column.buffers()
    offsets = np.frombuffer(places, np.int32)[column.offset : column.offset + len(column) + 1]
    size = int(offsets[1] - offsets[0])
    if column.null_count or not size or not (np.diff(offsets) == size).all():
        return None
    begin, count = int(offsets[0]), len(column)
    text = np.full((count, size + 2), _QUOTE, np.uint8)
    text[:, 1:-1] = np.frombuffer(data, np.uint8)[begin : begin + size * count].reshape(-1, size)
    ends = np.arange(count + 1, dtype=np.int64) * (size + 2)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


# -- making a pattern -----------------------------------------------------------------------------


def make_handled_pattern(
    spec: TableSpec,
    shape_of: Callable[[tuple[str, ...]], Shape],
    names: tuple[str, ...],
    keys: tuple[str, ...],
    data: str,
) -> HandledPattern | None:
    """Return the pattern of rows like this one, with these columns and this key, which a handler
    has not seen; None where such rows must take the slow path. `shape_of` gives the shape of rows
    as the handler leaves them."""
    function = spec.rows
    if function is None or function.filters or spec.by_event:
        return None
    by_column = function.by_column  # otherwise deletes, which tell their key alone, are others
    try:
        function.check_columns(names)
        made = function.output(names)
    except StateError:  # the slow path will tell
        return None
    shape = shape_of(made)
    kinds = dict(_source_kinds(spec, function, names, keys, data))
    if len(kinds) != len(names) or not _fits(shape) or not set(keys) <= set(made):
        return None
    if not all(PLAIN_NAME.fullmatch(name) for name in (*names, *made)):
        return None
    moments = {name for name in names if _is_moment(spec, name)}
    if moments & set(keys):  # they have several texts
        return None
    return HandledPattern(
        spec.name,
        shape,
        None,
        len(keys) == 1,
        Layout(names, tuple(kinds[name] for name in names)),
        function=function,
        shown=function.shown(names, made),
        moments=frozenset(moments),
        keys=keys,
        operations="".join(op for op in spec.operations if op in ("IUD" if by_column else "IU")),
    )


def _fits(shape: Shape) -> bool:
    """Can rows of this shape wait as columns?"""
    if shape.staged_columns is None or shape.key is None or shape.unknown or shape.unseen:
        return False
    return not any(shape.nested) and list(shape.key) == sorted(shape.key)


def _is_moment(spec: TableSpec, name: str) -> bool:
    column = spec.by_name.get(spec.local(name) or "")
    return column is not None and column.type.startswith("timestamp")


def _source_kinds(
    spec: TableSpec,
    function: RowFunction,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    data: str,
) -> Iterator[tuple[str, str]]:
    """Yield columns and what kind of value each has in a layout; a column is left out where the
    payload has nothing there that a layout knows."""
    sample = json.loads(data)
    shown = set(function.shown(names, names))
    for name in names:
        column = spec.by_name.get(spec.local(name) or "")
        if name in keys:
            value = sample.get(name)
            if isinstance(value, str):
                yield name, "text"
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield name, "number"
        elif name in shown:
            yield name, "scalar"
        else:
            yield name, "boolean" if column is not None and column.type == "boolean" else "any"
