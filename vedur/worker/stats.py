"""What batches cost: stage by stage in `vedur.batch_log` on the target, and as lines in the log.

The table is for those who watch: the status page, metrics, an operator with psql. Replay does not
depend on it: a batch is recorded after it is finished, by a statement whose commit waits for no
disk, and a failure to record is a line in the debug log.

The lines are upstream's: `{count: 123, duration: 0.04, idle: 3.1}`, names with numbers, sorted.
There may be any names; `prev_tick` and `tick` are ours, and say which batch a line is about.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from vedur.clock import SYSTEM, Clock
from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError
from vedur.queue.batches import Batch
from vedur.sql import query

log = logging.getLogger(__name__)

STAGES = ("stage", "merge", "commit", "finish")


@dataclass
class BatchLog:
    """Times one batch after the other."""

    queue: str
    consumer: str
    clock: Clock = SYSTEM
    _last: float = 0.0
    _spent: dict[str, float] = field(default_factory=dict)
    _kept: bool | None = None

    def begin(self) -> None:
        """Begin the times of a batch."""
        self._spent = dict.fromkeys(STAGES, 0.0)
        self._last = self.clock.monotonic()

    def mark(self, stage: str) -> None:
        """End a stage; the time since the mark before is its own."""
        now = self.clock.monotonic()
        self._spent[stage] = self._spent.get(stage, 0.0) + now - self._last
        self._last = now

    def write(self, target: Database, batch: Batch, stats: dict[str, int]) -> None:
        """Write the times of a finished batch; `target` is in autocommit mode. Empty batches are no
        news."""
        events = stats.get("count", 0)
        if not events or self._kept is False:
            return
        try:
            if self._kept is None:
                self._kept = bool(target.value(query("worker", "has_batch_log")))
            if self._kept:
                values = [self._spent[stage] for stage in STAGES]
                row = [self.queue, self.consumer, batch.prev_tick, batch.tick, events, *values]
                # One string of two statements is one transaction, and one way to the server.
                target.execute(target.mogrify(query("worker", "log_batch"), row))
        except ConnectError:
            raise  # the server has gone, and with it what is staged for the next batch
        except DatabaseError as error:
            self._kept = False
            log.debug("batches are not recorded any more: %s", error.message)


# -- lines in the log -----------------------------------------------------------------------------


def render(values: dict[str, float]) -> str:
    """Return the values as text: keys in order, whole numbers whole, others with two digits."""
    shown = [
        f"{key}: {value if isinstance(value, int) else format(value, '.2f')}"
        for key, value in sorted(values.items())
    ]
    return "{" + ", ".join(shown) + "}"


@dataclass
class Stats:
    """Knows when the last line was written."""

    last_end: float | None = None
    last_line: float = 0.0

    def worked(
        self, log: logging.Logger, batch: Batch, done: dict[str, int], began: float, now: float
    ) -> None:
        """Log the numbers of a batch that ended."""
        ticks = {"prev_tick": batch.prev_tick, "tick": batch.tick}
        values: dict[str, float] = {**done, **ticks, "duration": now - began}
        if self.last_end is not None:
            values["idle"] = max(0.0, began - self.last_end)
        self.last_end = self.last_line = now
        # An empty tick is no news; it would fill the log of a quiet night.
        log.log(logging.INFO if done.get("count") else logging.DEBUG, "%s", render(values))

    def idle(self, log: logging.Logger, now: float, period: float) -> None:
        """Log now and then that there is nothing to do."""
        if period and now - self.last_line >= period:
            idle = now - self.last_end if self.last_end is not None else 0.0
            log.info("%s", render({"idle": idle}))
            self.last_line = now

    def standby(self, log: logging.Logger, now: float, period: float) -> None:
        """Log the round of a root, now and then."""
        if now - self.last_line >= period or not self.last_line:
            log.info("{standby: 1}")
            self.last_line = now
