"""How long a worker waits between two looks at its node."""

from __future__ import annotations

from typing import Any, cast

import pytest

from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.worker.loop import Worker
from vedur.worker.roles.leaf import LeafRole
from vedur.worker.roles.root import RootRole


class Waits(Signals):
    """Writes down what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


@pytest.mark.parametrize(
    ("paused", "root", "loop_delay", "waits"),
    [
        (False, False, 1.0, 1.0),
        (False, True, 1.0, 10.0),
        (True, False, 1.0, 0.1),  # resume is answered at once
        (True, True, 1.0, 0.1),
        (True, False, 0.06, 0.06),
    ],
)
def test_a_paused_worker_looks_more_often(
    paused: bool, root: bool, loop_delay: float, waits: float
) -> None:
    settings = LondisteSettings(
        db="dbname=x", queue_name="q", job_name="j", loop_delay=loop_delay
    )  # fmt: skip
    signals = Waits()
    worker = Worker(settings, cast(Any, None), signals)
    worker._paused = paused
    worker._role = RootRole(worker) if root else LeafRole(worker)
    worker._wait()
    assert signals.seconds == [waits]
