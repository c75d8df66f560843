"""Read COPY text into a collapser: by column, by pattern, or row by row on the slow path.

Rows of one table with one set of columns are found in the text of a COPY by one regular
expression, which takes out the event's number, its type, its payload and its key. Where runs are
long the rows are not even taken one by one, but by column (`columns`). A row that nothing matches
is decoded, and the reader makes a pattern of it if it can.

Profile of 200,000 events of the walk-through's load: the slow path takes 13 µs of a task's CPU for
an event (load 2), about a quarter of it in decoding JSON and a third in writing rows out; a row
that matches takes 7 (load 10, so the quiet figure is lower).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from vedur.change.event import Kind
from vedur.change.formats import fields
from vedur.db.copied_rows import CopiedRows, join_rows
from vedur.errors import StateError
from vedur.pipeline.replay.collapse import Collapser, TableBuffer
from vedur.pipeline.replay.fast_path.binary import BinaryBlock
from vedur.pipeline.replay.fast_path.columns import LEAST_RUN, WORTH_RUNS, Block, TableRows
from vedur.pipeline.replay.fast_path.made import make_handled_pattern
from vedur.pipeline.replay.fast_path.payload import Pattern, make_pattern
from vedur.pipeline.replay.shape import Shape

#: Where a block has few rows of each table it grows, up to that many bytes.
_LARGEST_BLOCK = 16 << 20
#: Handlers are given whole blocks, so that what a call costs by itself (keyed hashes 2 ms) is
#: divided by many rows: hashes of two columns cost 1.07 µs an event with 1 MB here, 0.73 with 4.
_HANDLED_BLOCK = 4 << 20
#: Rows of a table that may fail to give a pattern before no more are tried.
_TRIES = 20


@dataclass
class FastReader:
    """Reads the rows of a slice, in the order of events, and hands them to a collapser.

    `flush` is called when the collapser holds more than `flush_at` bytes, and at the end: it is to
    take out what was gathered. Runs shorter than `least_run` are taken row by row.
    """

    collapser: Collapser
    flush_at: int
    flush: Callable[[], None]
    least_run: int = LEAST_RUN
    _patterns: dict[tuple[str, object], Pattern] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)
    _current: dict[str, list[Pattern]] = field(default_factory=dict)  # by table
    _held: list[bytes | CopiedRows] = field(default_factory=list)
    _held_size: int = 0
    _wanted_size: int = 0

    def __post_init__(self) -> None:
        if any(spec.rows is not None for spec in self.collapser.tables.values()):
            self._wanted_size = _HANDLED_BLOCK

    def feed(self, data: bytes | CopiedRows) -> None:
        """Take whole rows, or keep them until there are more: of many tables a block must be large.

        Calls `flush` where the memory is used up.
        """
        self._held.append(data)
        self._held_size += len(data)
        if self._held_size >= self._wanted_size:
            self._take_block(last=self._held_size >= _LARGEST_BLOCK)

    def end_form(self) -> None:
        """Take what is kept, because rows in the other form come: a block has rows of one."""
        if self._held:
            self._take_block(last=True)

    def end(self) -> None:
        """Take what is left, and call `flush`."""
        self._take_block(last=True)
        self.flush()

    def _take_block(self, last: bool) -> None:
        block = _block(self._held)
        tables = block.tables()
        if not last and block.count < WORTH_RUNS * self.least_run * len(tables):
            self._wanted_size = 2 * self._held_size
            return
        self._held, self._held_size = [], 0
        for rows in tables:
            self._take_table(rows)

    def _take_table(self, rows: TableRows) -> None:
        at = 0
        while at < len(rows):
            count = self._take_run(rows, at)
            if not count:
                # Without a pattern one row is enough: it may give one.
                known = at or rows.table in self._current
                count = min(2 * self.least_run if known else 1, len(rows) - at)
                self._take_text(rows.table, rows.text(at, at + count))
            at += count
            if self.collapser.size > self.flush_at:
                self.flush()

    def _take_run(self, rows: TableRows, at: int) -> int:
        """Let a run of rows wait in their buffer; returns how many, 0 if the run is too short."""
        left = len(rows) - at
        worth = left >= self.least_run and (rows.is_split or left >= WORTH_RUNS * self.least_run)
        for pattern in self._current.get(rows.table, ()):
            buffer = self.collapser.buffers[pattern.table]
            # A short run may follow rows that wait: taken one by one it would make entries of all.
            follows = buffer.waits_for(pattern)
            if buffer.log or not (worth or follows):
                continue
            matched = rows.match(pattern, at)
            count = matched.run_length(at)
            if count < (1 if follows else self.least_run):
                continue
            count = matched.fitting(at, count, self.flush_at - self.collapser.size)
            piece = matched.take(at, count)
            self.collapser.wait(buffer, piece)
            return count
        return 0

    def _take_text(self, table: str, text: str) -> None:
        """Take rows of one table by pattern, and those that match none on the slow path."""
        at, end = 0, len(text)
        while at < end:
            start = at
            for pattern in self._current.get(table, ()):
                at = self._take_matches(pattern, text, at)
                if at > start:
                    break
            else:
                stop = text.index("\n", at)
                self._take_row(text[at:stop])
                at = stop + 1
            if self.collapser.size > self.flush_at:
                self.flush()

    def _take_matches(self, pattern: Pattern, text: str, at: int) -> int:
        """Take rows that match, from offset `at` on; returns the offset where it stopped."""
        collapser = self.collapser
        buffer = collapser.buffers[pattern.table]
        if buffer.log:
            return at
        end, count, size = buffer.add_matches(pattern, text, at, self.flush_at - collapser.size)
        if count:
            collapser.count(count, size)
        return end

    def _take_row(self, row: str) -> None:
        """Take one row on the slow path, and learn from it."""
        ev_id, ev_txid, retry, extra, ev_type, extra1, data = fields(row)
        if retry:
            raise StateError(f"event {ev_id} is a retry: replication has no use for it")
        more = tuple(json.loads(extra)) if extra else ()
        shape = self.collapser.add_row(ev_id, ev_txid, ev_type, data, extra1, more)  # type: ignore[arg-type]
        if extra1 and data:
            self._learn(ev_type or "", extra1, data, shape)

    def _learn(self, ev_type: str, extra1: str, data: str, shape: Shape | None) -> None:
        """Make a pattern of a row that was just taken; there may be more like it. `shape` is that
        of a change that fits; a change that a handler is yet to see has none."""
        collapser = self.collapser
        if collapser.log_from is not None:
            return
        said, buffer, kind = collapser.route(ev_type, extra1)
        if said.format != "json" or buffer is None or kind is None:
            return
        # A pattern does not look at the transaction, and where there is a snapshot, that tells
        # whether the first copy has the event already.
        if buffer.log or buffer.spec.snapshot:
            return
        if collapser.handles(buffer):
            pattern = self._learn_handled(buffer, kind, said.keys, extra1, data)
        elif shape is None:
            return
        else:
            mark = (extra1, id(shape))
            pattern = self._known(mark, lambda: make_pattern(buffer.spec, shape, extra1, data))
        if pattern is None:
            return
        pattern.ops[ev_type] = kind
        # The last one first: deletes may have other columns.
        others = [p for p in self._current.get(extra1, ()) if p is not pattern]
        self._current[extra1] = [pattern, *others]

    def _learn_handled(
        self,
        buffer: TableBuffer,
        kind: Kind,
        keys: tuple[str, ...],
        extra1: str,
        data: str,
    ) -> Pattern | None:
        """Return the pattern of a row that its handler is yet to see."""
        if kind is Kind.DELETE or buffer.untouched is None:
            return None  # what is left of a delete does not tell its columns; others have been seen
        names = buffer.untouched.changes[-1].names

        def make() -> Pattern | None:
            shape_of = partial(buffer.shape, decoded=str)
            return make_handled_pattern(buffer.spec, shape_of, names, keys, data)

        return self._known((extra1, names), make)

    def _known(
        self, mark: tuple[str, object], make: Callable[[], Pattern | None]
    ) -> Pattern | None:
        """Return a pattern that was made before, or make it; of a table that often gives none no
        more are tried."""
        pattern = self._patterns.get(mark)
        if pattern is None and self._failures[mark[0]] < _TRIES:
            pattern = make()
            if pattern is None:
                self._failures[mark[0]] += 1
            else:
                self._patterns[mark] = pattern
        return pattern


def _block(parts: Sequence[bytes | CopiedRows]) -> Block:
    """Make one block of rows that were held, which are all text or all binary."""
    rows = [part for part in parts if isinstance(part, CopiedRows)]
    if not rows:
        return Block(b"".join(part for part in parts if isinstance(part, bytes)))
    return BinaryBlock(join_rows(rows))
