"""The process that tasks are forked from, begun before Java asks for it.

Its imports take as long as a good part of Java's start, and Spark begins it only with the first
job. So the driver starts one as soon as it starts Java, and tells Java's children where it listens
(`PLACE`, in the environment). What Spark starts then finds it there and hands over what it has been
given: its pipes to Java, its environment, its arguments. From then on it only stands for the other
one, which Spark cannot know of: the pipes stay open as long as either lives, and when Java closes
them, or ends, both end.

Nothing depends on it. Where nobody listens, or somebody who is not quite the same (another user,
another Python, another order of hashes), what Spark has started does the work itself, as it would
without; so does every later one, since the first takes the place away. An early process that nobody
wants ends with the pipe from its driver.

Imports nothing heavy: what Spark starts is to be quick.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Where the early process listens, for those who are started below Java.
PLACE = "VEDUR_EARLY_TASK_PROCESS"
MODULE = "vedur.pipeline.spark.task_process"
SWITCH = "--early"
#: Seconds that whoever Spark has started waits for an early process that is still loading: longer
#: than to load everything itself, but for a machine that is very busy.
_PATIENCE = 30.0
#: The longest path that a socket may have anywhere.
_LONGEST = 104
_HASHES = "PYTHONHASHSEED"


# -- the driver's side ----------------------------------------------------------------------------


class EarlyProcess:
    """An early process as its driver sees it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "early"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, if it can be of use here; it is never worth an error."""
        path = os.fsencode(self.path)
        if len(path) >= _LONGEST or not hasattr(socket, "SO_PEERCRED"):
            return
        if "SPARK_HOME" in os.environ:
            return  # tasks must be of that Spark, and it would be of ours
        command = [sys.executable, "-m", MODULE, SWITCH, str(self.path)]
        # As Spark has it for what it starts.
        hashes = os.environ.get(_HASHES, "0")
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, _HASHES: hashes},
                process_group=0,
            )
            os.environ[PLACE] = str(self.path)

    def leave(self) -> None:
        """Let it go: it ends now, unless tasks are forked from it."""
        os.environ.pop(PLACE, None)
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def end(self, patience: float) -> None:
        """Wait for its end, which follows that of Java; without that it is killed."""
        self.leave()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# -- the early process itself ---------------------------------------------------------------------


def serve_early(path: str, load: Callable[[], None]) -> None:
    """Listen, load everything, and become what Spark has started; does not return where nobody
    comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as what Java starts has it
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        load()
        ready, _, _ = select.select([listening.fileno(), 0], [], [])
        if listening.fileno() not in ready:
            sys.exit(0)
        visitor, _ = listening.accept()
    Path(path).unlink()
    if not _is_ours(visitor):
        sys.exit(1)
    visitor.sendall(_pack(_self()))
    text, fds = _receive(visitor)
    if text is None or len(fds) != 3:
        sys.exit(1)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    _become(text)
    visitor.sendall(_pack({}))
    # It stays open as long as this process, or one that it forks, lives: see `_stand_for`.
    visitor.detach()


def _become(other: dict[str, Any]) -> None:
    """Take over the environment, the arguments and the path of another process."""
    os.environ.clear()
    os.environ.update(other["environment"])
    os.chdir(other["directory"])
    sys.argv[:] = other["arguments"]
    more = [entry for entry in other["path"] if entry not in sys.path]
    sys.path[:0] = more


# -- what Spark starts ----------------------------------------------------------------------------


def hand_over() -> bool:
    """Hand over to the early process, and stand for it until it ends; False where there is none
    that fits, and this process has to do the work."""
    path = os.environ.pop(PLACE, "")
    if not path or not hasattr(socket, "SO_PEERCRED"):
        return False
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as early:
        early.settimeout(_PATIENCE)
        early.connect(path)
        if not _is_ours(early):
            return False
        other, _ = _receive(early)
        if other != _self():
            return False
        rights = array.array("i", [0, 1, 2])
        text = _pack(
            {
                "environment": dict(os.environ),
                "directory": str(Path.cwd()),
                "arguments": sys.argv,
                "path": sys.path,
            }
        )
        early.sendmsg([text[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        early.sendall(text[1:])
        # From here on there is no way back: both would read what Java says.
        early.settimeout(None)
        _stand_for(early)
        return True
    return False


def _stand_for(early: socket.socket) -> None:
    """Wait until the early process, and all that it has forked, has gone; as small as can be.

    Raises nothing: the other one reads what Java says, and this one must not."""
    with contextlib.suppress(OSError, ValueError):
        _receive(early)
    cat = shutil.which("cat")
    with contextlib.suppress(OSError):
        if cat is not None:
            os.dup2(early.fileno(), 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execv(cat, ["cat"])
    with contextlib.suppress(OSError):
        while early.recv(1):
            pass


# -- how they talk --------------------------------------------------------------------------------


def _self() -> dict[str, Any]:
    """Return what must be the same on both sides."""
    return {
        "python": sys.executable,
        "version": sys.version,
        "hashes": os.environ.get(_HASHES),
        "vedur": __file__,
    }


def _is_ours(peer: socket.socket) -> bool:
    """Is the other end of the same user?"""
    size = struct.calcsize("3i")
    said = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", said)[1] == os.geteuid())


def _pack(value: dict[str, Any]) -> bytes:
    text = json.dumps(value).encode()
    return struct.pack("!i", len(text)) + text


def _receive(peer: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Read a message, and descriptors that came with it; None where the other end has gone."""
    data, fds = b"", array.array("i")
    while len(data) < 4 or len(data) < 4 + struct.unpack("!i", data[:4])[0]:
        more, rights, _, _ = peer.recvmsg(65536, socket.CMSG_SPACE(3 * fds.itemsize))
        if not more:
            return None, list(fds)
        data += more
        for level, kind, payload in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    value: dict[str, Any] = json.loads(data[4:])
    return value, list(fds)
