"""Chains whose nodes are ours or upstream's: each with the SQL, the commands and the worker of one.

`Mixed("ouou")` is a root of ours, a branch of upstream's, a branch of ours, a leaf of upstream's.
Upstream's workers, their copies and the C ticker run as processes; our workers run in threads, with
staging tasks in this process.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pg import Servers
from tests.fixtures.wait import until
from tests.labs.chain import TICKS, Chain, Node
from tests.labs.pair import QUEUE
from tests.labs.upstream import C_PGQD, LONDISTE, require_c_ticker, require_londiste, ticking
from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.node.info import NodeType, get_node_info
from vedur.ops.add_table import AddTable, add_table

PATIENCE = 120.0


@dataclass
class UpstreamNode:
    """A database with upstream's extensions, served by upstream's Londiste."""

    name: str
    kind: NodeType
    db: Database
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    queue: str = QUEUE

    def __post_init__(self) -> None:
        self.directory.mkdir()
        self.ini = self.directory / "londiste.ini"
        self.ini.write_text(
            f"[londiste]\njob_name = {self.name}_job\ndb = {self.db.connstr}\n"
            f"queue_name = {self.queue}\nloop_delay = 0.1\nlogfile = {self.directory}/log\n"
            f"pidfile = {self.directory}/pid\nparallel_copies = 4\n"
            "local_wm_publish_period = 1\nglobal_wm_publish_period = 1\n"
        )

    def run(self, *words: str) -> str:
        """Run a command of upstream's."""
        done = subprocess.run(
            [LONDISTE, str(self.ini), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self) -> None:
        """Start its worker; it starts copies by itself."""
        self.process = subprocess.Popen(
            [LONDISTE, "-q", str(self.ini), "worker"], stderr=subprocess.DEVNULL
        )

    def log_text(self) -> str:
        """What its worker and its copies have logged."""
        return (self.directory / "log").read_text()

    @property
    def position(self) -> int:
        info = get_node_info(self.db, self.queue)
        assert info is not None and info.worker_last_tick is not None
        return info.worker_last_tick

    def ticks(self) -> dict[int, tuple[Any, ...]]:
        """The ticks of its queue: time and event number by id."""
        return {row[0]: tuple(row[1:]) for row in self.db.query(TICKS, [self.queue])}

    def close(self) -> None:
        """Stop its worker."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(120)
            self.process = None


class Mixed(Chain):
    """A chain by its makers: `o` for ours, `u` for upstream's, from the root down; `m` is a node
    that upstream's command has made and that moves to our commands and our worker."""

    def __init__(
        self, makers: str, make_db: Callable[[str], Database], base: Path, leaf: bool = True
    ) -> None:
        super().__init__(
            [], lambda: make_db("ours"), global_wm_publish_period=1.0, local_wm_publish_period=1.0
        )
        self.base = base
        self.moved = {f"n{at + 1}" for at, maker in enumerate(makers) if maker == "m"}
        self._threads: dict[str, threading.Thread] = {}
        for at, maker in enumerate(makers):
            kind = NodeType.LEAF if leaf and at == len(makers) - 1 else NodeType.BRANCH
            kind = NodeType.ROOT if at == 0 else kind
            name, db = f"n{at + 1}", make_db("ours" if maker == "o" else "upstream")
            if maker != "o":
                node = self.create_upstream(name, kind, db)
            if maker == "u":
                self.nodes.append(node)  # type: ignore[arg-type]
            else:
                self.add(name, kind, db)
        self.root.value("select pgq.set_queue_config(%s, 'ticker_max_lag', '0.5')", [QUEUE])
        self.root.value("select pgq.set_queue_config(%s, 'ticker_idle_period', '1')", [QUEUE])

    def create_upstream(self, name: str, kind: NodeType, db: Database) -> UpstreamNode:
        """Make a database a node below the newest one, with upstream's command."""
        db.autocommit = True
        node = UpstreamNode(name, kind, db, self.base / name)
        above = [f"--provider={self.nodes[-1].db.connstr}"] if self.nodes else []
        node.run(f"create-{kind}", name, db.connstr, *above)
        return node

    def start(self) -> None:
        """Start all workers."""
        for node in self.nodes:
            if isinstance(node, UpstreamNode):
                node.start()
            else:
                thread = threading.Thread(target=node.worker.run, daemon=True)
                self._threads[node.name] = thread
                thread.start()

    def create_tables(self, *ddl: str) -> None:
        """Create tables on all nodes, which are not in the set by that."""
        for node in self.nodes:
            for text in ddl:
                node.db.execute(text)

    def add_tables(self, name: str, *tables: str) -> None:
        """Add tables to a node with the commands of its maker."""
        node: Any = self[name]
        if isinstance(node, UpstreamNode):
            node.run("add-table", *tables)
        else:
            with node.session() as session:
                add_table(session, AddTable(tables=list(tables)))

    def wait_copied(self, name: str) -> None:
        """Wait until all tables of a node are in sync."""
        assert until(lambda: set(self.states(name).values()) == {"ok"}, PATIENCE), (
            name,
            self.states(name),
        )

    def settle(self) -> int:
        """Wait until all nodes have everything that is committed on the root now."""
        newest = "select last_tick_id from pgq.get_queue_info(%s)"
        # the ticker may be making one at this moment that does not see it all
        tick = int(self.root.value(newest, [QUEUE])) + 2
        assert until(lambda: self.root.value(newest, [QUEUE]) >= tick, PATIENCE)
        for node in self.followers:
            reached = lambda node=node: node.position >= tick  # noqa: E731
            assert until(reached, PATIENCE), (node.name, node.position, tick)
        return tick

    def leave(self, node: Node) -> None:
        """Stop the worker of a node that was dropped."""
        self.nodes.remove(node)
        if isinstance(node, Node):
            node.worker.signals.stop.set()
            node.worker.signals.wake.set()
            self._threads.pop(node.name).join(120)
        node.close()

    def stop(self) -> None:
        """Stop all workers."""
        for node in self.nodes:
            if isinstance(node, Node):
                node.worker.signals.stop.set()
                node.worker.signals.wake.set()
        for thread in self._threads.values():
            thread.join(120)
        self._threads.clear()
        for node in self.nodes:
            node.close()

    def close(self) -> None:
        self.stop()


class Load:
    """A writer on the root: transfers between rows of `acct`, rows of `note` that come and
    go, some of it in savepoints that are rolled back. The sum of `acct` never changes. There is a
    foreign key between the two."""

    TABLES = ("public.acct", "public.note")
    KEPT = 100  # rows of `note`
    DDL = (
        "create table acct (id int primary key, n int not null)",
        "create table note (id int primary key, acct int references acct, v text)",
    )

    def __init__(self, root: Database, rows: int = 500) -> None:
        self.root, self.rows = root, rows
        root.execute("insert into acct select i, 100 from generate_series(0, %s) i", [rows - 1])
        self.done = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        try:
            with connect(self.root.connstr, autocommit=True) as db:
                while not self._stop.is_set():
                    self._transfer(db, self.done)
                    self.done += 1
                    SYSTEM.sleep(0.02)
        except BaseException as error:
            self.error = error

    def _transfer(self, db: Database, at: int) -> None:
        one, two = at % self.rows, (at * 7 + 3) % self.rows
        with db.transaction():
            db.execute("update acct set n = n - 1 where id = %s", [one])
            db.execute("savepoint s")
            db.execute("update acct set n = -1 where id = %s", [two])
            db.execute("rollback to savepoint s")
            db.execute("insert into note values (%s, %s, e'a\\tb\\\\ é')", [at, one])
            db.execute("update acct set n = n + 1 where id = %s", [two])
            db.execute("delete from note where id = %s", [at - self.KEPT])

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(120)
        if self.error is not None:
            raise self.error

    def go_on(self, count: int = 50) -> None:
        """Wait until so many more transactions are written."""
        goal = self.done + count
        assert until(lambda: self.done >= goal or self.error is not None, PATIENCE)


@pytest.fixture
def make_mixed(
    servers: Servers,
    make_db_on: Callable[..., Database],
    tmp_path: Path,
    without_spark: None,
) -> Iterator[Callable[..., Mixed]]:
    """make_mixed("ouo", leaf=True): a chain with the C ticker and all workers running;
    upstream's extensions are there for PostgreSQL 15."""
    require_londiste()
    require_c_ticker()
    server = servers.get(15)
    made: list[tuple[Mixed, Any]] = []

    def make(makers: str, leaf: bool = True) -> Mixed:
        new = lambda kind: make_db_on(server, kind, autocommit=True)  # noqa: E731
        mixed = Mixed(makers, new, tmp_path, leaf)
        ticker = ticking([C_PGQD], tmp_path, server.port, [node.db for node in mixed.nodes])
        made.append((mixed, ticker))
        ticker.__enter__()
        mixed.start()
        return mixed

    yield make
    for mixed, ticker in made:
        mixed.close()
        ticker.__exit__(None, None, None)
