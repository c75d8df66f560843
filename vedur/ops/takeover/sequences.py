"""Sequences of a new root go on behind those of the old one.

The root publishes them ahead of their use (`londiste.root_check_seqs`), and all nodes follow that.
A live takeover need not guess: it takes the values of the old root, which is closed. Without the
old root there is only what was published, and a root that gave out numbers faster than its worker
looked has more rows than that: so the columns that get their values from a sequence are asked, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.catalog.sequences import get_seq_list, global_update_seq
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.sql import query

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bounds:
    """Where a sequence is on a node, and where it ends; `up`: it counts upwards."""

    up: bool
    low: int
    high: int
    last: int

    @property
    def end(self) -> int:
        """The last value that it can give."""
        return self.high if self.up else self.low

    def clamp(self, value: int) -> int:
        """Return the value, or the bound that it is beyond."""
        return min(max(value, self.low), self.high)

    def further(self, *values: int) -> int:
        """Return the value that comes last in the order of the sequence."""
        return self.clamp(max(values) if self.up else min(values))


def choose_value(bounds: Bounds, published: int, used: int | None) -> int:
    """Choose where a sequence goes on without the old root; pure. What was published runs ahead,
    and where that is the very end of the sequence, the rows tell better."""
    if used is None:
        return bounds.further(bounds.last, published)
    value = bounds.further(bounds.last, published, used)
    return bounds.clamp(used) if value == bounds.end else value


def read_sequence_values(db: Database, queue: str) -> dict[str, int]:
    """Read what the sequences of the set have given out on a root."""
    names = [seq.seq_name for seq in get_seq_list(db, queue) if seq.local]
    return {name: int(db.value(query("takeover", "sequence_value"), [name])) for name in names}


def take_sequences(db: Database, queue: str, values: dict[str, int]) -> None:
    """Let the sequences of a new root go on where those of the old one are, not behind what was
    published ahead: that may be the end of a small sequence."""
    for seq in get_seq_list(db, queue):
        if seq.local:
            bounds = _read_bounds(db, seq.seq_name)
            value = values.get(seq.seq_name)
            _set(db, seq.seq_name, bounds.clamp(value) if value is not None
                 else bounds.further(bounds.last, seq.last_value))  # fmt: skip


def follow_sequences(db: Database, queue: str) -> None:
    """Let the sequences of a root that was just turned into a branch stand at what is published, as
    those of all other nodes: until more is published nothing else would move them."""
    for seq in get_seq_list(db, queue):
        if seq.local:
            global_update_seq(db, queue, seq.seq_name, seq.last_value)


def raise_sequences(db: Database, queue: str) -> None:
    """Let the sequences of a new root go on behind what was published of them, and behind all rows
    that are there."""
    used = _read_used(db, queue)
    for seq in get_seq_list(db, queue):
        if not seq.local:
            continue
        bounds = _read_bounds(db, seq.seq_name)
        value = choose_value(bounds, seq.last_value, used.get(seq.seq_name))
        _set(db, seq.seq_name, value)
        if value == bounds.end:
            log.warning("Sequence '%s' is at its end, %s: give it more room", seq.seq_name, value)


def _read_bounds(db: Database, name: str) -> Bounds:
    row = db.one(query("takeover", "sequence_bounds"), [name, name])
    return Bounds(bool(row.up), int(row.low), int(row.high), int(row.last))


def _set(db: Database, name: str, value: int) -> None:
    db.value(query("takeover", "set_sequence"), [name, value])


def _read_used(db: Database, queue: str) -> dict[str, int]:
    """Read the furthest values in columns of tables of the set that sequences give values to."""
    tables = [table.dest_table for table in get_table_list(db, queue).local]
    used: dict[str, int] = {}
    for row in db.query(query("takeover", "columns_of_sequences"), [tables]):
        text = query("takeover", "furthest").format(
            which="max" if row.up else "min", column=row.column, table=row.table
        )
        value = db.value(text)
        if value is not None:
            before = used.get(row.name, int(value))
            used[row.name] = max(before, int(value)) if row.up else min(before, int(value))
    return used
