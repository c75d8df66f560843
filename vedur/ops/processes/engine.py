"""The Spark session of a process: started when the first worker needs it, and again when it dies.

Several workers may use one. Whoever finds it dead starts the next; the others wait for that, and
find the new one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


class Engine:
    """Holds the session. `start` makes one."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._session: SparkSession | None = None
        self._changing = threading.Lock()
        self._failure: Exception | None = None
        self._failures = 0

    def get(self) -> SparkSession:
        """Return a session that lives."""
        failures = self._failures
        with self._changing:
            if self._failure is not None and self._failures != failures:
                raise self._failure  # it was tried while we waited: the next try has its own time
            if self._session is not None and not self._is_alive(thorough=True):
                log.warning("Spark has gone, starting it again")
                self._end()
            if self._session is None:
                self._session = self._make()
            return self._session

    def has_lost(self, session: SparkSession, *, thorough: bool) -> bool:
        """Ask whether a session that somebody has got here is dead, or was and is replaced."""
        return session is not self._session or not self._is_alive(thorough)

    def interrupt(self, job: str) -> None:
        """Cancel all that a job has running; never raises."""
        session = self._session
        if session is None:
            return
        from vedur.pipeline.spark.spark_pool import interrupt_pools

        try:
            interrupt_pools(session, job)
        except Exception as error:
            log.debug("jobs cannot be cancelled: %s", error)

    def stop(self) -> None:
        """End the session and its Java."""
        with self._changing:
            self._end()

    def _make(self) -> SparkSession:
        log.debug("starting Spark")
        try:
            session = self._start()
        except Exception as error:
            self._failure = error
            self._failures += 1
            raise
        self._failure = None
        log.debug("Spark is ready")
        return session

    def _is_alive(self, thorough: bool) -> bool:
        from vedur.pipeline.spark.session import is_alive

        session = self._session
        return session is not None and is_alive(session, thorough)

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            from vedur.pipeline.spark.session import stop_session

            stop_session(session)
