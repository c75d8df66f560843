"""Apply events in order; those that the server refuses go into quarantine or stop the batch.

Events go out together; a chunk that fails is undone and sent again in smaller ones, the smallest
one event at a time, each in a savepoint. So one bad event costs a few statements more, and a flood
of them a fixed number for each. Without a `Quarantine` the first refused event raises its error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from vedur.change.event import Event
from vedur.change.quarantine import FailedEvent, Quarantine, RowKey, name_failed_event
from vedur.errors import DatabaseError, StateError, VedurError
from vedur.pipeline.replay.row_by_row import RowWise
from vedur.tables.part_rows import name_conflict

_AT_ONCE = 500
#: Of a chunk that failed: a savepoint for so many, then one for each of those that failed again.
_FEW = 25


@dataclass
class Ordered:
    """Applies the events of one section of a batch."""

    rows: RowWise
    quarantine: Quarantine | None = None

    def run(self, events: Iterable[Event]) -> None:
        """Apply all of them, or quarantine them; writes to the tables."""
        source = iter(events)
        while chunk := list(islice(source, _AT_ONCE)):
            self._asked(chunk)
            if self.quarantine is not None:
                self.quarantine.flush()

    def _asked(self, chunk: Iterable[Event]) -> None:
        """Apply what the quarantine does not take. A failure in a run may change its answers for
        later events of the run: it is asked again when the run is taken apart."""
        if self.quarantine is None:
            self._together(list(chunk))
            return
        run: list[Event] = []
        for event in chunk:
            table = self.rows.table(event)
            if not self.quarantine.watches(table):
                run.append(event)
            elif self.quarantine.takes(event, table, self.rows.key(event)):
                continue
            elif self.rows.empties(event):
                self._together(run)
                run = []
                self._alone(event)
            else:
                run.append(event)
        self._together(run)

    def _together(self, run: list[Event]) -> None:
        if not run:
            return
        try:
            with self.rows.db.transaction():
                self.rows.send(run)
        except DatabaseError as error:
            if error.sqlstate is None:
                raise
            self._apart(run)
        except StateError:
            self._apart(run)

    def _apart(self, run: list[Event]) -> None:
        if len(run) > _FEW:
            for at in range(0, len(run), _FEW):
                self._asked(run[at : at + _FEW])
        else:
            for event in run:
                self._alone(event)

    def _alone(self, event: Event) -> None:
        quarantine, table = self.quarantine, self.rows.table(event)
        watches = quarantine if quarantine is not None and quarantine.watches(table) else None
        if watches is not None and watches.takes(event, table, self.rows.key(event)):
            return
        try:
            with self.rows.db.transaction():
                self.rows.one(event)
        except (DatabaseError, StateError) as error:
            if isinstance(error, DatabaseError) and error.sqlstate is None:
                raise
            key = self.rows.key(event)
            dest = self.rows.tables[table].dest
            failed = FailedEvent(event, table, dest, key.text if key else None)
            named = self._with_parts(name_failed_event(error, failed), table, key)
            if quarantine is None or not quarantine.takes_refused(failed, key, named):
                raise named from error
            return
        if watches is not None and self.rows.empties(event):
            watches.release_truncated(table, event)

    def _with_parts(self, error: VedurError, table: str, key: RowKey | None) -> VedurError:
        """Name the parts where a row of another one is in the way."""
        values = json.loads(key.text) if key is not None else None
        return name_conflict(self.rows.db, self.rows.tables[table].home, error, values)
