"""Processes of a laboratory, found by a mark in their environment.

A pidfile appears some time after its process, and Java of Spark has none: who is interrupted
between cannot know from files what runs. Every process that a laboratory starts inherits the mark
instead, and `end` ends every process that still carries it. Without /proc nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from vedur.clock import SYSTEM, Clock

MARK = "VEDUR_LAB"
_PROC = Path("/proc")
#: A process that was killed is gone within so many seconds, unless the kernel is stuck in it.
_DEATH = 60.0


def marks(base: Path) -> dict[str, str]:
    """Return environment variables by which the processes of the laboratory in `base` are
    recognised."""
    return {
        MARK: str(base),
        "TMPDIR": str(base / "scratch"),  # their files go with it
        "SPT_NOENV": "1",  # a process title would be written over the mark
    }


def marked(base: Path) -> list[int]:
    """List the running processes of a laboratory."""
    mark = f"{MARK}={base}".encode()
    found = []
    for place in _PROC.glob("[0-9]*"):
        # ended meanwhile, or another user's
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return sorted(found)


def alive(pid: int) -> bool:
    """Does the process run? A zombie does not."""
    try:
        os.kill(pid, 0)
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return not _PROC.is_dir() or (_PROC / str(pid)).exists()


def end(base: Path, patience: float = 10.0, clock: Clock = SYSTEM) -> None:
    """End the remaining processes of a laboratory: SIGTERM first and, after `patience` seconds,
    SIGKILL; waits until they are gone. Each is told, however long a look at all processes takes."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, _DEATH)):
        deadline = clock.monotonic() + seconds
        told: set[int] = set()
        while found := marked(base):
            _send([pid for pid in found if pid not in told], number)
            told.update(found)  # one that was just born is told next time
            if clock.monotonic() >= deadline:
                break
            clock.sleep(0.05)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
