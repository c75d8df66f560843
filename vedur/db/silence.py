"""A server that has stopped answering is noticed, however long statements may last.

How long a statement lasts says nothing: an index may take hours. Keepalives and `tcp_user_timeout`
find a machine that has gone, as its kernel does not answer. They do not find a server that is
stopped, whose disk hangs, or whose proxy has forgotten us: kernels answer there, nobody else does.
So when nothing has come for some time, somebody knocks: a second login. A server that lets it in,
or refuses it with an error, is alive, and the statement is waited for. Where the login gets no
answer either, the connection is given up, and whoever waits for it can look elsewhere.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

T = TypeVar("T")

#: Seconds without a byte from the server before a login is tried, and seconds that it may take:
#: together as long as a machine that has gone is waited for.
QUIET = 30.0
LOGIN = 30


class Connection(psycopg.Connection[TupleRow]):
    """A connection that ends when its server lets nobody in any more."""

    #: How a second connection is made; without it nobody knocks.
    knock = ""

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        """Wait for the server, as the driver does."""
        return super().wait(self._watch(gen) if self.knock else gen, *args, **more)

    def _watch(self, gen: PQGen[T]) -> PQGen[T]:
        """Pass on what a generator of the driver wants; the driver comes by ten times a second."""
        heard = time.monotonic()
        try:
            wants = next(gen)
            while True:
                ready = yield wants
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard >= QUIET:
                    self._require_life()
                    heard = time.monotonic()
                wants = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result

    def _require_life(self) -> None:
        if lets_in(self.knock):
            return
        self.pgconn.finish()  # the statement may still arrive: nothing that follows may rely on it
        raise psycopg.OperationalError(
            f"the server has not answered for {QUIET:.0f} s, nor a login for {LOGIN} s"
        )


def lets_in(conninfo: str) -> bool:
    """Check whether a server answers a login, be it with an error."""
    try:
        psycopg.connect(make_conninfo(conninfo, connect_timeout=LOGIN)).close()
    except psycopg.errors.ConnectionTimeout:
        return False
    except psycopg.Error:
        return True
    return True
