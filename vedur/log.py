"""Logging: line formats, rotation, verbosity, and the masking of passwords.

Two text styles carry over from Londiste, and one is ours:

    londiste   2012-05-31 09:13:41,442 31116 INFO text
    pgqd       2012-05-30 21:35:07.497 9446 LOG text
    json       {"time": ..., "pid": ..., "level": ..., "logger": ..., "message": ..., fields}

Every line passes through `mask`, exceptions included, so no password of a connect string reaches
a log. Tracebacks appear with `-v` only. Talk goes to stderr; stdout belongs to data.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.config
import logging.handlers
import os
import re
import select
import shutil
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vedur.threads import current_job

TRACE = 5
logging.addLevelName(TRACE, "TRACE")

MASK = "***"

_SYSLOG_SOCKET = "/dev/log"

_KEYWORD = r"(?<![?&\w])((?:ssl)?password\s*=\s*)"
#: In a literal of SQL the quotes of a value are doubled.
_QUOTED = r"(?:''(?:\\''|\\.|[^'\\])+''|'(?:[^'\\]|\\.)*')"
#: Inside a sentence a value may be followed by the quote or bracket that encloses the string.
_IN_TEXT = re.compile(
    rf"{_KEYWORD}(?:{_QUOTED}|(?:\\.|[^\s\\])+?(?=['\")\],;:.]*(?:\s|$)))", re.IGNORECASE
)
_IN_CONNSTR = re.compile(rf"{_KEYWORD}(?:{_QUOTED}|(?:\\.|[^\s\\])+)", re.IGNORECASE)
_URI_USER = re.compile(r"(postgres(?:ql)?://[^\s:/@]*):[^\s/]*@", re.IGNORECASE)
_URI_QUERY = re.compile(r"([?&](?:ssl)?password=)[^&\s'\"]*", re.IGNORECASE)
_SQL = re.compile(rf"(\bpassword\s+){_QUOTED}", re.IGNORECASE)


def mask(text: str) -> str:
    """Return `text` with the passwords of all connect strings and statements in it masked."""
    if "assword" not in text and "ASSWORD" not in text and "://" not in text:
        return text
    return _mask(text, _IN_TEXT)


def mask_connstr(connstr: str) -> str:
    """Return a connect string, key/value or URI, with the password masked."""
    return _mask(connstr, _IN_CONNSTR)


def _mask(text: str, keyword: re.Pattern[str]) -> str:
    text = _URI_USER.sub(rf"\1:{MASK}@", text)
    text = _URI_QUERY.sub(rf"\1{MASK}", text)
    text = keyword.sub(rf"\1{MASK}", text)
    return _SQL.sub(rf"\1'{MASK}'", text)


def holds_password(text: str) -> bool:
    """Return True when `text` is a connect string with a password in it."""
    return mask_connstr(text) != text


@dataclass(frozen=True)
class LogOptions:
    """Where and how to log.

    verbosity   -1 quiet, 0 normal, 1 debug, 2 trace
    style       "londiste" or "pgqd"; the pgqd style keeps a quiet console silent
    console     whether stderr gets the lines too
    """

    logfile: str = ""
    verbosity: int = 0
    style: str = "londiste"
    log_format: str = "text"
    log_size: int = 10 << 20
    log_count: int = 3
    console: bool = True
    syslog_ident: str = ""
    syslog_facility: str = "daemon"
    use_skylog: int = 0
    skylog_locations: tuple[str, ...] = ()


_LEVELS = {-1: logging.WARNING, 0: logging.INFO, 1: logging.DEBUG, 2: TRACE}

#: The words of the C ticker.
_PGQD_LEVELS = {
    "INFO": "LOG",
    "TRACE": "NOISE",
    "CRITICAL": "FATAL",
}

#: Attributes that every record has; others came through `extra=` and are fields.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LineFormatter(logging.Formatter):
    """One record, one masked line; a traceback follows only when asked for. A line of a job has
    its name where jobs are `mixed`."""

    def __init__(self, style: str, *, traceback: bool, mixed: bool = False) -> None:
        super().__init__("%(asctime)s %(process)s %(levelname)s %(message)s")
        self.pgqd = style == "pgqd"
        self.mixed = mixed
        self.traceback = traceback
        self.default_msec_format = "%s.%03d" if self.pgqd else "%s,%03d"

    def format(self, record: logging.LogRecord) -> str:
        level = _PGQD_LEVELS.get(record.levelname) if self.pgqd else None
        copy = logging.makeLogRecord({**vars(record), "exc_text": None})
        if level:
            copy.levelname = level
        if not self.traceback:
            copy.exc_info = copy.stack_info = None
        if self.mixed and hasattr(record, "job"):
            copy.msg, copy.args = f"[{record.job}] {record.getMessage()}", None
        return mask(super().format(copy))


class SyslogFormatter(LineFormatter):
    """Syslog has its own time and pid."""

    def __init__(self, ident: str) -> None:
        super().__init__("pgqd", traceback=False)
        self._style._fmt = f"{ident}[%(process)s]: %(levelname)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One record, one JSON object, with the fields given through `extra=`."""

    def __init__(self, *, traceback: bool) -> None:
        super().__init__()
        self.traceback = traceback

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "pid": record.process,
            "level": record.levelname,
            "logger": record.name,
            "message": mask(record.getMessage()),
        }
        for key, value in vars(record).items():
            if key not in _STANDARD:
                line[key] = mask(value) if isinstance(value, str) else value
        if record.exc_info and self.traceback:
            line["traceback"] = mask(self.formatException(record.exc_info))
        return json.dumps(line, default=lambda value: mask(str(value)), ensure_ascii=False)


