"""Connections of a task process, kept from one task to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.errors import DatabaseError

#: A slice is sorted where it is read, 100,000 events take about 30 MB.
SORT_MEMORY = "64MB"

#: Seconds after which a kept connection that nobody used is closed: a queue that has been stopped,
#: or reads from another node now, must not keep a database from being dropped.
IDLE = 300.0


class _Kept(NamedTuple):
    db: Database
    since: float


_kept: dict[tuple[int, str], _Kept] = {}


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
    found = _kept.pop(mark, None)
    _close_idle()
    db = found.db if found is not None else None
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
        _kept[mark] = _Kept(db, SYSTEM.monotonic())
    else:
        db.close()


def _close_idle() -> None:
    old = SYSTEM.monotonic() - IDLE
    for mark in [mark for mark, kept in _kept.items() if kept.since < old]:
        kept = _kept.pop(mark, None)
        if kept is not None and mark[0] == os.getpid():
            kept.db.close()
