"""Settings of a queue that a branch has from its provider: when it ticks, when it rotates.

What is meant for one node alone stays out: whether it has an external ticker, is paused, or is
closed for writers.
"""

from __future__ import annotations

from vedur.db import Database
from vedur.sql import query


def follow_settings(provider: Database, db: Database, queue: str) -> list[str]:
    """Give the queue of a branch its provider's settings; returns the names of those that were
    others. SQL of an earlier version does not know how, and keeps its own."""
    if not db.value(query("publish", "can_follow_settings")):
        return []
    row = provider.one(query("admin", "queue_settings"), [queue])
    if row is None:
        return []
    values = {"queue": queue, **row._asdict()}
    return list(db.value(query("publish", "follow_settings"), values) or ())
