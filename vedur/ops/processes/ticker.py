"""The ticker process from its start to its end.

Steps: read the ini; logging; to the background if asked; pidfile; find and serve databases; tell
the starter; then wait for signals and write a statistics line now and then. A step that fails
before the starter was told fails the start; afterwards the process lives on and retries.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass, field

from vedur import __version__
from vedur.clock import SYSTEM
from vedur.config import PgqdSettings, load_pgqd
from vedur.daemon import (
    Detached,
    PidFile,
    Sent,
    Signals,
    detach,
    require_pidfile,
    set_title,
    signal_pidfile,
    tell_systemd,
)
from vedur.errors import ConfigError, InternalError, VedurError
from vedur.log import LogOptions, setup_logging
from vedur.ticker.service import TickerService

_log = logging.getLogger(__name__)


def signal_ticker(config: str, number: signal.Signals) -> Sent:
    """Send a signal to the ticker that runs with this ini."""
    return signal_pidfile(load_pgqd(config).pidfile, number)


@dataclass
class TickerProcess:
    """One run of the ticker."""

    config: str
    background: bool = False
    verbosity: int = 0
    _detached: Detached | None = None
    _signals: Signals = field(default_factory=Signals)

    def run(self) -> int:
        """Run until told to stop; the exit code. Raises `VedurError` where a start fails."""
        settings = load_pgqd(self.config)
        self._log_as(settings)
        if self.background:
            require_pidfile(settings.pidfile)
        _log.info("Starting pgqd %s", __version__)
        for warning in settings.warnings:
            _log.warning("%s", warning)
        if self.background:
            # Nothing heavy runs yet: no thread, no connection.
            self._detached = detach()
        try:
            return self._serve(settings)
        except VedurError as error:
            if self._detached is None:
                raise
            _log.critical("%s", error.message)
            self._detached.failed(error.message, error.exit_code)
            return error.exit_code
        except Exception as error:
            # In the background nobody sees a traceback on the terminal.
            _log.critical("BUG: unexpected error: %r", error, exc_info=True)
            if self._detached is None:
                raise
            self._detached.failed(f"BUG: unexpected error: {error!r}", InternalError.exit_code)
            return InternalError.exit_code

    def _serve(self, settings: PgqdSettings) -> int:
        set_title("pgqd", *(["-d"] if self.background else []), settings.config_file)
        pidfile = PidFile(settings.pidfile) if settings.pidfile else None
        if pidfile:
            pidfile.acquire()
        try:
            self._signals.on_exit = pidfile.release if pidfile else None
            self._signals.install()
            service = TickerService(settings)
            service.start()
            if self._detached:
                self._detached.ready()
            tell_systemd()
            self._wait(service)
            clean = service.stop()
        finally:
            if pidfile:
                pidfile.release()
        if not clean:
            # A thread that waits for a dead server would keep the interpreter from ending.
            logging.shutdown()
            os._exit(0)
        return 0

    def _wait(self, service: TickerService) -> None:
        last = SYSTEM.monotonic()
        while not self._signals.stop.is_set():
            period = service.context.settings.stats_period
            self._signals.wait(last + period - SYSTEM.monotonic())
            if self._signals.take_reload():
                self._reload(service)
            if SYSTEM.monotonic() - last >= period:
                last = SYSTEM.monotonic()
                _log.info("%s", service.context.stats.take())

    def _reload(self, service: TickerService) -> None:
        _log.info("Got SIGHUP, re-reading config")
        try:
            settings = load_pgqd(self.config)
            self._log_as(settings)
        except ConfigError as error:
            _log.error("%s; going on with the old settings", error.message)
            return
        except Exception as error:
            _log.exception("BUG: cannot reload: %r; going on with the old settings", error)
            return
        for warning in settings.warnings:
            _log.warning("%s", warning)
        service.reload(settings)

    def _log_as(self, settings: PgqdSettings) -> None:
        try:
            setup_logging(
                LogOptions(
                    logfile=settings.logfile,
                    verbosity=self.verbosity,
                    style="pgqd",
                    log_format=settings.log_format,
                    log_size=settings.log_size,
                    log_count=settings.log_count,
                    console=self._detached is None,
                    syslog_ident=settings.syslog_ident if settings.syslog else "",
                    syslog_facility=settings.syslog_facility,
                )
            )
        except OSError as error:
            raise ConfigError(
                f'cannot open log file "{settings.logfile}": {error.strerror}'
            ) from error
