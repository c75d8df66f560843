"""The shared Spark session: a running worker lets comparisons of its own node use its session.

To start Java and Python for one comparison takes longer than hashing some million rows; the
worker's session is there and warm. It listens on a socket beside its pidfile that only its own
user can open. A line of JSON is a question, the lines of the answer tell progress and end with a
result or an error. The command keeps the snapshots: when it has ended, its jobs are cancelled.
Where no session is shared, or version, user or environment differ, the command starts its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from io import BufferedRWPair
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import vedur
from vedur.clock import SYSTEM
from vedur.config import LondisteSettings
from vedur.errors import SessionNotShared, VedurError, error_from_json, error_to_json
from vedur.local_socket import fits, is_mine, listen_at, shut
from vedur.pipeline.compare.engine import Comparer, Difference, Differences, SparkComparer
from vedur.pipeline.compare.jobs import Parts, Terminal, watched_by
from vedur.pipeline.compare.model import Buckets, Pair, Piece, Side, Sums
from vedur.pipeline.compare.plan import Use, slices
from vedur.pipeline.spark.command_session import end_spark, start_spark
from vedur.pipeline.spark.spark_pool import enter_pool
from vedur.pipeline.spark.tasks import plain
from vedur.threads import Thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Between tasks of replay and of first copies, none before the other.
_POOL = "compare"
_TELL_EVERY = 1.0
#: The worker greets within this time and then reports progress every second.
_GREETING = 3.0
_SILENCE = 60.0
#: Sums by bucket come from 16 tasks, however large the table is: they must not take too long.
_BUCKET_SLICES = 64
#: Rows that are shown pass through Java's memory.
_ROWS = 10_000


def socket_path(pidfile: str) -> str:
    """Return where the worker with this pidfile listens; empty if it cannot."""
    path = f"{pidfile}.sock" if pidfile else ""
    return path if fits(path) else ""


def _surroundings() -> dict[str, Any]:
    """Return what must be the same on both sides for a connect string to mean the same to both."""
    own = sorted((k, v) for k, v in os.environ.items() if k.startswith("PG"))
    digest = hashlib.sha256(json.dumps([socket.gethostname(), own]).encode()).hexdigest()
    return {"version": vedur.__version__, "surroundings": digest}


# -- the worker's side ----------------------------------------------------------------------------


class SessionServer:
    """Answers comparisons in the worker's session until it is stopped, each client in its own
    thread. `limit` tells how many connections a node may see now."""

    def __init__(self, spark: SparkSession, path: str, limit: Callable[[], int]) -> None:
        self._spark, self._path, self._limit = spark, Path(path), limit
        self._clients: set[socket.socket] = set()
        self._stopped = threading.Event()
        self._first = threading.Lock()
        self._listener = listen_at(path)
        self._inode = self._path.stat().st_ino
        Thread(target=self._accept, name="shared session", daemon=True).start()

    def stop(self) -> None:
        """Stop listening, and close the connections of clients that wait for an answer."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        for open_socket in (self._listener, *list(self._clients)):
            shut(open_socket)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if not self._stopped.is_set():  # no file handle left, say
                    log.debug("the session cannot be shared for a moment: %s", error)
                    SYSTEM.sleep(1.0)
                continue
            self._clients.add(client)
            if self._stopped.is_set():
                shut(client)
            Thread(
                target=self._serve, args=(client,), name="shared session client", daemon=True
            ).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, client.makefile("rwb") as lines:
                if not is_mine(client):
                    return
                _say(lines, _surroundings())
                for line in lines:
                    asked = json.loads(line)
                    said = self._answer(asked, _Asker(client, lines))
                    _say(lines, {**said, "number": asked["number"]})
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.debug("a client of the shared session has gone: %s", error)
        finally:
            self._clients.discard(client)

    def _answer(self, asked: dict[str, Any], asker: _Asker) -> dict[str, Any]:
        # One comparison leaves a slot to replay; with a second one everybody has turns by slices.
        first = self._first.acquire(blocking=False)
        try:
            enter_pool(self._spark, _POOL)
            limit = min(asked["limit"], self._limit())
            comparer = SparkComparer(self._spark, limit, Use.BUT_ONE if first else Use.BY_TURNS)
            with watched_by(asker):
                return {"answer": _VERBS[asked["do"]](comparer, asked)}
        except VedurError as error:
            return error_to_json(error)
        except Exception as error:
            # Spark may have gone, or been told to stop; the other side has a way of its own.
            log.debug("a comparison failed: %s", error, exc_info=True)
            return {"failed": type(error).__name__}
        finally:
            if first:
                self._first.release()


