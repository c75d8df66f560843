"""What a worker does about an error: a line in the log, a line in `status`, a pause.

A server that is away, a Spark that has died or a deadlock is a matter of moments: the pause begins
with a second and doubles up to `exception_sleep`, and ends early when a server that was away
answers again. Any other error waits `exception_sleep`, as upstream: the same statement would fail
again. What an operator asks of the worker meanwhile, to pause or to read from another node, ends
every pause: it may be the way out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from vedur.clock import Backoff
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.errors import ConnectError, DatabaseError, EngineLost, VedurError, first_line
from vedur.log import spark_log
from vedur.node import get_worker_state
from vedur.node.endpoint import Endpoint
from vedur.node.state import set_consumer_error

log = logging.getLogger(__name__)

#: Seconds between two looks at a server that does not answer.
PROBE_SECONDS = 1.0
#: Seconds that such a look may take; libpq knows no shorter time.
_PROBE_PATIENCE = 2


@dataclass
class Recovery:
    """Reports errors and measures pauses; `reset` after a round that worked."""

    signals: Signals
    spark_log: str | None = None
    _backoff: Backoff = field(default_factory=lambda: Backoff(first=PROBE_SECONDS))

    def reset(self) -> None:
        """Reset the waits: a round worked, and the next error is a new one."""
        self._backoff.reset()

    # -- telling --------------------------------------------------------------------------------

    def report(self, settings: LondisteSettings, error: Exception) -> None:
        """Log it and show it in `status`, if the target can be reached."""
        verbose = log.isEnabledFor(logging.DEBUG)
        message = error.message if isinstance(error, VedurError) else first_line(error)
        where = spark_log(settings.logfile) if self.spark_log is None else self.spark_log
        if where and (isinstance(error, EngineLost) or not isinstance(error, VedurError)):
            message += f" (what Spark says itself is in {where})"
        _store(settings, message)
        if isinstance(error, DatabaseError) and not isinstance(error, ConnectError):
            log.error(
                "Job %s got error on connection '%s': %s.   Query: %s",
                settings.job_name,
                error.values.get("connection"),
                message,
                _first_sql_line(error.values.get("query")),
                exc_info=verbose,
            )
        else:
            log.error("Job %s crashed: %s", settings.job_name, message, exc_info=verbose)

    # -- waiting --------------------------------------------------------------------------------

    def pause(self, settings: LondisteSettings, error: Exception, provider: str) -> None:
        """Wait before the next try; a signal ends it. `provider` is its connect string."""
        self._backoff.cap = settings.exception_sleep
        transient = _is_transient(error)
        connstr = _away(settings, error, provider) if transient else ""
        clock = self.signals.clock
        # by the clock: a host that is switched off does not even refuse, and each look takes long
        end = clock.monotonic() + (self._backoff.pause() if transient else settings.exception_sleep)
        while (left := end - clock.monotonic()) > 0:
            if self.signals.wait(min(left, PROBE_SECONDS)):
                return
            if _is_asked(settings, error) or (connstr and _answers(connstr)):
                return


def _is_transient(error: Exception) -> bool:
    return isinstance(error, (ConnectError, EngineLost)) or (
        isinstance(error, DatabaseError) and error.is_transient
    )


def _away(settings: LondisteSettings, error: Exception, provider: str) -> str:
    """Return whom to ask for; '' where the server was there and broke off, or refused the login.

    A statement that brings its server down would do so again at once, and a server that counts
    failed logins should not see one a second: there only time helps.
    """
    if not isinstance(error, ConnectError) or error.values.get("query") is not None:
        return ""
    if "FATAL:" in error.message and error.sqlstate != "57P03":
        return ""
    return settings.db if error.values.get("connection") == "db" else provider


def _answers(connstr: str) -> bool:
    try:
        Endpoint(connstr).with_connect_timeout(_PROBE_PATIENCE).open("probe").close()
    except VedurError:
        return False
    return True


def _is_asked(settings: LondisteSettings, error: Exception) -> bool:
    """Does an operator wait for an answer of this worker, as pause and change-provider do? Reads
    the node's state."""
    if isinstance(error, ConnectError) and error.values.get("connection") == "db":
        return False  # that is the database where it would be written
    try:
        with Endpoint.of_local(settings).with_connect_timeout(_PROBE_PATIENCE).open("db") as db:
            state = get_worker_state(db, settings.queue_name)
    except VedurError:
        return False
    return state is not None and not state.uptodate


def _store(settings: LondisteSettings, message: str) -> None:
    try:
        with Endpoint.of_local(settings).open("db") as db:
            state = get_worker_state(db, settings.queue_name)
            if state is not None:
                set_consumer_error(db, settings.queue_name, state.worker_name, message)
    except VedurError as again:
        log.warning("Failure to call pgq_node.set_consumer_error()")
        log.debug("%s", again)


def _first_sql_line(text: object) -> str:
    lines = [x for x in str(text or "").splitlines() if x.strip() and not x.startswith("--")]
    return " ".join(x.strip() for x in lines)[:300]
