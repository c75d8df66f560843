"""Several sets over some databases, made by the commands: each node is as in `chain.py`, and a
database may have nodes of several queues. Workers run round by round, or in threads (`living`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS
from tests.labs.chain import DEADLINE, Node
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.db import Database, connect
from vedur.errors import VedurError
from vedur.node.info import NodeType
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.session import Session


class Sets:
    """Databases by name, and their nodes; a node is called as its database is."""

    def __init__(self, make_db: Callable[[], Database], **settings: Any) -> None:
        self._make_db = make_db
        self._settings = settings
        self.dbs: dict[str, Database] = {}
        self.nodes: dict[tuple[str, str], Node] = {}  # by queue and database

    def database(self, place: str) -> Database:
        """Return the database of a name, which is made when it is first asked for."""
        if place not in self.dbs:
            self.dbs[place] = self._make_db()
            self.dbs[place].autocommit = True
        return self.dbs[place]

    def add(
        self, queue: str, place: str, kind: NodeType, provider: str | None = None, **more: Any
    ) -> Node:
        """Make a database a node of a queue."""
        db = self.database(place)
        settings = LondisteSettings(
            db=db.connstr, queue_name=queue, job_name=f"{place}_{queue}", node_name=place,
            exception_sleep=0.0, loop_delay=0.05, **self._settings,
        )  # fmt: skip
        above = self.dbs[provider].connstr if provider else None
        with Session(settings) as session:
            create_node(session, plan_node(session, kind, place, db.connstr, above, **more))
        node = self.nodes[queue, place] = Node(place, kind, db, settings)
        return node

    def __getitem__(self, at: tuple[str, str]) -> Node:
        return self.nodes[at]

    def work(self, queue: str, place: str) -> None:
        """Let a worker do rounds until there is nothing left to do."""
        while self[queue, place].worker.work():
            pass

    def rows(self, *places: str, table: str = "t") -> list[Any]:
        """The rows that databases have together, in order."""
        text = f"select x::text from {table} x"
        return sorted(row[0] for place in places for row in self.dbs[place].query(text))

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


class Living:
    """Workers of nodes and tickers of databases, in threads; errors of workers are kept."""

    def __init__(self, lab: Sets, without: Collection[tuple[str, str]] = ()) -> None:
        self.lab = lab
        self.errors: list[tuple[str, str, str]] = []
        self._over = threading.Event()
        self._stopped: dict[tuple[str, str], threading.Event] = {}
        self._threads: dict[tuple[str, str], threading.Thread] = {}
        self._tickers: dict[str, threading.Thread] = {}
        for place in lab.dbs:
            self._start_ticker(place)
        for queue, place in lab.nodes:
            if (queue, place) not in without:
                self.start(queue, place)

    def start(self, queue: str, place: str) -> None:
        """Let a worker run, and a ticker for its database."""
        self._start_ticker(place)
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

    def _start_ticker(self, place: str) -> None:
        if place not in self._tickers:
            args = (self.lab.dbs[place].connstr,)
            thread = threading.Thread(target=self._tick, args=args, daemon=True)
            self._tickers[place] = thread
            thread.start()

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
        for thread in (*self._threads.values(), *self._tickers.values()):
            thread.join(DEADLINE)


@contextmanager
def living(lab: Sets, without: Collection[tuple[str, str]] = ()) -> Iterator[Living]:
    """All nodes of a laboratory work by themselves, but some."""
    life = Living(lab, without)
    try:
        yield life
    finally:
        life.end()


@pytest.fixture
def make_places(servers: Any, make_db_on: Callable[..., Database]) -> Callable[[], Database]:
    """Make databases that take turns on the oldest and the newest server at hand."""
    versions = (min(VERSIONS), max(VERSIONS))
    count = 0

    def make() -> Database:
        nonlocal count
        count += 1
        return make_db_on(servers.get(versions[count % 2]))

    return make


@pytest.fixture
def make_sets(make_places: Callable[[], Database]) -> Iterator[Callable[..., Sets]]:
    """make_sets(**settings)."""
    made: list[Sets] = []

    def make(**settings: Any) -> Sets:
        made.append(Sets(make_places, **settings))
        return made[-1]

    yield make
    for lab in made:
        lab.close()
