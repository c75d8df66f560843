"""Manners of a long-running process: pidfile, background, signals, process title.

A pidfile is written whole, held under `flock` while the process lives, and removed at its end; a
file left behind by a crash is recognised. `detach` returns in the background process only: the
process in front waits until `Detached.ready()` or `Detached.failed()` has been called behind, and
ends with that verdict, so a failed start is never reported as success. Detach before threads or
heavy libraries exist: a fork copies neither.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import NoReturn

import setproctitle

from vedur.clock import SYSTEM, Clock
from vedur.errors import AlreadyRunning, StateError, UsageError, VedurError
from vedur.log import drop_console, mask

_log = logging.getLogger(__name__)

#: A second ^C within this many seconds ends the process at once, as upstream.
_DOUBLE_SECONDS = 1.0


class PidFile:
    """The pidfile of this process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None
        self._releasing = threading.RLock()  # a signal may come in the middle of it

    def acquire(self, before: Callable[[], None] = lambda: None) -> None:
        """Create, lock and write the file. Raises `AlreadyRunning`.

        `before` is called when no process is known to have it and nobody can see it yet; twice
        where another comes first and goes.
        """
        temp = f"{self.path}.{os.getpid()}.tmp"
        try:
            fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            raise StateError(f'cannot write pidfile "{self.path}": {error.strerror}') from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, f"{os.getpid()}\n".encode())
            self._publish(temp, before)
        except BaseException:
            os.close(fd)
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(temp).unlink()
        self._fd = fd

    def _publish(self, temp: str, before: Callable[[], None]) -> None:
        while True:
            try:
                if not Path(self.path).exists():
                    before()
                os.link(temp, self.path)
                return
            except FileExistsError:
                if self._replace_stale(temp, before):
                    return

    def _replace_stale(self, temp: str, before: Callable[[], None]) -> bool:
        """Replace the file of a dead process by `temp`; False when that file has vanished.

        The lock on the old file keeps a second starter from replacing it at the same time.
        """
        try:
            old = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StateError(f'cannot read pidfile "{self.path}": {error.strerror}') from error
        try:
            try:
                fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise AlreadyRunning(pidfile=self.path) from None
            if not self._is_current(old):
                return False
            pid = _parse_pid(os.read(old, 64))
            # A process of upstream holds no lock: its pid alone must protect it.
            if pid != os.getpid() and is_running(pid):
                raise AlreadyRunning(pidfile=self.path)
            _log.info("Ignoring stale pidfile %s: its process is gone", self.path)
            before()
            Path(temp).rename(self.path)
            return True
        finally:
            os.close(old)

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), Path(self.path).stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Remove the file, if it is still ours. Who comes second waits for the first: a process
        that ends then would leave the file behind."""
        with self._releasing:
            fd = self._fd
            if fd is None:
                return
            if self._is_current(fd):
                with contextlib.suppress(OSError):
                    Path(self.path).unlink()
            self._fd = None
            os.close(fd)

    def __enter__(self) -> PidFile:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _parse_pid(content: bytes) -> int | None:
    text = content.decode("ascii", "replace").strip()
    return int(text) if text.isdigit() and int(text) > 0 else None


def is_running(pid: int | None) -> bool:
    """Return True when a process with that id exists, whoever owns it."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


class Sent(Enum):
    """What became of a signal; the value is the sentence of `londiste3`, empty for success."""

    OK = ""
    NOT_CONFIGURED = "No pidfile in config, nothing to do"
    NO_FILE = "No pidfile, process not running"
    STALE = "pidfile exists, but process not running"


def signal_pidfile(path: str, number: signal.Signals) -> Sent:
    """Send a signal to the process of a pidfile."""
    if not path:
        return Sent.NOT_CONFIGURED
    try:
        with Path(path).open("rb") as stream:
            pid = _parse_pid(stream.read(64))
    except FileNotFoundError:
        return Sent.NO_FILE
    except OSError as error:
        raise StateError(f'cannot read pidfile "{path}": {error.strerror}') from error
    if pid is None:
        return Sent.STALE
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return Sent.STALE
    except PermissionError as error:
        raise StateError(
            f'process {pid} of pidfile "{path}" belongs to another user: it got no signal'
        ) from error
    return Sent.OK


