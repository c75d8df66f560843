"""Step 10 of a first copy, and what remains after `ok`: snapshots end, foreign keys come back.

Runs in a thread of its own because checking a foreign key can take long. It is added NOT VALID
first and validated after, so replay goes on meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from vedur import db as vdb
from vedur.catalog import TableInfo
from vedur.catalog.tables import change_table_state
from vedur.change.snapshot import Snapshot
from vedur.clock import Clock
from vedur.errors import VedurError
from vedur.queue.batches import get_ticks
from vedur.sql import query
from vedur.tables.indexes import get_valid_pending_fkeys
from vedur.threads import Thread
from vedur.worker.first_copy.context import CopySetup
from vedur.worker.first_copy.states import State, snapshot_is_past

log = logging.getLogger(__name__)

_PERIOD = 1.0
#: Seconds between two looks for foreign keys that copies of other queues have put aside.
_LOOK_PERIOD = 3.0
#: A foreign key that cannot come back (rows that break it) is tried again, but not at once.
_FKEY_RETRY = 60.0


class Settler:
    """Looks after tables that are ok but not yet as they were."""

    def __init__(self, setup: CopySetup, clock: Clock) -> None:
        self.setup = setup
        self.clock = clock
        self._thread: threading.Thread | None = None
        self._next = 0.0
        self._next_look = 0.0
        self._look = True
        self._fkeys_at: dict[str, float] = {}

    def look_again(self) -> None:
        """Have foreign keys looked at again, which may come back: a table has become ok."""
        self._look = True
        self._next = 0.0

    def settle(
        self, target: vdb.Database, provider: str, tables: Sequence[TableInfo], position: int
    ) -> None:
        """Start a look if there is anything to look at; never waits."""
        now = self.clock.monotonic()
        if not self._look and now >= self._next_look:
            # Of several queues one brings a key back (`get_valid_pending_fkeys`), and nobody tells
            # it when the table of another is in sync, or when that is copied anew.
            self._next_look = now + _LOOK_PERIOD
            self._look = bool(target.value(query("copy", "has_pending_fkeys")))
        held = [t for t in tables if t.custom_snapshot and t.ready]
        if now < self._next or not (held or self._look):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._next = now + _PERIOD
        self._look = False
        self._thread = Thread(
            target=self._run, args=(provider, held, position), name="vedur-settle", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Wait for a look that is under way."""
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _run(self, provider: str, held: Sequence[TableInfo], position: int) -> None:
        try:
            with self.setup.connect() as target:
                if held:
                    self._end_snapshots(provider, target, held, position)
                self._restore_fkeys(target)
        except VedurError as error:
            log.warning("cannot finish copied tables yet: %s", error)
            self._look = True

    def _end_snapshots(
        self, provider: str, target: vdb.Database, held: Sequence[TableInfo], position: int
    ) -> None:
        queue = self.setup.queue
        with vdb.connect(provider, name="provider_db", autocommit=True) as db:
            ticks = get_ticks(db, queue, position, position)
        if not ticks:
            return
        for table in held:
            if table.custom_snapshot is None:
                continue
            if snapshot_is_past(Snapshot.parse(table.custom_snapshot), ticks[0].snapshot):
                change_table_state(target, queue, table, None, State.OK.value)
                self._look = True

    def _restore_fkeys(self, target: vdb.Database) -> None:
        now = self.clock.monotonic()
        for fkey in get_valid_pending_fkeys(target, self.setup.queue):
            name = f"{fkey.from_table} {fkey.fkey_name}"
            if self._fkeys_at.get(name, 0.0) > now:
                continue
            try:
                self._restore_one(target, fkey.from_table, fkey.fkey_name)
                log.info("%s: foreign key %s restored", fkey.from_table, fkey.fkey_name)
            except VedurError as error:
                self._fkeys_at[name] = now + _FKEY_RETRY
                self._look = True
                log.warning("%s: foreign key %s cannot be restored: %s", fkey.from_table,
                            fkey.fkey_name, error)  # fmt: skip

    def _restore_one(self, target: vdb.Database, table: str, name: str) -> None:
        for _ in range(5):
            with target.transaction():
                text = target.value(query("copy", "restore_fkey"), [table, name])
                if not text:
                    return
                target.execute(text)
