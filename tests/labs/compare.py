"""A root and a leaf of different versions with a running worker, a ticker and writers.

What is compared, repaired or filtered anew goes through Spark; the worker's batches, five in a
second, are replayed in this process, as in `in_process`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.in_process import run_here
from tests.labs.pair import QUEUE, WORKER, Pair, call
from vedur.config import LondisteSettings
from vedur.db import Database, connect
from vedur.ops.session import Session
from vedur.pipeline.replay import stage as replay
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker.batch import BatchRunner
from vedur.worker.loop import Worker


class Lab:
    """Threads are started on demand and stopped together."""

    def __init__(self, root: Database, leaf: Database, spark: Any, **settings: Any) -> None:
        self.pair = Pair.make(root, leaf)
        self.root, self.leaf, self.spark = root, leaf, spark
        self.settings = LondisteSettings(
            db=leaf.connstr,
            queue_name=QUEUE,
            job_name="leaf",
            exception_sleep=0.1,
            loop_delay=0.2,
            **settings,
        )
        self.worker = Worker(self.settings, self._runner)
        self.stop = threading.Event()
        self.quiet = threading.Event()
        self.writers: list[threading.Thread] = []
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.written = 0

    def _runner(self, provider: str, _state: Any) -> BatchRunner[Any]:
        applier = SparkReplay(self.spark, QUEUE, provider, self.settings.db)
        return BatchRunner(applier, QUEUE, WORKER, self.settings.db)

    def session(self, **settings: Any) -> Session:
        changed = {"db": self.leaf.connstr, "queue_name": QUEUE, "job_name": "leaf", **settings}
        return Session(LondisteSettings(**changed))

    def attrs(self, table: str, text: str) -> None:
        call(self.leaf, "londiste.local_set_table_attrs", QUEUE, table, text)

    def start(self) -> None:
        """The worker and a ticker run by themselves."""
        self._thread(self.worker.run)
        self._thread(self._ticker)

    def settle(self, limit: float = 600.0) -> None:
        """Wait until the worker has what the root has now; its first batch takes a while."""
        # the ticker may be making one at this moment that does not see it all
        tick = self.root.value("select max(tick_id) from pgq.tick") + 2
        here = "select max(last_tick_id) from pgq_node.local_state"
        caught_up = until(lambda: self.leaf.value(here) >= tick, limit)
        assert caught_up, f"the worker does not catch up: {self.errors}"

    def _thread(self, target: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                target()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def _ticker(self) -> None:
        with connect(self.root.connstr, autocommit=True) as db:
            while not self.stop.wait(0.2):
                db.execute("select pgq.force_tick('q'); select pgq.ticker('q')")

    def write(self, statement: str, pause: float = 0.005) -> None:
        """A writer on the root that repeats a statement."""

        def run() -> None:
            with connect(self.root.connstr, autocommit=True) as db:
                while not self.quiet.is_set() and not self.stop.wait(pause):
                    db.execute(statement)
                    self.written += 1

        self.writers.append(self._thread(run))

    def stop_writers(self) -> None:
        """What they have written last is committed."""
        self.quiet.set()
        for thread in self.writers:
            thread.join(120)

    def close(self) -> None:
        self.stop.set()
        self.worker.signals.stop.set()
        for thread in self.threads:
            thread.join(120)
        self.worker._close()

    def plant(self, statement: str) -> None:
        """A change on the leaf that no trigger sees."""
        with self.leaf.transaction():
            self.leaf.execute("set local session_replication_role = replica")
            self.leaf.execute(statement)


@pytest.fixture
def make_lab(
    make_db_on: Callable[..., Database],
    oldest: Any,
    newest: Any,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Lab]]:
    monkeypatch.setattr(replay, "run_tasks", run_here)
    made: list[Lab] = []

    def make(root: str = "ours", **settings: Any) -> Lab:
        # upstream's extensions exist for the oldest of our versions
        made.append(Lab(make_db_on(oldest, root), make_db_on(newest), spark, **settings))
        return made[-1]

    yield make
    for lab in made:
        lab.close()
        assert lab.errors == []
