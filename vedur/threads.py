"""Threads that know for which job they work, and the job of the thread at hand.

One process may run the workers of several queues (`vedur/ops/processes/many.py`). Each is a job,
with its own log file, handlers and share of Spark. What a job starts in further threads belongs to
it too: so threads and pools are made here only (tests/house/test_threads.py), and take over what
the thread that made them knows. A process of one worker has one job, whose name is empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_job: ContextVar[str] = ContextVar("job", default="")


def current_job() -> str:
    """Return the name of the job that this thread works for; empty where the process has one."""
    return _job.get()


@contextmanager
def working_for(job: str) -> Iterator[None]:
    """Let this thread, and those that it starts meanwhile, work for a job."""
    token = _job.set(job)
    try:
        yield
    finally:
        _job.reset(token)


class Thread(threading.Thread):
    """A thread of the job that makes it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.job = current_job()
        self._taken_over = copy_context()

    def run(self) -> None:
        """Do the work of the thread."""
        self._taken_over.run(super().run)


class Pool(ThreadPoolExecutor):
    """A pool of threads, in which each call works for the job that has submitted it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have `fn` called in a thread."""
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))


def threads_of(job: str) -> list[Thread]:
    """Return the threads of a job that have not ended, but for the one that asks."""
    return [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, Thread)
        and thread.job == job
        and thread is not threading.current_thread()
    ]
