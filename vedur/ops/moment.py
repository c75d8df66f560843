"""One moment on two nodes: a snapshot of the provider and one of the target that belong together.

Without locks (docs/design/compare.md): all tickers of the queue are kept out for some
milliseconds; a snapshot is exported and a tick is written from that same snapshot; the worker
stops exactly at that tick; a snapshot of the target that shows this tick as its position shows
the data of that tick. The hold ends as soon as the target's snapshot is exported.

A branch makes no ticks of its own, but each of its snapshots is one: its worker commits data and
position together. So there the position that a snapshot shows is the tick to stop at.

Where the queue belongs to upstream's code, which has no lock for its ticker, writers of the table
are stopped as Londiste did: SHARE lock, two ticks, wait, two snapshots, release.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from vedur import db as vdb
from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import DatabaseError, LaggingError, StateError
from vedur.failpoint import reach
from vedur.names import parse_name
from vedur.sql import query

log = logging.getLogger(__name__)

#: A hold of a compare that died stops the worker no longer than this.
HOLD = 20.0
#: How often a worker may pass the tick because it chose its batch just before the hold came.
_ATTEMPTS = 5
#: The ticker stands still while the target is told of the hold: not for long.
_QUICK = "5s"
_SAY_EVERY = 5.0
MARK = "vedur compare"

LOCK_NOT_AVAILABLE = "55P03"
LAGGING = "Consumer lagging too much, cannot proceed"


class Passed(Exception):
    """The worker went past the tick."""


@dataclass(frozen=True)
class Nodes:
    """Both ends of one subscription."""

    provider: str
    target: str
    queue: str
    consumer: str
    clock: Clock
    max_wait: float = 60.0
    lock_timeout: float = 10.0
    force: bool = False

    def connect(self, which: str, name: str, mark: str = MARK) -> Database:
        """A connection of its own, in autocommit mode; `mark` is its application_name."""
        connstr = self.provider if which == "provider" else self.target
        return vdb.connect(connstr, name=name, autocommit=True, application_name=mark)


@dataclass(frozen=True)
class Moment:
    """Names of two snapshots, good while the context that made them is open.

    `mark` is the application_name of the sessions that keep them, and of all that read with them.
    """

    source: str
    target: str
    tick: int
    lock_free: bool
    mark: str = MARK
    readers: tuple[Database, ...] = field(default=(), repr=False, compare=False)

    def check(self) -> None:
        """Raises unless both sessions that keep snapshots and locks have been there all along."""
        for reader in self.readers:
            reader.value(query("compare", "alive"))


@contextmanager
def meet(nodes: Nodes, table: str, dest: str, *, keep_hold: bool = False) -> Iterator[Moment]:
    """Both sides of a table at one moment. With `keep_hold` the worker waits until the end."""
    with ExitStack() as stack:
        control = stack.enter_context(nodes.connect("provider", "provider_db"))
        here = stack.enter_context(nodes.connect("target", "db"))
        branch = control.value(query("compare", "node_type"), [nodes.queue]) == "branch"
        can_hold = bool(here.value(query("compare", "can_hold")))
        if branch and not can_hold:
            raise StateError(
                "the provider is a branch, and the worker here is upstream's: "
                "compare with Londiste's own command, or move this node to Vedur"
            )
        can_tick = branch or bool(control.value(query("compare", "can_tick"), [nodes.queue]))
        if not nodes.force:
            _wait_for_lag(nodes, control)
        if not (can_tick and can_hold):
            log.debug("%s: queue of upstream's, writers are stopped", table)
            yield stack.enter_context(_locked(nodes, control, here, table, dest, keep_hold))
            return
        for attempt in range(_ATTEMPTS):
            inner = ExitStack()
            try:
                moment = _meet_once(nodes, control, here, table, dest, branch, inner)
            except Passed:
                inner.close()
                log.debug("%s: worker passed the tick, attempt %d", table, attempt + 1)
                continue
            except BaseException:
                inner.close()
                raise
            with inner:
                if keep_hold:
                    inner.enter_context(_kept(nodes, moment.tick))
                else:
                    _let_go(nodes, control, here, moment.tick)
                reach("moment.let_go")
                yield moment
            return
    raise StateError(
        f'the worker of "{nodes.consumer}" did not stop at a tick in {_ATTEMPTS} attempts: '
        "is it a Vedur worker of this version?"
    )


@contextmanager
def as_they_are(nodes: Nodes, table: str, dest: str) -> Iterator[Moment]:
    """Both sides of a table now, at no tick: for a node whose worker cannot go on to one.

    The target stands still then, so what differs is what a repair would find at that moment.
    """
    mark = _new_mark()
    with (
        _reader(nodes, "provider", table, mark) as reader,
        _reader(nodes, "target", dest, mark) as replica,
    ):
        names = [str(db.one(query("compare", "export")).name) for db in (reader, replica)]
        yield Moment(names[0], names[1], 0, True, mark, (reader, replica))


def _meet_once(
    nodes: Nodes,
    control: Database,
    here: Database,
    table: str,
    dest: str,
    branch: bool,
    stack: ExitStack,
) -> Moment:
    mark = _new_mark()
    reader = stack.enter_context(_reader(nodes, "provider", table, mark))
    if branch:
        tick, source = _tick_of(nodes, here, reader)
    else:
        tick, source = _tick_from(nodes, control, here, reader)
    stack.callback(_let_go, nodes, control, here, tick)
    reach("moment.ticked")
    _wait_for_tick(nodes, control, here, tick)
    replica = stack.enter_context(_reader(nodes, "target", dest, mark))
    position = replica.value(query("compare", "position"), [nodes.queue, nodes.consumer])
    if position != tick:
        raise Passed
    reach("moment.reached")
    target = str(replica.one(query("compare", "export")).name)
    return Moment(source, target, tick, True, mark, (reader, replica))


def _new_mark() -> str:
    return f"{MARK} {secrets.token_hex(4)}"


@contextmanager
def _reader(nodes: Nodes, which: str, table: str, mark: str) -> Iterator[Database]:
    """A transaction that is to be exported; the table can be neither rewritten nor truncated.

    The lock comes before the snapshot: truncate and rewrites do not care for snapshots.
    """
    with nodes.connect(which, f"compare {which}", mark) as db:
        db.without_timeouts()
        db.execute(query("compare", "pin"))
        db.value(query("compare", "set_timeouts"), [f"{nodes.lock_timeout}s", "0"])
        db.execute(query("compare", "begin_export"))
        name = parse_name(table).quoted
        try:
            db.execute(query("compare", "lock_shared").format(tables=name))
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
            raise StateError(
                f'table "{table}" on the {which} is locked by another session for more than '
                f"{nodes.lock_timeout:.0f} s: run the command again when that has ended"
            ) from error
        yield db


def _tick_of(nodes: Nodes, here: Database, reader: Database) -> tuple[int, str]:
    """The tick that a branch's snapshot is, and the snapshot's name; the hold is set.

    If the branch goes on and the worker here passes the tick before it knows of the hold, that is
    seen, and there is another attempt.
    """
    tick = reader.value(query("compare", "branch_position"), [nodes.queue])
    if tick is None:
        raise StateError(f'the provider keeps no position in queue "{nodes.queue}"')
    exported = reader.one(query("compare", "export"))
    _hold(nodes, here, int(tick))
    return int(tick), str(exported.name)


def _tick_from(
    nodes: Nodes, control: Database, here: Database, reader: Database
) -> tuple[int, str]:
    """Write a tick whose snapshot is the reader's; its id and the snapshot's name."""
    control.value(query("compare", "set_timeouts"), [f"{nodes.lock_timeout}s", "0"])
    here.value(query("compare", "set_timeouts"), ["0", _QUICK])
    tick = int(control.value(query("compare", "begin_moment"), [nodes.queue]))
    try:
        reach("moment.begun")
        # From here on the tick's id is known and nobody can see the tick: the hold is there first.
        exported = reader.one(query("compare", "export"))
        reach("moment.exported")
        _hold(nodes, here, tick)
        reach("moment.held")
        control.execute(query("compare", "begin_import").format(snapshot=exported.name))
        control.value(query("compare", "write_moment"), [nodes.queue, tick, exported.snapshot])
        control.commit()
    except BaseException:
        if not control.closed:
            control.rollback()
        _forget_hold(nodes, here, tick)
        raise
    finally:
        if not control.closed:
            control.value(query("compare", "end_moment"), [nodes.queue])
    return tick, str(exported.name)


def _hold(nodes: Nodes, here: Database, tick: int) -> None:
    asked = [nodes.queue, nodes.consumer, tick, f"{HOLD} seconds"]
    here.value(query("compare", "set_hold"), asked)


def _forget_hold(nodes: Nodes, here: Database, tick: int) -> None:
    try:
        here.value(query("compare", "drop_hold"), [nodes.queue, nodes.consumer, tick])
    except DatabaseError as error:
        log.debug("hold at tick %s runs out by itself: %s", tick, error)


def _let_go(nodes: Nodes, control: Database, here: Database, tick: int) -> None:
    """End the hold and wake the worker; doing it twice does no harm."""
    _forget_hold(nodes, here, tick)
    try:
        control.value(query("compare", "wake"), [nodes.queue, str(tick)])
    except DatabaseError as error:
        log.debug("the worker wakes up by itself: %s", error)


@contextmanager
def _kept(nodes: Nodes, tick: int) -> Iterator[None]:
    """Renew a hold in the background for as long as somebody needs it."""
    done = threading.Event()

    def renew() -> None:
        try:
            with nodes.connect("target", "hold") as db:
                while not nodes.clock.wait(done, HOLD / 4):
                    _hold(nodes, db, tick)
        except DatabaseError as error:
            log.warning("the hold at tick %s cannot be renewed: %s", tick, error.message)

    thread = threading.Thread(target=renew, name="hold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _wait_for_tick(nodes: Nodes, control: Database, here: Database, tick: int) -> None:
    clock = nodes.clock
    deadline = clock.monotonic() + nodes.max_wait
    said = clock.monotonic() + _SAY_EVERY
    renewed, pause = clock.monotonic(), 0.01
    while True:
        position = here.value(query("compare", "position"), [nodes.queue, nodes.consumer])
        if position is None:
            raise StateError(f'consumer "{nodes.consumer}" keeps no position on this node')
        if position == tick:
            return
        if position > tick:
            raise Passed
        now = clock.monotonic()
        if now > deadline:
            log.info("%s", _behind(nodes, control))
            raise LaggingError(LAGGING)
        if now > said:
            log.info("%s", _behind(nodes, control))
            said = now + _SAY_EVERY
        if now > renewed + HOLD / 4:
            _hold(nodes, here, tick)
            renewed = now
        clock.sleep(pause)
        pause = min(0.1, pause * 1.3)


def _lag(nodes: Nodes, control: Database) -> tuple[float, int, float]:
    row = control.one(query("compare", "lag"), [nodes.queue, nodes.consumer])
    if row is None:
        raise StateError(f'consumer "{nodes.consumer}" is not registered on the provider')
    return float(row.lag or 0.0), int(row.pending), float(row.last_seen or 0.0)


def _behind(nodes: Nodes, control: Database) -> str:
    lag, pending, seen = _lag(nodes, control)
    return (
        f"Consumer {nodes.consumer} lagging {lag:.0f}s and {pending} event(s), "
        f"last seen {seen:.0f}s ago, waiting"
    )


def _wait_for_lag(nodes: Nodes, control: Database) -> None:
    """No snapshot is held while the consumer is still far away. A queue at rest has old ticks
    and nothing pending: that is no lag."""
    clock = nodes.clock
    deadline = clock.monotonic() + nodes.max_wait
    said = 0.0
    while True:
        lag, pending, _ = _lag(nodes, control)
        if lag <= nodes.lock_timeout or not pending:
            return
        now = clock.monotonic()
        if now >= said:
            log.info("%s", _behind(nodes, control))
            said = now + _SAY_EVERY
        if now >= deadline:
            raise LaggingError(LAGGING)
        clock.sleep(0.5)


# -- upstream's way ------------------------------------------------------------------------------


@contextmanager
def _locked(
    nodes: Nodes, control: Database, here: Database, table: str, dest: str, keep: bool
) -> Iterator[Moment]:
    with ExitStack() as stack:
        with nodes.connect("provider", "lock") as lock:
            lock.value(query("compare", "set_timeouts"), [f"{nodes.lock_timeout}s", "0"])
            with lock.transaction():
                quoted = parse_name(table).quoted
                lock.execute(query("compare", "lock_writers").format(table=quoted))
                tick = _two_ticks(nodes, control)
                _wait_locked(nodes, here, tick)
                mark = _new_mark()
                readers = tuple(
                    stack.enter_context(_reader(nodes, which, name, mark))
                    for which, name in (("provider", table), ("target", dest))
                )
                names = [str(r.one(query("compare", "export")).name) for r in readers]
                moment = Moment(names[0], names[1], tick, False, mark, readers)
                if keep:
                    yield moment
        if not keep:
            yield moment


def _two_ticks(nodes: Nodes, control: Database) -> int:
    """A tick that was begun after the lock: the first one to appear may have begun before."""
    deadline = nodes.clock.monotonic() + nodes.lock_timeout
    first = last = int(control.value(query("compare", "last_tick"), [nodes.queue]) or 0)
    while last < first + 2:
        control.value(query("compare", "force_tick"), [nodes.queue])
        try:
            control.value(query("compare", "ticker"), [nodes.queue])
        except DatabaseError as error:
            log.debug("waiting for the queue's own ticker: %s", error)
        last = int(control.value(query("compare", "last_tick"), [nodes.queue]) or 0)
        if nodes.clock.monotonic() > deadline:
            raise StateError(f'queue "{nodes.queue}" gets no tick: is its ticker running?')
        if last < first + 2:
            nodes.clock.sleep(0.1)
    return last


def _wait_locked(nodes: Nodes, here: Database, tick: int) -> None:
    deadline = nodes.clock.monotonic() + nodes.lock_timeout
    while True:
        position = here.value(query("compare", "position"), [nodes.queue, nodes.consumer])
        if position is not None and position >= tick:
            return
        if nodes.clock.monotonic() > deadline:
            raise LaggingError("Consumer lagging too much, exiting")
        nodes.clock.sleep(0.1)
