"""What a worker does in a round, by the place of its node in the cascade.

`role.py` is the contract with the loop. The queue that a role passes batches on to is chosen in
`worker/own_queue.py`. `reign.py` is no role: there a root asks whether it still is the root.
CONTRIBUTING.md says how a role is added.
"""

from __future__ import annotations

from vedur.errors import StateError
from vedur.node import NodeType, WorkerState
from vedur.worker.roles.branch import BranchRole
from vedur.worker.roles.leaf import LeafRole
from vedur.worker.roles.part import PartRole, WaitingPartRole
from vedur.worker.roles.role import Role
from vedur.worker.roles.root import RootRole

__all__ = ["Role", "choose_role"]

_NOT_COMBINED = (
    'this node is merged into queue "{queue}", which has no root or branch in this database: '
    "nothing is applied; create that node here (create-root or create-branch with the ini of the "
    "combined queue), or drop-node this one and create a leaf without --merge"
)

#: The role of a node by its type; a type that is missing here is refused, never a leaf.
_ROLES: dict[NodeType, type[Role]] = {
    NodeType.ROOT: RootRole,
    NodeType.BRANCH: BranchRole,
    NodeType.LEAF: LeafRole,
}

#: The role of a part, by what its node of the combined queue is.
_PARTS: dict[str | None, type[Role]] = {
    NodeType.ROOT.value: PartRole,
    NodeType.BRANCH.value: WaitingPartRole,
}


def choose_role(state: WorkerState) -> type[Role]:
    """Choose the role of a node's worker; raises where Vedur has none for it. Pure."""
    if state.combined_queue is not None and state.node_type is not NodeType.ROOT:
        if state.combined_type not in _PARTS:
            raise StateError(_NOT_COMBINED.format(queue=state.combined_queue))
        return _PARTS[state.combined_type]
    return _ROLES[state.node_type]
