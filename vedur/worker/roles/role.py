"""The contract between the loop of a worker and the role of its node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from vedur.db import Database
from vedur.node import WorkerState
from vedur.worker.context import WorkerContext


class Role(ABC):
    """One node's work; keeps its connections from round to round.

    A round owes the set four things. It says `worker.say_alive()` once it has found that it can
    work, or the start of a daemon never returns. It reports the lowest tick that this node and all
    below it need, or the provider's queue never rotates. A role that completes no batch clears the
    node's error itself, since only a position that is written does so otherwise. And where the
    node has changed meanwhile, it catches StaleStage itself (`LeafRole._stage_again`) and returns
    True, so that another round looks again.
    """

    #: Rounds follow each other after so many times `loop_delay`.
    pace: ClassVar[int] = 1

    def __init__(self, worker: WorkerContext) -> None:
        self.worker = worker

    @abstractmethod
    def do_round(self, target: Database, state: WorkerState) -> bool:
        """Do one piece of work; True if the next round should follow at once."""

    def rest(self, target: Database, state: WorkerState) -> None:
        """Do what must be done even while the worker is paused; called in each of its rounds."""
        return

    @property
    def listener(self) -> Database | None:
        """The connection on which news of ticks come; None to wait for time alone."""
        return None

    @property
    def provider_connstr(self) -> str:
        """How the provider was last reached; empty where there is none."""
        return ""

    def has_lost_spark(self, *, thorough: bool) -> bool:
        """Ask whether the Spark session that this role uses has died."""
        return False

    def disconnect(self) -> None:
        """Close all connections; the next round opens them anew, to where they lead then."""
        return

    def distrust(self) -> None:
        """Close all connections, and drop what this process has staged before it stages again."""
        self.disconnect()