class _Masking(logging.Filter):
    """For handlers that bring a formatter of their own."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask(record.getMessage()), None
        if record.exc_info:
            record.exc_text = mask(logging.Formatter().formatException(record.exc_info))
        return True


def setup_logging(options: LogOptions) -> None:
    """Direct all logging as `options` say; may be called again after a reload.

    Raises OSError when the log file cannot be opened.
    """
    root = logging.getLogger()
    handlers = _handlers(options)
    for old in list(root.handlers):
        # Handlers of others (a test runner's) stay.
        if getattr(old, "vedur", False):
            root.removeHandler(old)
            old.close()
    for handler in handlers:
        handler.vedur = True  # type: ignore[attr-defined]
        root.addHandler(handler)
    logging.getLogger("vedur").setLevel(_LEVELS[max(-1, min(2, options.verbosity))])


class _Interruptible(logging.StreamHandler[Any]):
    """A handler that a signal may interrupt in the middle of a line.

    What the function of the signal logs then goes past the buffer, which Python lets nobody enter
    twice. Where the file would block it is left out: a signal ends a process that waits for it.
    """

    _writing = False  # read and set under the lock of the handler

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; may be called while this very method is under way in the same thread."""
        if self._writing:
            self._write_past(record)
            return
        self._writing = True
        try:
            super().emit(record)
        finally:
            self._writing = False

    def _write_past(self, record: logging.LogRecord) -> None:
        line = self.format(record) + self.terminator
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no file, or none just now
            number = self.stream.fileno()
            if select.select([], [number], [], 0)[1]:
                os.write(number, line.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Write what the buffer holds, unless that is under way."""
        with contextlib.suppress(RuntimeError):
            super().flush()


class _LogFile(_Interruptible, logging.handlers.RotatingFileHandler):
    """The log file, which a signal may interrupt while it is being rotated, too."""


class _JobRouter(logging.Handler):
    """Gives each line to the handlers of the job that its thread works for, and a line of no job to
    those of all. The console has the lines of all jobs."""

    def __init__(self, console: logging.Handler | None) -> None:
        super().__init__()
        self.console = console
        self._jobs: dict[str, list[logging.Handler]] = {}
        self._changing = threading.RLock()  # a signal may come while its thread writes a line

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass a record on without a lock of this handler: a log file that blocks holds those who
        write to it, and nobody else."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        job = current_job()
        if job:
            record.job = job
        with self._changing:
            own = self._jobs.get(job)
            told = [each for handlers in self._jobs.values() for each in handlers]
            wanted = list(own) if own is not None else told
        for handler in wanted:
            handler.handle(record)
        if self.console is not None:
            self.console.handle(record)

    def direct(self, job: str, handlers: list[logging.Handler]) -> None:
        """Send the lines of a job to other handlers than before; to none where it has ended."""
        with self._changing:
            old = self._jobs.pop(job, [])
            if handlers:
                self._jobs[job] = handlers
        for handler in old:
            handler.close()

    def close(self) -> None:
        """Close the handlers of all jobs."""
        for job in list(self._jobs):
            self.direct(job, [])
        super().close()


def setup_job_logging(verbosity: int, *, console: bool, log_format: str = "text") -> None:
    """Prepare logging of a process with several jobs; `direct_job` says where a job's lines go.

    The console is written to through a handle of its own: while Java starts, the process' standard
    output and error lead to Java's log (`vedur/pipeline/spark/session.py`), and other jobs go on.
    """
    options = LogOptions(verbosity=verbosity, console=False)
    setup_logging(options)
    shown: logging.Handler | None = None
    if console:
        copy = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
        shown = _Interruptible(copy)
        shown.setFormatter(
            JsonFormatter(traceback=verbosity > 0)
            if log_format == "json"
            else LineFormatter("londiste", traceback=verbosity > 0, mixed=True)
        )
    router = _JobRouter(shown)
    router.vedur = True  # type: ignore[attr-defined]
    logging.getLogger().addHandler(router)


def direct_job(job: str, options: LogOptions | None) -> None:
    """Send the lines of a job where `options` say; None: the job has ended.

    Raises OSError when the log file cannot be opened.
    """
    for router in logging.getLogger().handlers:
        if isinstance(router, _JobRouter):
            router.direct(job, _handlers(options) if options is not None else [])


def _handlers(options: LogOptions) -> list[logging.Handler]:
    formatter = _formatter(options)
    if _skylog_wanted(options) and (path := _skylog_file(options)):
        return _skylog_handlers(path)
    handlers: list[logging.Handler] = []
    if options.logfile:
        handlers.append(
            _LogFile(
                options.logfile,
                maxBytes=options.log_size,
                backupCount=options.log_count,
                encoding="utf-8",
                errors="backslashreplace",
            )
        )
    if options.console and not (options.style == "pgqd" and options.verbosity < 0):
        handlers.append(_Interruptible(sys.stderr))
    for handler in handlers:
        handler.setFormatter(formatter)
    if options.syslog_ident and (syslog := _syslog_handler(options)):
        handlers.append(syslog)
    return handlers or [logging.NullHandler()]


def _formatter(options: LogOptions) -> logging.Formatter:
    traceback = options.verbosity > 0
    if options.log_format == "json":
        return JsonFormatter(traceback=traceback)
    return LineFormatter(options.style, traceback=traceback)


class _SyslogHandler(logging.handlers.SysLogHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a syslog that has gone: it is no reason for tracebacks on the terminal."""


def _syslog_handler(options: LogOptions) -> logging.Handler | None:
    """Make the handler; None where the machine has no syslog, as in most containers."""
    if not Path(_SYSLOG_SOCKET).is_socket():
        return None
    names = logging.handlers.SysLogHandler.facility_names
    facility = names.get(options.syslog_facility.lower(), names["daemon"])
    try:
        handler = _SyslogHandler(_SYSLOG_SOCKET, facility=facility)
    except OSError:
        return None
    handler.setFormatter(SyslogFormatter(options.syslog_ident))
    return handler


def _skylog_wanted(options: LogOptions) -> bool:
    on_terminal = options.console and sys.stderr is not None and sys.stderr.isatty()
    return options.use_skylog > 1 or (options.use_skylog == 1 and not on_terminal)


def _skylog_file(options: LogOptions) -> str | None:
    candidates = (Path(path).expanduser() for path in options.skylog_locations)
    return next((str(path) for path in candidates if path.is_file()), None)


def _skylog_handlers(path: str) -> list[logging.Handler]:
    """Read the handlers of a central logging file, in the format of Python's `fileConfig`."""
    logging.config.fileConfig(path, disable_existing_loggers=False)
    root = logging.getLogger()
    handlers = list(root.handlers)
    for handler in handlers:
        root.removeHandler(handler)
        handler.addFilter(_Masking())
    return handlers


#: Workers in one process have one such file.
_trimming = threading.Lock()


def spark_log(logfile: str) -> str:
    """Return the file for output of Spark and Java: beside the log file, '' where there is none."""
    return f"{logfile}.spark" if logfile else ""


def trim_log(path: str, size: int, count: int) -> None:
    """Limit the file that another process writes: a full one is copied to `path.1` and emptied.

    Java holds it open and appends, so it cannot be renamed; a line that is written between the
    two steps is lost. Never raises: logging is no reason to stop.
    """
    with contextlib.suppress(OSError), _trimming:
        if not path or not size or Path(path).stat().st_size <= size:
            return
        for number in range(count - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}.{number}").replace(f"{path}.{number + 1}")
        if count:
            shutil.copyfile(path, f"{path}.1")
        os.truncate(path, 0)


def send_to_file(names: Iterable[str], path: str) -> None:
    """Send lines of loggers of other libraries to a separate file."""
    for name in names:
        logger = logging.getLogger(name)
        for old in list(logger.handlers):
            if getattr(old, "vedur", False):
                logger.removeHandler(old)
                old.close()
        handler: logging.Handler = logging.FileHandler(path) if path else logging.NullHandler()
        handler.setFormatter(LineFormatter("londiste", traceback=True))
        handler.vedur = True  # type: ignore[attr-defined]
        logger.addHandler(handler)
        logger.propagate = False


def drop_console() -> None:
    """Stop writing to stderr: the process has left its terminal."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        console = type(handler) is _Interruptible
        if console and getattr(handler, "vedur", False):
            root.removeHandler(handler)
            with contextlib.suppress(OSError, ValueError):
                handler.flush()
