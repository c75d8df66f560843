"""What a worker does in a round, by the place of its node in the cascade.

`role.py` is the contract with the loop. What a batch needs for a role (a branch's queue) is given
to its runner by `WorkerProcess._make_runner` in `ops/processes/worker.py`. CONTRIBUTING.md says how
a role is added.
"""

from __future__ import annotations

from vedur.errors import StateError
from vedur.node import NodeType, WorkerState
from vedur.worker.roles.branch import BranchRole
from vedur.worker.roles.leaf import LeafRole
from vedur.worker.roles.role import Role
from vedur.worker.roles.root import RootRole

__all__ = ["Role", "choose_role"]

#: Applied without being written to the combined queue, changes would be lost to every node below.
_NO_MERGE = (
    "this node is merged into a combined queue, and Vedur does not write to such a queue yet: "
    "nothing is applied. Keep Londiste's own worker on it, or drop-node it and create a leaf "
    "without --merge"
)


def choose_role(state: WorkerState) -> type[Role]:
    """Choose the role of a node's worker; raises where Vedur has none for it. Pure."""
    if state.node_type is NodeType.ROOT:
        return RootRole
    if state.combined_queue is not None:
        raise StateError(_NO_MERGE)
    if state.node_type is NodeType.BRANCH:
        return BranchRole
    return LeafRole