def _say(lines: BufferedRWPair, said: dict[str, Any]) -> None:
    lines.write(json.dumps(said, default=plain).encode() + b"\n")
    lines.flush()


@dataclass
class _Asker:
    """Gets progress; it is there while its end of the socket is open."""

    client: socket.socket
    lines: BufferedRWPair
    every: float = _TELL_EVERY

    def show(self, parts: Parts) -> None:
        """Send a line that is no answer yet."""
        with contextlib.suppress(OSError):
            _say(self.lines, {"parts": [parts.done, parts.total, parts.seconds]})

    def gone(self) -> bool:
        """Does an end of file wait to be read?"""
        try:
            return not self.client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Leave the connection as it is: the answer says that it is over."""


def _checksum(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    pair = pair_from_json(asked["pair"])
    return [asdict(s) for s in comparer.checksum(pair, count_only=asked["count_only"])]


def _buckets(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    return asdict(comparer.buckets(pair_from_json(asked["pair"])))


def _rows(comparer: SparkComparer, asked: dict[str, Any]) -> Any:
    buckets = buckets_from_json(asked["buckets"])
    return asdict(comparer.rows(pair_from_json(asked["pair"]), buckets, asked["shown"]))


_VERBS: dict[str, Callable[[SparkComparer, dict[str, Any]], Any]] = {
    "checksum": _checksum,
    "buckets": _buckets,
    "rows": _rows,
}


# -- the command's side ---------------------------------------------------------------------------


@dataclass
class SharedComparer:
    """A comparer in the worker's shared session; every question may raise `SessionNotShared`."""

    path: str
    limit: int
    _number: int = 0
    _socket: socket.socket = field(init=False)
    _lines: BufferedRWPair = field(init=False)

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_GREETING)
            self._socket.connect(self.path)
            if not is_mine(self._socket):
                raise SessionNotShared("the socket is another user's")
            self._lines = self._socket.makefile("rwb")
            if self._hear() != _surroundings():
                raise SessionNotShared("the worker is of another version, or another environment")
            self._socket.settimeout(_SILENCE)
        except (OSError, SessionNotShared) as error:
            self._socket.close()
            raise SessionNotShared(str(error)) from error

    def close(self) -> None:
        """Disconnect from the worker."""
        with contextlib.suppress(OSError):
            self._lines.close()
        self._socket.close()

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """See `Comparer`, as for all of them."""
        left, right = self._ask("checksum", pair, count_only=count_only)
        return sums_from_json(left), sums_from_json(right)

    def buckets(self, pair: Pair) -> Buckets:
        return buckets_from_json(self._ask("buckets", pair))

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        """Refuse: one statement would keep a slot of the worker for as long as it takes."""
        raise SessionNotShared("statements of one's own are not cut into slices")

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        found = self._ask("rows", pair, buckets=asdict(buckets), shown=shown)
        return differences_from_json(found)

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        """Refuse where a handler must see rows: the worker answers questions and stages nothing."""
        if pair.expected is not None:
            raise SessionNotShared("rows that a handler changes are staged first")
        return contextlib.nullcontext(pair)

    def _ask(self, verb: str, pair: Pair, **more: Any) -> Any:
        if _too_long(pair, verb, more):
            raise SessionNotShared("it would keep the worker's slots for too long")
        self._number += 1
        head = {"do": verb, "number": self._number, "limit": self.limit}
        terminal = Terminal()
        try:
            _say(self._lines, {**head, "pair": pair_to_json(pair), **more})
            while True:
                said = self._hear()
                if "parts" not in said:
                    break
                terminal.show(Parts(f"Counting {pair.dest}", *said["parts"]))
        except OSError as error:
            raise SessionNotShared(str(error)) from error
        finally:
            terminal.close()
        if said.get("number") != self._number:
            raise SessionNotShared("the worker answers another question")
        if "error" in said:
            raise error_from_json(said)
        if "answer" not in said:
            raise SessionNotShared(f"the worker failed with {said.get('failed')}")
        return said["answer"]

    def _hear(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise SessionNotShared("the worker has ended")
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise SessionNotShared("no worker of ours listens there")
        return said


def _too_long(pair: Pair, verb: str, more: dict[str, Any]) -> bool:
    """Would tasks of this keep replay waiting, or its answer fill the worker's memory?"""
    sides = (pair.source, pair.target)
    if any(piece.pages is None for side in sides for piece in side.pieces):
        return True  # cannot be cut
    if verb == "buckets":
        return any(len(slices(side)) > _BUCKET_SLICES for side in sides)
    return verb == "rows" and more["shown"] > _ROWS


# -- questions and answers as JSON ----------------------------------------------------------------

Json = dict[str, Any]


def pair_to_json(pair: Pair) -> Json:
    """Return all of the pair, connect strings included: for a socket that nobody else can read."""
    return asdict(pair)


def pair_from_json(said: Json) -> Pair:
    """Return the pair that these values of JSON were made from."""
    sides = {name: _side(said[name]) for name in ("source", "target")}
    return Pair(**{**_tuples(said), **sides})


def _side(said: Json) -> Side:
    pieces = tuple(Piece(**piece) for piece in said["pieces"])
    return Side(**{**_tuples(said), "pieces": pieces})


def _tuples(said: Json) -> Json:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in said.items()}


