"""Which plan of Spark's a batch may use, and what the driver believes of its tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from vedur.errors import DatabaseError, InternalError, error_to_json
from vedur.pipeline.replay.task import StageTask
from vedur.pipeline.spark import tasks
from vedur.pipeline.spark.tasks import KeptPlans, item_mark, read_answers
from vedur.tables.mapping import TableSpec

TABLE = TableSpec("public.t", '"public"."t"', "q", ())
TASK = StageTask("host=a", "host=b", "q", "pgq.event_1", 1, 0, {"public.t": TABLE})


@pytest.fixture
def plan_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plan that a task gets: a number, a new one for each that is made."""
    made: list[StageTask] = []
    plans = KeptPlans()

    def plan(_spark: object, task: StageTask, _items: None, _count: int) -> int:
        made.append(task)
        return len(made)

    monkeypatch.setattr(tasks, "_make_plan", plan)
    return lambda task, count=1: plans.find(cast(Any, None), task, count)


def test_slices_need_no_other_plan(plan_of: Any) -> None:
    assert plan_of(TASK) == 1
    assert plan_of(TASK) == 1
    assert plan_of(replace(TASK, tables={"public.t": replace(TABLE)})) == 1  # read again, the same


def test_another_number_of_slices_does(plan_of: Any) -> None:
    assert plan_of(TASK) == 1
    assert plan_of(TASK, 2) == 2


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
    assert [plan_of(TASK, count) for count in (1, 2, 3)] == [1, 2, 3]
    assert plan_of(TASK, 3) == 3
    assert plan_of(TASK, 2) == 2
    assert plan_of(TASK, 1) == 4  # had to go


def said(number: int, item: str) -> str:
    return json.dumps({"number": number, "item": item_mark(item), "value": item})


def test_tasks_must_have_had_the_items_that_were_meant() -> None:
    marks = [item_mark("a"), item_mark("b")]
    answers = read_answers([said(1, "b"), said(0, "a")], 2, marks)
    assert [answer.get() for answer in answers] == ["a", "b"]
    for wrong in ([said(0, "a"), said(1, "c")], [said(0, "b"), said(1, "a")]):
        with pytest.raises(InternalError, match="other items"):
            read_answers(wrong, 2, marks)
    for wrong in ([said(0, "a")], [said(0, "a"), said(0, "a"), said(1, "b")]):
        with pytest.raises(InternalError, match="2 tasks were started"):
            read_answers(wrong, 2, marks)


def test_an_error_comes_back_as_what_it_was() -> None:
    error = DatabaseError("division by zero", sqlstate="22012")
    (answer,) = read_answers([json.dumps({"number": 0, **error_to_json(error)})], 1)
    with pytest.raises(DatabaseError, match=r"^division by zero$") as caught:
        answer.get()
    assert caught.value.sqlstate == "22012"
