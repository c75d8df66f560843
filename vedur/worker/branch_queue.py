"""The queue of a branch while its worker runs: settings of the role, and the step of each batch.

The statements are in `queue/publish.py`; docs/design/cascade.md says what they promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedur.db import Database
from vedur.failpoint import reach
from vedur.queue.publish import TickRow, publish
from vedur.worker.apply_range import RawRange


@dataclass
class BranchQueue:
    """What the role of a branch (`roles/branch.py`) and its batches tell each other."""

    queue: str
    tick_by_tick: bool = False  # upstream copies tables from here: each batch is one tick
    sync_watermark: bool = False  # nodes below hear of another watermark than the root's
    root_watermark: int | None = None  # the root's own, where it is not passed on

    def publish(
        self,
        db: Database,
        slot: int,
        raw: RawRange | None,
        ticks: Sequence[TickRow],
        watermark: int | None,
    ) -> None:
        """Write the events and ticks of a batch into the queue, in its transaction; `watermark` is
        this node's own."""
        slices, events = (raw.slices, raw.events) if raw is not None else ((), 0)
        said = watermark if self.sync_watermark else None
        publish(db, self.queue, slot, slices, events, ticks, said)
        reach("branch.published")
