"""The queue of this node that batches are passed on to, where others read from this node.

A branch has the queue of its set, a part the combined queue; a leaf has none. This is the only
place that chooses: the worker gives what is chosen to the `BatchRunner` (and has the tasks keep the
raw events, `forward`), and `BatchRun.publish` hands each batch to it.
"""

from __future__ import annotations

from typing import Protocol

from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.node import NodeType, WorkerState
from vedur.queue.publish import Passed
from vedur.worker.branch_queue import BranchQueue
from vedur.worker.combined_queue import CombinedQueue


class OwnQueue(Protocol):
    """What a batch asks of the queue that it is passed on to."""

    @property
    def has_ticks(self) -> bool:
        """It gets every tick of a batch, and what rules of this node leave out stays out of it;
        one without gets all events and the end of the batch, and ticks by itself."""

    @property
    def needs_all(self) -> bool:
        """A batch is refused where the provider has left events out: who reads here would not know
        that they are missing."""

    @property
    def tick_by_tick(self) -> bool:
        """The role asks for batches of one tick (`_next_batch`), so nothing is staged ahead."""

    def publish(self, db: Database, batch: Passed) -> None:
        """Write the events of a batch, and its end, into the queue, in the transaction that applies
        the batch."""


def choose_own_queue(queue: str, state: WorkerState, settings: LondisteSettings) -> OwnQueue | None:
    """Choose what batches of a node are passed on to; None where it passes nothing on. Pure."""
    if not state.passes_on:
        return None
    if state.node_type is NodeType.BRANCH:
        return BranchQueue(queue, stops_at_unknown=settings.unknown_tables == "stop")
    return CombinedQueue(queue)
