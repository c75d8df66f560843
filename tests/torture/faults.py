"""The faults: what is broken, where, and what `status` must say meanwhile.

A fault is a function of a `Cycle`; when it returns, everything that it broke is whole again,
except what the product must bring back by itself. Each is registered with a weight for the draw.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.torture import checks
from tests.torture.ground import Ground
from tests.torture.load import Load
from tests.torture.processes import Supervised, java_of, spark_pythons
from tests.torture.rig import LEAF, MID, ROOT, Rig
from tests.torture.schema import NAMES, OWNER

Run = Callable[["Cycle"], None]


class NotReached(Exception):
    """The step that the fault was for did not come; the cycle does not count."""


class Skipped(Exception):
    """This machine cannot do it."""


@dataclass
class Cycle:
    """One cycle's tools; `note` ends in the record."""

    rig: Rig
    load: Load
    rng: random.Random
    note: dict[str, Any] = field(default_factory=dict)
    cheap: bool = False
    #: the node that reads from another one, and whose worker or tables are broken
    node: str = LEAF

    @property
    def process(self) -> str:
        """The worker of that node."""
        return self.rig.worker_name(self.node)

    @property
    def worker(self) -> Supervised:
        """The worker of that node."""
        return self.rig.processes[self.process]

    @property
    def provider(self) -> str:
        """The node that it reads from."""
        return self.rig.provider_of(self.node)

    def some_time(self, most: float = 1.2) -> None:
        """A random moment of the load."""
        time.sleep(self.rng.uniform(0.0, most))

    def said(self, asked_from: str) -> dict[str, dict[str, Any]]:
        """What `status` says now, by node."""
        done = self.rig.command(asked_from, "status", "--json", timeout=200)
        if done.code != 0:
            raise checks.Failed(f"status from {asked_from}: exit {done.code}: {done.err}")
        self.note["status"] = self.note.get("status", 0) + 1
        return {n["name"]: n for n in json.loads(done.out)["nodes"]}

    def must_say_away(self, away: str) -> None:
        """Asked at the other node, a node that is away is said to be away."""
        other = LEAF if away == ROOT else ROOT
        node = self.said(other)[away]
        if node["type"] != "unreachable" or not node["failure"]:
            raise checks.Failed(f"{away} is away, status says {node}")

    def must_say_standing(self) -> None:
        """A node whose worker is dead stands at its tick, and its lag is the age of that tick."""
        before, older = self._standing()
        node = self.said(ROOT)[self.node]
        after, old = self._standing()
        if not before <= node["tick"] <= after:
            raise checks.Failed(f"{self.node} stands at {before}, status says {node}")
        if before == after and not (older - 0.1 <= node["lag"] <= old + 0.1):
            raise checks.Failed(f"{self.node} is {older} to {old} s behind, status says {node}")

    def _standing(self) -> tuple[int, float]:
        """Where the node stands, and the age of that tick by the root's clock; after a jump of that
        clock ticks may be of tomorrow, and nobody is behind those."""
        tick = self.rig.position(self.node)
        text = (
            "select extract(epoch from clock_timestamp() - tick_time)::float8 from pgq.tick"
            " where tick_id = %s"
        )
        return tick, max(0.0, float(self.rig.value(ROOT, text, [tick])))

    def must_say_error(self, words: str, limit: float = 120.0) -> None:
        """A worker that cannot work says so in `status`."""
        deadline = time.monotonic() + limit
        while True:
            errors = self.said(ROOT)[self.node]["errors"]
            if any(words in e["error"] for e in errors):
                return
            if time.monotonic() > deadline:
                raise checks.Failed(f'no error with "{words}" in status: {errors}')


#: name -> (weight, function)
FAULTS: dict[str, tuple[float, Run]] = {}


def fault(name: str, weight: float = 4) -> Callable[[Run], Run]:
    """Register a fault."""

    def put(run: Run) -> Run:
        FAULTS[name] = (weight, run)
        return run

    return put


# -- processes -----------------------------------------------------------------------------------


