"""Which plan of Spark's a batch may use, and what the driver believes of its tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from vedur.change.table import TableSpec
from vedur.errors import InternalError
from vedur.pipeline.stage import job
from vedur.pipeline.stage.task import StageTask, fingerprint

TABLE = TableSpec("public.t", '"public"."t"', "q", ())
TASK = StageTask(
    "host=a", "host=b", "q", "pgq.event_1", 1, 0, {"public.t": TABLE}, ("ev_txid = 1",)
)


@pytest.fixture
def plan_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plan that a task gets: a number, a new one for each that is made."""
    made: list[StageTask] = []
    plans: job.Plans = {}

    def plan(_spark: object, task: StageTask, _count: int) -> int:
        made.append(task)
        return len(made)

    monkeypatch.setattr(job, "_plan", plan)
    return lambda task: job._kept(cast(Any, None), task, plans)


def test_slices_need_no_other_plan(plan_of: Any) -> None:
    assert plan_of(TASK) == 1
    assert plan_of(replace(TASK, slices=("ev_txid = 2",))) == 1
    assert plan_of(replace(TASK, tables={"public.t": replace(TABLE)})) == 1  # read again, the same


@pytest.mark.parametrize(
    "changed",
    [
        {"provider": "host=c"},
        {"target": "host=c"},
        {"events": "pgq.event_2"},
        {"owner": 2},
        {"slot": 1},
        {"tables": {}},
        {"tables": {"public.t": replace(TABLE, condition="id > 1")}},
        {"slices": ("ev_txid = 1", "ev_txid = 2")},
        {"log_tables": frozenset({"public.t"})},
        {"log_from": 7},
        {"flush_bytes": 1},
        {"keep_links": False},
    ],
)
def test_anything_else_does(plan_of: Any, changed: dict[str, Any]) -> None:
    assert plan_of(TASK) == 1
    assert plan_of(replace(TASK, **changed)) == 2


def test_few_plans_are_kept(plan_of: Any) -> None:
    counts = [replace(TASK, slices=("x",) * n) for n in range(1, 4)]
    assert [plan_of(t) for t in counts] == [1, 2, 3]
    assert plan_of(counts[2]) == 3
    assert plan_of(counts[1]) == 2
    assert plan_of(replace(TASK, slot=1)) == 4
    assert plan_of(counts[1]) == 2
    assert plan_of(counts[0]) == 5  # had to go


def said(part: int, text: str) -> dict[str, Any]:
    return {"part": part, "read": fingerprint(text)}


def test_tasks_must_have_read_what_was_meant() -> None:
    task = replace(TASK, slices=("a", "b"))
    found = job.checked(task, [said(1, "b"), said(0, "a")])
    assert [s["part"] for s in found] == [0, 1]
    for wrong in (
        [said(0, "a"), said(1, "c")],
        [said(0, "b"), said(1, "a")],
        [said(0, "a")],
        [said(0, "a"), said(0, "a"), said(1, "b")],
    ):
        with pytest.raises(InternalError, match="other events"):
            job.checked(task, wrong)
