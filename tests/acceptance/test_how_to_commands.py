"""Commands of pages that are no whole story: they are typed into a set that is there, as shown.

The nodes have workers in this process, without Spark, so that this takes seconds. Blocks `text` are
those that the story of their page leaves out.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import test_tutorial as harness
from tests.fixtures.pg import VERSIONS
from tests.labs.backup import Backup
from tests.labs.chain import Node
from tests.labs.in_process import without_spark
from tests.labs.pair import QUEUE
from vedur.clock import SYSTEM
from vedur.config.londiste import load_londiste
from vedur.db import Database
from vedur.node.info import NodeType
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.session import Session

__all__ = ["without_spark"]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(300)]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
INI = """[londiste3]
job_name = {name}
db = {db}
queue_name = {queue}
loop_delay = 0.05
exception_sleep = 0.05
pidfile = {name}.pid
"""
#: Numbers of ticks and events differ from run to run; pages leave out times.
NUMBERS = [
    (re.compile(r"^TIME PID ", re.M), ""),
    (re.compile(r"^INFO Waiting .*\n", re.M), ""),  # it may be quicker
    (re.compile(r"\btick \d+"), "tick N"),
    (re.compile(r"about \d+ event"), "about N event"),
]


class Set:
    """Nodes by name, each with an ini, and workers that work by themselves while they should."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.nodes: dict[str, Node] = {}
        self._path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def add(self, name: str, kind: NodeType, db: Database, provider: str | None = None) -> None:
        """Make a database a node, as create-root, create-branch and create-leaf do."""
        db.autocommit = True
        ini = self.place / f"{name}.ini"
        ini.write_text(INI.format(name=name, db=db.connstr, queue=QUEUE))
        settings = load_londiste(str(ini))
        above = self.nodes[provider].db.connstr if provider else None
        with Session(settings) as session:
            create_node(session, plan_node(session, kind, name, db.connstr, above))
        self.nodes[name] = Node(name, kind, db, settings)

    def tick(self) -> int:
        root = next(node for node in self.nodes.values() if node.kind is NodeType.ROOT)
        root.db.value("select pgq.force_tick(%s)", [QUEUE])
        return int(root.db.value("select pgq.ticker(%s)", [QUEUE]))

    def catch_up(self, *names: str) -> None:
        """Let nodes reach a new tick, in this order."""
        tick = self.tick()
        for name in names:
            while self.nodes[name].worker.work():
                pass
            assert self.nodes[name].position == tick, name

    @contextmanager
    def working(self, *names: str) -> Iterator[None]:
        """The workers of some nodes work, and there are ticks."""
        over = threading.Event()

        def loop(step: Callable[[], Any]) -> None:
            while not SYSTEM.wait(over, 0.03):
                step()

        steps = [self.tick, *(self.nodes[name].worker.work for name in names)]
        threads = [threading.Thread(target=loop, args=(step,), daemon=True) for step in steps]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(60)

    def type(self, command: str, want: str) -> None:
        """Run a command as the page shows it."""
        harness._run(command, want, self.place, self._path, NUMBERS)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


@pytest.fixture
def made(servers: Any, make_db_on: Callable[..., Database], tmp_path: Path) -> Iterator[Set]:
    """src, mid and dst; dst reads from src."""
    dbs = [make_db_on(servers.get(v)) for v in (min(VERSIONS), max(VERSIONS), min(VERSIONS))]
    found = Set(tmp_path)
    found.add("src", NodeType.ROOT, dbs[0])
    found.add("mid", NodeType.BRANCH, dbs[1], "src")
    found.add("dst", NodeType.LEAF, dbs[2], "src")
    yield found
    found.close()


def shown(page: str, heading: str) -> list[tuple[str, str]]:
    """The commands below a heading of a page, with what they print."""
    text = (PAGES / f"{page}.md").read_text("utf-8").split(f"\n## {heading}\n", 1)[1]
    blocks = harness.BLOCK.findall(text.split("\n## ", 1)[0])
    found = [
        pair
        for kind, _, body in blocks
        if kind in ("console", "text")
        for pair in harness._commands(body)
    ]
    assert found, heading
    return found


def provider(node: Node) -> str:
    return str(node.db.value("select provider_node from pgq_node.local_state"))


@pytest.mark.draw("programs")
def test_move_nodes(made: Set) -> None:
    with made.working("mid", "dst"):
        for command, want in shown("move-nodes", "Let a node read from another provider"):
            made.type(command, want)
        assert provider(made.nodes["dst"]) == "mid"
    with made.working("dst"):  # the worker of mid is gone
        for command, want in shown("move-nodes", "A provider is gone"):
            made.type(command, want)
        assert provider(made.nodes["dst"]) == "src"
        for command, want in shown("move-nodes", "Drop a node that others read from"):
            made.type(command, want)
        made.nodes.pop("mid").close()
        for command, want in shown("move-nodes", "Give a node another name"):
            made.type(command, want)
    made.tick()
    for command, want in shown("move-nodes", "Set a position by hand"):
        made.type(command, want)


def test_rejoin_after_a_restore(made: Set) -> None:
    """The page's second table has what other tests of rejoin look at."""
    node = made.nodes["dst"]
    made.catch_up("dst")
    backup = Backup(node, node.db)
    made.catch_up("dst")
    made.catch_up("dst")
    backup.restore()
    # the third is about another provider, and another history: test_other_history
    (plan, do, _) = shown("repair", "After a restore from a backup")
    made.type(*plan)
    made.type(*do)
    made.catch_up("dst")
