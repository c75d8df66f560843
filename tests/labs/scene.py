"""Scenes of many sets, told command by command as a shell script would: databases by name, and
jobs, each of which has the ini and the worker of one node.

A job is ours or upstream's. Commands go through the command line of its program, ours in this
process; our workers run in threads with staging tasks in this process, upstream's as processes.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS, Servers
from tests.fixtures.wait import until
from tests.labs.chain import Node
from tests.labs.mixed import UpstreamNode
from tests.labs.upstream import C_PGQD, require_c_ticker, require_londiste, ticking
from tests.torture.plain import PLAIN, WORKER
from vedur.cli.main import main
from vedur.clock import SYSTEM
from vedur.config import load_londiste
from vedur.db import Database, connect
from vedur.errors import VedurError
from vedur.node.info import NodeType

PATIENCE = 240.0
MYDATA = "create table mydata (id int4 primary key, data text)"
#: The same for `writing`: keys of parts never meet.
WRITTEN = (
    "create table mydata (id uuid primary key default gen_random_uuid(), data text,"
    " tstamp timestamptz default now())"
)
#: What upstream's scripts do to every database, so that nobody waits for the ticks of a quiet one.
_TICK_OFTEN = (
    "update pgq.queue set queue_ticker_idle_period = '1 sec', queue_ticker_max_lag = '0.3 sec'"
)
_TABLES = "select * from londiste.get_table_list(%s) where local order by table_name"
_QUEUES = "select queue_name from pgq_node.node_info order by 1"


class OurJob:
    """An ini of ours; its worker runs in a thread."""

    def __init__(self, name: str, queue: str, db: Database, directory: Path) -> None:
        self.name, self.queue, self.db = name, queue, db
        directory.mkdir()
        self.ini = directory / "londiste.ini"
        self.ini.write_text(
            f"[londiste3]\njob_name = {name}\ndb = {db.connstr}\nqueue_name = {queue}\n"
            "loop_delay = 0.2\nexception_sleep = 0.5\n"
            "local_wm_publish_period = 1\nglobal_wm_publish_period = 1\n"
        )
        self.ini.chmod(0o600)
        self._node: Node | None = None
        self._thread: threading.Thread | None = None

    def call(self, *words: str) -> tuple[int, str]:
        """Run a command; returns its exit code and what it prints."""
        with redirect_stdout(io.StringIO()) as said:
            code = main("londiste3", ["-q", str(self.ini), *words])
        return code, said.getvalue()

    def start(self) -> None:
        """Start its worker."""
        assert self._thread is None, self.name
        settings = load_londiste(str(self.ini))
        self._node = Node(self.name, NodeType.LEAF, self.db, settings)
        self._thread = threading.Thread(target=self._node.worker.run, daemon=True)
        self._thread.start()

    def run_until_killed(self, point: str) -> None:
        """Run its worker as a process that is killed (kill -9) at a step, and wait for that."""
        assert self._thread is None, self.name
        control = self.ini.with_suffix(".control")
        control.write_text(json.dumps({"point": point, "action": "kill"}))
        words = ["-m", "tests.torture.entry", str(control), "londiste3", str(self.ini), "worker"]
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, PLAIN: WORKER},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=PATIENCE,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    def stop(self) -> None:
        """Stop its worker, if it runs."""
        if self._node is None or self._thread is None:
            return
        self._node.worker.signals.stop.set()
        self._node.worker.signals.wake.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), self.name
        self._node.close()
        self._node = self._thread = None


class UpstreamJob:
    """An ini of upstream's; its worker, and the copies that it starts, are processes."""

    def __init__(self, name: str, queue: str, db: Database, directory: Path) -> None:
        self.name, self.queue, self.db = name, queue, db
        self._node = UpstreamNode(name, NodeType.LEAF, db, directory, queue=queue)

    def call(self, *words: str) -> tuple[int, str]:
        """Run a command that must succeed."""
        return 0, self._node.run(*words)

    def start(self) -> None:
        """Start its worker."""
        self._node.start()

    def stop(self) -> None:
        """Stop its worker, if it runs."""
        self._node.close()

    def log_text(self) -> str:
        """What its worker and its copies have logged."""
        return self._node.log_text()


