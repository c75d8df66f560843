"""A cable between the worker and the proxies: a link into a network namespace, where allowed.

On the loopback the kernel acknowledges for a process that is stalled, and a cut is a connection
that is closed or refused. Here the far end of the link can be taken down: packets vanish both ways
and nobody says so, as with a switch that died. Only keepalives and time-outs can find that out.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

_CLONE_NEWNET = 0x40000000


class NoWire(Exception):
    """Not allowed here, or `ip` is missing."""


class Wire:
    """One link; whoever listens at its far end is reached through it alone."""

    def __init__(self) -> None:
        number = os.getpid()
        self._space = f"vedur-{number}"
        self._near, self._far = f"vd{number % 10**8}a", f"vd{number % 10**8}b"
        net = f"10.213.{number % 250}"
        base = 4 * (number // 250 % 60)
        self.host = f"{net}.{base + 2}"
        self._net, self._here = f"{net}.{base}/30", f"{net}.{base + 1}/30"
        if not shutil.which("ip"):
            raise NoWire("ip is missing")
        _ip("netns", "add", self._space)
        try:
            peer = ("type", "veth", "peer", "name", self._far, "netns", self._space)
            _ip("link", "add", self._near, *peer)
            _ip("address", "add", self._here, "dev", self._near)
            _ip("link", "set", self._near, "up")
            _ip("-n", self._space, "address", "add", f"{self.host}/30", "dev", self._far)
            _ip("-n", self._space, "link", "set", self._far, "up")
            # Whatever becomes of the link, nothing for it leaves this machine another way.
            _ip("route", "add", "blackhole", self._net, "metric", "4000")
        except NoWire:
            self.remove()
            raise

    def listener(self) -> socket.socket:
        """A listening socket at the far end. A socket stays in the namespace it was made in, so a
        thread goes there, makes it and ends."""
        made: list[socket.socket | OSError] = []

        def make() -> None:
            try:
                with Path("/run/netns", self._space).open() as space:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(space.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                made.append(socket.create_server((self.host, 0)))
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise NoWire(str(made[0]))
        return made[0]

    def cut(self) -> None:
        """From now on packets vanish."""
        _ip("-n", self._space, "link", "set", self._far, "down")

    def join(self) -> None:
        """They pass again."""
        _ip("-n", self._space, "link", "set", self._far, "up")

    def remove(self) -> None:
        """The link goes with its namespace."""
        for command in (
            ("route", "del", "blackhole", self._net, "metric", "4000"),
            ("link", "del", self._near),
            ("netns", "del", self._space),
        ):
            subprocess.run(["ip", *command], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoWire(f"ip {' '.join(words)}: {done.stderr.strip()}")
