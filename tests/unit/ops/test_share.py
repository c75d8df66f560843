"""How many of Spark's slots a queue may fill."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vedur.config import LondisteSettings
from vedur.ops.processes.share import Share, share_of
from vedur.ops.processes.worker import Beside, WorkerOptions, WorkerProcess
from vedur.pipeline.copy import Budget


@pytest.mark.parametrize("slots", range(1, 40))
def test_one_queue_that_hangs_leaves_a_slot_to_each_of_the_others(slots: int) -> None:
    assert share_of(slots, 1) == Share(slots, slots)
    for queues in range(2, 20):
        share = share_of(slots, queues)
        assert share.replay >= 1 and share.copies >= 1
        if slots > queues:
            assert sum(share) <= slots - (queues - 1)
        else:
            assert share == Share(1, 1)


@pytest.mark.parametrize(("share", "most"), [(Share(2, 1), 1), (Share(9, 8), 6), (None, 6)])
def test_first_copies_keep_to_the_share_when_they_catch_up(share: Share | None, most: int) -> None:
    """Tables that catch up read with so many tasks, and have seats by it; alone all are theirs."""
    settings = LondisteSettings(
        db="dbname=x", queue_name="q", job_name="j", max_connections_per_node=6
    )
    nothing = cast(Any, None)
    beside = Beside("j", nothing, "", 2, lambda: Budget(6), *[nothing] * 4) if share else None
    process = WorkerProcess(settings, WorkerOptions(), beside)
    worker = cast(Any, SimpleNamespace(settings=settings, copies=None))
    process._worker = worker
    process._allow_copies(nothing, share or Share(20, 20))
    assert worker.copies.setup.connections == most
    assert worker.copies._catch_ups.seats.total == max(1, most // 2)
    assert worker.copies.loader.max_connections == worker.copies.loader.budget.total == most
