"""A root, branches and a leaf in a row, made by the product's commands, with workers that tests run
round by round. The staging tasks run in this process, or on Spark where a session is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS
from tests.labs.pair import QUEUE, call
from vedur.change.quarantine import Policy
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.node.info import NodeType, WorkerState, get_worker_state
from vedur.ops.change_provider import change_provider
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.session import Session
from vedur.pipeline.copy import SparkLoader
from vedur.pipeline.replay.stage import ReplayUse, make_replay
from vedur.worker.batch import BatchRunner
from vedur.worker.first_copy.context import CopySetup
from vedur.worker.first_copy.control import Copying
from vedur.worker.loop import Worker
from vedur.worker.own_queue import choose_own_queue
from vedur.worker.system_events import Registers

#: What a consumer gets of an event; ev_txid is each node's own.
COLUMNS = "ev_id, ev_time, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
DEADLINE = 120.0

TICKS = """
select t.tick_id, t.tick_time, t.tick_event_seq
from pgq.tick t join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s
order by t.tick_id
"""

_NEWEST_TICK = """
select max(t.tick_id)
from pgq.tick t join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s
"""


@dataclass
class Node:
    """One database of the chain and its worker."""

    name: str
    kind: NodeType
    db: Database
    settings: LondisteSettings
    spark: Any = None
    parallel: int = 1
    worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """A worker as a process that has just started has it."""
        self.worker = Worker(self.settings, self._runner, copies=self._copies())

    @property
    def queue(self) -> str:
        return self.settings.queue_name

    def _runner(self, provider: str, state: WorkerState) -> BatchRunner[Any]:
        own_queue = choose_own_queue(self.queue, state, self.settings)
        forward = own_queue is not None
        applier = make_replay(
            self.spark, self.settings, self.queue, provider, ReplayUse(forward=forward)
        )
        return BatchRunner(
            applier,
            self.queue,
            state.worker_name,
            self.settings.db,
            max_batch_events=self.settings.max_batch_events,
            parallel=self.parallel,
            on_error=Policy(self.settings.on_error),
            own_queue=own_queue,
            registers=Registers.of(self.settings),
        )

    def _copies(self) -> Copying[Any]:
        settings = self.settings
        setup = CopySetup(
            self.queue, settings.job_name, settings.db, retry_sleep=0.2, tick_wait=3.0,
            max_batch_events=settings.max_batch_events,
        )  # fmt: skip
        loader = SparkLoader(self.spark, 8, 1 << 20)
        return Copying(
            setup,
            loader,
            lambda area, provider: make_replay(self.spark, settings, area, provider, ReplayUse()),
        )

    @property
    def position(self) -> int:
        state = get_worker_state(self.db, self.queue)
        assert state is not None
        return state.completed_tick

    def ticks(self) -> dict[int, tuple[Any, ...]]:
        """The ticks of its queue: time and event number by id."""
        return {row[0]: tuple(row[1:]) for row in self.db.query(TICKS, [self.queue])}

    def session(self) -> Session:
        return Session(self.settings)

    def close(self) -> None:
        self.worker._close()


class Chain:
    """Nodes `n1` (root), `n2`, ...; all but the last are branches unless told otherwise."""

    def __init__(
        self,
        dbs: Sequence[Database],
        make_db: Callable[[], Database],
        spark: Any = None,
        leaf: bool = True,
        **settings: Any,
    ) -> None:
        self.nodes: list[Node] = []
        self.make_db = make_db
        self.spark = spark
        self._settings = settings
        for at, db in enumerate(dbs):
            last = at == len(dbs) - 1
            kind = NodeType.BRANCH if not (last and leaf) else NodeType.LEAF
            self.add(f"n{at + 1}", NodeType.ROOT if at == 0 else kind, db)

    def add(
        self,
        name: str,
        kind: NodeType,
        db: Database,
        provider: str | None = None,
        own: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Node:
        """Make a database a node, by default below the newest one; `own` are settings of it."""
        db.autocommit = True
        usual = {"job_name": f"{name}_job", "exception_sleep": 0.0, "loop_delay": 0.05}
        settings = LondisteSettings(
            db=db.connstr, queue_name=QUEUE, node_name=name,
            **{**usual, **self._settings, **(own or {})},
        )  # fmt: skip
        above = self[provider].db.connstr if provider else None
        if above is None and self.nodes:
            above = self.nodes[-1].db.connstr
        with Session(settings) as session:
            create_node(session, plan_node(session, kind, name, db.connstr, above, **more))
        self.nodes.append(Node(name, kind, db, settings, self.spark))
        return self.nodes[-1]

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def root(self) -> Database:
        return self.nodes[0].db

    @property
    def followers(self) -> list[Node]:
        return self.nodes[1:]

    # -- tables ---------------------------------------------------------------------------------

    def table(
        self, name: str, ddl: str, on: Sequence[str] | None = None, attrs: str | None = None
    ) -> None:
        """Create a table on all nodes and add it to the set, in sync from the start; `on` names
        the followers that replicate it."""
        for node in self.nodes:
            node.db.execute(ddl)
            args = ["expect_sync"]
            if node is self.nodes[0]:
                call(node.db, "londiste.local_add_table", QUEUE, name, args)
                continue
            call(node.db, "londiste.global_add_table", QUEUE, name)
            if on is None or node.name in on:
                call(node.db, "londiste.local_add_table", QUEUE, name, args, attrs, name)

    # -- time -----------------------------------------------------------------------------------

    def tick(self) -> int:
        """Make a tick on the root; returns it, or the one that somebody else made at that moment
        (compare makes ticks too)."""
        self.root.value("select pgq.force_tick(%s)", [QUEUE])
        made = self.root.value("select pgq.ticker(%s)", [QUEUE])
        return int(made or self.root.value(_NEWEST_TICK, [QUEUE]))

    def catch_up(self, *names: str) -> int:
        """Make a tick and let the followers reach it, from the root down; returns the tick."""
        tick = self.tick()
        for node in self.followers:
            if not names or node.name in names:
                while node.worker.work():
                    pass
                assert node.position == tick, node.name
        return tick

    def move(self, name: str, to: str) -> None:
        """Give a node another provider, while its worker goes on in a thread."""
        worker, over = self[name].worker, threading.Event()

        def work() -> None:
            while not over.wait(0.02):
                worker._work_safely()

        worker._close_connections()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            with self[name].session() as session:
                change_provider(session, to)
        finally:
            over.set()
            thread.join(60)
            worker._close_connections()

    def work_until(self, done: Callable[[], bool]) -> None:
        """Let all workers do rounds, with ticks, until something is so."""
        end = SYSTEM.monotonic() + DEADLINE
        while not done():
            assert SYSTEM.monotonic() < end, "that takes too long"
            self.tick()
            for node in self.followers:
                node.worker.work()
            SYSTEM.sleep(0.02)

    def states(self, name: str) -> dict[str, str | None]:
        """merge_state of the tables of a node."""
        text = "select * from londiste.get_table_list(%s) where local"
        return {r.table_name: r.merge_state for r in self[name].db.query(text, [QUEUE])}

    # -- what must hold -------------------------------------------------------------------------

    def require_same(self, table: str, *names: str, where: str = "true") -> list[Any]:
        """The table has the same rows on the root and on the nodes; returns them."""
        text = f"select t::text from {table} t where {where} order by 1"
        rows = self.root.query(text)
        for node in self.followers:
            if not names or node.name in names:
                assert node.db.query(text) == rows, node.name
        return [row[0] for row in rows]

    def require_queues(self, since: int = 0) -> int:
        """The queue of every branch is the root's, tick by tick, for an ordinary consumer that is
        registered at any of its ticks from `since` on; returns the number of events compared."""
        branches = [node for node in self.followers if node.kind is NodeType.BRANCH]
        return sum(self.require_queue(node, self.nodes[0], since) for node in branches)

    def require_queue(
        self, node: Node, above: Node, since: int = 0, *, first_tick: bool = True
    ) -> int:
        """The queue of a node has the ticks of one above it, and the root's events for each.
        Without `first_tick`, its first tick may have a time of its own."""
        own, whole = node.ticks(), above.ticks()
        first, last = min(own), max(own)
        wanted = {t: row for t, row in whole.items() if first <= t <= last}
        if not first_tick:
            wanted[first] = own[first]
        assert own == wanted, (node.name, sorted(own.items() ^ wanted.items()))
        count = 0
        for tick in sorted(t for t in own if t >= since)[:-1]:
            here, there = self.batch(node.db, tick), self.batch(self.root, tick)
            assert here == there, (node.name, tick)
            count += len(here[1])
        for db in (node.db, self.root):
            db.value("select pgq.unregister_consumer(%s, 'compared')", [QUEUE])
        return count

    def batch(self, db: Database, tick: int) -> tuple[int, list[Any]]:
        """Register a consumer at a tick and read its next batch: where it ends, and its events."""
        db.value("select pgq.register_consumer_at(%s, 'compared', %s)", [QUEUE, tick])
        info = db.one("select * from pgq.next_batch_info(%s, 'compared')", [QUEUE])
        text = f"select {COLUMNS} from pgq.get_batch_events(%s)"
        return info.cur_tick_id, [tuple(row) for row in db.query(text, [info.batch_id])]

    def close(self) -> None:
        for node in self.nodes:
            node.close()


@pytest.fixture
def make_chain(servers: Any, make_db_on: Callable[..., Database]) -> Iterator[Callable[..., Chain]]:
    """make_chain(nodes=3, spark=None, leaf=True, kind="ours", **settings); databases take turns on
    the oldest and the newest server at hand. Of kind "upstream" they have its schemas before."""
    made: list[Chain] = []
    versions = (min(VERSIONS), max(VERSIONS))

    def make(
        nodes: int = 3, spark: Any = None, leaf: bool = True, kind: str = "ours", **settings: Any
    ) -> Chain:
        where = (15, 15) if kind == "upstream" else versions
        dbs = [make_db_on(servers.get(where[at % 2]), kind) for at in range(nodes)]
        more = lambda: make_db_on(servers.get(versions[0]))  # noqa: E731
        made.append(Chain(dbs, more, spark, leaf, **settings))
        return made[-1]

    yield make
    for chain in made:
        chain.close()
