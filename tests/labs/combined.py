"""Parts that are merged into a combined queue, with nodes below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.labs.chain import DEADLINE, Node
from tests.labs.pair import call
from tests.labs.sets import Living as Living
from tests.labs.sets import Sets
from tests.labs.sets import living as living
from vedur.clock import SYSTEM
from vedur.db import Database
from vedur.node.info import NodeType

COMBINED = "all"
#: `n` grows with every change, `part` is where a row comes from.
TABLE = "create table t (id int primary key, part text, n int not null default 0)"


class Combined(Sets):
    """Databases `p1`, `p2`, ... are roots of queues of their names; `c1` is the root of the
    combined queue and a leaf of every part, and so is each further node of the combined queue that
    has parts."""

    def __init__(self, make_db: Callable[[], Database], parts: int = 2, **settings: Any) -> None:
        super().__init__(make_db, **settings)
        self.parts = [f"p{at + 1}" for at in range(parts)]
        for part in self.parts:
            self.add(part, part, NodeType.ROOT)
        self.add(COMBINED, "c1", NodeType.ROOT)
        self.merge("c1")

    def merge(self, place: str, *parts: str) -> None:
        """Make a node of the combined queue a leaf of parts, by default of all."""
        for part in parts or self.parts:
            self.add(part, place, NodeType.LEAF, part, combined=COMBINED)

    def of(self, place: str) -> list[Node]:
        """The nodes of a database: parts first, the combined one last."""
        found = [node for (_, where), node in self.nodes.items() if where == place]
        return sorted(found, key=lambda node: node.queue == COMBINED)

    def table(self, *places: str, name: str = "t", ddl: str = TABLE) -> None:
        """Create an empty table on all databases (or some) and add it to all of their sets."""
        for place in places or tuple(self.dbs):
            self.dbs[place].execute(ddl)
            for node in self.of(place):
                call(node.db, "londiste.global_add_table", node.queue, name)
                args = ["expect_sync", "no_merge"]
                call(node.db, "londiste.local_add_table", node.queue, name, args, None, name)

    # -- time -----------------------------------------------------------------------------------

    def tick(self, queue: str, place: str | None = None) -> int:
        """Make a tick on the root of a queue."""
        db = self.dbs[place or (queue if queue in self.parts else "c1")]
        db.value("select pgq.force_tick(%s)", [queue])
        db.value("select pgq.ticker(%s)", [queue])
        return int(db.value("select last_tick_id from pgq.get_queue_info(%s)", [queue]))

    def flow(self, *places: str, root: str = "c1") -> None:
        """Let what the parts have written reach the root of the combined queue, and what that has
        the nodes below, in the order that is given."""
        for part in self.parts:
            self.tick(part)
            self.work(part, root)
        self.tick(COMBINED, root)
        for place in places:
            for node in reversed(self.of(place)):
                self.work(node.queue, place)

    def work_until(self, done: Callable[[], bool], root: str = "c1") -> None:
        """Let all workers do rounds, with ticks, until something is so."""
        end = SYSTEM.monotonic() + DEADLINE
        while not done():
            assert SYSTEM.monotonic() < end, "that takes too long"
            for part in self.parts:
                self.tick(part)
            self.tick(COMBINED, root)
            for node in self.nodes.values():
                node.worker.work()
            SYSTEM.sleep(0.02)

    # -- what must hold -------------------------------------------------------------------------

    def require_union(self, *places: str, table: str = "t") -> list[Any]:
        """Each of these databases has the rows of all parts, and no other."""
        union = self.rows(*self.parts, table=table)
        for place in places:
            assert self.rows(place, table=table) == union, place
        return union

    def events(self, place: str = "c1") -> list[Any]:
        """The events of the combined queue on a node, without those about ticks and watermarks."""
        db = self.dbs[place]
        table = db.value("select queue_data_pfx from pgq.queue where queue_name = %s", [COMBINED])
        return db.query(
            f"select ev_id, ev_type, ev_data, ev_extra1, ev_txid, ev_time from {table}"
            " where ev_type not like 'pgq.%' and ev_type not like 'londiste.%' order by ev_id"
        )


def write(lab: Combined, part: str, keys: Sequence[int]) -> None:
    """Some of everything on a part; keys of parts must not meet."""
    first = min(keys)
    db = lab.dbs[part]
    for key in keys:
        db.execute("insert into t values (%s, %s)", [key, part])
    db.execute("update t set n = n + 1 where id >= %s", [first])
    db.execute("delete from t where id = %s", [first])


@pytest.fixture
def make_combined(make_places: Callable[[], Database]) -> Iterator[Callable[..., Combined]]:
    """make_combined(parts=2, **settings)."""
    made: list[Combined] = []

    def make(parts: int = 2, **settings: Any) -> Combined:
        made.append(Combined(make_places, parts, **settings))
        return made[-1]

    yield make
    for lab in made:
        lab.close()