@fault("worker: kill -9", 3)
def kill_worker(c: Cycle) -> None:
    c.some_time()
    with_status = c.rng.random() < 0.3
    if with_status:
        c.worker.held.set()
    c.worker.kill()
    if with_status:
        c.some_time()
        c.must_say_standing()
        c.worker.held.clear()


@fault("Spark's Java: kill -9", 3)
def kill_java(c: Cycle) -> None:
    c.some_time()
    java = java_of(c.worker.pid)
    if java is None:
        raise NotReached("no Java")
    os.kill(java, signal.SIGKILL)


@fault("Spark's Python task process: kill -9", 4)
def kill_task(c: Cycle) -> None:
    _, tasks = spark_pythons(c.worker.pid)
    c.some_time()
    if not tasks:
        raise NotReached("no task process")
    for pid in tasks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@fault("Spark's Python daemon: kill -9", 3)
def kill_daemon(c: Cycle) -> None:
    tops, _ = spark_pythons(c.worker.pid)
    c.some_time()
    if not tops:
        raise NotReached("no daemon")
    for pid in tops:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@fault("ticker: kill -9", 4)
def kill_ticker(c: Cycle) -> None:
    c.some_time()
    c.rig.processes["ticker"].kill()


@fault("root's worker: kill -9", 3)
def kill_root_worker(c: Cycle) -> None:
    c.some_time()
    c.rig.processes["root"].kill()


@fault("worker: stopped (SIGSTOP) for seconds", 3)
def freeze_worker(c: Cycle) -> None:
    c.some_time()
    pid = c.worker.pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(c.rng.uniform(0.5, 2.0))
    c.must_say_standing()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


# -- servers -------------------------------------------------------------------------------------


def crash(c: Cycle, name: str, mode: str, away: float) -> None:
    """Stop a server and start it again."""
    server = c.rig.servers[name]
    if mode == "kill":
        server.kill()
    else:
        server.stop(mode)
    if away > 0.3:
        time.sleep(away / 2)
        c.must_say_away(name)
        time.sleep(away / 2)
    start_server(c.rig, name)


def start_server(rig: Ground, name: str) -> None:
    """Start a server that has crashed."""
    server = rig.servers[name]
    with rig.server_env(name):
        for _ in range(100):
            try:
                server.start()
                return
            except Exception:  # children of the killed postmaster may still hold its memory
                time.sleep(0.2)
        server.start()


def _server_fault(name: str, mode: str) -> Run:
    def run(c: Cycle) -> None:
        c.some_time()
        crash(c, name, mode, c.rng.choice((0.0, 0.0, c.rng.uniform(0.5, 2.5))))

    return run


def backend_kill(name: str) -> Run:
    """One backend of ours gets kill -9; the server starts all others again."""

    def run(c: Cycle) -> None:
        c.some_time()
        pids = our_backends(c.rig, name)
        if not pids:
            raise NotReached("no backend")
        with contextlib.suppress(ProcessLookupError):
            os.kill(c.rng.choice(pids), signal.SIGKILL)

    return run


def our_backends(rig: Ground, name: str) -> list[int]:
    """Of the product, not of the campaign."""
    text = (
        "select pid from pg_stat_activity where backend_type = 'client backend'"
        " and application_name <> 'torture'"
    )
    return [row[0] for row in rig.query(name, text)]


# -- network -------------------------------------------------------------------------------------


def _cut(name: str) -> Run:
    def run(c: Cycle) -> None:
        c.some_time()
        proxy = c.rig.proxies[name]
        proxy.cut()
        try:
            away = c.rng.choice((0.1, 0.5, c.rng.uniform(0.5, 3.0)))
            time.sleep(away)
            if away > 0.4:
                c.must_say_away(name)
        finally:
            proxy.restore()

    return run


def stall(name: str) -> Run:
    """Nothing arrives for a while, in either direction."""

    def run(c: Cycle) -> None:
        c.some_time()
        proxy = c.rig.proxies[name]
        proxy.stall()
        try:
            time.sleep(c.rng.uniform(0.5, 3.0))
            if c.rng.random() < 0.5:
                proxy.drop()
        finally:
            proxy.restore()

    return run


