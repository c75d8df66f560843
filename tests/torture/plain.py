"""Workers that carry their tasks themselves: the same tasks, in the worker's process, without Java.

Spark only carries tasks to where they run. A worker without it is there a second after kill -9, so
that a campaign can afford to kill it at every step; what Spark itself adds (tasks that die, Java
that dies) belongs to campaigns with Spark. The record of a cycle says which it was.
"""

from __future__ import annotations

import importlib
from typing import Any

#: The variable that makes `tests.torture.entry` start a program like this.
PLAIN = "VEDUR_TORTURE_PLAIN"


class _NoSpark:
    """Stands for the session; nobody may ask it for anything."""


def carry_tasks_here() -> None:
    """Replace what starts Spark and what sends tasks to it, in this process."""
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
