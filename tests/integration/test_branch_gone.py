"""A branch that goes away under the nodes below it: a clear line, and a way on without a copy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.wait import until
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE
from vedur import db as vdb
from vedur.db.conninfo import with_params
from vedur.errors import ConnectError, LostPosition, StateError
from vedur.node.info import NodeType
from vedur.node.setup import register_location
from vedur.ops.change_provider import change_provider
from vedur.ops.drop_node import drop_node
from vedur.ops.show import status

pytestmark = pytest.mark.usefixtures("without_spark")

MakeChain = Callable[..., Chain]


def filled(make_chain: MakeChain) -> Chain:
    chain = make_chain(3)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.root.execute("insert into t select i, 'a' from generate_series(1, 20) i")
    chain.catch_up()
    return chain


@contextmanager
def running(node: Node) -> Iterator[None]:
    """The worker goes on by itself, whatever happens to it."""
    node.worker._close_connections()
    node.renew()
    thread = threading.Thread(target=node.worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        node.worker.signals.stop.set()
        node.worker.signals.wake.set()
        thread.join(60)
        node.renew()


def error_of(node: Node) -> str:
    return node.db.value("select cur_error from pgq_node.local_state limit 1") or ""


def require_goes_on_at_root(chain: Chain) -> None:
    leaf = chain["n3"]
    with leaf.session() as session:
        change_provider(session, "n1", dead=["n2"])
    tick = chain.tick()
    assert until(lambda: leaf.position >= tick)
    chain.require_same("t", "n3")
    assert error_of(leaf) == ""


@pytest.mark.draw("branches")
def test_the_database_of_a_branch_is_gone(make_chain: MakeChain) -> None:
    chain = filled(make_chain)
    leaf, branch = chain["n3"], chain["n2"]
    for node in chain.followers:
        node.worker._close_connections()
    name = str(branch.db.value("select current_database()"))
    branch.db.close()
    with vdb.connect(with_params(branch.db.connstr, dbname="postgres"), autocommit=True) as admin:
        admin.execute(f'drop database "{name}" with (force)')
    chain.root.execute("update t set v = 'later' where id < 5")
    chain.tick()
    with pytest.raises(ConnectError, match="does not exist"):
        leaf.worker.work()
    with running(leaf):
        assert until(lambda: "does not exist" in error_of(leaf))
        seen = {n.name: n for n in status(chain.nodes[0].session()).nodes}
        assert (seen["n2"].type, seen["n3"].type) == ("unreachable", "leaf")
        require_goes_on_at_root(chain)
    with chain.nodes[0].session() as session:
        drop_node(session, "n2")
        assert [node.name for node in status(session).nodes] == ["n1", "n3"]
    chain.tick()
    while leaf.worker.work():
        pass


def test_a_branch_that_is_back_passes_on_that_it_was_called_dead(make_chain: MakeChain) -> None:
    """The root was told that a branch is dead, and later that it is alive again. The leaf reads the
    first of these by way of that branch, and must go on to the second."""
    chain = filled(make_chain)
    dead = "select dead from pgq_node.node_location where node_name = 'n2'"
    for tag in (True, False):
        register_location(chain.root, QUEUE, "n2", None, tag)
        chain.root.execute("update t set v = %s", [f"dead: {tag}"])
        chain.catch_up()
        assert [chain.root.value(dead), chain["n3"].db.value(dead)] == [tag, False]
        chain.require_same("t")


def test_a_branch_is_made_no_node_from_under_its_children(make_chain: MakeChain) -> None:
    """By hand, past drop-node, which refuses that."""
    chain = filled(make_chain)
    leaf, branch = chain["n3"], chain["n2"]
    with (
        chain.nodes[0].session() as session,
        pytest.raises(StateError, match="node still has subscribers: n3"),
    ):
        drop_node(session, "n2")
    for node in chain.followers:
        node.worker._close_connections()
    branch.db.execute("select pgq_node.unregister_subscriber(%s, 'n3')", [QUEUE])
    branch.db.execute("select pgq_node.drop_node(%s, 'n2')", [QUEUE])
    chain.root.execute("update t set v = 'later' where id < 5")
    chain.tick()
    with pytest.raises(
        LostPosition, match=r'"n3_job" is not registered on provider "n2": the node'
    ):
        leaf.worker.work()
    with running(leaf):
        require_goes_on_at_root(chain)


def test_two_nodes_of_one_name(make_chain: MakeChain) -> None:
    chain = filled(make_chain)
    with pytest.raises(StateError, match="Node 'n2' already exists"):
        chain.add("n2", NodeType.BRANCH, chain.make_db(), provider="n1")
    assert [node.name for node in chain.nodes] == ["n1", "n2", "n3"]
    chain.root.execute("delete from t where id = 1")
    chain.catch_up()
    chain.require_same("t")
