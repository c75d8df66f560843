"""What a branch passes on: the events of a range as they are, beside the net changes of them.

A task that stages a slice also writes all columns of its events into the raw staging table of the
slot, in the same transaction and under the same slice number. Nobody looks at these rows until
`vedur.publish` inserts them into the branch's own queue. A range does not change, so what was
written once stays right however often the net changes are staged again.

The provider sends every event once, in binary form (`ForwardedSlice`): the rows go on as they came,
and the net changes are made of the same bytes (`fast_path/binary.py`). Where that needs more of an
event than is passed on, or other bytes, the slice is read twice (`forward_slice`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vedur.db import Database
from vedur.db.copy import copy_all, copy_rows, pump
from vedur.pipeline.replay.fast_path.binary import HEADER, TRAILER, BinaryRows
from vedur.sql import query

_SLOTS = (0, 1)
#: What one COPY passes on.
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class RawEvents:
    """Raw events of a range: the numbers under which tasks wrote them, and how many there are."""

    slices: tuple[int, ...] = ()
    events: int = 0

    def __add__(self, other: RawEvents) -> RawEvents:
        return RawEvents(self.slices + other.slices, self.events + other.events)


@dataclass
class RawStages:
    """The raw staging tables of a queue on the target, one for each slot."""

    queue: str
    _names: dict[int, str] = field(default_factory=dict)

    def renew(self, db: Database) -> None:
        """Drop the tables with what an earlier run left in them, and make them anew."""
        db.value(query("publish", "drop_stages"), [self.queue])
        self.forget()
        for slot in _SLOTS:
            self.name(db, slot)

    def name(self, db: Database, slot: int) -> str:
        """Make the table of a slot where it is missing; returns its name, quoted."""
        name = self._names.get(slot)
        if name is None:
            name = str(db.value(query("publish", "create_stage"), [self.queue, slot]))
            self._names[slot] = name
        return name

    def forget(self) -> None:
        """Believe no table to be there any more."""
        self._names.clear()


# -- read twice -----------------------------------------------------------------------------------


def forward_slice(
    source: Database, target: Database, events: str, condition: str, stage: str, number: int
) -> int:
    """Write the events of a slice as they are into a raw staging table, in the transaction of the
    caller; returns how many there were."""
    read = query("publish", "raw_read").format(number=number, events=events, slice=condition)
    write = query("publish", "raw_write").format(stage=stage)
    with _any_bytes(source, target):
        return pump(source, read, target, write, keep=True).rows


@contextmanager
def _any_bytes(source: Database, target: Database) -> Iterator[None]:
    """Pass bytes as they are stored, where the provider has no encoding. A branch that has one
    refuses what is not valid in it: to pass on other bytes would be to pass on another event."""
    if source.encoding != "SQL_ASCII":
        yield
        return
    either = [db for db in (source, target) if db.encoding == "SQL_ASCII"]
    for db in either:
        db.execute(query("replay", "any_bytes"))
    yield
    for db in either:
        db.execute(query("replay", "only_utf8"))


# -- read once ------------------------------------------------------------------------------------


@dataclass
class ForwardedSlice:
    """A slice that is read once, for both."""

    source: Database
    target: Database
    events: str
    condition: str
    owner: int
    stage: str
    number: int
    count: int = 0  # events so far

    def blocks(self) -> Iterator[BinaryRows]:
        """Yield the events in the order of their numbers; what is yielded has been written into the
        raw staging table, in the transaction of the caller. To be read to the end."""
        read = query("publish", "raw_read_both").format(
            number=self.number, events=self.events, slice=self.condition, owner=self.owner
        )
        write = query("publish", "raw_write").format(stage=self.stage)
        for rows in _in_blocks(copy_rows(self.source, read)):
            rows.require(self.number)
            copy_all(self.target, [(write, (HEADER, rows.data, TRAILER))])
            self.count += len(rows.sizes)
            yield rows


def _in_blocks(messages: Iterator[bytes]) -> Iterator[BinaryRows]:
    """Yield the rows of a binary COPY, which sends each as a message of its own, the header before
    the first one and the trailer behind the last."""
    block, sizes, begun = bytearray(), list[int](), False
    for message in messages:
        row = message if begun else message.removeprefix(HEADER)
        begun = True
        if row in (b"", TRAILER):
            continue
        block += row
        sizes.append(len(row))
        if len(block) > _BLOCK_BYTES:
            yield BinaryRows(bytes(block), sizes)
            block, sizes = bytearray(), []
    if sizes:
        yield BinaryRows(bytes(block), sizes)
