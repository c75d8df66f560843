"""Payloads that look alike, split into values without being decoded.

Keep only the offset at which each value of a payload begins: behind `":`, which ends a name. A
payload qualifies if its names are the expected ones in order, each value is a plain string, a
number or a literal, and it contains no other quotes and no backslashes. That is checked for all
rows at once. Anything else (even a string that starts with a colon) takes the slow path; nothing
tells what was wrong with it. Values become text when it is known which rows are wanted: as they
are, with the comma that follows each, they are a line of CSV.

CPU for an event of the walk-through's load (four or five values, 100 bytes): about 0.4 µs to split
it and 0.15 to write its line. All that a task does with the text of an event takes 1.06, and 0.81
where a block has one table; with a column of text for each value it was 1.29 and 1.04.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vedur.change.event import Kind
from vedur.pipeline.replay.shape import Shape
from vedur.tables.mapping import TableSpec

if TYPE_CHECKING:
    from vedur.pipeline.replay.fast_path.made import MadePayloads

_QUOTE, _COLON, _BACKSLASH = b'":\\'
#: For each bit of a 64-bit word a mask of the bits below it.
_BELOW = np.array([(1 << bit) - 1 for bit in range(64)], "<u8")
_SWITCH = (b"null", b"true", b"false")
_LITERALS = {"any": (b"null",), "boolean": _SWITCH, "scalar": _SWITCH}

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Layout:
    """The names in a payload, and what may follow each: `text` in quotes, a `number`, a `boolean`
    (or null), `any` of text, number and null, or a `scalar`, which may be all of these."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @cached_property
    def head(self) -> bytes:
        """The bytes before the first value."""
        return f'{{"{self.names[0]}":'.encode()

    @cached_property
    def tails(self) -> list[bytes]:
        """The bytes behind each value, up to the next one."""
        return [*(f',"{name}":'.encode() for name in self.names[1:]), b"}"]

    @cached_property
    def gaps(self) -> Numbers:
        """The lengths of `tails`."""
        return np.array([len(tail) for tail in self.tails])

    def split(self, data: pa.LargeBinaryArray) -> tuple[Mask, Payloads]:
        """Return which payloads have this layout, and the values of those."""
        text, offsets = bytes_and_offsets(data)
        width = len(self.names)
        names = np.flatnonzero((text[:-1] == _QUOTE) & (text[1:] == _COLON))
        first = np.searchsorted(names, offsets)
        alike: Mask = np.diff(first) == width
        begins = np.empty((np.count_nonzero(alike), width + 1), np.int64)
        begins[:, :-1] = names[first[:-1][alike, None] + np.arange(width)] + 2
        begins[:, -1] = offsets[1:][alike]
        payloads = Payloads(self, data.buffers()[2], begins)
        if len(payloads):
            good = self._check(text, offsets[:-1][alike], payloads)
            if not good.all():
                alike[alike] = good
                payloads = payloads.rows(good)
        return alike, payloads

    def _check(self, text: Bytes, first: Numbers, payloads: Payloads) -> Mask:
        """Return which payloads, all with the right number of names, have this layout."""
        start, end = payloads.begins[:, 0] - len(self.head), payloads.begins[:, -1]
        good: Mask = (start == first) & _starts_with(text, start, self.head)
        values = _Values(text)
        quotes = np.full(len(payloads), 2 * len(self.names))
        for at, (kind, tail) in enumerate(zip(self.kinds, self.tails, strict=True)):
            value = payloads.begins[:, at], payloads.ends(at)
            texts = values.quoted(*value)
            good &= values.of_kind(kind, texts, *value) & _starts_with(text, value[1], tail)
            quotes += 2 * texts
        # So far it is known that the quotes of names and of texts are where they should be. If a
        # payload has just as many quotes and backslashes, then there are no others in it.
        marks = Tally((text == _QUOTE) | (text == _BACKSLASH))
        good &= marks.between(first, end) == quotes
        return good


