"""The queue of this node that batches are passed on to, where others read from this node.

A branch has the queue of its set, a part the combined queue; a leaf has none. This is the only
place that chooses: the worker gives what is chosen to the `BatchRunner` (and has the tasks keep the
raw events, `forward`), and `BatchRun.publish` hands each batch to it.
"""

from __future__ import annotations

from vedur.node import NodeType, WorkerState
from vedur.worker.branch_queue import BranchQueue
from vedur.worker.combined_queue import CombinedQueue

OwnQueue = BranchQueue | CombinedQueue


def choose_own_queue(queue: str, state: WorkerState) -> OwnQueue | None:
    """Choose what batches of a node are passed on to; None where it passes nothing on. Pure."""
    if state.node_type is NodeType.BRANCH:
        return BranchQueue(queue)
    return CombinedQueue(queue) if state.combined_queue is not None else None