@dataclass
class Detached:
    """The background half of `detach`, which owes its starter a verdict."""

    _fd: int

    def ready(self, note: str = "") -> None:
        """Report that the start worked: the process in front prints `note` and ends with 0."""
        self._tell(f"0 {mask(note)}")

    def failed(self, message: str, exit_code: int = 1) -> None:
        """Report that the start failed: the process in front prints `message` and ends with
        `exit_code`."""
        self._tell(f"{exit_code} {mask(message)}")

    def broken(self, error: Exception) -> int:
        """Report what ended the start or the work; returns the exit code of this process."""
        message = error.message if isinstance(error, VedurError) else str(error)
        code = error.exit_code if isinstance(error, VedurError) else 1
        self.failed(message, code)
        return code

    def _tell(self, verdict: str) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, verdict.encode("utf-8", "replace"))
        os.close(fd)


def require_pidfile(path: str) -> None:
    """Raise unless there is a pidfile: without one a background process cannot be stopped."""
    if not path:
        raise UsageError("Daemon needs pidfile")


def detach() -> Detached:
    """Go to the background: two forks, own session, standard files on /dev/null.

    Returns behind. In front the process ends here with the verdict it is told.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os.close(writer)
        _await_verdict(reader)
    os.close(reader)
    os.setsid()
    # The second fork makes sure that no terminal can ever become ours again.
    if os.fork():
        os._exit(0)
    drop_console()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return Detached(writer)


def _await_verdict(reader: int) -> NoReturn:
    with os.fdopen(reader, "rb") as stream:
        verdict = stream.read().decode("utf-8", "replace")
    os.wait()
    code, _, message = verdict.partition(" ")
    if not code:
        code, message = "1", "the process ended while starting, see its log"
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    os._exit(int(code))


@dataclass
class Signals:
    """Wishes of the operator: `stop` after the current work, `reload` before the next.

    SIGINT asks to stop (twice within a second: at once), SIGTERM ends at once after `on_exit`,
    SIGHUP asks for a reload. `wake` is set by each of them, for a loop to wait on. A worker beside
    others in one process gets no signals: it is asked, and `at_once` tells it that what it does is
    being cancelled.
    """

    clock: Clock = SYSTEM
    on_exit: Callable[[], None] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)
    at_once: bool = False
    _reload: bool = False
    _last_stop: float | None = None

    def install(self) -> None:
        """Install handlers for the three signals; main thread only."""
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGTERM, self._on_exit)
        signal.signal(signal.SIGHUP, self._on_reload)

    def ask_stop(self, *, at_once: bool = False) -> None:
        """Ask for an end, as SIGINT does."""
        self.at_once = self.at_once or at_once
        self.stop.set()
        self.wake.set()

    def ask_reload(self) -> None:
        """Ask for a reload, as SIGHUP does."""
        self._reload = True
        self.wake.set()

    def leave(self) -> NoReturn:
        """End the process now, as SIGTERM does, whatever the signal has interrupted."""
        try:
            if self.on_exit:
                self.on_exit()
            logging.shutdown()
        finally:
            os._exit(1)

    def take_reload(self) -> bool:
        """Return True once after each SIGHUP."""
        wanted, self._reload = self._reload, False
        return wanted

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds`, less when a signal comes: then True."""
        woken = self.clock.wait(self.wake, seconds)
        self.wake.clear()
        return woken

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        now = self.clock.monotonic()
        if self._last_stop is not None and now - self._last_stop < _DOUBLE_SECONDS:
            _log.warning("Double ^C, fast exit")
            self.leave()
        self._last_stop = now
        _log.info("Got SIGINT, shutting down")
        self.ask_stop()

    def _on_exit(self, _number: int, _frame: FrameType | None) -> None:
        _log.info("Got SIGTERM, fast exit")
        self.leave()

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.ask_reload()


def tell_systemd() -> None:
    """Tell systemd that the start worked, where it waits for that (units of Type=notify)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect("\0" + path[1:] if path.startswith("@") else path)
        line.send(b"READY=1")


def set_title(program: str, *words: str) -> None:
    """Set the process title that `ps` shows; secrets in it are masked."""
    setproctitle.setproctitle(mask(" ".join((program, *words))))
