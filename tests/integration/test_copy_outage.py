"""Servers and networks that go away in the middle of a first copy."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS, TestServer
from tests.fixtures.place import new_place
from tests.integration.copy_lab import Lab
from vedur import db as vdb
from vedur.demo.server import Server
from vedur.errors import DatabaseError
from vedur.worker.copying_steps import Step

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Outage:
    """A lab on servers of its own; something happens to them at a step, once."""

    def __init__(self, hosts: list[TestServer], spark: Any) -> None:
        self.hosts = hosts
        self.servers = [host.server for host in hosts]
        self.names = [host.create_database(host.template()) for host in hosts]
        root, leaf = (
            vdb.connect(host.connstr(name), autocommit=True)
            for host, name in zip(hosts, self.names, strict=True)
        )
        self.lab = Lab(root, leaf, spark)
        for db in (root, leaf):
            db.execute("create table t (id int primary key, a text); create index t_a on t (a)")
        root.execute(
            "insert into t select g, repeat('x', 50) || g from generate_series(1, 30000) g"
        )
        self.lab.add("public.t")
        self.happened = threading.Event()
        self.over = threading.Event()

    def run(self, step: Step, happen: Callable[[], None]) -> None:
        """Copy, with the event in the middle; the copy must end as if nothing had been."""
        lab = self.lab
        before = lab.structure("t")

        def hook(table: str, at: Step) -> None:
            if at is step and not self.happened.is_set():
                self.happened.set()
                happen()
                self.over.set()

        lab.start(hook)
        assert self.over.wait(120)
        lab.wait_until(self._answers)
        lab.reopen()
        lab.root.execute("update t set a = 'later' where id % 5 = 0")
        lab.wait_ok()
        lab.settle()
        lab.same("t")
        assert lab.structure("t") == before
        lab.wait_until(lambda: lab.debris() == [])

    def _answers(self) -> bool:
        try:
            for server in self.servers:
                vdb.connect(server.connstr()).close()
        except DatabaseError:
            return False
        return True

    def close(self) -> None:
        self.lab.close()
        for host, name in zip(self.hosts, self.names, strict=True):
            if not host.server.running:
                host.server.start()
            host.admin.close()  # it may have ended with its server
            host.drop_database(name)


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[TestServer]]:
    """Two servers that tests may kill: what was committed must survive, so they sync."""
    base = new_place("vedur-test-")
    durable = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    found = [Server(VERSIONS[m], base / side, settings=durable)
             for side, m in (("root", min(VERSIONS)), ("leaf", max(VERSIONS)))]  # fmt: skip
    try:
        yield [TestServer(server.init().start()) for server in found]
    finally:
        for server in found:
            server.destroy()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def outage(hosts: list[TestServer], spark: Any) -> Iterator[Outage]:
    made = Outage(hosts, spark)
    yield made
    made.close()


@pytest.mark.parametrize("side", [0, 1], ids=["provider", "subscriber"])
@pytest.mark.parametrize("step", [Step.LOAD, Step.REBUILD, Step.HAND_OVER])
def test_a_server_crashes_and_comes_back(outage: Outage, side: int, step: Step) -> None:
    def crash() -> None:
        outage.servers[side].kill()
        outage.servers[side].start()

    outage.run(step, crash)
