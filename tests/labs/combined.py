"""Parts that are merged into a combined queue, with nodes below it: each node is as in `chain.py`,
and a database has several, one of each queue. Workers run round by round, or in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS
from tests.labs.chain import DEADLINE, Node
from tests.labs.pair import call
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.db import Database, connect
from vedur.errors import VedurError
from vedur.node.info import NodeType
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.session import Session

COMBINED = "all"
#: `n` grows with every change, `part` is where a row comes from.
TABLE = "create table t (id int primary key, part text, n int not null default 0)"


class Combined:
    """Databases `p1`, `p2`, ... are roots of queues of their names; `c1` is the root of the
    combined queue and a leaf of every part, and so is each further node of the combined queue that
    has parts."""

    def __init__(self, make_db: Callable[[], Database], parts: int = 2, **settings: Any) -> None:
        self._make_db = make_db
        self._settings = settings
        self.dbs: dict[str, Database] = {}
        self.nodes: dict[tuple[str, str], Node] = {}  # by queue and database
        self.parts = [f"p{at + 1}" for at in range(parts)]
        for part in self.parts:
            self.add(part, part, NodeType.ROOT)
        self.add(COMBINED, "c1", NodeType.ROOT)
        self.merge("c1")

    def add(
        self, queue: str, place: str, kind: NodeType, provider: str | None = None, **more: Any
    ) -> Node:
        """Make a database a node of a queue; its name is the same for all queues."""
        if place not in self.dbs:
            self.dbs[place] = self._make_db()
            self.dbs[place].autocommit = True
        db = self.dbs[place]
        settings = LondisteSettings(
            db=db.connstr, queue_name=queue, job_name=f"{place}_{queue}", node_name=place,
            exception_sleep=0.0, loop_delay=0.05, **self._settings,
        )  # fmt: skip
        above = self.dbs[provider].connstr if provider else None
        with Session(settings) as session:
            create_node(session, plan_node(session, kind, place, db.connstr, above, **more))
        node = self.nodes[queue, place] = Node(place, kind, db, settings)
        return node

    def merge(self, place: str, *parts: str) -> None:
        """Make a node of the combined queue a leaf of parts, by default of all."""
        for part in parts or self.parts:
            self.add(part, place, NodeType.LEAF, part, combined=COMBINED)

    def __getitem__(self, at: tuple[str, str]) -> Node:
        return self.nodes[at]

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

    def work(self, queue: str, place: str) -> None:
        """Let a worker do rounds until there is nothing left to do."""
        while self[queue, place].worker.work():
            pass

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

    def rows(self, *places: str, table: str = "t") -> list[Any]:
        """The rows that databases have together, in order."""
        text = f"select x::text from {table} x"
        return sorted(row[0] for place in places for row in self.dbs[place].query(text))

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

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


class Living:
    """Workers of nodes and tickers of databases, in threads; errors of workers are kept."""

    def __init__(self, lab: Combined, without: Collection[tuple[str, str]] = ()) -> None:
        self.lab = lab
        self.errors: list[tuple[str, str, str]] = []
        self._over = threading.Event()
        self._stopped: dict[tuple[str, str], threading.Event] = {}
        self._threads: dict[tuple[str, str], threading.Thread] = {}
        self._tickers = [
            threading.Thread(target=self._tick, args=(db.connstr,), daemon=True)
            for db in lab.dbs.values()
        ]
        for thread in self._tickers:
            thread.start()
        for queue, place in lab.nodes:
            if (queue, place) not in without:
                self.start(queue, place)

    def start(self, queue: str, place: str) -> None:
        """Let a worker run."""
        stopped = self._stopped[queue, place] = threading.Event()
        args = (self.lab[queue, place], stopped)
        thread = self._threads[queue, place] = threading.Thread(
            target=self._work, args=args, daemon=True
        )
        thread.start()

    def stop(self, queue: str, place: str) -> None:
        """Let a worker end."""
        self._stopped[queue, place].set()
        self._threads[queue, place].join(DEADLINE)

    def _work(self, node: Node, stopped: threading.Event) -> None:
        while not self._over.is_set() and not stopped.is_set():
            try:
                if not node.worker.work():
                    SYSTEM.wait(stopped, 0.02)
            except VedurError as error:
                if not stopped.is_set():
                    self.errors.append((node.queue, node.name, error.message))
                node.worker._close_connections(doubtful=True)
                SYSTEM.wait(stopped, 0.1)

    def _tick(self, connstr: str) -> None:
        while not self._over.is_set():
            try:
                with connect(connstr, autocommit=True, application_name="pgqd") as db:
                    while not SYSTEM.wait(self._over, 0.05):
                        db.value("select pgq.ticker()")
            except VedurError:
                SYSTEM.wait(self._over, 0.1)

    def end(self) -> None:
        self._over.set()
        for event in self._stopped.values():
            event.set()
        for thread in (*self._threads.values(), *self._tickers):
            thread.join(DEADLINE)


@contextmanager
def living(lab: Combined, without: Collection[tuple[str, str]] = ()) -> Iterator[Living]:
    """All nodes of a laboratory work by themselves, but some."""
    life = Living(lab, without)
    try:
        yield life
    finally:
        life.end()


def write(lab: Combined, part: str, keys: Sequence[int]) -> None:
    """Some of everything on a part; keys of parts must not meet."""
    first = min(keys)
    db = lab.dbs[part]
    for key in keys:
        db.execute("insert into t values (%s, %s)", [key, part])
    db.execute("update t set n = n + 1 where id >= %s", [first])
    db.execute("delete from t where id = %s", [first])


@pytest.fixture
def make_combined(
    servers: Any, make_db_on: Callable[..., Database]
) -> Iterator[Callable[..., Combined]]:
    """make_combined(parts=2, **settings); databases take turns on the oldest and the newest
    server at hand."""
    made: list[Combined] = []
    versions = (min(VERSIONS), max(VERSIONS))
    count = 0

    def make_db() -> Database:
        nonlocal count
        count += 1
        return make_db_on(servers.get(versions[count % 2]))

    def make(parts: int = 2, **settings: Any) -> Combined:
        made.append(Combined(make_db, parts, **settings))
        return made[-1]

    yield make
    for lab in made:
        lab.close()
