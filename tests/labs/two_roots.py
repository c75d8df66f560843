"""Sets between two or more databases, each of which may be the root of one and a leaf of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.labs.pair import call
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.db.install import install
from vedur.ops.session import Session
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker.batch import BatchRunner
from vedur.worker.loop import Worker


@dataclass
class Way:
    """A set of one root and one leaf; its worker is run round by round."""

    queue: str
    root: Database
    leaf: Database
    worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        queue, root, leaf = self.queue, self.root, self.leaf
        for db in (root, leaf):
            db.autocommit = True
            install(db)
            for name, node in (("root", root), ("leaf", leaf)):
                call(db, "pgq_node.register_location", queue, name, node.connstr, False)
        call(root, "pgq_node.create_node", queue, "root", "root", "root_w", None, None, None)
        last = self.tick()
        consumer = f"{queue}_worker"
        call(root, "pgq_node.register_subscriber", queue, "leaf", consumer, last)
        call(leaf, "pgq_node.create_node", queue, "leaf", "leaf", consumer, "root", last, None)
        self.settings = LondisteSettings(
            db=leaf.connstr, queue_name=queue, job_name=f"{queue}_leaf", exception_sleep=0.0
        )
        self.worker = Worker(self.settings, self._runner)

    def _runner(self, provider: str, _state: Any) -> BatchRunner[Any]:
        applier = SparkReplay(None, self.queue, provider, self.settings.db)  # type: ignore[arg-type]
        return BatchRunner(applier, self.queue, f"{self.queue}_worker", self.settings.db)

    def session(self) -> Session:
        """Return a session on the leaf."""
        return Session(self.settings)

    def tick(self) -> int:
        """Make a tick now; returns its number."""
        self.root.execute("select pgq.force_tick(%s)", [self.queue])
        self.root.execute("select pgq.ticker()")
        text = "select last_tick_id from pgq.get_queue_info(%s)"
        return int(self.root.value(text, [self.queue]))

    def catch_up(self) -> None:
        """Apply all that the queue has."""
        self.tick()
        while self.worker.work():
            pass

    def close(self) -> None:
        """End its worker."""
        self.worker._close()
