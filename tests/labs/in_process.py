"""A leaf whose staging tasks run in this process: Spark only carries them, tests can do without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS
from tests.labs.leaf import Leaf, MakeDbOn
from tests.labs.pair import Pair
from tests.labs.tasks_here import run_here as run_here
from tests.labs.tasks_here import try_here as try_here
from vedur.pipeline.compare import engine, jobs
from vedur.pipeline.copy import load
from vedur.pipeline.replay import stage as replay


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay and first copies run in the process of the test."""
    stay_here(monkeypatch)


def stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replay and first copies run in this process."""
    monkeypatch.setattr(replay, "run_tasks", run_here)
    monkeypatch.setattr(load, "try_tasks", try_here)
    monkeypatch.setattr(load, "parallelism", lambda _spark: 1)


@pytest.fixture
def compare_here(monkeypatch: pytest.MonkeyPatch) -> object:
    """Let sums of comparisons, and rows that come with another condition, be read in the process
    of the test; what stands in for the Spark session is to be given to commands."""
    monkeypatch.setattr(jobs, "run_tasks", run_here)
    for module in (engine, jobs):
        monkeypatch.setattr(module, "parallelism", lambda _spark: 1)
    return object()


@pytest.fixture
def quick_leaf(
    servers: Any, make_db_on: MakeDbOn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Leaf]]:
    """quick_leaf(kind="ours", **settings): see `make_leaf`."""
    monkeypatch.setattr(replay, "run_tasks", run_here)
    made: list[Leaf] = []

    def make(kind: str = "ours", **settings: Any) -> Leaf:
        versions = (15, 15) if kind == "upstream" else (min(VERSIONS), max(VERSIONS))
        template = "beside" if kind == "upstream" else kind  # the pair would install it anyway
        root, leaf = (make_db_on(servers.get(v), template) for v in versions)
        made.append(Leaf(Pair.make(root, leaf), None, **settings))
        return made[-1]

    yield make
    for leaf in made:
        leaf.close()
