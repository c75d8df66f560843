"""What Spark does with tasks, done in the process that asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from vedur.errors import VedurError
from vedur.pipeline.spark.tasks import TaskAnswer, plain


def run_here(
    _spark: object, do: Callable[[Any], Any], items: Sequence[Any], _kept: object = None
) -> list[Any]:
    """Do the work of `run_tasks` without Spark; answers are JSON all the same."""
    return [json.loads(json.dumps(do(item), default=plain)) for item in items]


def try_here(
    spark: object, do: Callable[[Any], Any], items: Sequence[Any], _kept: object = None
) -> list[TaskAnswer]:
    """Do the work of `try_tasks` without Spark."""
    answers = []
    for item in items:
        try:
            answers.append(TaskAnswer(*run_here(spark, do, [item])))
        except VedurError as error:
            answers.append(TaskAnswer(error=error))
    return answers
