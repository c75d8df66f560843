"""The partitions that a handler sends changes to by the time of their event or batch."""

from __future__ import annotations

from vedur.change.event import EventRange
from vedur.db import Database
from vedur.sql import query
from vedur.tables.mapping import TableSpec


def read_moment(db: Database, spec: TableSpec, source: EventRange | None) -> str:
    """Read the time that chooses the partition of a batch, as a clock on the wall shows it.

    What comes from the quarantine has no batch any more: then it is the time of its replay.
    """
    assert spec.partitions is not None
    if spec.partitions.moment == "batch" and source is not None and source.time:
        return source.time
    return str(db.value(query("replay", "clock")))


def find_partition(db: Database, spec: TableSpec, moment: str) -> str | None:
    """Find the partition of a time, quoted, and make it if it is not there; None where what belongs
    there is to be left out."""
    words = [spec.home, spec.partition_words, moment]
    found = db.value(query("replay", "make_partition"), words)
    return None if found is None else str(found)