@dataclass(frozen=True)
class Payloads:
    """Payloads of one layout: the offsets at which each row's values begin, and the row's end."""

    layout: Layout
    data: pa.Buffer
    begins: Numbers

    def __len__(self) -> int:
        return len(self.begins)

    def rows(self, which: slice | np.ndarray[Any, Any]) -> Payloads:
        """Return some of them."""
        return Payloads(self.layout, self.data, self.begins[which])

    def ends(self, column: Any) -> Numbers:
        """Return the offsets at which the values of a column, or of several, end."""
        ends: Numbers = self.begins[:, column + 1] - self.layout.gaps[column]
        return ends

    def column(self, column: int) -> pa.LargeBinaryArray:
        """Return one value of each; where the layout has `text` without its quotes."""
        quote = int(self.layout.kinds[column] == "text")
        return take_spans(self.data, self.begins[:, column] + quote, self.ends(column) - quote)

    def whole(self) -> pa.LargeBinaryArray:
        """Return the payloads as they were received."""
        return take_spans(self.data, self.begins[:, 0] - len(self.layout.head), self.begins[:, -1])

    @property
    def size(self) -> int:
        """The memory that a row takes beside its text and offsets."""
        return 0

    def parts(self, columns: Sequence[int]) -> list[pa.LargeBinaryArray]:
        """Return the texts that `lines` joins with commas, here one."""
        return [self.lines(columns)]

    def lines(self, columns: Sequence[int]) -> pa.LargeBinaryArray:
        """Return the values of some columns, in their order, with commas between them."""
        wanted = np.array(columns)
        ends = self.ends(wanted)
        ends[:, :-1] += 1  # the comma
        values = take_spans(self.data, self.begins[:, wanted].ravel(), ends.ravel())
        # The values of an array follow each other without a gap, so those of a row are one text
        # already: an array with every n-th offset has a row as each of its values.
        _, offsets, data = values.buffers()
        rows = np.frombuffer(offsets, np.int64)[:: len(columns)].copy()
        return pa.Array.from_buffers(values.type, len(self), [None, pa.py_buffer(rows), data])


