"""Chains of our nodes and upstream's: real Londiste workers, copies and tickers take part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fixtures.wait import until
from tests.labs.chain import Node
from tests.labs.mixed import Load, Mixed, UpstreamNode
from tests.labs.pair import QUEUE
from tests.labs.upstream import Collector
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.node.info import (
    NodeType,
    get_node_info,
    get_queue_locations,
    get_subscriber_info,
)
from vedur.ops.change_provider import change_provider
from vedur.ops.drop_node import drop_node

MakeMixed = Callable[..., Mixed]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


FKEYS = """
select count(*) from pg_constraint
where conrelid = 'note'::regclass and contype = 'f' and convalidated
"""
PENDING = "select count(*) from londiste.pending_fkeys"


#: Rows of a node that follows are the root's: a leaf's triggers deny changes, the queue of a branch
#: takes no events of its own.
REFUSED = {NodeType.LEAF: "change not allowed", NodeType.BRANCH: "disallowed"}


def copy_under_load(chain: Mixed, load: Load) -> None:
    """Add the tables to all nodes, from the root down, while a writer runs."""
    for node in chain.followers:
        load.go_on()
        chain.settle()  # so that the tables are known there
        chain.add_tables(node.name, *Load.TABLES)
        chain.wait_copied(node.name)


def require_equal(chain: Mixed) -> None:
    """All nodes have all rows and the foreign key."""
    chain.settle()
    assert len(chain.require_same("acct")) == 500
    assert len(chain.require_same("note")) == Load.KEPT
    assert chain.root.value("select sum(n) from acct") == 500 * 100
    for node in chain.nodes:
        assert (node.db.value(FKEYS), node.db.value(PENDING)) == (1, 0), node.name


def require_branches(chain: Mixed) -> None:
    """The queues of our branches have the ticks of their providers and the root's events."""
    for above, node in pairwise(chain.nodes):
        if node.kind is NodeType.BRANCH and isinstance(node, Node):
            # upstream's create-branch gives the first tick the time of that moment
            made_by_us = node.name not in chain.moved
            assert chain.require_queue(node, above, first_tick=made_by_us) > 100


@pytest.mark.draw("upstream")
@pytest.mark.parametrize(
    "makers",
    ["oou", "uuo", *(pytest.param(m, marks=pytest.mark.long) for m in ("ouou", "uouo", "umu"))],
)
def test_all_nodes_copy_under_load_and_follow(make_mixed: MakeMixed, makers: str) -> None:
    """Each node copies from the one above it while a writer runs; `o` is ours, `u` upstream's, `m`
    a node of upstream's that is moved to our worker."""
    chain = make_mixed(makers)
    chain.create_tables(*Load.DDL)
    chain.add_tables("n1", *Load.TABLES)
    with Load(chain.root) as load:
        copy_under_load(chain, load)
        load.go_on(Load.KEPT + 10)
        chain.root.execute("update note set v = v || '!' where id % 3 = 0")
    require_equal(chain)
    chain.stop()
    require_branches(chain)
    for node in chain.nodes:
        if isinstance(node, UpstreamNode):
            assert "ERROR" not in node.log_text(), node.log_text()


@pytest.mark.draw("upstream")
def test_a_leaf_moves_between_branches_under_load(make_mixed: MakeMixed) -> None:
    """A root, two branches in a row and a leaf, which reads from each of them in turn."""
    chain = make_mixed("oooo")
    chain.create_tables(*Load.DDL)
    chain.add_tables("n1", *Load.TABLES)
    with Load(chain.root) as load:
        copy_under_load(chain, load)
        for provider in ("n2", "n3", "n1", "n3"):
            with chain["n4"].session() as session:
                change_provider(session, provider)
            info = get_node_info(chain["n4"].db, QUEUE)
            assert info is not None and info.provider_node == provider and not info.worker_paused
            load.go_on(40)
        load.go_on(200)
    require_equal(chain)
    for node in chain.followers:
        with pytest.raises(DatabaseError, match=REFUSED[node.kind]):
            node.db.execute("delete from note")
    for name in ("n1", "n2"):
        names = {s.node_name for s in get_subscriber_info(chain[name].db, QUEUE)}
        assert names == {"n2" if name == "n1" else "n3"}, "no subscription is left behind"
    chain.stop()
    require_branches(chain)


