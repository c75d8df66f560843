"""Connections of a task process, kept from one task to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from vedur.db import Database, connect
from vedur.errors import DatabaseError

#: A slice is sorted where it is read, 100,000 events take about 30 MB.
SORT_MEMORY = "64MB"

_kept: dict[tuple[int, str], Database] = {}


def _alive(db: Database) -> bool:
    """A server that restarted leaves connections that fail on first use."""
    if db.closed:
        return False
    try:
        db.value("select 1")
    except DatabaseError:
        db.close()
        return False
    return True


@contextmanager
def link(connstr: str, name: str, keep: bool) -> Iterator[Database]:
    """A connection in autocommit mode; after an error, or without `keep`, it is closed."""
    mark = (os.getpid(), connstr)
    db = _kept.pop(mark, None)
    if db is None or not _alive(db):
        db = connect(connstr, name=name, autocommit=True, application_name="vedur task")
        # A giant tick is one statement of many minutes, a kept connection is idle for hours.
        db.without_timeouts().with_memory("work_mem", SORT_MEMORY)
    try:
        yield db
    except BaseException:
        db.close()
        raise
    if keep:
        _kept[mark] = db
    else:
        db.close()