class Scene:
    """Databases and jobs; the ticker runs from `tick` on."""

    def __init__(self, make_db: Callable[[str], Database], base: Path) -> None:
        self._make_db, self.base = make_db, base
        self.dbs: dict[str, Database] = {}
        self.jobs: dict[str, OurJob | UpstreamJob] = {}
        self._over = threading.Event()
        self._tickers: list[threading.Thread] = []

    # -- making it ------------------------------------------------------------------------------

    def place(self, *names: str, kind: str = "ours") -> None:
        """Make databases; of kind "upstream" they have its extensions."""
        for name in names:
            self.dbs[name] = self._make_db(kind)
            self.dbs[name].autocommit = True

    def job(self, name: str, queue: str, place: str, *, upstream: bool = False) -> None:
        """Write an ini for the node of a queue in a database."""
        kind = UpstreamJob if upstream else OurJob
        self.jobs[name] = kind(name, queue, self.dbs[place], self.base / name)

    def create(
        self, job: str, kind: str, node: str, provider: str | None = None, merge: str | None = None
    ) -> None:
        """Run create-root, create-branch or create-leaf; the provider is a database."""
        words = [f"create-{kind}", node, self.jobs[job].db.connstr]
        words += [f"--provider={self.dbs[provider].connstr}"] if provider else []
        self.run(job, *words, *([f"--merge={merge}"] if merge else []))

    def tick(self) -> None:
        """Let all queues tick."""
        for db in self.dbs.values():
            db.execute(_TICK_OFTEN)
            ticker = threading.Thread(target=self._tick, args=(db.connstr,), daemon=True)
            self._tickers.append(ticker)
            ticker.start()

    def _tick(self, connstr: str) -> None:
        while not self._over.is_set():
            try:
                with connect(connstr, autocommit=True, application_name="pgqd") as db:
                    while not SYSTEM.wait(self._over, 0.15):
                        db.value("select pgq.ticker()")
            except VedurError:
                SYSTEM.wait(self._over, 0.2)

    # -- commands -------------------------------------------------------------------------------

    def run(self, job: str, *words: str, code: int = 0) -> str:
        """Run a command, which must have an exit code; returns what it prints."""
        got, said = self.jobs[job].call(*words)
        assert got == code, (job, words, got, said)
        return said

    def start(self, *jobs: str) -> None:
        """Start workers, by default all."""
        for job in jobs or self.jobs:
            self.jobs[job].start()

    def stop(self, *jobs: str) -> None:
        """Stop workers."""
        for job in jobs:
            self.jobs[job].stop()

    def sql(self, text: str, *places: str) -> None:
        """Run SQL in databases."""
        for place in places:
            self.dbs[place].execute(text)

    # -- what is there --------------------------------------------------------------------------

    def tables(self, place: str) -> dict[str, Any]:
        """What each queue of a database says of its one table; not of those it does not have."""
        db = self.dbs[place]
        found = {row[0]: db.one(_TABLES, [row[0]]) for row in db.query(_QUEUES)}
        return {queue: row for queue, row in found.items() if row is not None}

    def states(self, place: str) -> dict[str, str | None]:
        """merge_state by queue."""
        return {queue: row.merge_state for queue, row in self.tables(place).items()}

    def roles(self, place: str) -> dict[str, tuple[str | None, str | None]]:
        """merge_state and copy_role by queue."""
        found = self.tables(place)
        return {queue: (row.merge_state, row.copy_role) for queue, row in found.items()}

    def known(self, place: str) -> set[str]:
        """The queues of a database that know of a table, whether it is here or not."""
        rows = self.dbs[place].query("select distinct queue_name from londiste.table_info")
        return {row[0] for row in rows}

    def rows(self, *places: str, table: str = "mydata") -> list[str]:
        """The rows that databases have together, in order."""
        text = f"select x::text from {table} x"
        return sorted(row[0] for place in places for row in self.dbs[place].query(text))

    def columns(self, place: str, table: str = "mydata") -> list[str]:
        """The columns of a table, in order."""
        text = (
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0"
            " and not attisdropped order by attnum"
        )
        return [row[0] for row in self.dbs[place].query(text, [table])]

    def errors(self) -> list[tuple[str, str, str]]:
        """What workers and copies of all nodes say, by database."""
        found = []
        for place, db in self.dbs.items():
            text = (
                "select consumer_name, cur_error from pgq_node.local_state"
                " where cur_error is not null"
            )
            found += [(place, row[0], row[1]) for row in db.query(text)]
            if db.value("select to_regclass('vedur.copy_progress') is not null"):
                text = "select queue_name, error from vedur.copy_progress where error is not null"
                found += [(place, row[0], row[1]) for row in db.query(text)]
        return found

    # -- waiting --------------------------------------------------------------------------------

    def wait(self, true: Callable[[], object]) -> None:
        """Wait until something is so."""
        assert until(true, PATIENCE), (self.errors(), {p: self.states(p) for p in self.dbs})

    def wait_ok(self, place: str, *queues: str) -> None:
        """Until the table of these queues is in sync in a database, and no other one is there."""
        self.wait(lambda: self.states(place) == dict.fromkeys(queues, "ok"))

    def wait_union(self, parts: list[str], *places: str, table: str = "mydata") -> list[str]:
        """Until databases have the rows of all parts, and no others; returns the rows."""
        wanted = self.rows(*parts, table=table)
        for place in places:
            self.wait(lambda place=place: self.rows(place, table=table) == wanted)  # type: ignore[misc]
        return wanted

    def close(self) -> None:
        for job in self.jobs.values():
            job.stop()
        self._over.set()
        for ticker in self._tickers:
            ticker.join(PATIENCE)


