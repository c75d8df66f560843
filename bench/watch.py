"""What a worker uses: the peaks of its processes' memory and of its connections, while it works."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vedur import db as vdb

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_CONNECTIONS = """
select count(*) from pg_stat_activity
where application_name like 'vedur%' and pid <> pg_backend_pid()
"""


@dataclass
class Peaks:
    """Megabytes by role of process, connections by side, seconds of CPU by role."""

    rss: dict[str, int] = field(default_factory=dict)
    connections: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
            except OSError:
                continue
    return found


def tree(pid: int) -> dict[int, str]:
    """Find the processes of a worker by role: driver, java, task."""
    children, roles, todo = _children(), {pid: "driver"}, [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            try:
                java = Path(f"/proc/{child}/exe").readlink().name == "java"
            except OSError:
                continue
            roles[child] = "java" if java else "task"
            todo.append(child)
    return roles


def _measure(pid: int, peaks: Peaks, cpu: dict[int, float]) -> None:
    now: dict[str, int] = {}
    for process, role in tree(pid).items():
        try:
            stat = _stat(process)
        except OSError:
            continue
        size = int(stat[21]) * _PAGE >> 20
        # Of several tasks the largest one counts, they come and go.
        now[role] = max(now.get(role, 0), size)
        cpu[process] = (int(stat[11]) + int(stat[12])) / _TICKS
    for role, size in now.items():
        peaks.rss[role] = max(peaks.rss.get(role, 0), size)


def usage(pid: int) -> tuple[dict[str, int], dict[str, float]]:
    """Read megabytes and seconds of CPU by role, of all processes of a tree together."""
    rss: dict[str, int] = {}
    cpu: dict[str, float] = {}
    for process, role in tree(pid).items():
        try:
            stat = _stat(process)
        except OSError:
            continue
        rss[role] = rss.get(role, 0) + (int(stat[21]) * _PAGE >> 20)
        cpu[role] = cpu.get(role, 0.0) + (int(stat[11]) + int(stat[12])) / _TICKS
    return rss, cpu


@contextmanager
def watched(pid: int, sides: dict[str, str], every: float = 0.2) -> Iterator[Peaks]:
    """Watch a process tree and the connections to some databases until the context ends."""
    peaks, stop = Peaks(), threading.Event()
    begin: dict[int, float] = {}
    _measure(pid, peaks, begin)
    latest = dict(begin)

    def look() -> None:
        links = {side: vdb.connect(text, autocommit=True, application_name="bench")
                 for side, text in sides.items()}  # fmt: skip
        while not stop.wait(every):
            _measure(pid, peaks, latest)
            for side, link in links.items():
                count = int(link.value(_CONNECTIONS))
                peaks.connections[side] = max(peaks.connections.get(side, 0), count)
        for link in links.values():
            link.close()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()
        roles = tree(pid)
        for process, used in latest.items():
            role = roles.get(process, "task")
            spent = used - begin.get(process, 0.0)
            peaks.cpu[role] = round(peaks.cpu.get(role, 0.0) + spent, 2)
