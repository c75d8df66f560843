"""Wakes the worker of a node for which a command has left work: tables to copy.

A worker that has nothing to do sleeps `loop_delay` (1 s), unless its provider tells of a tick. The
first copy of 5,000,000 rows waited 0.3 to 1.0 s for that, of 8 to 13 s in all; called, 0.05 s.
"""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.sql import query

log = logging.getLogger(__name__)


def call_worker(provider: Database, queue: str) -> None:
    """Say the newest tick again. Only a hint: what was asked for is stored, and found anyway."""
    try:
        provider.execute(query("admin", "call_worker"), [queue])
    except DatabaseError as error:
        log.debug("the worker wakes up by itself: %s", error)
