"""Events in their order, and what becomes of those that the server refuses.

Events go out together; a chunk that fails is undone and sent again in smaller ones, the smallest
one event at a time, each in a savepoint. So one bad event costs a few statements more, and a flood
of them a fixed number for each. Without an `Aside` the first refused event is the caller's error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from vedur.change.aside import Aside, Blame, blame
from vedur.change.event import Event
from vedur.errors import DatabaseError, StateError
from vedur.pipeline.apply.rowwise import RowWise

_AT_ONCE = 500
#: Of a chunk that failed: a savepoint for so many, then one for each of those that failed again.
_FEW = 25


@dataclass
class Ordered:
    """Applies the events of one section of a batch."""

    rows: RowWise
    aside: Aside | None = None

    def run(self, events: Iterable[Event]) -> None:
        """Apply all of them, or put them aside."""
        source = iter(events)
        while chunk := list(islice(source, _AT_ONCE)):
            self._asked(chunk)
            if self.aside is not None:
                self.aside.flush()

    def _asked(self, chunk: Iterable[Event]) -> None:
        """Apply what the quarantine does not keep. A failure in a run may change its answers for
        later events of the run: they are asked about again when the run is taken apart."""
        if self.aside is None:
            self._together(list(chunk))
            return
        run: list[Event] = []
        for event in chunk:
            table = self.rows.table(event)
            if not self.aside.watches(table):
                run.append(event)
            elif self.aside.keeps(event, table, self.rows.key(event)):
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
        aside, table = self.aside, self.rows.table(event)
        watched = aside is not None and aside.watches(table)
        if aside is not None and watched and aside.keeps(event, table, self.rows.key(event)):
            return
        try:
            with self.rows.db.transaction():
                self.rows.one(event)
        except (DatabaseError, StateError) as error:
            if isinstance(error, DatabaseError) and error.sqlstate is None:
                raise
            key = self.rows.key(event)
            blamed = Blame(event, table, self.rows.tables[table].dest, key.text if key else None)
            blame(error, blamed)
            if aside is None or not aside.refused(blamed, key, error):
                raise
            return
        if aside is not None and watched and self.rows.empties(event):
            aside.emptied(table, event)
