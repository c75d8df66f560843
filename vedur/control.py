"""Requests to one worker of a process that has several.

A signal reaches a whole process. So each worker of such a process listens on a socket beside its
pidfile, where `-r`, `-s` and `-k` say a word and get an answer. Where nobody listens, the process
has one worker, or is gone: a signal to the pidfile's process does the same as ever.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from vedur.errors import ConfigError, StateError
from vedur.local_socket import fits, is_mine, listen_at, shut
from vedur.threads import Thread

log = logging.getLogger(__name__)

_SUFFIX = ".control"
#: A worker answers at once, unless its machine is out of breath or its process is stopped.
_PATIENCE = 30.0
_LONGEST_WORD = 16


def control_path(pidfile: str) -> str:
    """Return where the worker with this pidfile listens; raises `ConfigError` for a path that no
    socket can have."""
    path = f"{pidfile}{_SUFFIX}"
    if not fits(path):
        raise ConfigError(
            f'the path of pidfile "{pidfile}" is too long for a worker in a process of several '
            "queues, which listens on a socket beside it: choose a shorter one"
        )
    return path


class Control:
    """Listens for the requests to one worker; `obey` is called with each word, in a thread."""

    def __init__(self, pidfile: str, obey: Callable[[str], None]) -> None:
        self._path = control_path(pidfile)
        self._obey = obey
        self._closed = False
        # of what follows; a signal that ends the process may come while its thread holds it
        self._changing = threading.RLock()
        self._listener: socket.socket | None = None
        self._inode = 0
        self._open()

    def keep(self) -> None:
        """Listen anew where somebody has removed the socket: a request would go to the whole
        process otherwise, as a signal."""
        with self._changing:
            if self._closed or self._is_there():
                return
            log.info("%s has gone, listening there again", self._path)
            try:
                self._open()
            except StateError as error:
                log.warning("%s", error.message)

    def close(self) -> None:
        """Stop listening."""
        with self._changing:
            self._closed = True
            if self._is_there():
                with contextlib.suppress(OSError):
                    Path(self._path).unlink()
            self._drop()

    def _open(self) -> None:
        self._drop()
        try:
            self._listener = listen_at(self._path)
            self._inode = Path(self._path).stat().st_ino
        except OSError as error:
            raise StateError(f'cannot listen on "{self._path}": {error.strerror}') from error
        Thread(
            target=self._accept, args=(self._listener,), name="vedur-control", daemon=True
        ).start()

    def _drop(self) -> None:
        old, self._listener = self._listener, None
        if old is not None:
            shut(old)
            old.close()

    def _is_there(self) -> bool:
        try:
            return Path(self._path).stat().st_ino == self._inode
        except OSError:
            return False

    def _accept(self, listener: socket.socket) -> None:
        while listener is self._listener:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                with client:
                    client.settimeout(_PATIENCE)
                    if is_mine(client) and (word := _read_word(client)):
                        client.sendall(b"ok\n")  # first: the process may end with what is asked
                        self._obey(word)
            except OSError as error:
                log.debug("a request was not answered: %s", error)


def ask(pidfile: str, word: str) -> bool:
    """Say a word to the worker with this pidfile; False where none listens for words.

    A worker that ends while it is asked to has done so. Raises `StateError` where it does not
    answer.
    """
    if not pidfile or not fits(f"{pidfile}{_SUFFIX}"):
        return False
    path = control_path(pidfile)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
            there.settimeout(_PATIENCE)
            there.connect(path)
            if not is_mine(there):
                raise StateError(f'"{path}" belongs to another user: it was not asked')
            there.sendall(f"{word}\n".encode())
            ended = _read_word(there) != "ok"
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except ConnectionError:
        ended = True
    except OSError as error:
        raise StateError(f'no answer from the worker at "{path}": {error}') from error
    if ended and word == "reload":
        raise StateError(f'the worker at "{path}" is ending, and does not read its ini again')
    return True


def _read_word(there: socket.socket) -> str:
    """Read one short line; empty where the other end has gone or talks nonsense."""
    text = b""
    while not text.endswith(b"\n"):
        part = there.recv(_LONGEST_WORD)
        if not part or len(text) > _LONGEST_WORD:
            return ""
        text += part
    return text.decode("ascii", "replace").strip()