def flap(name: str) -> Run:
    """Connections to a place are closed, and again."""

    def run(c: Cycle) -> None:
        for _ in range(c.rng.randint(3, 8)):
            c.some_time(0.4)
            c.rig.proxies[name].drop()

    return run


@fault("network: packets vanish", 3)
def vanish(c: Cycle) -> None:
    """Shorter than the time-outs, when TCP itself sends again, and longer, when nobody answers."""
    wire = c.rig.wire
    if wire is None:
        raise Skipped("no network namespace")
    c.some_time()
    wire.cut()
    try:
        away = c.rng.choice((c.rng.uniform(1.0, 10.0), 75.0))
        c.note["seconds"] = round(away, 1)
        if away > 60:
            done = c.rig.command(ROOT, "status", timeout=200)
            if done.code == 0 or "Traceback" in done.err:
                raise checks.Failed(f"no server answers, status says {done.code}: {done.err}")
        time.sleep(away)
    finally:
        wire.join()


# -- resources and locks -------------------------------------------------------------------------


@fault("leaf's disk: full", 5)
def full_disk(c: Cycle) -> None:
    if not c.rig.mounted:
        raise Skipped("mount is not allowed here")
    c.some_time()
    filler = c.rig.disk / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(1 << 16))
        # updates of a large table need room in staging and in the table itself
        for _ in range(4):
            c.rig.query(ROOT, "update t.big set v = v + 1, pad = repeat(md5(random()::text), 6)")
        c.must_say_error("No space left")
    finally:
        filler.unlink(missing_ok=True)
        c.rig.query(ROOT, "update t.big set pad = 'short'")


def _full_server(name: str) -> Run:
    def run(c: Cycle) -> None:
        c.some_time()
        taken: list[psycopg.Connection[Any]] = []
        if c.rng.random() < 0.7:
            c.rig.proxies[name].drop()
        try:
            deadline = time.monotonic() + c.rng.uniform(0.5, 2.5)
            while time.monotonic() < deadline:
                try:
                    taken.append(c.rig.connect(name))
                except psycopg.OperationalError:
                    c.note["refused"] = c.note.get("refused", 0) + 1
                    time.sleep(0.05)
        finally:
            for db in taken:
                db.close()
        if not c.note.get("refused"):
            raise NotReached("the server took all connections")

    return run


def _locked(name: str, mode: str) -> Run:
    def run(c: Cycle) -> None:
        c.some_time()
        there = c.node if name == LEAF else name
        tables = [f"{OWNER}.{t}" for t in NAMES if t not in ("gone",)]
        with c.rig.connect(there) as db, db.transaction():
            db.execute("set local lock_timeout = '30s'")
            table = c.rng.choice(tables)
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                db.execute(f"lock table {table} in {mode} mode")
            time.sleep(c.rng.uniform(0.5, 4.0))
            if name == LEAF:
                c.must_say_standing()

    return run


fault("leaf: table locked by a long transaction", 5)(_locked(LEAF, "access exclusive"))
fault("root: table locked by a long transaction", 3)(_locked(ROOT, "share"))


@fault("leaf: rows locked by a long transaction", 3)
def rows_locked(c: Cycle) -> None:
    c.some_time()
    with c.rig.connect(c.node) as db, db.transaction():
        db.execute("set local lock_timeout = '30s'")
        db.execute("select from t.acct for update")
        time.sleep(c.rng.uniform(0.5, 3.0))


def signals(name: str, function: str) -> Run:
    """Statements or backends of ours are ended, again and again."""

    def run(c: Cycle) -> None:
        done = 0
        for _ in range(c.rng.randint(5, 30)):
            text = (
                f"select {function}(pid) from pg_stat_activity"
                " where backend_type = 'client backend' and application_name <> 'torture'"
                " and random() < 0.5"
            )
            if function == "pg_cancel_backend":
                text += " and state <> 'idle'"
            done += len(c.rig.query(name, text))
            c.some_time(0.08)
        c.note["signals"] = done
        if not done:
            raise NotReached("no statement was running")

    return run


