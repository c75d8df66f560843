"""Connections of a job, so that what they do can be cancelled when the job must end at once."""

from __future__ import annotations

import contextlib
import threading
from typing import Any
from weakref import WeakSet

import psycopg

from vedur.threads import current_job

#: Seconds that a server may take to hear that a statement is to be cancelled.
_PATIENCE = 2.0

_open: dict[str, WeakSet[psycopg.Connection[Any]]] = {}
_lock = threading.Lock()


def keep_in_mind(raw: psycopg.Connection[Any]) -> None:
    """Remember a connection of this thread's job. A process of one job just ends."""
    job = current_job()
    if job:
        with _lock:
            _open.setdefault(job, WeakSet()).add(raw)


def cancel_statements(job: str) -> None:
    """Cancel what the connections of a job are doing now; never raises."""
    with _lock:
        known = list(_open.get(job, ()))
    for raw in known:
        with contextlib.suppress(psycopg.Error):
            if not raw.closed:
                raw.cancel_safe(timeout=_PATIENCE)


def forget_connections(job: str) -> None:
    """Let go of what is known of a job that has ended."""
    with _lock:
        _open.pop(job, None)
