"""A leaf whose staging tasks run in this process: Spark only carries them, tests can do without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS
from tests.oracle.leaf import Leaf, MakeDbOn
from tests.oracle.pair import Pair
from vedur.pipeline import replay
from vedur.pipeline.copy import load
from vedur.pipeline.copy.task import LoadTask
from vedur.pipeline.stage.task import StageTask, stage_slice


def run_here(_spark: object, task: StageTask, _plans: object) -> list[dict[str, Any]]:
    """The job without Spark."""
    from vedur.errors import error_from_json

    summaries = [json.loads(stage_slice(task, part)) for part in range(len(task.slices))]
    for said in summaries:
        if "error" in said:
            raise error_from_json(said)
    return summaries


def load_here(_spark: object, task: LoadTask, count: int) -> list[dict[str, object]]:
    """The job of a first copy without Spark."""
    return [json.loads(task.summary()) for _ in range(count)]


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay and first copies run in the process of the test."""
    monkeypatch.setattr(replay, "run_job", run_here)
    monkeypatch.setattr(load, "run_load", load_here)
    monkeypatch.setattr(load, "parallelism", lambda _spark: 1)


@pytest.fixture
def quick_leaf(
    servers: Any, make_db_on: MakeDbOn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Leaf]]:
    """quick_leaf(kind="ours", **settings): see `make_leaf`."""
    monkeypatch.setattr(replay, "run_job", run_here)
    made: list[Leaf] = []

    def make(kind: str = "ours", **settings: Any) -> Leaf:
        versions = (15, 15) if kind == "upstream" else (min(VERSIONS), max(VERSIONS))
        root, leaf = (make_db_on(servers.get(v), kind) for v in versions)
        made.append(Leaf(Pair.make(root, leaf), None, **settings))
        return made[-1]

    yield make
    for leaf in made:
        leaf.close()
