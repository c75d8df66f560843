"""All databases of a server under one ticker.

Which databases those are is looked up through `initial_database` every `check_period`, or given
by `database_list`. A thread of its own does the looking, so that a server that does not answer
holds up neither signals nor databases already known.
"""

from __future__ import annotations

import logging
import threading

from vedur.clock import SYSTEM, Backoff, Clock
from vedur.config import PgqdSettings
from vedur.errors import ConnectError, VedurError
from vedur.threads import Pool, Thread
from vedur.ticker import duties as ticker
from vedur.ticker.jobs import Context, DatabaseJobs, stop_all

_log = logging.getLogger(__name__)

#: A server that is starting or stopping will be there soon: no reason to refuse a start.
_COMING_UP = ("57P03", "57P01", "57P02")

#: Connections made at once when the databases of a list are tried at start.
_START_CONNECTIONS = 8


class TickerService:
    """Keeps the set of served databases equal to what the server has."""

    def __init__(self, settings: PgqdSettings, clock: Clock = SYSTEM) -> None:
        self.context = Context(settings, clock)
        self._databases: dict[str, DatabaseJobs] = {}
        self._leaving: list[DatabaseJobs] = []
        # Held while the set of databases changes: none may begin to be served behind a stop's back.
        self._changing = threading.Lock()
        self._stop = threading.Event()
        self._look = threading.Event()
        self._thread = Thread(target=self._watch, name="databases", daemon=True)

    @property
    def databases(self) -> list[str]:
        """Return the names of the databases that are served now."""
        return sorted(self._databases)

    def start(self) -> None:
        """Find the databases and serve them; raises where a start makes no sense.

        That is: no database can be reached, for another reason than a server coming up.
        """
        try:
            names = self._find()
            if self.context.settings.database_list:
                self._try_each(names)
        except ConnectError as error:
            if error.sqlstate not in _COMING_UP:
                raise
            _log.warning("server is not ready: %s", error.message)
            names = []
            self._look.set()
        self._serve(names)
        self._thread.start()

    def reload(self, settings: PgqdSettings) -> None:
        """Use other settings from the next round of each job on."""
        self.context.settings = settings
        self._look.set()

    def stop(self) -> bool:
        """Stop all threads and wait; False when some thread does not end."""
        with self._changing:
            self._stop.set()
            jobs = [*self._databases.values(), *self._leaving]
        self._look.set()
        return stop_all(jobs, self.context.clock)

    def _find(self) -> list[str]:
        settings = self.context.settings
        if settings.database_list:
            return list(settings.database_list)
        with self.context.connect(settings.initial_database) as db:
            return ticker.list_databases(db)

    def _try_each(self, names: list[str]) -> None:
        """Raise the first error when none of the databases can be reached."""
        with Pool(_START_CONNECTIONS) as pool:
            errors = list(pool.map(self._try, names))
        first = next((error for error in errors if error), None)
        if first and all(errors):
            raise first

    def _try(self, name: str) -> ConnectError | None:
        try:
            self.context.connect(name).close()
        except ConnectError as error:
            return error
        return None

    def _serve(self, names: list[str]) -> None:
        with self._changing:
            if not self._stop.is_set():
                self._change(set(names))

    def _change(self, wanted: set[str]) -> None:
        self._leaving = [jobs for jobs in self._leaving if jobs.running]
        for name in set(self._databases) - wanted:
            _log.info("Unregister database: [%s]", name)
            jobs = self._databases.pop(name)
            jobs.ask_to_stop()
            self._leaving.append(jobs)
        for name in sorted(wanted - set(self._databases)):
            jobs = DatabaseJobs(name, self.context)
            try:
                jobs.start()
            except Exception:
                # No thread to be had: forget the database, so that the next look tries again.
                jobs.ask_to_stop()
                self._leaving.append(jobs)
                raise
            self._databases[name] = jobs

    def _watch(self) -> None:
        backoff = Backoff()
        pause = self.context.settings.check_period
        while True:
            self.context.clock.wait(self._look, pause)
            self._look.clear()
            if self._stop.is_set():
                return
            try:
                self._serve(self._find())
                backoff.reset()
                pause = self.context.settings.check_period
            except VedurError as error:
                _log.error("looking for databases: %s", error.message, exc_info=True)
                pause = min(backoff.pause(), self.context.settings.check_period)
            except Exception as error:
                # Without this thread new databases would never be served.
                _log.exception("BUG: looking for databases: %r", error)
                pause = min(backoff.pause(), self.context.settings.check_period)
