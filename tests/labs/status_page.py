"""A set with a root and two leaves, made by the commands' own code; no worker and no Spark.

What a worker would write (positions, batches, progress) is written by hand through its functions.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fixtures.pg import Servers, TestServer
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.node.info import NodeType
from vedur.node.position import set_consumer_completed
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.processes.web import StatusPage
from vedur.ops.session import Session
from vedur.web import source

QUEUE = "replika"
TABLES = """
create schema shop;
create table shop.orders (id int primary key, note text);
create table shop.lines (id serial primary key, order_id int references shop.orders (id));
"""


@dataclass
class SetLab:
    """Databases and sessions of the nodes, by name."""

    dbs: dict[str, vdb.Database] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)

    def add_node(self, name: str, db: vdb.Database, kind: NodeType, **more: Any) -> None:
        """A database becomes a node; all but the root read from `src`."""
        db.autocommit = True
        db.execute(TABLES)
        self.dbs[name] = db
        settings = LondisteSettings(
            db=db.connstr,
            queue_name=QUEUE,
            job_name=f"{name}_job",
            config_file=f"/{name}.ini",
            **more,
        )
        session = self.sessions[name] = Session(settings)
        provider = None if kind is NodeType.ROOT else self.dbs["src"].connstr
        create_node(session, plan_node(session, kind, name, db.connstr, provider))

    def add_tables(self, *tables: str, nodes: tuple[str, ...] = ()) -> None:
        for name in nodes or tuple(self.sessions):
            add_table(self.sessions[name], AddTable(tables=tables, expect_sync=True))

    def tick(self) -> int:
        """What the ticker does when it is asked to."""
        self.dbs["src"].value("select pgq.force_tick(%s)", [QUEUE])
        return int(self.dbs["src"].value("select pgq.ticker(%s)", [QUEUE]))

    def worker(self, name: str) -> str:
        """The name of a node's consumer."""
        return str(
            self.dbs[name].value(
                "select worker_name from pgq_node.node_info where queue_name = %s", [QUEUE]
            )
        )

    def applied(self, name: str, tick: int) -> None:
        """A worker has reached a tick."""
        set_consumer_completed(self.dbs[name], QUEUE, self.worker(name), tick)
        self.dbs[name].value(
            "select pgq_node.set_consumer_uptodate(%s, %s, true)", [QUEUE, self.worker(name)]
        )

    def log_batch(self, name: str, prev: int, tick: int, events: int, *seconds: float) -> int:
        """A worker has recorded a batch."""
        return int(
            self.dbs[name].value(
                "select vedur.log_batch(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [QUEUE, self.worker(name), prev, tick, events, *seconds],
            )
        )

    def uptodate(self) -> int:
        """Every node has everything."""
        tick = self.tick()
        for name in self.sessions:
            self.applied(name, tick)
        return tick

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


MakeSet = Callable[..., SetLab]


@dataclass
class Answer:
    """What the page said."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Browser:
    """Talks HTTP to a running page."""

    page: StatusPage

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.page.server.port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            got = connection.getresponse()
            named = {key.lower(): value for key, value in got.getheaders()}
            return Answer(got.status, named, got.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask(path, **headers)


MakeOn = Callable[..., vdb.Database]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may look slowly."""
    monkeypatch.setattr(source, "PATIENCE", 100.0)


@pytest.fixture
def lab(oldest: TestServer, newest: TestServer, make_db_on: MakeOn) -> Iterator[SetLab]:
    """A root on the oldest server at hand, two leaves on the newest; tables in sync."""
    lab = SetLab()
    lab.add_node("src", make_db_on(oldest), NodeType.ROOT)
    lab.add_node("dst", make_db_on(newest), NodeType.LEAF)
    lab.add_node("eu", make_db_on(newest), NodeType.LEAF)
    lab.add_tables("shop.orders", "shop.lines")
    lab.uptodate()
    yield lab
    lab.close()


@pytest.fixture
def open_page() -> Iterator[Callable[..., Browser]]:
    """open_page(session, **settings): the page of a node, on a port of its own."""
    pages: list[StatusPage] = []

    def start(session: Any, **changes: Any) -> Browser:
        settings = dataclasses.replace(session.settings, **changes)
        pages.append(StatusPage.start(settings, port=0))
        return Browser(pages[-1])

    yield start
    for page in pages:
        page.stop()


@pytest.fixture
def upstream_pair(servers: Servers, make_db_on: MakeOn) -> Iterator[SetLab]:
    """A root and a leaf on upstream's own schemas."""
    lab = SetLab()
    lab.add_node("src", make_db_on(servers.get(15), "upstream"), NodeType.ROOT)
    lab.add_node("dst", make_db_on(servers.get(15), "upstream"), NodeType.LEAF)
    lab.add_tables("shop.orders")
    yield lab
    lab.close()
