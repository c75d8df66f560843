"""A running worker lends its Spark session to comparisons of its own node.

To start Java and Python for one comparison takes longer than hashing some million rows; the
worker's session is there and warm. It listens on a socket beside its pidfile that only its own
user can open. A line of JSON is a question, the lines of the answer tell progress and end with a
result or an error. The one who asks keeps the snapshots: when he has gone, the jobs are given up.
Where nobody lends, or the versions differ, a session of one's own does the same.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from io import BufferedRWPair
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vedur
from vedur.errors import VedurError, error_from_json, error_to_json
from vedur.pipeline.compare.comparer import SparkComparer
from vedur.pipeline.compare.jobs import plain
from vedur.pipeline.compare.model import Buckets, Pair, Sums
from vedur.pipeline.compare.narrow import Differences
from vedur.pipeline.compare.progress import Parts, Terminal, watched_by
from vedur.pipeline.compare.wire import (
    buckets_from_json,
    differences_from_json,
    pair_from_json,
    pair_to_json,
    sums_from_json,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Between tasks of replay and of first copies, none before the other.
_POOL = "compare"
_TELL_EVERY = 1.0
#: Whoever is asked answers at once that he will do it, and then tells progress every second.
_GREETING = 3.0
_SILENCE = 60.0
#: What a system allows for the path of a socket, its end included.
_LONGEST = 104


class NobodyLends(Exception):
    """There is no session to borrow, or it has gone."""


def socket_path(pidfile: str) -> str:
    """Where the worker with this pidfile listens; empty if it cannot."""
    path = f"{pidfile.removesuffix('.pid')}.sock" if pidfile else ""
    return path if len(os.fsencode(path)) < _LONGEST else ""


# -- the worker's side ----------------------------------------------------------------------------


class Lender:
    """Listens until it is stopped; a thread for each who asks."""

    def __init__(self, spark: SparkSession, path: str, limit: int) -> None:
        self._spark, self._path, self._limit = spark, path, limit
        self._clients: set[socket.socket] = set()
        self._stopped = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The pidfile is ours, so what is left there is a dead worker's.
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()
            before = os.umask(0o177)
            try:
                self._listener.bind(path)
            finally:
                os.umask(before)
            self._listener.listen()
        except OSError:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, name="lend", daemon=True).start()

    def stop(self) -> None:
        """Nobody new; those who wait for an answer hear that it will not come."""
        self._stopped = True
        with contextlib.suppress(OSError):
            Path(self._path).unlink()
        for open_socket in (self._listener, *self._clients):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(client,), name="lend to one", daemon=True
            ).start()

    def _serve(self, client: socket.socket) -> None:
        self._clients.add(client)
        try:
            with client, client.makefile("rwb") as lines:
                if not _is_ours(client):
                    return
                _say(lines, {"version": vedur.__version__})
                for line in lines:
                    _say(lines, self._answer(json.loads(line), _Asker(client, lines)))
        except (OSError, ValueError) as error:
            log.debug("who borrowed the session has gone: %s", error)
        finally:
            self._clients.discard(client)

    def _answer(self, asked: dict[str, Any], asker: _Asker) -> dict[str, Any]:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)
        comparer = SparkComparer(self._spark, self._limit)
        try:
            with watched_by(asker):
                return {"answer": _VERBS[asked["do"]](comparer, asked)}
        except VedurError as error:
            return error_to_json(error)
        except Exception as error:
            # Spark may have gone, or been told to stop; the other side has a way of its own.
            log.debug("a comparison failed: %s", error, exc_info=True)
            return {"failed": type(error).__name__}


def _is_ours(client: socket.socket) -> bool:
    """The socket's mode keeps others out; this does where a directory was carried over with it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", found)
    return uid in (0, os.geteuid())


def _say(lines: BufferedRWPair, said: dict[str, Any]) -> None:
    lines.write(json.dumps(said, default=plain).encode() + b"\n")
    lines.flush()


@dataclass
class _Asker:
    """Progress goes to whoever asked; he is there while his end of the socket is open."""

    client: socket.socket
    lines: BufferedRWPair
    every: float = _TELL_EVERY

    def show(self, parts: Parts) -> None:
        """A line that is no answer yet."""
        with contextlib.suppress(OSError):
            _say(self.lines, {"parts": [parts.done, parts.total, parts.seconds]})

    def gone(self) -> bool:
        """An end of file waits to be read."""
        try:
            return not self.client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """The answer says that it is over."""


def _checksum(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    pair = pair_from_json(asked["pair"])
    return [asdict(s) for s in comparer.checksum(pair, count_only=asked["count_only"])]


def _buckets(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    return asdict(comparer.buckets(pair_from_json(asked["pair"])))


def _custom(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    return comparer.custom(pair_from_json(asked["pair"]), asked["source"], asked["target"])


def _rows(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    buckets = buckets_from_json(asked["buckets"])
    return asdict(comparer.rows(pair_from_json(asked["pair"]), buckets, asked["shown"]))


_VERBS: dict[str, Callable[[SparkComparer, dict[str, Any]], Any]] = {
    "checksum": _checksum,
    "buckets": _buckets,
    "custom": _custom,
    "rows": _rows,
}


# -- the command's side ---------------------------------------------------------------------------


@dataclass
class Borrowed:
    """A comparer in the worker's session; every question may raise `NobodyLends`."""

    path: str
    _socket: socket.socket = field(init=False)
    _lines: BufferedRWPair = field(init=False)

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_GREETING)
            self._socket.connect(self.path)
            self._lines = self._socket.makefile("rwb")
            greeting = self._hear()
            if greeting.get("version") != vedur.__version__:
                raise NobodyLends(f"the worker is of version {greeting.get('version')}")
            self._socket.settimeout(_SILENCE)
        except OSError as error:
            self._socket.close()
            raise NobodyLends(str(error)) from error
        except NobodyLends:
            self._socket.close()
            raise

    def close(self) -> None:
        """Give it back."""
        with contextlib.suppress(OSError):
            self._lines.close()
        self._socket.close()

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """See `Comparer`, as for all of them."""
        left, right = self._ask("checksum", pair, count_only=count_only)
        return sums_from_json(left), sums_from_json(right)

    def buckets(self, pair: Pair) -> Buckets:
        """..."""
        return buckets_from_json(self._ask("buckets", pair))

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        """..."""
        return tuple(self._ask("custom", pair, source=source_sql, target=target_sql))

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        """..."""
        found = self._ask("rows", pair, buckets=asdict(buckets), shown=shown)
        return differences_from_json(found)

    def _ask(self, verb: str, pair: Pair, **more: Any) -> Any:
        terminal = Terminal()
        try:
            _say(self._lines, {"do": verb, "pair": pair_to_json(pair), **more})
            while True:
                said = self._hear()
                if "parts" not in said:
                    break
                terminal.show(Parts(f"Counting {pair.dest}", *said["parts"]))
        except OSError as error:
            raise NobodyLends(str(error)) from error
        finally:
            terminal.close()
        if "error" in said:
            raise error_from_json(said)
        if "answer" not in said:
            raise NobodyLends(f"the worker failed with {said.get('failed')}")
        return said["answer"]

    def _hear(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise NobodyLends("the worker has ended")
        said: dict[str, Any] = json.loads(line)
        return said
