"""What the roles of a worker use of it: settings, clock, and what its process has handed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vedur.clock import SYSTEM, Clock
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.node import WorkerState
from vedur.worker.batch import BatchRunner
from vedur.worker.first_copy.control import Copying

#: make_runner(provider's connect string, state); what its applier stages is nobody else's business
MakeRunner = Callable[[str, WorkerState], BatchRunner[Any]]


@dataclass
class WorkerContext:
    """The surroundings of one node's worker.

    `make_runner` is called when a node begins to apply batches. `spark_lost` tells whether the
    runner's Spark has died; True for a thorough look; `spark_log` is the file of Java's lines, if
    it is not beside the log. `on_alive` is called once, when the worker has seen that it can work;
    `on_failed` with each error before that: without it, an error that waiting does not cure ends
    the worker. `on_node` is called with the name of the node.
    """

    settings: LondisteSettings
    make_runner: MakeRunner
    signals: Signals = field(default_factory=Signals)
    clock: Clock = SYSTEM
    copies: Copying[Any] | None = None
    reload: Callable[[], LondisteSettings] | None = None
    spark_lost: Callable[[bool], bool] = lambda thorough: False
    spark_log: str | None = None
    on_alive: Callable[[], None] | None = None
    on_failed: Callable[[Exception], None] | None = None
    on_node: Callable[[str], None] | None = None

    @property
    def queue(self) -> str:
        """The set that is replicated."""
        return self.settings.queue_name

    def say_alive(self) -> None:
        """Tell the starter, once, that the worker works."""
        told, self.on_alive = self.on_alive, None
        if told is not None:
            told()
