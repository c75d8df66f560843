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

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vedur.db import Database
from vedur.db.copied_rows import CopiedRows, OpenCopy, read_rows
from vedur.db.copy import pump
from vedur.pipeline.replay.fast_path.binary import MARK, require_number
from vedur.sql import query

_SLOTS = (0, 1)
#: What is passed on, and decoded, at a time.
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
    _copy: OpenCopy | None = None

    def blocks(self) -> Generator[CopiedRows]:
        """Yield the events in the order of their numbers, and write them into the raw staging
        table, in the transaction of the caller. To be read to the end or closed; before the
        connection to the target does anything else, call `pause`."""
        read = query("publish", "raw_read_both").format(
            number=self.number, events=self.events, slice=self.condition, owner=self.owner
        )
        try:
            for rows in read_rows(self.source, read, _BLOCK_BYTES, MARK):
                require_number(rows, self.number)
                if self._copy is None:
                    text = query("publish", "raw_write").format(stage=self.stage)
                    self._copy = OpenCopy(self.target, text)
                self._copy.write(rows)
                self.count += len(rows.sizes)
                yield rows
            self.pause()
        finally:
            copy, self._copy = self._copy, None
            if copy is not None:
                copy.abort()

    def pause(self) -> None:
        """Let the target take what was yielded; the connection is free then."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.end()
