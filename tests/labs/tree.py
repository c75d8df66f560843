"""A tree of nodes made by SQL, at any depth, without workers: for commands that change the tree.

Branches have no schema vedur, like those of Londiste's own worker, and get the ticks of the root
when the test says so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.pg import TestServer
from vedur import db as vdb
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.node.info import NodeInfo, get_node_info, get_queue_locations, get_subscriber_info
from vedur.ops.session import Session

QUEUE = "q"

#: Runs a command in a process of its own, which kills itself when it reaches a failpoint.
_KILLED = """
import os, signal, sys
from vedur import failpoint
from vedur.config import LondisteSettings
from vedur.ops.session import Session

connstr, queue, point, command = sys.argv[1:]

def hook(name):
    if name == point:
        os.kill(os.getpid(), signal.SIGKILL)

failpoint.set_hook(hook)
with Session(LondisteSettings(db=connstr, queue_name=queue, job_name="killed")) as session:
    exec(command, {"session": session})
"""


def kill_at(point: str, command: str, connstr: str, queue: str) -> None:
    """Run a command in a process that is killed at a failpoint."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, connstr, queue, point, command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


class Tree:
    """Nodes by name; a root `src` is there from the beginning."""

    def __init__(self, make: Callable[[str], Database]) -> None:
        self._make = make
        self.dbs: dict[str, Database] = {}
        self.sessions: dict[str, Session] = {}
        self.add("src", "root")

    def add(
        self, name: str, kind: str, provider: str = "src", *, vedur: bool | None = None
    ) -> None:
        """Make a node, known to all others."""
        without = vedur is False or (vedur is None and kind == "branch")
        db = self.dbs[name] = self._make("contract" if without else "ours")
        for other, there in self.dbs.items():
            for at, known, place in ((there, name, db), (db, other, there)):
                at.execute(
                    "select pgq_node.register_location(%s, %s, %s, false)",
                    [QUEUE, known, place.connstr],
                )
        tick = None
        if kind != "root":
            tick = self.position(provider) or 1
            self.dbs[provider].execute(
                "select pgq_node.register_subscriber(%s, %s, %s, %s)", [QUEUE, name, name, tick]
            )
        db.execute(
            "select pgq_node.create_node(%s, %s, %s, %s, %s, %s, null)",
            [QUEUE, kind, name, name, None if kind == "root" else provider, tick],
        )
        db.execute("update pgq_node.local_state set uptodate = true")
        settings = LondisteSettings(db=db.connstr, queue_name=QUEUE, job_name=name)
        self.sessions[name] = Session(settings)

    def tick(self) -> int:
        """Make a tick on the root."""
        self.dbs["src"].value("select pgq.force_tick(%s)", [QUEUE])
        return int(self.dbs["src"].value("select pgq.ticker(%s)", [QUEUE]))

    def reach(self, name: str, tick: int) -> None:
        """Let a node apply a tick; a branch has it in its own queue, too."""
        db = self.dbs[name]
        if self.info(name).node_type == "branch":
            db.execute("select pgq.ticker(%s, %s, now(), 1)", [QUEUE, tick])
        db.execute(
            "select pgq_node.set_consumer_completed(%s, %s, %s)",
            [QUEUE, self.info(name).worker_name, tick],
        )
        provider = self.info(name).provider_node or ""
        self.dbs[provider].execute(
            "select pgq.register_consumer_at(%s, %s, %s)",
            [QUEUE, self.info(name).worker_name, tick],
        )

    def everybody_reaches(self, tick: int) -> None:
        """Let all nodes apply a tick, from the root down."""
        for name in self.dbs:
            if name != "src":
                self.reach(name, tick)

    def info(self, name: str) -> NodeInfo:
        """What a node says of itself."""
        found = get_node_info(self.dbs[name], QUEUE)
        assert found is not None
        return found

    def position(self, name: str) -> int | None:
        """The tick of a node."""
        return self.info(name).worker_last_tick

    def provider(self, name: str) -> str | None:
        """From whom a node reads, by its own word."""
        return self.info(name).provider_node

    def subscribers(self, name: str) -> dict[str, int | None]:
        """Who reads from a node by its own word, and from where on."""
        names = [item.node_name for item in get_subscriber_info(self.dbs[name], QUEUE)]
        return {
            each: self.dbs[name].value(
                "select last_tick from pgq.get_consumer_info(%s, %s)",
                [QUEUE, self._worker_of(each, name)],
            )
            for each in names
        }

    def _worker_of(self, node: str, at: str) -> str:
        text = "select worker_name from pgq_node.subscriber_info where subscriber_node = %s"
        return str(self.dbs[at].value(text, [node]))

    def members(self, name: str) -> dict[str, bool]:
        """The members that a node knows, and whether they are tagged as dead."""
        return {m.node_name: m.dead for m in get_queue_locations(self.dbs[name], QUEUE)}

    def paused(self, name: str) -> bool:
        """Is the worker of a node paused?"""
        return self.info(name).worker_paused

    @contextmanager
    def workers(self) -> Iterator[None]:
        """Play the workers as far as that they see requests."""
        over = threading.Event()
        text = "update pgq_node.local_state set uptodate = true where not uptodate"

        def play() -> None:
            dbs = [vdb.connect(db.connstr, autocommit=True) for db in self.dbs.values()]
            while not SYSTEM.wait(over, 0.05):
                for db in dbs:
                    db.execute(text)
            for db in dbs:
                db.close()

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(120)

    def killed(self, name: str, point: str, command: str) -> None:
        """Run a command on a node in a process that is killed at a failpoint."""
        kill_at(point, command, self.dbs[name].connstr, QUEUE)

    def close(self) -> None:
        """Close the sessions."""
        for session in self.sessions.values():
            session.close()


@pytest.fixture
def tree(newest: TestServer, make_db_on: Callable[..., Database]) -> Iterator[Tree]:
    """A root alone; nodes are added by the test."""
    made = Tree(lambda kind: make_db_on(newest, kind, autocommit=True))
    yield made
    made.close()
