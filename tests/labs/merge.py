"""Several roots whose tables come together in one database, without a combined queue.

Each part is a set of its own with a worker in a thread; the tasks of copies and replay run in this
process. A part may die at any failpoint and be started again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.pair import call
from vedur import db as vdb
from vedur import failpoint
from vedur.change.quarantine import Policy
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.db.install import install
from vedur.ops.session import Session
from vedur.pipeline.copy import Budget, SparkLoader
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker.batch import BatchRunner
from vedur.worker.first_copy.context import CopySetup, Step
from vedur.worker.first_copy.control import Copying
from vedur.worker.loop import Worker

DEADLINE = 150.0


def no_hook(table: str, step: Step) -> None:
    return


class PartLab:
    """One part: a root, the database where all parts meet, a worker."""

    def __init__(self, queue: str, root: vdb.Database, leaf: vdb.Database, spark: Any) -> None:
        self.queue, self.root, self.leaf, self.spark = queue, root, leaf, spark
        self.node = f"{queue}_root"
        self.retry_sleep = 0.2
        self.on_error = "stop"
        self.budget: Budget | None = None  # of connections; its own
        self.slots: Budget | None = None  # for tasks; as many as it wants
        self.worker_slots: Budget | None = None
        self.running: tuple[threading.Thread, Signals] | None = None
        for db in (root, leaf):
            for name, at in ((self.node, root), ("full", leaf)):
                call(db, "pgq_node.register_location", queue, name, at.connstr, False)
        call(root, "pgq_node.create_node", queue, "root", self.node, "root_w", None, None, None)
        root.execute("update pgq.queue set queue_ticker_max_lag = '0.2 s'")
        last = self.tick()
        self.worker_name = f"{queue}_worker"
        call(root, "pgq_node.register_subscriber", queue, "full", self.worker_name, last)
        words = (queue, "leaf", "full", self.worker_name, self.node, last, None)
        call(leaf, "pgq_node.create_node", *words)

    @property
    def settings(self) -> LondisteSettings:
        """The ini of its node on the leaf."""
        return LondisteSettings(
            db=self.leaf.connstr,
            queue_name=self.queue,
            job_name=f"{self.queue}_leaf",
            exception_sleep=0.2,
            loop_delay=0.1,
            on_error=self.on_error,
        )

    def session(self) -> Session:
        """A session of a command on the leaf."""
        return Session(self.settings)

    def tick(self) -> int:
        """Make a tick that is later than all that was written; returns its number."""
        written = self.root.value("select txid_current()")
        seen = "select min(tick_id) from pgq.tick where txid_visible_in_snapshot(%s, tick_snapshot)"
        # One call may not do: the ticker's own, begun before, takes what was asked for.
        while (found := self.root.value(seen, [written])) is None:
            self.root.execute("select pgq.force_tick(%s)", [self.queue])
            self.root.execute("select pgq.ticker()")
        return int(found)

    def publish(self, *tables: str) -> None:
        """Add tables on the root, and tell the leaf of them, as its worker does."""
        for table in tables:
            call(self.root, "londiste.local_add_table", self.queue, table)
            call(self.leaf, "londiste.global_add_table", self.queue, table)

    def start(self, hook: Callable[[str, Step], None] = no_hook) -> None:
        """Start its worker, with copies."""
        assert self.running is None
        setup = CopySetup(
            self.queue,
            f"{self.queue}_leaf",
            self.leaf.connstr,
            retry_sleep=self.retry_sleep,
            parallel_copies=4,
            slots=self.slots,
            worker_slots=self.worker_slots,
            on_step=hook,
            on_error=Policy(self.on_error),
        )
        loader = SparkLoader(self.spark, 8, 1 << 16, budget=self.budget)
        copying = Copying(setup, loader, self._applier)
        signals = Signals()
        worker = Worker(self.settings, self._runner, signals=signals, copies=copying)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self.running = thread, signals

    def _applier(self, name: str, provider: str) -> SparkReplay:
        return SparkReplay(self.spark, name, provider, self.leaf.connstr)

    def _runner(self, provider: str, _state: Any) -> BatchRunner[Any]:
        applier = self._applier(self.queue, provider)
        policy = Policy(self.on_error)
        target = self.leaf.connstr
        return BatchRunner(applier, self.queue, self.worker_name, target, on_error=policy)

    def stop(self) -> None:
        """Stop its worker."""
        if self.running is not None:
            thread, signals = self.running
            self.running = None
            signals.stop.set()
            thread.join(timeout=120)
            assert not thread.is_alive()

    @property
    def state(self) -> dict[str, str | None]:
        """merge_state by table."""
        rows = self.leaf.query(
            "select * from londiste.get_table_list(%s) where local", [self.queue]
        )
        return {r.table_name: r.merge_state for r in rows}

    def error(self, table: str = "public.t") -> str:
        """What its copy says."""
        text = "select error from vedur.copy_progress where queue_name = %s and table_name = %s"
        return self.leaf.value(text, [self.queue, table]) or ""

    def position(self) -> int:
        """Where its worker is."""
        text = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
        return int(self.leaf.value(text, [self.worker_name]))


class MergeLab:
    """All parts."""

    def __init__(self, roots: list[vdb.Database], leaf: vdb.Database, spark: Any = None) -> None:
        for db in (*roots, leaf):
            db.autocommit = True
            install(db)
        self.leaf = leaf
        self.parts = [PartLab(f"s{n}", root, leaf, spark) for n, root in enumerate(roots, 1)]
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def _tick(self) -> None:
        with ExitStack() as stack:
            roots = [
                stack.enter_context(vdb.connect(part.root.connstr, autocommit=True))
                for part in self.parts
            ]
            while not self._stop.wait(0.1):
                for root in roots:
                    root.execute("select pgq.ticker()")

    def make(self, ddl: str, *tables: str) -> None:
        """Create tables everywhere, and add them on the roots."""
        for db in (*(part.root for part in self.parts), self.leaf):
            db.execute(ddl)
        for part in self.parts:
            part.publish(*tables)

    def start(self) -> None:
        """Start all workers that do not run."""
        for part in self.parts:
            if part.running is None:
                part.start()

    def stop(self) -> None:
        """Stop all workers."""
        for part in self.parts:
            part.stop()

    def wait(self, true: Callable[[], bool]) -> None:
        """Poll a condition with a deadline."""
        assert until(true, DEADLINE), (
            [part.state for part in self.parts],
            self.leaf.query("select * from vedur.copy_progress"),
            self.leaf.query("select * from vedur.replay_error"),
        )

    def wait_ok(self) -> None:
        """Until the tables of all parts are in sync."""
        self.wait(lambda: all(set(part.state.values()) == {"ok"} for part in self.parts))

    def settle(self) -> None:
        """Until the leaf has applied all that the roots have now."""
        for part in self.parts:
            before = part.tick()
            self.wait(lambda p=part, b=before: p.position() >= b)  # type: ignore[misc]

    def union(self, table: str = "t") -> list[str]:
        """The rows of all roots."""
        text = f"select x::text from {table} x"
        return sorted(row[0] for part in self.parts for row in part.root.query(text))

    def merged(self, table: str = "t") -> list[str]:
        """The rows of the leaf."""
        return sorted(row[0] for row in self.leaf.query(f"select x::text from {table} x"))

    def by_hand(self, *statements: str) -> None:
        """Change the leaf behind the back of replication."""
        with vdb.connect(self.leaf.connstr, autocommit=True) as db:
            db.execute("set session_replication_role = replica")
            for statement in statements:
                db.execute(statement)

    def debris(self) -> list[str]:
        """What finished copies must not leave behind."""
        found = [
            row[0]
            for part in self.parts
            for row in part.root.query(
                "select co_name from pgq.subscription join pgq.consumer on co_id = sub_consumer"
                " where co_name like '%.copy.%'"
            )
        ]
        for text in (
            "select consumer_name from pgq_node.local_state where consumer_name like '%.copy.%'",
            "select table_name from vedur.copy_slice",
            "select table_name from londiste.table_info where dropped_ddl is not null",
        ):
            found += [row[0] for row in self.leaf.query(text)]
        return found

    def close(self) -> None:
        """End everything."""
        failpoint.set_hook(None)
        self.stop()
        self._stop.set()
        self._ticker.join(timeout=60)


@pytest.fixture
def make_merge(
    make_db: Callable[..., vdb.Database], without_spark: None
) -> Iterator[Callable[[int], MergeLab]]:
    """make_merge(number of parts): a laboratory that needs no Spark."""
    made: list[MergeLab] = []

    def make(count: int) -> MergeLab:
        made.append(MergeLab([make_db() for _ in range(count)], make_db()))
        return made[-1]

    yield make
    for lab in made:
        lab.close()
