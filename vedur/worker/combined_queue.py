"""The combined queue that a part is merged into, while the worker of the part runs.

A batch of the part changes the tables of this node, which is the root of the combined queue. Those
who read from that get the same rows by events that are written in the same transaction: the
statement is in `queue/publish.py`, docs/design/combined.md says what it promises.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database
from vedur.failpoint import reach
from vedur.queue.publish import EndTick, publish_part
from vedur.worker.apply_range import RawRange


@dataclass
class CombinedQueue:
    """Where the batches of a part go on to."""

    part: str

    def publish(self, db: Database, slot: int, raw: RawRange | None, tick: EndTick) -> None:
        """Write the events of a batch, and the tick with which it ends, into the combined queue; in
        the transaction of the batch."""
        slices, events = (raw.slices, raw.events) if raw is not None else ((), 0)
        publish_part(db, self.part, slot, slices, events, tick)
        reach("combined.published")
