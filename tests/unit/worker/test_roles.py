"""Which role a worker takes, and where its batches go on to, by what its database says."""

from __future__ import annotations

import pytest

from vedur.config import LondisteSettings
from vedur.errors import StateError
from vedur.node import NodeType, WorkerState
from vedur.worker.branch_queue import BranchQueue
from vedur.worker.combined_queue import CombinedQueue
from vedur.worker.own_queue import choose_own_queue
from vedur.worker.roles import Role, choose_role
from vedur.worker.roles.branch import BranchRole
from vedur.worker.roles.leaf import LeafRole
from vedur.worker.roles.part import PartRole, WaitingPartRole
from vedur.worker.roles.root import RootRole


def node(
    node_type: NodeType, combined_queue: str | None = None, combined_type: str | None = None
) -> WorkerState:
    return WorkerState(
        node_type=node_type,
        node_name="here",
        completed_tick=1,
        provider_node="above",
        provider_location="dbname=above",
        paused=False,
        uptodate=True,
        cur_error=None,
        worker_name="worker",
        global_watermark=None,
        local_watermark=1,
        local_queue_top=None,
        combined_queue=combined_queue,
        combined_type=combined_type,
    )


@pytest.mark.parametrize(
    ("node_type", "role"),
    [(NodeType.ROOT, RootRole), (NodeType.BRANCH, BranchRole), (NodeType.LEAF, LeafRole)],
)
def test_every_type_of_node_has_a_role(node_type: NodeType, role: type[Role]) -> None:
    assert choose_role(node(node_type)) is role


@pytest.mark.parametrize(
    ("combined_type", "role"), [("root", PartRole), ("branch", WaitingPartRole)]
)
def test_a_part_merges_into_a_combined_root_and_waits_behind_a_combined_branch(
    combined_type: str, role: type[Role]
) -> None:
    assert choose_role(node(NodeType.LEAF, "all", combined_type)) is role


@pytest.mark.parametrize("combined_type", [None, "leaf"])
def test_a_part_without_a_combined_node_to_merge_into_is_refused(combined_type: str | None) -> None:
    with pytest.raises(StateError, match=r'merged into queue "all".*nothing is applied'):
        choose_role(node(NodeType.LEAF, "all", combined_type))


@pytest.mark.parametrize("node_type", list(NodeType))
def test_no_type_of_node_is_without_a_role_of_its_own(node_type: NodeType) -> None:
    others = [choose_role(node(other)) for other in NodeType if other is not node_type]
    assert choose_role(node(node_type)) not in others


def test_a_branch_and_a_part_pass_their_batches_on_and_others_nothing() -> None:
    settings = LondisteSettings(db="", queue_name="q")
    part = node(NodeType.LEAF, "all", "root")
    assert choose_own_queue("q", node(NodeType.BRANCH), settings) == BranchQueue("q")
    assert choose_own_queue("q", part, settings) == CombinedQueue("q")
    strict = LondisteSettings(db="", queue_name="q", unknown_tables="stop")
    stops = BranchQueue("q", stops_at_unknown=True)
    assert choose_own_queue("q", node(NodeType.BRANCH), strict) == stops
    for node_type in NodeType:
        state = node(node_type)
        assert (choose_own_queue("q", state, settings) is not None) is state.passes_on
