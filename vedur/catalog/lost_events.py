"""Events that only a deposed root had (`vedur.lost_event`): kept by `resurrect`, read by people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from vedur.change.event import Event
from vedur.db import Database
from vedur.sql import query

#: Rows of one read: a list may be long, and is passed on as it comes.
_PORTION = 1000


@dataclass(frozen=True)
class LostEvent:
    """One event, where it was written, and the tick at which the next root had taken over."""

    id: int
    node_name: str
    epoch: str | None
    first_tick: int
    tick_id: int | None
    ev_id: int
    ev_time: datetime
    ev_txid: int
    ev_type: str | None
    ev_data: str | None
    ev_extra1: str | None
    ev_extra2: str | None
    ev_extra3: str | None
    ev_extra4: str | None
    kept_at: datetime

    @property
    def event(self) -> Event:
        """The event as the queue had it."""
        return Event(
            self.ev_id, self.ev_txid, self.ev_type or "", self.ev_data, self.ev_extra1,
            self.ev_extra2, self.ev_extra3, self.ev_extra4,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--format=json`."""
        times = {"ev_time": self.ev_time.isoformat(), "kept_at": self.kept_at.isoformat()}
        return {**asdict(self), **times}


def keeps_lost_events(db: Database) -> bool:
    """Read whether this database has the table, and this role may write there."""
    return bool(db.value(query("resurrect", "available")))


def keep_lost_events(db: Database, queue: str, tick: int, epoch: str | None) -> int:
    """Move everything behind a tick out of the queue, in the caller's transaction; how much."""
    return int(db.value(query("resurrect", "keep"), [queue, tick, epoch]))


def count_behind(db: Database, queue: str, tick: int) -> dict[str, int]:
    """Count the events of a queue behind one of its ticks, by table or type."""
    place = db.one(query("resurrect", "events"), [tick, queue])
    if place is None:
        return {}
    words = {"events": place.events, "snapshot": db.mogrify("%s", [place.snapshot])}
    rows = db.query(query("resurrect", "behind").format(**words))
    return {row.about: int(row.n) for row in rows}


def get_lost_events(db: Database, queue: str) -> Iterator[LostEvent]:
    """Read what was kept, in the order of writing."""
    last: int | None = None
    while True:
        rows = db.query(query("resurrect", "list"), [queue, last, last, _PORTION])
        for row in rows:
            yield LostEvent(*row)
        if len(rows) < _PORTION:
            return
        last = rows[-1].id


def forget_lost_events(db: Database, queue: str) -> int:
    """Delete what was kept; how much that was."""
    return db.execute(query("resurrect", "forget"), [queue])
