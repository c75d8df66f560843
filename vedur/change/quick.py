"""The quick way for JSON events that look alike: recognised, not decoded.

Rows of one table with one set of columns are found in the text of a COPY by one regular
expression, which takes out the event's number, its type, its payload and its key. The payload is
kept as it is and becomes a row of CSV by cutting out the names: a JSON string without a backslash
is a quoted CSV field, a number an unquoted one, `null` the mark of NULL. Everything else (escapes,
nested values, other columns, other formats) does not match and goes the long way by itself.
Where many rows in a row look alike they are not even taken one by one (`columnar`).

Profile of 200,000 events of the walk-through's load: the long way takes 13 µs of a task's CPU for
an event (load 2), about a quarter of it in decoding JSON and a third in writing rows out; this one
takes 7 (load 10, so the quiet figure is lower).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vedur.change import columnar
from vedur.change.collapse import Collapser, Entry, Shape, TableBuffer
from vedur.change.columnar import WORTH_RUNS, Block, Net, Rows, Waiting
from vedur.change.net import STEP, WITH_ROW
from vedur.change.table import TableSpec
from vedur.change.values import Layout

_TEXT = r'"[^"\\\n]*"'
_NUMBER = r"[-+0-9.eE]+"
_VALUE = f"(?:{_TEXT}|null|{_NUMBER})"
_TRUTH = "(?:null|true|false)"
#: Names that cannot be mistaken for anything else once quotes and commas are all that is left.
_PLAIN_NAME = re.compile(r'[^"\\,:{}\x00-\x1f]+')
_NAMES = re.compile(r',\{?"[^"]*":')
#: Rows that are joined and stripped of their names at a time.
_AT_ONCE = 2000
#: Where a block has few rows of each table it grows, up to that many bytes.
_LARGEST_BLOCK = 16 << 20
#: Rows of a table that may fail to give a pattern before no more are tried.
_TRIES = 20


@dataclass
class Pattern:
    """How rows of one table with one set of columns look."""

    table: str
    shape: Shape
    rows: re.Pattern[str]
    single: bool
    layout: Layout  # the same by column; of a key's column it knows whether it is in quotes
    ops: dict[str, str] = field(default_factory=dict)


def stage_places(spec: TableSpec, shape: Shape) -> list[int] | None:
    """For each value of an event the staged column that takes it; None if not all are staged."""
    places = {index: place for place, index in enumerate(shape.picks) if index >= 0}
    if len(places) != len(shape.names):
        return None
    return [places[i] for i in range(len(shape.names))]


def make_pattern(buffer: TableBuffer, shape: Shape, extra1: str, data: str) -> Pattern | None:
    """The pattern of rows like this one; None where the quick way is not for them."""
    spec = buffer.spec
    places = stage_places(spec, shape)
    if places is None or shape.key is None or shape.unknown or shape.unseen:
        return None
    if any(shape.nested):
        return None
    if not all(_PLAIN_NAME.fullmatch(n) for n in shape.names) or "\\" in extra1:
        return None
    types = [spec.stage_columns[p].type for p in places]
    # A key is a text or a number in all rows; one of the two makes it the same text as elsewhere.
    sample = re.fullmatch(_body(shape, types, f"({_TEXT}|{_NUMBER})"), data)
    if sample is None:
        return None
    quoted = {i: text.startswith('"') for i, text in _by_key(shape, sample.groups())}
    body = _body(shape, types, "", quoted)
    rows = re.compile(
        rf"([0-9]+)\t[0-9]+\t\t\t([^\t\n\\]+)\t{re.escape(extra1)}\t({body})\n|", re.ASCII
    )
    # Groups are in the order of columns; a key of several columns must be, too.
    if list(shape.key) != sorted(shape.key):
        return None
    kinds = tuple(
        ("text" if quoted[i] else "number") if i in quoted
        else "truth" if kind == "boolean" else "any"
        for i, kind in enumerate(types)
    )  # fmt: skip
    return Pattern(spec.name, shape, rows, len(shape.key) == 1, Layout(shape.names, kinds))


def _by_key(shape: Shape, groups: Sequence[str]) -> Iterator[tuple[int, str]]:
    return zip(sorted(shape.key or ()), groups, strict=True)


def _body(
    shape: Shape, types: Sequence[str], key: str, quoted: dict[int, bool] | None = None
) -> str:
    parts = []
    for i, name in enumerate(shape.names):
        value = _TRUTH if types[i] == "boolean" else _VALUE
        if shape.key is not None and i in shape.key:
            value = key
            if quoted is not None:
                value = r'"([^"\\\n]*)"' if quoted[i] else f"({_NUMBER})"
        parts.append(f'"{re.escape(name)}":{value}')
    return r"\{" + ",".join(parts) + r"\}"


@dataclass
class QuickReader:
    """Feeds a collapser with the text of a COPY, rows in the order of events.

    `take_row` takes one row the long way; `flush` is called when the collapser holds `flush_at`.
    Columns are used for `least_run` rows in a row.
    """

    collapser: Collapser
    flush_at: int
    take_row: Callable[[str], tuple[str, str | None, str | None]]
    flush: Callable[[], None]
    least_run: int = columnar.LEAST_RUN
    _patterns: dict[tuple[str, int], Pattern] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)
    _current: dict[str, list[Pattern]] = field(default_factory=dict)  # by table
    _held: list[bytes] = field(default_factory=list)
    _size: int = 0
    _wanted: int = 0

    def feed(self, data: bytes) -> None:
        """Take whole rows, or let them wait for more: of many tables a block must be large."""
        self._held.append(data)
        self._size += len(data)
        if self._size >= self._wanted:
            self._take(last=self._size >= _LARGEST_BLOCK)

    def end(self) -> None:
        """No more rows come."""
        self._take(last=True)
        self.flush()

    def _take(self, last: bool) -> None:
        block = Block(b"".join(self._held))
        tables = block.tables()
        if not last and block.count < WORTH_RUNS * self.least_run * len(tables):
            self._wanted = 2 * self._size
            return
        self._held, self._size = [], 0
        for rows in tables:
            self._feed_table(rows)

    def _feed_table(self, rows: Rows) -> None:
        at = 0
        while at < len(rows):
            count = self._defer(rows, at)
            if not count:
                # One row is enough to learn from.
                known = at or rows.table in self._current
                count = min(2 * self.least_run if known else 1, len(rows) - at)
                self._feed(rows.table, rows.text(at, at + count))
            at += count
            if self.collapser.size > self.flush_at:
                self.flush()

    def _defer(self, rows: Rows, at: int) -> int:
        """Let a run of rows that look alike wait; how many, 0 if they are too few."""
        left = len(rows) - at
        worth = left >= self.least_run and (rows.cut or left >= WORTH_RUNS * self.least_run)
        for pattern in self._current.get(rows.table, ()):
            buffer = self.collapser.buffers[pattern.table]
            # Few rows may follow those that wait: one that may not makes entries of them all.
            follows = buffer.waiting is not None and buffer.waiting.pattern is pattern
            if buffer.log or not (worth or follows):
                continue
            found = rows.found(pattern, at)
            count = found.run(at)
            if count < (1 if follows else self.least_run):
                continue
            count = found.fitting(at, count, self.flush_at - self.collapser.size)
            if buffer.waiting is not None and buffer.waiting.pattern is not pattern:
                self.collapser.take_waiting(buffer)
            if buffer.waiting is None:
                buffer.waiting = Waiting(pattern)
            piece = found.take(at, count)
            buffer.waiting.pieces.append(piece)
            buffer.last = piece.last
            self.collapser.events += count
            self.collapser.size += found.size(at, count)
            return count
        return 0

    def _feed(self, table: str, text: str) -> None:
        at, end = 0, len(text)
        while at < end:
            start = at
            for pattern in self._current.get(table, ()):
                at = self._run(pattern, text, at)
                if at > start:
                    break
            else:
                stop = text.index("\n", at)
                self._learn(*self.take_row(text[at:stop]))
                at = stop + 1
            if self.collapser.size > self.flush_at:
                self.flush()

    def _run(self, pattern: Pattern, text: str, at: int) -> int:
        """Take rows that match, from `at` on; returns where it stopped."""
        collapser = self.collapser
        buffer = collapser.buffers[pattern.table]
        if buffer.log:
            return at
        entries, shape, ops, single = buffer.entries, pattern.shape, pattern.ops, pattern.single
        find = entries.get
        size, room, count, last = 0, self.flush_at - collapser.size, 0, ""
        for match in pattern.rows.finditer(text, at):
            ev_id, ev_type, data, *keys = match.groups()
            op = ops.get(ev_type)
            if op is None:  # no match, or a type not met before
                break
            if buffer.waiting is not None:
                collapser.take_waiting(buffer)
            key: Any = keys[0] if single else tuple(keys)
            entry = find(key)
            if entry is None:
                entries[key] = Entry(op, ev_id, ev_id, data, shape)
                size += len(data) + 300
            else:
                if op == "U" and entry.shape is shape:
                    entry.kind = STEP[entry.kind]["U"]
                    entry.last = ev_id
                    entry.values = data
                else:
                    collapser.merge(buffer, entry, op, ev_id, data, shape)
                size += len(data)
            last = ev_id
            count += 1
            at = match.end()
            if size > room:
                break
        if count:
            collapser.events += count
            collapser.size += size
            buffer.last = last
        return at

    def _learn(self, ev_type: str, extra1: str | None, data: str | None) -> None:
        """Look for rows like the one that the collapser has just taken."""
        collapser = self.collapser
        shape, collapser.met = collapser.met, None
        if shape is None or not extra1 or not data or collapser.log_from is not None:
            return
        said, buffer = collapser.route(ev_type, extra1)
        if said.format != "json" or buffer is None or buffer.log or buffer.spec.snapshot:
            return
        mark = (extra1, id(shape))
        pattern = self._patterns.get(mark)
        if pattern is None:
            if self._failures[extra1] >= _TRIES:
                return
            pattern = make_pattern(buffer, shape, extra1, data)
            if pattern is None:
                self._failures[extra1] += 1
                return
            self._patterns[mark] = pattern
        pattern.ops[ev_type] = said.op
        # The last one first: deletes may have other columns.
        others = [p for p in self._current.get(extra1, ()) if p is not pattern]
        self._current[extra1] = [pattern, *others]


def raw_entries(buffer: TableBuffer) -> list[tuple[Shape, list[Entry]]]:
    """The entries whose rows are still payloads, by shape."""
    found: dict[int, tuple[Shape, list[Entry]]] = {}
    for entry in buffer.entries.values():
        if entry.values.__class__ is str and entry.kind in WITH_ROW and entry.shape is not None:
            found.setdefault(id(entry.shape), (entry.shape, []))[1].append(entry)
    return list(found.values())


def net_places(spec: TableSpec, net: Net) -> list[int]:
    """For each value of a net change's rows the staged column that takes it."""
    places = stage_places(spec, net.shape) or []
    return [places[i] for i in net.shape.key or ()] if net.kind == "D" else places


def settled(collapser: Collapser, buffer: TableBuffer) -> list[Net]:
    """The net changes of rows that waited; what is no net change yet becomes entries."""
    waiting, buffer.waiting = buffer.waiting, None
    if waiting is None:
        return []
    nets, rest = waiting.settle(list(buffer.entries))
    collapser.take_alike(buffer, waiting.pattern.shape, rest.rows())
    for net in nets:
        mark = net.kind, net.mark
        buffer.kinds[mark] = buffer.kinds.get(mark, 0) + len(net)
    return nets


def csv_blocks(slice_id: int, shape: Shape, entries: Sequence[Entry]) -> Iterator[str]:
    """Rows of the staging table as CSV, columns in the order of the event."""
    mark = shape.id
    for at in range(0, len(entries), _AT_ONCE):
        rows = [
            f"{slice_id},{e.first},{e.last},{e.kind},{mark},{e.values}\n"
            for e in entries[at : at + _AT_ONCE]
        ]
        yield _NAMES.sub(",", "".join(rows)).replace("}\n", "\n")
