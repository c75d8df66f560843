"""Servers and networks that go away in the middle of a first copy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Lab
from vedur import db as vdb
from vedur.db.install import install
from vedur.demo.server import Server
from vedur.errors import DatabaseError
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Outage:
    """A lab on servers of its own; something happens to them at a step, once."""

    def __init__(self, servers: Any, spark: Any, majors: tuple[int, int]) -> None:
        # what was committed must survive: these servers are killed
        self.servers = [servers.private(m, fsync="on", synchronous_commit="on") for m in majors]
        root, leaf = (self._open(s) for s in self.servers)
        self.lab = Lab(root, leaf, spark)
        for db in (root, leaf):
            db.execute("create table t (id int primary key, a text); create index t_a on t (a)")
        root.execute(
            "insert into t select g, repeat('x', 50) || g from generate_series(1, 30000) g"
        )
        self.lab.add("public.t")
        self.happened = threading.Event()
        self.over = threading.Event()

    @staticmethod
    def _open(server: Server) -> vdb.Database:
        db = vdb.connect(server.connstr())
        install(db)
        db.commit()
        db.autocommit = True
        return db

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


@pytest.fixture
def outage(servers: Any, spark: Any, oldest: Any, newest: Any) -> Iterator[Outage]:
    made = Outage(servers, spark, (oldest.version, newest.version))
    yield made
    made.close()


@pytest.mark.draw(1)
@pytest.mark.parametrize("side", [0, 1], ids=["provider", "subscriber"])
@pytest.mark.parametrize("step", [Step.LOAD, Step.REBUILD, Step.HAND_OVER])
def test_a_server_crashes_and_comes_back(outage: Outage, side: int, step: Step) -> None:
    def crash() -> None:
        outage.servers[side].kill()
        outage.servers[side].start()

    outage.run(step, crash)
