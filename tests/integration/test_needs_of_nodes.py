"""What one node needs is not taken away by another: its consumer, its events, its settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info, get_queue_locations
from vedur.ops.change_provider import change_provider
from vedur.ops.rejoin.run import RejoinOptions, rejoin

MakeChain = Callable[..., Chain]

pytestmark = pytest.mark.usefixtures("without_spark")

TABLE = "create table t (id int primary key, v text)"


def place(node: Node, consumer: str) -> int | None:
    """Where a consumer stands in the queue of a node."""
    tick = node.db.value("select last_tick from pgq.get_consumer_info(%s, %s)", [QUEUE, consumer])
    return None if tick is None else int(tick)


def members(node: Node) -> set[str]:
    return {member.node_name for member in get_queue_locations(node.db, QUEUE)}


# -- one job name, two nodes ----------------------------------------------------------------------


def test_two_nodes_of_one_job_name_are_not_put_below_one_provider(make_chain: MakeChain) -> None:
    chain = make_chain(2, leaf=False)
    root, mid = chain.nodes
    shared = {"job_name": "shared"}
    first = chain.add("a", NodeType.LEAF, chain.make_db(), provider="n1", own=shared)
    stands = place(root, "shared")
    chain.catch_up()
    root.db.value("select pgq.force_tick(%s)", [QUEUE])
    with pytest.raises(StateError, match=r'"shared" on node "n1" is that of node "a".*job_name'):
        chain.add("b", NodeType.LEAF, chain.make_db(), provider="n1", own=shared)
    assert "b" not in members(root), "nothing is changed"
    with pytest.raises(StateError, match=r'has a consumer "plain" that is not of node "b"'):
        root.db.value("select pgq.register_consumer(%s, 'plain')", [QUEUE])
        chain.add("b", NodeType.LEAF, chain.make_db(), provider="n1", own={"job_name": "plain"})
    # below another provider it is no problem, until the node is moved
    second = chain.add("b", NodeType.LEAF, chain.make_db(), provider="n2", own=shared)
    chain.catch_up()
    assert (place(root, "shared") or 0) > (stands or 0)
    before = place(root, "shared")
    with (
        second.session() as session,
        pytest.raises(StateError, match=r'"shared" on node "n1" is that of node "a".*drop-node'),
    ):
        change_provider(session, "n1", max_wait=1)
    info = get_node_info(second.db, QUEUE)
    assert info is not None
    assert (info.provider_node, info.worker_paused, info.attrs) == ("n2", False, {})
    # a consumer beside a worker does not take that of a node either
    mid.db.execute("select pgq_node.register_consumer(%s, 'shared', 'n2', %s)", [QUEUE, before])
    with (
        mid.session() as session,
        pytest.raises(StateError, match='"shared" on node "n1" is that of node "a"'),
    ):
        change_provider(session, "n1", node="n2", consumer="shared", max_wait=1)
    assert place(root, "shared") == before
    # where an older version has let it happen, neither takes the consumer from the other
    root.db.execute(
        "insert into pgq_node.subscriber_info select queue_name, 'b', worker_name, watermark_name"
        " from pgq_node.subscriber_info where subscriber_node = 'a'"
    )
    root.db.execute("select pgq.register_consumer_at(%s, 'shared', %s)", [QUEUE, chain.tick()])
    with (
        first.session() as session,
        pytest.raises(StateError, match=r'is that of node "b".*drop-node one of the two'),
    ):
        rejoin(session, RejoinOptions(apply=True))
