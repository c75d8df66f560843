"""A leaf worker that tests run round by round, and the fixture that makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS
from tests.labs.pair import QUEUE, WORKER, Pair
from vedur.change.quarantine import Policy
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.pipeline.replay.stage import SparkReplay
from vedur.pipeline.replay.staged import Staged
from vedur.worker.batch import BatchRunner
from vedur.worker.loop import Worker
from vedur.worker.roles.leaf import LeafRole

MakeDbOn = Callable[..., Database]


class Leaf:
    """A pair whose leaf worker is run round by round."""

    def __init__(self, pair: Pair, spark: Any, **settings: Any) -> None:
        self.pair = pair
        self.root, self.leaf = pair.root, pair.leaf
        self.appliers: list[SparkReplay] = []
        self.spark = spark
        self.parallel = 1
        self.flush_bytes = 32 << 20
        self.settings = LondisteSettings(
            db=pair.leaf.connstr, queue_name=QUEUE, job_name="leaf", exception_sleep=0.0, **settings
        )
        self.worker = Worker(self.settings, self._runner)

    def _runner(self, provider: str, _state: Any) -> BatchRunner[Staged]:
        applier = SparkReplay(
            self.spark,
            QUEUE,
            provider,
            self.settings.db,
            flush_bytes=self.flush_bytes,
            missing_columns=self.settings.missing_columns,
        )
        self.appliers.append(applier)
        return BatchRunner(
            applier,
            QUEUE,
            WORKER,
            self.settings.db,
            max_batch_events=self.settings.max_batch_events,
            parallel=self.parallel,
            on_error=Policy(self.settings.on_error),
        )

    @property
    def runner(self) -> BatchRunner[Any]:
        """What applies its batches; there once a round was made."""
        runner = self.role._runner
        assert runner is not None
        return runner

    @property
    def role(self) -> LeafRole:
        """What its rounds are; there once one was made."""
        role = self.worker._role
        assert isinstance(role, LeafRole)
        return role

    def catch_up(self) -> None:
        """Apply all that the queue has."""
        self.pair.tick()
        while self.worker.work():
            pass

    def same(self, table: str, dest: str | None = None) -> list[str]:
        """Both sides hold the same rows; returns them."""
        here, there = self.pair.rows(table, dest)
        assert there == here
        return here

    def close(self) -> None:
        self.worker._close()


@pytest.fixture
def make_leaf(servers: Any, make_db_on: MakeDbOn, spark: Any) -> Iterator[Callable[..., Leaf]]:
    made: list[Leaf] = []

    def make(kind: str = "ours", **settings: Any) -> Leaf:
        """Our schemas on the oldest and the newest server at hand, or upstream's on 15."""
        versions = (15, 15) if kind == "upstream" else (min(VERSIONS), max(VERSIONS))
        template = "beside" if kind == "upstream" else kind  # the pair would install it anyway
        root, leaf = (make_db_on(servers.get(v), template) for v in versions)
        pair = Pair.make(root, leaf)
        made.append(Leaf(pair, spark, **settings))
        return made[-1]

    yield make
    for leaf in made:
        leaf.close()
