"""All databases of a server under one ticker, and the threads that it has for each of them.

Which databases those are is looked up through `initial_database` every `check_period`, or given
by `database_list`. A thread of its own does the looking, so that a server that does not answer
holds up neither signals nor databases already known.

A database has a thread for each duty, so that none waits for another. The ticking thread also finds
out whether the database has queues at all; the other two sleep until it does. A thread that loses
its connection says so, waits a little longer each time and connects again; nothing that happens to
one database is felt by the others. What a duty is, is in `duties.py`.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from functools import cache

from vedur.clock import SYSTEM, Backoff, Clock
from vedur.config import PgqdSettings
from vedur.db import Database, connect
from vedur.db.conninfo import parse, with_params
from vedur.errors import ConnectError, VedurError
from vedur.threads import Pool, Thread
from vedur.ticker import duties as ticker
from vedur.ticker.pace import Pace

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


# -- one database ---------------------------------------------------------------------------------

#: Work that comes round more seldom than this gives its connection back in between.
_KEEP_SECONDS = 5.0

#: A server that vanished is noticed after this many milliseconds, also while a query is under way.
_TCP_USER_TIMEOUT = "60000"

#: The words of the statistics line, in its order.
_COUNTED = ("ticks", "maint", "retry")

#: Time that threads get to end by themselves before their statements are cancelled.
_GRACE_SECONDS = 2.0


@dataclass
class Stats:
    """Counts since the last statistics line: ticker runs, maintenance runs, retried events."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, count: int = 1) -> None:
        with self._lock:
            self._counts[what] = self._counts.get(what, 0) + count

    def take(self) -> str:
        """Return the statistics line and start counting again."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return "{" + ", ".join(f"{w}: {counts.get(w, 0)}" for w in _COUNTED) + "}"


@cache
def _connstr(base: str, database: str) -> str:
    # Cached, because every tick asks whether its connection still points to the right place.
    extra = {"tcp_user_timeout": _TCP_USER_TIMEOUT} | parse(base)
    return with_params(base, **(extra | {"dbname": database}))


@dataclass
class Context:
    """What all databases share; `settings` is replaced on reload."""

    settings: PgqdSettings
    clock: Clock
    stats: Stats = field(default_factory=Stats)

    def connstr(self, database: str) -> str:
        """Return the connect string of one database of the server."""
        return _connstr(self.settings.base_connstr, database)

    def connect(self, database: str) -> Database:
        """Open a connection for the ticker."""
        return connect(
            self.connstr(database), name=database, autocommit=True, application_name="pgqd"
        )


class Job:
    """One duty towards one database, in a thread of its own."""

    def __init__(self, name: str, database: str, context: Context) -> None:
        self.context = context
        self.database = database
        self.stop = threading.Event()
        self.thread = Thread(target=self._run, name=f"{name} {database}", daemon=True)
        self._db: Database | None = None
        self._connected_at = 0.0
        self._connstr = ""

    def _run(self) -> None:
        backoff = Backoff()
        clock = self.context.clock
        while not self.stop.is_set():
            started = clock.monotonic()
            try:
                pause = self.step()
                backoff.reset()
            except VedurError as error:
                self._close()
                if self.stop.is_set():
                    break
                pause = backoff.pause()
                _log.error("[%s]: %s", self.database, error.message, exc_info=True)
            except Exception as error:
                # A thread must not die silently: the database would stop ticking for ever.
                self._close()
                pause = backoff.pause()
                _log.exception("[%s]: BUG: unexpected error: %r", self.database, error)
            clock.wait(self.stop, pause - (clock.monotonic() - started))
        self._close()

    def step(self) -> float:
        """Do the duty once; returns the seconds from its start to the next time."""
        raise NotImplementedError

    def connection(self) -> Database:
        """Return the connection; opens a new one where there is none, or it is too old or leads
        elsewhere."""
        wanted = self.context.connstr(self.database)
        age = self.context.clock.monotonic() - self._connected_at
        if self._db is not None and (
            self._db.closed
            or wanted != self._connstr
            or age > self.context.settings.connection_lifetime
        ):
            self._close()
        if self._db is None:
            self._db = self.context.connect(self.database)
            self._connstr = wanted
            self._connected_at = self.context.clock.monotonic()
            self.on_connect(self._db)
        return self._db

    def on_connect(self, db: Database) -> None:
        """Do what a new connection needs; called with each one."""

    def rest(self, period: float) -> float:
        """End a round: keep the connection only when it is needed again soon."""
        if period > _KEEP_SECONDS:
            self._close()
        return period

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def cancel(self) -> None:
        """Cancel the running statement, if there is one."""
        db = self._db
        if db is not None:
            try:
                db.cancel()
            except Exception as error:
                _log.debug("[%s]: cancel failed: %s", self.database, error)


class TickJob(Job):
    """Ticks; knows whether the database has queues."""

    def __init__(self, database: str, context: Context) -> None:
        super().__init__("ticker", database, context)
        self.has_queues = threading.Event()
        self._queues = ticker.Queues(None, False)
        self._pace = Pace()
        self._announced: str | None = None

    def on_connect(self, db: Database) -> None:
        self._queues = ticker.probe(db)
        version = self._queues.version
        if version is None:
            _log.debug("[%s]: no pgq", self.database)
            self.has_queues.clear()
        elif version != self._announced:
            _log.info("[%s]: pgq version ok: %s", self.database, version)
        self._announced = version
        if version is not None:
            self.has_queues.set()

    def step(self) -> float:
        db = self.connection()
        if self._queues.version is None:
            self._close()
            return self.context.settings.check_period
        now, settings = self.context.clock.monotonic(), self.context.settings
        lags = self._queues.tick(db).lags
        self.context.stats.add("ticks")
        return self._pace.until_next(now, lags, settings.ticker_period, settings.busy_period)


class SideJob(Job):
    """A duty that waits until the database is known to have queues."""

    def __init__(self, name: str, database: str, context: Context, tick: TickJob) -> None:
        super().__init__(name, database, context)
        self._has_queues = tick.has_queues

    def step(self) -> float:
        if not self._has_queues.is_set():
            self._close()
            self.context.clock.wait(self._has_queues, self.context.settings.check_period)
            return 0.0
        return self.work()

    def work(self) -> float:
        raise NotImplementedError


class MaintenanceJob(SideJob):
    """Rotation, vacuum and what other schemas have registered."""

    def work(self) -> float:
        ticker.maintain(self.connection(), self.stop.is_set)
        self.context.stats.add("maint")
        return self.rest(self.context.settings.maint_period)


class RetryJob(SideJob):
    """Events that a consumer has put off."""

    def work(self) -> float:
        moved = ticker.retry_events(self.connection(), self.stop.is_set)
        self.context.stats.add("retry", moved)
        return self.rest(self.context.settings.retry_period)


class DatabaseJobs:
    """All duties towards one database."""

    def __init__(self, database: str, context: Context) -> None:
        self.database = database
        self._clock = context.clock
        self._tick = TickJob(database, context)
        self._jobs: list[Job] = [
            self._tick,
            MaintenanceJob("maint", database, context, self._tick),
            RetryJob("retry", database, context, self._tick),
        ]

    def start(self) -> None:
        for job in self._jobs:
            job.thread.start()

    def ask_to_stop(self) -> None:
        """Ask every thread to end after its current statement; does not wait."""
        for job in self._jobs:
            job.stop.set()
        self._tick.has_queues.set()

    @property
    def running(self) -> list[Job]:
        """List the jobs whose thread has not ended yet."""
        return [job for job in self._jobs if job.thread.is_alive()]


def stop_all(databases: list[DatabaseJobs], clock: Clock) -> bool:
    """Stop all threads and wait for them; statements that take too long are cancelled. False when
    some hang."""
    for database in databases:
        database.ask_to_stop()
    for limit, action in ((_GRACE_SECONDS, _cancel), (_GRACE_SECONDS, None)):
        end = clock.monotonic() + limit
        for job in _running(databases):
            job.thread.join(max(0.0, end - clock.monotonic()))
        left = _running(databases)
        if not left:
            return True
        if action:
            action(left)
    return False


def _running(databases: list[DatabaseJobs]) -> list[Job]:
    return [job for database in databases for job in database.running]


def _cancel(jobs: list[Job]) -> None:
    # In threads, because a cancel request needs a connection of its own to a server that may hang.
    for job in jobs:
        Thread(target=job.cancel, daemon=True).start()
