"""Processes of the laboratory: kept alive as an init system would, and counted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.processes import taken

_RESTART_PAUSE = 0.2


@dataclass
class Supervised:
    """A command that is started again whenever it ends."""

    name: str
    argv: list[str]
    env: dict[str, str]
    output: Path
    place: Path
    restarts: int = 0
    held: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[bytes] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> Supervised:
        """Start it and a thread that watches it."""
        self._spawn()
        threading.Thread(target=self._watch, name=f"watch {self.name}", daemon=True).start()
        return self

    @property
    def pid(self) -> int:
        """Of the running process, or of the last one."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Does it run?"""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        with self._lock:
            if self.alive:
                os.kill(self.pid, signal.SIGKILL)
                assert self._process is not None
                self._process.wait()

    def stop(self) -> None:
        """End it for good."""
        self._ended.set()
        with self._lock:
            if self.alive:
                assert self._process is not None
                self._process.terminate()
                try:
                    self._process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()

    def _spawn(self) -> None:
        with self.output.open("ab") as out:
            self._process = subprocess.Popen(
                self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, cwd=self.place,
            )  # fmt: skip

    def _watch(self) -> None:
        while not self._ended.is_set():
            time.sleep(0.05)
            if self.alive or self.held.is_set():
                continue
            time.sleep(_RESTART_PAUSE)
            with self._lock:
                if not self._ended.is_set() and not self.alive and not self.held.is_set():
                    self.restarts += 1
                    self._spawn()


def children(*pids: int) -> list[int]:
    """All processes below some."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found, todo = [], list(pids)
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def cmdline(pid: int) -> str:
    """The command line of a process; '' where it has ended."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def memory_of(pid: int) -> float:
    """Memory of a process and of all below it in MB; what ends meanwhile counts nothing."""
    found = 0.0
    for p in (pid, *children(pid)):
        with contextlib.suppress(OSError):
            found += taken(p)
    return found


def java_of(pid: int) -> int | None:
    """The Java process below a worker."""
    return next((p for p in children(pid) if "/java " in cmdline(p)[:200]), None)


#: In the command line of the process that forks Python tasks, and of its children.
DAEMON = "vedur.pipeline.spark.task_process"


def spark_pythons(pid: int) -> tuple[list[int], list[int]]:
    """Spark's Python below a worker: the daemon, which the worker or its Java has started, and the
    processes it has forked for tasks."""
    below = [p for p in children(pid) if DAEMON in cmdline(p)]
    tops = [p for p in below if _parent(p) not in below]
    return tops, [p for p in below if p not in tops]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def working_in(place: Path) -> set[int]:
    """All living processes with this working directory: those that were started there, and below.

    (The environment would not do: a process that sets its title overwrites it.)
    """
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink() == place:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z":
                        found.add(int(entry.name))
    return found