def sums_from_json(said: Json) -> Sums:
    """Return the sums that these values of JSON were made from."""
    return Sums(**said)


def buckets_from_json(said: Json) -> Buckets:
    """Return the buckets that these values of JSON were made from."""
    return Buckets(said["mask"], Sums(**said["source"]), Sums(**said["target"]), tuple(said["bad"]))


def differences_from_json(said: Json) -> Differences:
    """Return the differences that these values of JSON were made from."""
    rows = tuple(Difference(r["kind"], r["key"], tuple(r["columns"])) for r in said["rows"])
    return Differences(said["missing"], said["extra"], said["different"], rows)


# -- which session a command gets -----------------------------------------------------------------

T = TypeVar("T")


@contextmanager
def open_comparer(
    settings: LondisteSettings, spark: SparkSession | None = None, *, own: bool = False
) -> Iterator[Comparer]:
    """Yield a comparer in `spark`; without one, in the session that the worker shares or, with
    `own` or where none is shared, in a session that is started for it."""
    if spark is not None:
        yield SparkComparer(spark, settings.max_connections_per_node)
        return
    comparer = _AnyComparer(settings, own)
    try:
        yield comparer
    finally:
        comparer.close()


class _AnyComparer:
    """Uses the shared session of the node's worker, if it runs here; else, or when that ends, a
    session of its own.

    Its own is started before anything is looked at: no snapshot is to wait for Java.
    """

    def __init__(self, settings: LondisteSettings, own: bool) -> None:
        self._settings = settings
        self._shared: SharedComparer | None = None
        self._spark: SparkSession | None = None
        path = "" if own else socket_path(settings.pidfile)
        try:
            self._shared = SharedComparer(path, self._limit) if path else None
        except SessionNotShared as why:
            log.debug("no shared Spark session at %s: %s", path, why)
        if self._shared is None:
            self._spark = start_spark(settings)

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        return self._ask(lambda c: c.checksum(pair, count_only=count_only))

    def buckets(self, pair: Pair) -> Buckets:
        return self._ask(lambda c: c.buckets(pair))

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        return self._ask(lambda c: c.custom(pair, source_sql, target_sql))

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        return self._ask(lambda c: c.rows(pair, buckets, shown))

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        if pair.expected is None:
            return nullcontext(pair)
        if self._spark is None:
            self._spark = start_spark(self._settings)
        return SparkComparer(self._spark, self._limit).expected(pair)

    def _ask(self, question: Callable[[Comparer], T]) -> T:
        if self._shared is not None:
            try:
                return question(self._shared)
            except SessionNotShared as why:
                log.debug("not in the shared Spark session, going on in one of our own: %s", why)
                self._shared.close()
                self._shared = None
        if self._spark is None:
            self._spark = start_spark(self._settings)
        return question(SparkComparer(self._spark, self._limit))

    @property
    def _limit(self) -> int:
        return self._settings.max_connections_per_node

    def close(self) -> None:
        """Leave the shared session, end the own one."""
        if self._shared is not None:
            self._shared.close()
        if self._spark is not None:
            end_spark(self._spark)
