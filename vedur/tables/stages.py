"""Staging tables of commands in schema vedur_work, and those that a killed command has left.

`repair`, `change-filter`, `compare` of handled rows and `quarantine replay` make tables that their
tasks write to, and drop them at the end. Whoever uses one holds it by a lock of its session. One
that nobody holds is debris; the worker of the node drops it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError
from vedur.sql import query

log = logging.getLogger(__name__)


def stage_prefix(area: str) -> str:
    """Return what the names of the staging tables of a replay begin with; `area` is a queue, or
    what a queue is replayed for besides."""
    return f"stage_{zlib.crc32(area.encode()):08x}_"


def quarantine_area(queue: str) -> str:
    """Return the area of `quarantine replay`."""
    return f"{queue} quarantine"


@contextmanager
def held_stage(db: Database, *names: str) -> Iterator[None]:
    """Keep staging tables, by name or by what their names begin with, from being dropped as debris;
    take this before they are made. A session that ends lets go of them."""
    bare = [name.removeprefix("vedur_work.") for name in names]
    for name in bare:
        db.execute(query("watch", "hold_stage"), [name])
    try:
        yield
    finally:
        if not db.closed:
            # what has gone wrong is said already; the lock ends with the session
            with suppress(DatabaseError):
                for name in bare:
                    db.execute(query("watch", "release_stage"), [name])


def drop_left_stages(db: Database, queue: str) -> list[str]:
    """Drop the staging tables of commands that have died; returns their names. Nobody is waited
    for, and work goes on where one cannot be dropped."""
    dropped = []
    try:
        prefix = stage_prefix(quarantine_area(queue))
        for row in db.query(query("watch", "stages_of_commands"), {"prefix": prefix}):
            if _drop(db, row.name, row.held):
                dropped.append(str(row.name))
    except ConnectError:
        raise
    except DatabaseError as error:
        log.warning("cannot look for staging tables that are left: %s", error)
    return dropped


def _drop(db: Database, name: str, held: str) -> bool:
    try:
        with db.transaction():
            if not db.value(query("watch", "try_stage"), [held]):
                return False
            db.execute(query("watch", "patience"))
            db.execute(query("watch", "drop_stage").format(stage=name))
    except ConnectError:
        raise
    except DatabaseError as error:
        log.debug("%s stays for now: %s", name, error)
        return False
    return True
