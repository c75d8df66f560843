"""The queue of a branch while its worker runs: settings of the role, and the step of each batch.

The statements are in `queue/publish.py`; docs/design/cascade.md says what they promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vedur.db import Database
from vedur.failpoint import reach
from vedur.queue.passed import PassedPart, leave_out, note_passed_parts
from vedur.queue.publish import Passed, publish


@dataclass
class BranchQueue:
    """What the role of a branch (`roles/branch.py`) and its batches tell each other."""

    has_ticks: ClassVar[bool] = True  # every tick of a batch is written, not only its end
    needs_all: ClassVar[bool] = False  # it tells nodes below of what the provider has left out

    queue: str
    stops_at_unknown: bool = False  # events of tables that are not registered here
    tick_by_tick: bool = False  # upstream copies tables from here: each batch is one tick
    sync_watermark: bool = False  # nodes below hear of another watermark than the root's
    root_watermark: int | None = None  # the root's own, where it is not passed on

    def publish(self, db: Database, batch: Passed) -> None:
        """Write the events and ticks of a batch into the queue, in its transaction. Events that the
        rules of this node leave out are not written, and those that are missing already, as the
        node above says, stay missing; both are noted."""
        own = (PassedPart(rule.table, rule.condition) for rule in batch.rules)
        parts = {*batch.above, *own, *batch.masks}
        note_passed_parts(db, self.queue, batch.ticks[0].id, parts)
        events = batch.events
        if batch.rules and events:
            events -= leave_out(db, self.queue, batch.slot, batch.slices, batch.rules)
            reach("branch.left_out")
        said = batch.watermark if self.sync_watermark else None
        publish(db, self.queue, batch.slot, batch.slices, events, batch.ticks, said)
        reach("branch.published")
