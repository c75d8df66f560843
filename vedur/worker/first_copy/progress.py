"""Progress of a load: a row on the target every second, a line in the log every few."""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any

from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import VedurError
from vedur.sql import query
from vedur.threads import Thread
from vedur.worker.first_copy.context import CopySetup, Plan

log = logging.getLogger(__name__)

PERIOD = 1.0
#: A line in the log for so many rows on the target.
_LOG_EVERY = 3


class Progress:
    """Watches a load in a thread of its own; an error here never disturbs the load."""

    def __init__(self, setup: CopySetup, table: str, plan: Plan, clock: Clock) -> None:
        self.setup = setup
        self.table = table
        self.plan = plan
        self.clock = clock
        self._end = threading.Event()
        self._thread = Thread(target=self._watch, name="vedur-progress", daemon=True)

    def __enter__(self) -> Progress:
        self._started = self.clock.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(timeout=10)

    def finish(self, db: Database) -> None:
        """Store the final numbers."""
        self._store(db)

    def _watch(self) -> None:
        if self.clock.wait(self._end, PERIOD):
            return
        try:
            with self.setup.connect() as db:
                for number in itertools.count(1):
                    if number % _LOG_EVERY:
                        self._store(db)
                    else:
                        self._show(db)
                    if self.clock.wait(self._end, PERIOD):
                        return
        except VedurError as error:
            log.debug("%s: cannot follow the copy: %s", self.table, error)

    def _store(self, db: Database) -> tuple[Any, int, int]:
        totals = db.one(query("copy", "slice_totals"), [self.setup.queue, self.table])
        running = db.one(query("copy", "running_totals"), [self.plan.task_name])
        rows = totals.rows_done + running.rows_done
        size = totals.bytes_done + running.bytes_done
        row = {
            "queue_name": self.setup.queue,
            "table_name": self.table,
            "slices": totals.slices,
            "slices_done": totals.slices_done,
            "rows_estimated": self.plan.rows_estimated,
            "rows_done": rows,
            "bytes_estimated": self.plan.bytes_estimated,
            "bytes_done": size,
        }
        db.execute(query("copy", "set_progress"), row)
        return totals, rows, size

    def _show(self, db: Database) -> None:
        totals, rows, size = self._store(db)
        seconds = max(self.clock.monotonic() - self._started, 0.001)
        rate = rows / seconds
        left = self.plan.rows_estimated - rows
        ending = f", about {left / rate:.0f} s left" if rate and left > 0 else ""
        log.info(
            "%s: %d rows, %.1f MB, %.0f rows/s, slice %d of %d%s",
            self.table,
            rows,
            size / 1e6,
            rate,
            totals.slices_done,
            totals.slices,
            ending,
        )
