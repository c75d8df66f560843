"""Five nodes whose root is about to be lost, made once and copied for each case.

    n1 root -- n2 branch -- n4 branch
            |- n3 branch
            `- n5 leaf

Every row is one event, and says by its number how far it has come:

    row 1   on all nodes
    row 2   not on n4
    row 3   on n3 and n5 only
    row 4   on n5 only
    row 5   on the root only, behind its last tick
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.fixtures.pg import TestServer
from tests.labs.chain import Chain, Node
from tests.labs.in_process import stay_here
from tests.labs.pair import QUEUE
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.node.info import NodeType

KINDS = {
    "n1": NodeType.ROOT,
    "n2": NodeType.BRANCH,
    "n3": NodeType.BRANCH,
    "n4": NodeType.BRANCH,
    "n5": NodeType.LEAF,
}
ABOVE = {"n2": "n1", "n3": "n1", "n4": "n2", "n5": "n1"}
#: The last row that each node has.
HAS = {"n1": 5, "n2": 2, "n3": 3, "n4": 1, "n5": 4}


@dataclass
class Five:
    """The databases that are copied, and those that were."""

    server: TestServer
    templates: dict[str, str] = field(default_factory=dict)
    ticks: dict[int, int] = field(default_factory=dict)  # row -> the tick that brings it
    _made: list[str] = field(default_factory=list)

    def build(self) -> Five:
        """Make the nodes by commands, and bring each to its own tick."""
        dbs = {name: self.server.create_database(self.server.template()) for name in KINDS}
        chain = Chain([], lambda: pytest.fail("no more nodes"))
        for name, kind in KINDS.items():
            db = vdb.connect(self.server.connstr(dbs[name]), autocommit=True)
            chain.add(name, kind, db, provider=ABOVE.get(name))
        chain.table("public.t", "create table t (id int primary key, v text)")
        chain.catch_up()
        for row in range(1, 6):
            chain.root.execute("insert into t values (%s, 'old')", [row])
            if row < 5:
                self.ticks[row] = chain.tick()
                for node in chain.followers:
                    while HAS[node.name] >= row and node.worker.work():
                        pass
        for node in chain.nodes:
            node.close()
            node.db.close()
        # staging tasks keep their connections; a database that somebody uses cannot be copied
        self.server.admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = any (%s)",
            [list(dbs.values())],
        )
        self.templates = dbs
        return self

    def copy(self) -> Chain:
        """Copy all five; the copies know each other and not their templates."""
        chain = Chain([], lambda: pytest.fail("no more nodes"))
        for name, kind in KINDS.items():
            made = self.server.create_database(self.templates[name])
            self._made.append(made)
            db = vdb.connect(self.server.connstr(made), autocommit=True)
            settings = LondisteSettings(
                db=db.connstr, queue_name=QUEUE, job_name=f"{name}_job", node_name=name,
                exception_sleep=0.0, loop_delay=0.05, local_wm_publish_period=1.0,
            )  # fmt: skip
            chain.nodes.append(Node(name, kind, db, settings))
        text = "update pgq_node.node_location set node_location = %s where node_name = %s"
        for node in chain.nodes:
            for other in chain.nodes:
                node.db.execute(text, [other.db.connstr, other.name])
        return chain

    @contextmanager
    def case(self) -> Iterator[Chain]:
        """A copy for one case, dropped at its end."""
        chain = self.copy()
        try:
            yield chain
        finally:
            for node in chain.nodes:
                node.close()
                node.db.close()
            while self._made:
                self.server.drop_database(self._made.pop())

    def drop(self) -> None:
        for name in self.templates.values():
            self.server.drop_database(name)


def require_same_queue(chain: Chain, node: Node, root: Node, since: int) -> None:
    """From tick `since` on, the queue of a node has the ticks of the root's, and their events."""
    own, whole = node.ticks(), root.ticks()
    last = max(own)
    ticks = [tick for tick in sorted(own) if tick >= since]
    assert ticks == [tick for tick in sorted(whole) if since <= tick <= last], node.name
    assert {tick: own[tick] for tick in ticks} == {tick: whole[tick] for tick in ticks}, node.name
    for tick in ticks[:-1]:
        assert chain.batch(node.db, tick) == chain.batch(root.db, tick), (node.name, tick)
    for db in (node.db, root.db):
        db.value("select pgq.unregister_consumer(%s, 'compared')", [QUEUE])


@pytest.fixture(scope="module")
def five(newest: TestServer) -> Iterator[Five]:
    """The five nodes; `five.case()` copies them."""
    with pytest.MonkeyPatch.context() as patch:
        stay_here(patch)
        made = Five(newest).build()
    yield made
    made.drop()