@contextmanager
def writing(scene: Scene, places: list[str], each: int = 2) -> Iterator[None]:
    """Writers that insert, change and delete rows of `mydata` under keys of their own."""
    over, failed = threading.Event(), list[BaseException]()

    def write(place: str, who: str) -> None:
        try:
            with connect(scene.dbs[place].connstr, autocommit=True) as db:
                number = 0
                while not SYSTEM.wait(over, 0.1):
                    number += 1
                    add = "insert into mydata (data) values (%s)"
                    db.execute(add, [f"{who}.{number}"])
                    change = "update mydata set data = data || '+' where data = %s"
                    db.execute(change, [f"{who}.{number - 3}"])
                    if number % 4 == 0:
                        db.execute("delete from mydata where data = %s", [f"{who}.{number - 5}+"])
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=write, args=(place, f"{place}.{number}"), daemon=True)
        for place in places
        for number in range(each)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert failed == []


def add_column(scene: Scene, job: str) -> None:
    """Send the script of upstream's scenarios from a root; it has one name for all parts."""
    script = scene.base / "addcol-data2.sql"
    script.write_text(
        "\n--*-- Local-Table: mydata\n\nalter table @mydata@ add column data2 text;\n"
    )
    scene.run(job, "execute", str(script))


@pytest.fixture
def scene(
    servers: Servers, make_db_on: Callable[..., Database], tmp_path: Path, without_spark: None
) -> Iterator[Scene]:
    """A scene of ours: databases take turns on the oldest and the newest server at hand."""
    versions = (min(VERSIONS), max(VERSIONS))
    made = Scene(lambda kind: make_db_on(servers.get(versions[len(made.dbs) % 2]), kind), tmp_path)
    yield made
    made.close()


class _MixedScene(Scene):
    """With upstream's ticker."""

    def __init__(self, make_db: Callable[[str], Database], base: Path, port: int) -> None:
        super().__init__(make_db, base)
        self._port = port
        self._pgqd: Any = None

    def tick(self) -> None:
        """Let all queues tick."""
        for db in self.dbs.values():
            db.execute(_TICK_OFTEN)
        self._pgqd = ticking([C_PGQD], self.base, self._port, list(self.dbs.values()))
        self._pgqd.__enter__()

    def close(self) -> None:
        super().close()
        if self._pgqd is not None:
            self._pgqd.__exit__(None, None, None)


@pytest.fixture
def mixed_scene(
    servers: Servers, make_db_on: Callable[..., Database], tmp_path: Path, without_spark: None
) -> Iterator[Scene]:
    """A scene that may have nodes of upstream's, on the server for which there are its extensions;
    what ticks is upstream's ticker."""
    require_londiste()
    require_c_ticker()
    server = servers.get(15)
    made = _MixedScene(lambda kind: make_db_on(server, kind), tmp_path, server.port)
    yield made
    made.close()
