"""What Londiste's own test scripts do with the root, with assertions where they print: it moves
under load between nodes of a tree, a root that nobody could follow dies, and is brought back.

The staging tasks of the workers run in this process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.integration.test_dead_subsets import allow
from tests.labs.chain import Chain
from tests.labs.moving_root import (
    PATIENCE,
    alive,
    move,
    provider,
    require_history,
    roots,
    settle,
)
from tests.labs.pair import QUEUE
from vedur.catalog.lost_events import get_lost_events
from vedur.change.event import parse_type
from vedur.clock import SYSTEM
from vedur.errors import StateError
from vedur.node.info import NodeType, get_queue_locations
from vedur.ops.change_provider import change_provider
from vedur.ops.resurrect.run import ResurrectOptions, resurrect

MakeChain = Callable[..., Chain]

pytestmark = [
    pytest.mark.usefixtures("without_spark"),
    pytest.mark.long,
    pytest.mark.timeout(900),
]

TABLE = "create table mytable (id serial primary key, data text)"
SEQUENCE = "public.mytable_id_seq"
ADD_SEQ = "select * from londiste.local_add_seq(%s, %s)"


def make_tree(make_chain: MakeChain) -> Chain:
    """n1 root, n2 branch of it, n3, n4 and n5 branches of n2; a table with its sequence on all."""
    chain = make_chain(2, leaf=False)
    for name in ("n3", "n4", "n5"):
        chain.add(name, NodeType.BRANCH, chain.make_db(), provider="n2")
    chain.table("public.mytable", TABLE)
    chain.root.query(ADD_SEQ, [QUEUE, SEQUENCE])
    chain.catch_up()
    for node in chain.followers:
        node.db.query(ADD_SEQ, [QUEUE, SEQUENCE])
    return chain


@contextmanager
def load(chain: Chain, name: str) -> Iterator[list[int]]:
    """Rows are inserted and changed on a node as long as it takes them; yields their numbers."""
    over, made = threading.Event(), list[int]()

    def run() -> None:
        with psycopg.connect(chain[name].settings.db, autocommit=True) as db:
            while not SYSTEM.wait(over, 0.01):
                try:
                    row = db.execute(
                        "insert into mytable (data) values ('load') returning id"
                    ).fetchone()
                    db.execute("update mytable set data = data || '.' where id % 7 = 0")
                except psycopg.errors.RaiseException:
                    return  # the root is another node
                assert row is not None
                made.append(row[0])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert until(lambda: len(made) > 5, PATIENCE)
        yield made
    finally:
        over.set()
        thread.join(PATIENCE)


def require_same(chain: Chain) -> None:
    """All nodes have the same rows, and every number once."""
    settle(chain)
    text = "select id, data from mytable order by id"
    first = chain.nodes[0].db.query(text)
    for node in chain.nodes:
        assert node.db.query(text) == first, node.name
    require_history(chain)


def test_the_root_moves_through_a_tree_under_load(make_chain: MakeChain) -> None:
    chain = make_tree(make_chain)
    made: list[int] = []
    with alive(chain):
        with load(chain, "n1") as rows:
            for node, above in (("n4", "n3"), ("n5", "n1")):
                with chain[node].session() as session:
                    change_provider(session, above, max_wait=PATIENCE)
                assert provider(chain, node) == above
            settle(chain)  # all nodes know where the others read
            move(chain, "n2", "n3", compare=True)  # n3 takes the place of a branch
            assert (provider(chain, "n3"), provider(chain, "n2")) == ("n1", "n3")
            move(chain, "n1", "n3", everybody=True)  # and then that of the root
            assert roots(chain) == ["n3"]
            assert {provider(chain, n) for n in ("n1", "n2", "n4", "n5")} == {"n3"}
        made += rows
        for old, new in (("n3", "n2"), ("n2", "n1")):
            with load(chain, old) as rows:
                move(chain, old, new)
                assert roots(chain) == [new]
            made += rows
        require_same(chain)
        found = [row.id for row in chain["n5"].db.query("select id from mytable")]
        assert set(made) <= set(found)
        assert len(set(made)) == len(made)  # no number was given out twice


def test_a_root_that_was_ahead_of_all_dies_and_is_brought_back(make_chain: MakeChain) -> None:
    chain = make_tree(make_chain)
    old = chain["n1"]
    with alive(chain) as life:
        with load(chain, "n1") as common:
            pass
        settle(chain)
        life.stop("n2")  # nobody follows any more
        with load(chain, "n1") as lost:
            pass
        life.stop("n1")
        chain.nodes.remove(old)
        allow(old, False)
        chain["n2"].renew()
        life.start(chain["n2"])
        with pytest.raises(StateError, match="Unknown node: db1"):
            move(chain, "db1", "n2", dead_root=True)
        move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE)
        assert roots(chain) == ["n2"]
        settle(chain)
        for node in chain.nodes:
            # it is tagged dead everywhere, by the command itself
            where = {m.node_name: m.dead for m in get_queue_locations(node.db, QUEUE)}
            assert where["n1"], node.name
        with load(chain, "n2") as later:
            pass
        allow(old, True)
        old.renew()
        chain.nodes.append(old)
        life.start(old)
        with old.session() as session:
            done = resurrect(session, ResurrectOptions(keep_rows=True, timeout=PATIENCE))
        assert done.root == "n2"
        kept = [e for e in get_lost_events(old.db, QUEUE) if e.ev_extra1 == "public.mytable"]
        inserts = [e for e in kept if parse_type(e.ev_type).op == "I"]
        assert len(inserts) == len(lost)
        assert len(kept) == done.lost["public.mytable"]
        settle(chain)
        have = {n.name: {r.id for r in n.db.query("select id from mytable")} for n in chain.nodes}
        assert set(common) <= set.intersection(*have.values())
        # numbers that were used and lost are not given out again while the set knows of them
        assert set(later) <= have["n1"]
        # upstream's resurrect leaves the lost rows, and so does --keep-rows
        assert have["n1"] - have["n2"] <= set(lost)
        require_history(chain)
