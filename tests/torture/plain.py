"""Programs that carry their tasks themselves: the same tasks, in their own process, without Java.

Spark only carries tasks to where they run. A worker without it is there a second after kill -9, so
that a campaign can afford to kill it at every step; what Spark itself adds (tasks that die, Java
that dies) belongs to campaigns with Spark. The record of a cycle says which it was. A command that
compares counts in its own process, too; which rows differ is worked out by Spark (spark_server.py).
"""

from __future__ import annotations

import importlib
from typing import Any

#: The variable that makes `tests.torture.entry` start a program like this, and its values.
PLAIN = "VEDUR_TORTURE_PLAIN"
WORKER, COMMAND = "worker", "command"


class _NoSpark:
    """Stands for the session; nobody may ask it for anything. Tags tell Spark whose jobs are whose
    (a process of several queues sets them), and here it has none."""

    def clearTags(self) -> None:
        return

    def addTag(self, _tag: str) -> None:
        return

    def interruptTag(self, _tag: str) -> None:
        return


def carry_here(program: str) -> None:
    """Replace what sends tasks to Spark, in this process."""
    if program == WORKER:
        _carry_tasks_of_worker()
    else:
        _carry_tasks_of_command()


def _carry_tasks_of_command() -> None:
    from tests.labs.tasks_here import run_here
    from vedur.pipeline.compare import engine, jobs

    session: Any = importlib.import_module("vedur.pipeline.spark.session")
    session.warm_up = lambda *args: None
    jobs.run_tasks = run_here  # type: ignore[assignment]
    engine.parallelism = jobs.parallelism = lambda _spark: 2


def _carry_tasks_of_worker() -> None:
    from tests.labs.tasks_here import run_here, try_here
    from vedur.pipeline.copy import load
    from vedur.pipeline.replay import stage
    from vedur.pipeline.spark import tasks

    # not the function of the same name that the package offers
    session: Any = importlib.import_module("vedur.pipeline.spark.session")
    session.start_session = lambda *args, **options: _NoSpark()
    session.is_alive = lambda *args, **options: True
    session.stop_session = lambda *args, **options: None
    stage.run_tasks = run_here  # type: ignore[assignment]
    load.try_tasks = try_here  # type: ignore[assignment]
    load.parallelism = tasks.parallelism = lambda _spark: 2
    tasks.has_slot_kept = lambda _spark: False