def of_node(node: str, title: str) -> dict[str, tuple[float, Run]]:
    """Faults of a node's server and of the way to it; the page calls the node `title`."""
    return {
        f"{title}'s server: immediate stop": (6, _server_fault(node, "immediate")),
        f"{title}'s server: postmaster kill -9": (3, _server_fault(node, "kill")),
        f"{title}'s server: fast restart": (3, _server_fault(node, "fast")),
        f"{title}'s server: one backend kill -9": (4, backend_kill(node)),
        f"{title}'s server: max_connections reached": (5, _full_server(node)),
        f"network to the {title}: cut": (6, _cut(node)),
        f"network to the {title}: stalled": (5, stall(node)),
        f"network to the {title}: connections dropped again and again": (5, flap(node)),
        f"{title}: statements cancelled": (6, signals(node, "pg_cancel_backend")),
        f"{title}: backends terminated": (6, signals(node, "pg_terminate_backend")),
        f"clock of the {title}'s server jumps": (3, _clock(node)),
    }


# -- time ----------------------------------------------------------------------------------------


def _clock(name: str) -> Run:
    def run(c: Cycle) -> None:
        if c.rig.library is None:
            raise Skipped("no C compiler for a clock that jumps")
        c.some_time()
        jump = c.rng.choice((-7200, -3600, -30, 45, 3600, 86400))
        c.note["seconds"] = jump
        clock = c.rig.clocks[c.process if name == "worker" else name]
        clock.set(jump)
        try:
            moves_on(c, f"clock of {name} set by {jump} s")
        finally:
            clock.set(0)
        moves_on(c, f"clock of {name} set back by {jump} s")

    return run


def moves_on(c: Cycle, what: str) -> None:
    """Replication goes on by itself, without a tick being asked for."""
    began = c.rig.last_tick()
    c.rig.wait(lambda: c.rig.position(c.node) > began, f"changes to arrive: {what}", 180.0)


for _node in (LEAF, ROOT):
    FAULTS.update(of_node(_node, _node))
fault("clock of the worker jumps", 3)(_clock("worker"))


@fault("root: transaction open across ticks and rotations", 5)
def long_transaction(c: Cycle) -> None:
    """One that has written holds rotation up after one switch. One that has only read does not:
    what it writes in the end goes into a table that its snapshot is older than."""
    end = threading.Event()
    opened = threading.Event()
    reads_first = c.rng.random() < 0.5
    i = c.rng.randint(1000, 2000)

    def write(db: psycopg.Connection[Any]) -> None:
        db.execute("insert into t.acct values (%s, %s) on conflict do nothing", [i, f"l{i}"])

    def hold() -> None:
        with (
            contextlib.suppress(psycopg.Error),
            c.rig.connect(ROOT) as db,
            db.transaction() as tx,
        ):
            if reads_first:
                db.execute("set transaction isolation level repeatable read")
                db.execute("select 1")
            else:
                write(db)
                db.execute("update t.part set v = v + 1 where id = 1000 + %s", [i % 10])
            opened.set()
            end.wait(300)
            if reads_first:
                write(db)
            else:
                db.execute("delete from t.acct where id between 1000 and 2000 and id <> %s", [i])
            if c.rng.random() < 0.3:
                raise psycopg.Rollback(tx)

    switched = "select max(queue_switch_time)::text from pgq.queue"
    thread = threading.Thread(target=hold)
    thread.start()
    seen: set[str] = set()

    def rotated(times: int) -> bool:
        seen.add(c.rig.value(ROOT, switched))
        return len(seen) > times

    try:
        opened.wait(20)
        began = c.rig.last_tick()
        rotated(0)
        c.rig.wait(lambda: c.rig.last_tick() > began + 15, "ticks during a long transaction", 180)
        if c.rng.random() < 0.4:
            c.rig.proxies[LEAF].drop()
        c.rig.wait(lambda: c.rig.position() > began + 10, "batches during it", 180)
        # beside a branch the campaign's own consumer keeps events back until the cycle ends
        if reads_first and MID not in c.rig.nodes:
            c.rig.wait(lambda: rotated(3), "three rotations during it", 180)
        rotated(0)
        c.note |= {"rotations": len(seen) - 1, "reads first": reads_first}
    finally:
        end.set()
        thread.join()
