"""A root: publishes the global watermark, sends sequences, looks at tables.

And it asks, when it begins and every minute, whether it is still the root: a node that was away may
have been replaced meanwhile (node/epoch.py). Then its queue is closed, and nothing else is done. A
root that this one has replaced and that does not know it is closed from here.
"""

from __future__ import annotations

import logging

from vedur.catalog.sequences import root_check_seqs
from vedur.db import Database
from vedur.failpoint import reach
from vedur.node import WorkerState
from vedur.node.epoch import read_deposed
from vedur.node.state import set_consumer_error, set_global_watermark
from vedur.sql import query
from vedur.worker.context import WorkerContext
from vedur.worker.roles.reign import deposed_error, require_reign
from vedur.worker.roles.role import Role
from vedur.worker.stats import Stats
from vedur.worker.watch import look_for_changes

log = logging.getLogger(__name__)

#: Seconds between two looks at the other nodes: is this one still the root?
_LOOK_PERIOD = 60.0


class RootRole(Role):
    """The node where changes are made."""

    #: A root has little to do: it looks every tenth loop_delay, as upstream.
    pace = 10

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        self._next_watermark = 0.0
        self._next_look = 0.0
        self._stats = Stats()
        self._complaint: str | None = None  # about another root; this one goes on

    def do_round(self, target: Database, state: WorkerState) -> bool:
        """Publish what is due; there is never more to do at once."""
        worker, settings = self.worker, self.worker.settings
        now = worker.clock.monotonic()
        self._look(target, state, now)
        if self._is_closed(target):
            worker.say_alive()
            return False
        if now >= self._next_watermark:
            set_global_watermark(target, worker.queue, None)
            reach("root.watermark")
            self._next_watermark = now + settings.global_wm_publish_period
        root_check_seqs(target, worker.queue)
        reach("root.sequences")
        look_for_changes(target, worker.queue)
        if state.cur_error != self._complaint:  # a root completes no batch, which would clear it
            set_consumer_error(target, worker.queue, state.worker_name, self._complaint)
        worker.say_alive()
        self._stats.standby(log, worker.clock.monotonic(), settings.keepalive_stats)
        return False

    def rest(self, target: Database, state: WorkerState) -> None:
        """Ask whether this is still the root: writers are not paused with the worker."""
        self._look(target, state, self.worker.clock.monotonic())

    def _look(self, target: Database, state: WorkerState, now: float) -> None:
        if now >= self._next_look:
            self._complaint = require_reign(target, state, self.worker.settings)
            self._next_look = now + _LOOK_PERIOD

    def _is_closed(self, target: Database) -> bool:
        """Read whether a takeover has closed the queue: then nothing can be published; raises on a
        root that was deposed."""
        queue = self.worker.queue
        by = read_deposed(target, queue)
        if by is not None:
            raise deposed_error(by)
        return bool(target.value(query("takeover", "is_closed"), [queue]))

    def disconnect(self) -> None:
        """Ask again who is root before the next round."""
        self._next_look = 0.0