class Tally:
    """Counts marked bytes between two offsets. Works with the bits of 64 bytes at a time: to find
    the offset of each mark takes five times as long."""

    def __init__(self, marks: Mask) -> None:
        bits = np.packbits(marks, bitorder="little")
        self._words = np.zeros(len(marks) // 64 + 1, "<u8")
        self._words.view(np.uint8)[: len(bits)] = bits
        counts = np.bitwise_count(self._words)
        self._before = np.cumsum(counts, dtype=np.int64) - counts

    def between(self, begins: Numbers, ends: Numbers) -> Numbers:
        """Return how many marks are at `begins` or behind them, and before `ends`."""
        offsets = np.stack((begins, ends))
        word = offsets >> 6
        below = _BELOW[offsets & 63]
        before = self._before[word] + np.bitwise_count(self._words[word] & below)
        counts: Numbers = before[1] - before[0]
        return counts


class _Values:
    """Classifies values by their bytes. Zero-length values may have offsets outside the buffer."""

    def __init__(self, text: Bytes) -> None:
        self._text = text

    @cached_property
    def _numeric(self) -> Tally:
        text = self._text
        digits = (text - ord("0") < 10) | (text | 0x20 == ord("e"))
        return Tally(digits | (text == ord("-")) | (text == ord(".")) | (text == ord("+")))

    def quoted(self, begins: Numbers, ends: Numbers) -> Mask:
        """Return which values are in quotes."""
        first = self._text.take(begins, mode="clip")
        last = self._text.take(ends - 1, mode="clip")
        both: Mask = (first == _QUOTE) & (last == _QUOTE) & (ends - begins >= 2)
        return both

    def of_kind(self, kind: str, texts: Mask, begins: Numbers, ends: Numbers) -> Mask:
        """Return which values are what a layout's `kind` allows; `texts` are those in quotes."""
        if kind == "text":
            return texts
        several = kind in ("any", "scalar")
        known = texts.copy() if several else np.zeros(len(texts), np.bool_)
        sizes = ends - begins
        for word in _LITERALS.get(kind, ()):
            rows = np.flatnonzero(~known & (sizes == len(word)))
            if len(rows):
                known[rows] = _starts_with(self._text, begins[rows], word)
        if several or kind == "number":
            rows = np.flatnonzero(~known & (sizes > 0))
            if len(rows):
                known[rows] = self._numeric.between(begins[rows], ends[rows]) == sizes[rows]
        return known


def _starts_with(text: Bytes, offsets: Numbers, word: bytes) -> Mask:
    """Return which offsets start with `word`. Offsets must leave room for the word; negative
    offsets give an unspecified answer."""
    windows = len(text) - len(word) + 1
    if windows <= 0:
        return np.zeros(len(offsets), np.bool_)
    # A view in which each byte begins a string of the word's length.
    view = np.ndarray((windows,), f"S{len(word)}", text, strides=(1,))
    there = view[np.maximum(offsets, 0)]
    if there.tobytes() == word * len(there):  # most often so, and ten times as fast
        return np.ones(len(offsets), np.bool_)
    equal: Mask = there == word
    return equal


def take_spans(data: pa.Buffer, begins: Numbers, ends: Numbers) -> pa.LargeBinaryArray:
    """Return the bytes between pairs of offsets, which must ascend."""
    # The values of an Arrow array follow each other: with all offsets in one array every second
    # value is what is wanted, and the others are the bytes in between.
    offsets = np.empty(2 * len(begins) + 1, np.int64)
    offsets[0:-1:2], offsets[1::2] = begins, ends
    offsets[-1] = offsets[-2] if len(begins) else 0
    both = pa.Array.from_buffers(
        pa.large_binary(), 2 * len(begins), [None, pa.py_buffer(offsets), data]
    )
    return both.take(pa.array(np.arange(0, 2 * len(begins), 2)))


def join_columns(by: bytes, *parts: pa.LargeBinaryArray | bytes) -> pa.LargeBinaryArray:
    """Return one text for each row; a part that is plain bytes is the same in all rows."""
    kind = pa.large_binary()
    mixed = [pa.scalar(p, kind) if isinstance(p, bytes) else p for p in (*parts, by)]
    return pc.binary_join_element_wise(*mixed)


def bytes_and_offsets(array: pa.LargeBinaryArray) -> tuple[Bytes, Numbers]:
    """Return the bytes that an array is stored in, and the offsets of its values in them."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), places


# -- patterns: how rows of one table with one set of columns look ---------------------------------

_TEXT = r'"[^"\\\n]*"'
_NUMBER = r"[-+0-9.eE]+"
_VALUE = f"(?:{_TEXT}|null|{_NUMBER})"
_BOOLEAN = "(?:null|true|false)"
#: Names that are found again when a payload's names are cut out by quotes, commas and colons.
PLAIN_NAME = re.compile(r'[^"\\,:{}\x00-\x1f]+')


@dataclass
class Pattern:
    """Recognises rows of one table with one shape; `ops` are the event types met so far.

    `rows` matches one row of COPY text, with the groups event number, type, payload and key
    columns, or nothing at all; None where rows go by column or the slow path. `layout` says the
    same about many payloads at once.
    """

    table: str
    shape: Shape
    rows: re.Pattern[str] | None
    single_key: bool
    layout: Layout
    ops: dict[str, Kind] = field(default_factory=dict)

    def learn_types(self, read: Callable[[], Iterable[str]]) -> None:
        """Ask for the event types of rows that are to be split, if it helps; here they are learnt
        one by one, from rows on the slow path."""

    def split(self, data: pa.LargeBinaryArray, known: Mask) -> tuple[Mask, Payloads | MadePayloads]:
        """Return which payloads have this layout, and the values of those; `known` are those whose
        operation is in `ops`."""
        return self.layout.split(data)


def make_pattern(spec: TableSpec, shape: Shape, extra1: str, data: str) -> Pattern | None:
    """Return the pattern of rows like this one; None where they must take the slow path."""
    columns = shape.staged_columns
    if columns is None or shape.key is None or shape.unknown or shape.unseen:
        return None
    if any(shape.nested):
        return None
    if not all(PLAIN_NAME.fullmatch(n) for n in shape.names) or "\\" in extra1:
        return None
    types = [spec.stage_columns[column].type for column in columns]
    # A key value is a string in all rows or a number in all rows: then the group that matches it,
    # a string without its quotes or a number as it is, is what the slow path would decode it to.
    sample = re.fullmatch(_payload_pattern(shape, types, f"({_TEXT}|{_NUMBER})"), data)
    if sample is None:
        return None
    quoted = {i: text.startswith('"') for i, text in _key_values(shape, sample.groups())}
    payload = _payload_pattern(shape, types, "", quoted)
    # The alternative that matches nothing ends a search at the first row that is not alike: without
    # it the expression would look for the next one further on.
    rows = re.compile(
        rf"([0-9]+)\t[0-9]+\t\t\t([^\t\n\\]+)\t{re.escape(extra1)}\t({payload})\n|", re.ASCII
    )
    # Groups are in the order of columns; a key of several columns must be, too.
    if list(shape.key) != sorted(shape.key):
        return None
    kinds = tuple(
        ("text" if quoted[i] else "number") if i in quoted
        else "boolean" if kind == "boolean" else "any"
        for i, kind in enumerate(types)
    )  # fmt: skip
    return Pattern(spec.name, shape, rows, len(shape.key) == 1, Layout(shape.names, kinds))


def _key_values(shape: Shape, groups: Sequence[str]) -> Iterator[tuple[int, str]]:
    return zip(sorted(shape.key or ()), groups, strict=True)


def _payload_pattern(
    shape: Shape, types: Sequence[str], key: str, quoted: dict[int, bool] | None = None
) -> str:
    """Return a regular expression for payloads; `key` stands for each key value unless it is known
    which of them are `quoted`."""
    parts = []
    for i, name in enumerate(shape.names):
        value = _BOOLEAN if types[i] == "boolean" else _VALUE
        if shape.key is not None and i in shape.key:
            value = key
            if quoted is not None:
                value = r'"([^"\\\n]*)"' if quoted[i] else f"({_NUMBER})"
        parts.append(f'"{re.escape(name)}":{value}')
    return r"\{" + ",".join(parts) + r"\}"
