"""Sockets that are files beside a pidfile, for processes of one user on one machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from pathlib import Path

#: What a system allows for the path of a socket, its end included.
_LONGEST = 104


def fits(path: str) -> bool:
    """Check whether a path is short enough for a socket."""
    return len(os.fsencode(path)) < _LONGEST


def listen_at(path: str) -> socket.socket:
    """Listen there, for this user only; what a dead process has left is removed. Raises OSError."""
    _clear(Path(path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        Path(path).chmod(0o600)  # before anybody can connect
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def is_mine(other: socket.socket) -> bool:
    """Does the process at the other end belong to the same user? The socket's mode says so too,
    but whoever may write the directory could have put another socket there."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    found = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", found)[1] == os.geteuid())


def shut(open_socket: socket.socket) -> None:
    """End both directions, so that whoever waits for this socket goes on."""
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)


def _clear(path: Path) -> None:
    """Remove the socket of a process that is dead; anything else that is there stays."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "is no socket", str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(str(path))
        raise FileExistsError(errno.EADDRINUSE, "another process listens there", str(path))
    except ConnectionRefusedError:
        path.unlink()
    except FileNotFoundError:
        pass
