"""Where Spark and Java of a session put their files: one directory, which goes with the session.

Java removes its files only where it ends in order. So the directory is ours: it is removed when
the session ends, and one that a killed process left behind when the next session starts. A lock
on a file in it says that its owner lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

PREFIX = "vedur-spark-"
_LOCK = "owner"
_DIRECTORY = "spark.local.dir"
_JAVA = "spark.driver.extraJavaOptions"
#: Java and its Python tasks talk through sockets that are files. Over TCP, even on the loopback, a
#: small answer waits 40 ms for an acknowledgement that is put off: 26 empty tasks took 0.87 s on
#: two cores and take 0.33 so, a job of one task 105 ms and now 65.
_SOCKETS = "spark.python.unix.domain.socket.enabled"
_SOCKETS_IN = "spark.python.unix.domain.socket.dir"
#: The path of a socket has 104 bytes; Spark's own name for one is 42 of them.
_LONGEST = 60
#: Settings that mean something on this machine only.
HERE = (_DIRECTORY, _SOCKETS, _SOCKETS_IN)


class Scratch:
    """The directory of one session; only its owner can read it."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return what makes Spark and its Java use it, unless the operator says where files go."""
        found = {} if _DIRECTORY in given else {_DIRECTORY: str(self.path)}
        if _SOCKETS not in given and len(os.fsencode(self.path)) < _LONGEST:
            found |= {_SOCKETS: "true", _SOCKETS_IN: str(self.path)}
        if "java.io.tmpdir" not in given.get(_JAVA, ""):
            options = f"{given.get(_JAVA, '')} -Djava.io.tmpdir={self.path}"
            found[_JAVA] = options.strip()
        return found

    def remove(self) -> None:
        """Remove the directory: the session has ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)


def sweep() -> None:
    """Remove what processes that are gone have left in the directory for temporary files."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # another user's, or being made or removed right now: not our business
        with contextlib.suppress(OSError):
            fd = os.open(path / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
