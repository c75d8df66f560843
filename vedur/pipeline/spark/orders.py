"""How a driver and its resident task talk: through a table of the target and empty NOTIFYs.

Both have the target at hand, so there is no protocol of our own and no port. The driver makes an
unlogged table of its own, and writes an order as a row; the task answers with another row. Each
wakes the other by a NOTIFY without words, and sleeps until then. Each holds an advisory lock for as
long as its session lives: whoever can take the other's lock is alone. A server frees the locks of a
process that was killed, and of a machine that it has lost.

Rows are sealed with a key that only these two have: whoever else can write to the table, a
superuser of that database for one, cannot make the task run a statement on the provider.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from vedur.db import Database
from vedur.errors import DatabaseError, ResidentLost
from vedur.names import quote_ident
from vedur.sql import query

#: The answer that the task gives before it has an order: it is there.
_HELLO = 0


@dataclass(frozen=True)
class Desk:
    """Where the two meet: what either needs to know of it."""

    name: str  # of the table
    driver_lock: int
    task_lock: int
    key: bytes = field(repr=False)

    @classmethod
    def make(cls, prefix: str) -> Desk:
        """Return a place that nobody else knows; the table's name begins with `prefix`."""
        name = f"{prefix}orders_{secrets.token_hex(8)}"
        return cls(name, secrets.randbits(62), secrets.randbits(62), secrets.token_bytes(32))

    @property
    def table(self) -> str:
        """The table of orders and answers, quoted."""
        return f"vedur_work.{quote_ident(self.name)}"

    @property
    def to_task(self) -> str:
        """The channel on which the task is woken."""
        return f"{self.name}_task"

    @property
    def to_driver(self) -> str:
        """The channel on which the driver is woken."""
        return f"{self.name}_driver"

    def seal(self, number: int, body: str, *, answer: bool) -> str:
        """Return the text of a row."""
        return f"{self._mark(number, body, answer)} {body}"

    def unseal(self, number: int, text: str, *, answer: bool) -> str:
        """Return what a row says; raises unless the other side wrote it, under this number."""
        mark, _, body = text.partition(" ")
        if not hmac.compare_digest(mark, self._mark(number, body, answer)):
            raise ResidentLost(f"{self.table} has a row that neither side has written")
        return body

    def _mark(self, number: int, body: str, answer: bool) -> str:
        kind = "answer" if answer else "order"
        said = f"{kind} {number} {body}".encode()
        return hmac.new(self.key, said, hashlib.sha256).hexdigest()


@dataclass
class DriverEnd:
    """The driver's side, on a session of its own in autocommit mode."""

    desk: Desk
    db: Database
    _number: int = _HELLO

    def open(self) -> None:
        """Make the table, and be there."""
        self.db.without_timeouts()
        self.db.value(query("resident", "hold"), [self.desk.driver_lock])
        self.db.execute(query("resident", "create_orders").format(orders=self.desk.table))
        listen = query("resident", "listen")
        self.db.execute(listen.format(channel=quote_ident(self.desk.to_driver)))

    def hello(self) -> str | None:
        """Read what the task says of itself; None while it is not there yet."""
        return self._read(_HELLO)

    def send(self, body: str) -> None:
        """Write the next order and wake the task."""
        self._number += 1
        text = query("resident", "send_order").format(orders=self.desk.table)
        sealed = self.desk.seal(self._number, body, answer=False)
        values = {"number": self._number, "body": sealed, "channel": self.desk.to_task}
        self.db.query(text, values)

    def wait(self, seconds: float) -> str | None:
        """Wait for the answer to the last order; None where there is none yet."""
        self.db.wait_for_notice(seconds)
        return self._read(self._number)

    def is_alone(self) -> bool:
        """Has the task left? An answer may be there even so."""
        return bool(self.db.value(query("resident", "is_alone"), [self.desk.task_lock]))

    def leave(self) -> None:
        """Tell the task to end."""
        self.db.query(query("resident", "leave"), [self.desk.driver_lock, self.desk.to_task])

    def remove(self) -> None:
        """Drop the table, unless somebody is at it: then a worker's start drops it."""
        with contextlib.suppress(DatabaseError), self.db.transaction():
            self.db.execute("set local lock_timeout = '200ms'")
            self.db.execute(query("resident", "drop_orders").format(orders=self.desk.table))
        self.db.close()

    def _read(self, number: int) -> str | None:
        text = query("resident", "read_answer").format(orders=self.desk.table)
        found = self.db.value(text, [number])
        return None if found is None else self.desk.unseal(number, str(found), answer=True)


@dataclass
class TaskEnd:
    """The task's side, on a session of its own in autocommit mode."""

    desk: Desk
    db: Database
    alone: bool = False  # the driver has left
    _done: int = _HELLO

    def open(self, words: str) -> bool:
        """Take the lock of the task and say that it is there; returns False where another attempt
        of this task still is."""
        self.db.without_timeouts()
        if not self.db.value(query("resident", "hold"), [self.desk.task_lock]):
            return False
        listen = query("resident", "listen")
        self.db.execute(listen.format(channel=quote_ident(self.desk.to_task)))
        self.answer(words)
        return True

    def next(self) -> str | None:
        """Read the next order; None where there is none, or where the driver has left."""
        text = query("resident", "read_order").format(orders=self.desk.table)
        row = self.db.one(text, {"driver": self.desk.driver_lock, "done": self._done})
        self.alone = self.alone or row.alone
        if self.alone or row.number is None:
            return None
        order = self.desk.unseal(row.number, row.body, answer=False)
        self._done = row.number
        return order

    def answer(self, body: str) -> None:
        """Answer the last order."""
        text = query("resident", "write_answer").format(orders=self.desk.table)
        sealed = self.desk.seal(self._done, body, answer=True)
        values = {"number": self._done, "body": sealed, "channel": self.desk.to_driver}
        self.db.query(text, values)


def serve(
    end: TaskEnd,
    do: Callable[[str], str],
    *,
    words: str,
    look: float,
    idle: float,
    now: Callable[[], float],
) -> str:
    """Answer orders with `do(order)` until the driver leaves, or `idle` seconds are without any.

    Looks every `look` seconds whether the driver is there. Returns why it has ended.
    """
    if not end.open(words):
        raise ResidentLost("another attempt of this task has not ended yet")
    last = now()
    while True:
        order = end.next()
        if end.alone:
            return "the driver has left"
        if order is not None:
            end.answer(do(order))
            last = now()
        elif now() - last >= idle:
            return "nothing to do"
        else:
            end.db.wait_for_notice(look)
