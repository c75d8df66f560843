"""The combined queue that a part is merged into, while the worker of the part runs.

A batch of the part changes the tables of this node, which is the root of the combined queue. Those
who read from that get the same rows by events that are written in the same transaction: the
statement is in `queue/publish.py`, docs/design/combined.md says what it promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vedur.db import Database
from vedur.failpoint import reach
from vedur.queue.publish import Passed, publish_part


@dataclass
class CombinedQueue:
    """Where the batches of a part go on to."""

    has_ticks: ClassVar[bool] = False  # it ticks by itself
    tick_by_tick: ClassVar[bool] = False  # nobody can copy a table from a part
    needs_all: ClassVar[bool] = True  # nodes below would not know that events are missing

    part: str

    def publish(self, db: Database, batch: Passed) -> None:
        """Write the events of a batch, and the tick with which it ends, into the combined queue; in
        the transaction of the batch."""
        publish_part(db, self.part, batch.slot, batch.slices, batch.events, batch.end)
        reach("combined.published")