@pytest.mark.draw("upstream")
@pytest.mark.parametrize("makers", ["oou", "ouo"])
def test_moves_around_a_node_of_upstreams(make_mixed: MakeMixed, makers: str) -> None:
    """A leaf of upstream's moves past a branch of ours and back, and a leaf of ours past a branch
    of upstream's, right behind the copies; then the branch is dropped from over it."""
    chain = make_mixed(makers)
    chain.create_tables(*Load.DDL)
    chain.add_tables("n1", *Load.TABLES)
    leaf, branch = chain["n3"], chain["n2"]
    with Load(chain.root) as load, chain["n1"].session() as session:
        copy_under_load(chain, load)
        for provider in ("n1", "n2"):
            change_provider(session, provider, node="n3")
            require_reads_from(leaf, provider)
            load.go_on(20)
        chain.settle()  # the branch goes on after the leaf has left it, and is left again
        drop_node(session, "n2", reparent=True)
        require_reads_from(leaf, "n1")
        chain.leave(branch)
        load.go_on(Load.KEPT + 10)
    require_equal(chain)
    assert [s.node_name for s in get_subscriber_info(chain.root, QUEUE)] == ["n3"]
    assert {m.node_name for m in get_queue_locations(leaf.db, QUEUE)} == {"n1", "n3"}
    if isinstance(leaf, UpstreamNode):
        assert "ERROR" not in leaf.log_text(), leaf.log_text()


def require_reads_from(node: Node, provider: str) -> None:
    """A node reads from its provider, is not paused, and no move is noted."""
    info = get_node_info(node.db, QUEUE)
    assert info is not None
    assert (info.provider_node, info.worker_paused, info.attrs) == (provider, False, {})


def hand_over(here: Database, there: Database) -> None:
    """Let the collector go on in another queue, at the tick where it stands in this one."""
    tick = here.value("select last_tick from pgq.get_consumer_info(%s, 'collector')", [QUEUE])
    there.value("select pgq.register_consumer_at(%s, 'collector', %s)", [QUEUE, tick])


@pytest.mark.draw("upstream")
def test_a_consumer_moves_to_a_branch_and_back_by_position(
    make_mixed: MakeMixed, tmp_path: Path
) -> None:
    """A consumer of python-pgq gets each event once; the C ticker rotates the branch's queue."""
    chain = make_mixed("oo", leaf=False)
    chain.create_tables(*Load.DDL)
    chain.add_tables("n1", *Load.TABLES)
    root, branch = chain.root, chain["n2"].db
    collector = Collector(tmp_path, QUEUE)
    collector(root, "--register")
    got: list[list[list[str]]] = []
    with Load(root) as load:
        copy_under_load(chain, load)
        for here, there in ((root, branch), (branch, root)):
            chain.settle()
            got.append(collector(here))
            load.go_on()
            hand_over(here, there)
            load.go_on()
    chain.settle()
    got.append(collector(root))
    assert all(got), "it got events from both queues, and from the first one again"
    table = chain.root.value("select queue_data_pfx from pgq.queue where queue_name = %s", [QUEUE])
    text = f"select ev_type, ev_data, ev_extra1 from {table} where ev_extra1 = any (%s)"
    written = [tuple(row) for row in chain.root.query(text, [list(Load.TABLES)])]
    events = [tuple(event[1:]) for part in got for event in part if event[3] in Load.TABLES]
    assert sorted(events) == sorted(written)

    collector(branch, "--unregister")
    collector(chain.root, "--unregister")
    used: set[int] = set()

    def all_tables_used() -> bool:
        # again and again: the branch takes the root's settings with each report
        branch.value("select pgq.set_queue_config(%s, 'rotation_period', '0')", [QUEUE])
        used.add(branch.value("select queue_cur_table from pgq.queue"))
        return used == {0, 1, 2}

    assert until(all_tables_used, 60), used
    branch.value("select pgq.set_queue_config(%s, 'rotation_period', '1 hour')", [QUEUE])
    chain.root.execute("update acct set n = n where id < 200")
    chain.settle()
    chain.require_same("acct")
    chain.stop()
    assert chain.require_queue(chain["n2"], chain["n1"]) >= 200
