"""One moment on two nodes: a snapshot of the provider and one of the target that belong together.

Without locks (docs/design/compare.md): all tickers of the queue are kept out for some
milliseconds; a snapshot is exported and a tick is written from that same snapshot; the worker
stops exactly at that tick; a snapshot of the target that shows this tick as its position shows
the data of that tick. The hold ends as soon as the target's snapshot is exported.

A branch makes no ticks of its own, but each of its snapshots is one: its worker commits data and
position together. So there the position that a snapshot shows is the tick to stop at.

Where the queue belongs to upstream's code, which has no lock for its ticker, writers of the table
are stopped as Londiste did: SHARE lock, two ticks, wait, two snapshots, release.

A comparison reads under ACCESS SHARE locks. No writer waits for these; but a TRUNCATE or an ALTER
TABLE does, and everybody who comes after it waits for it. So, like autovacuum, a comparison yields:
`at_one_moment` ends its own sessions, lets the other go first and begins again at a new moment.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import DatabaseError, LaggingError, MomentPassed, StateError
from vedur.failpoint import reach
from vedur.names import parse_name
from vedur.node.endpoint import Endpoint
from vedur.node.info import get_node_info
from vedur.node.position import read_newest_tick, read_position, wake_worker
from vedur.sql import query
from vedur.threads import Thread

log = logging.getLogger(__name__)

T = TypeVar("T")

#: A hold of a compare that died stops the worker no longer than this.
HOLD = 20.0
#: How often a worker may pass the tick because it chose its batch just before the hold came.
_ATTEMPTS = 5
#: The ticker stands still while the target is told of the hold: not for long.
_QUICK = "5s"
_SAY_EVERY = 5.0
MARK = "vedur compare"

#: Seconds a DDL statement may wait for us (the default of deadlock_timeout).
GRACE = 1.0
_LOOK_EVERY = 0.5
#: How often a comparison may yield to DDL before it gives up.
_YIELDS = 5

LOCK_NOT_AVAILABLE = "55P03"
LAGGING = "Consumer lagging too much, cannot proceed"


@dataclass(frozen=True)
class Nodes:
    """Two nodes of a set: the local one, and its provider or another one to compare with.

    `provider` is the node to compare with; `above` the one that the worker here reads from, where
    that is another one.
    """

    provider: Endpoint
    target: Endpoint
    queue: str
    consumer: str
    clock: Clock
    max_wait: float = 60.0
    lock_timeout: float = 10.0
    force: bool = False
    above: Endpoint | None = None

    def connect(self, which: str, name: str, mark: str = MARK) -> Database:
        """Open a connection of its own; `mark` is its application_name."""
        endpoint = self.target if which == "target" else self.provider
        if which == "above" and self.above is not None:
            endpoint = self.above
        return endpoint.titled(mark).open(name)


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
        """Raise unless both sessions that keep snapshots and locks have been there all along."""
        for reader in self.readers:
            reader.value(query("compare", "alive"))


@contextmanager
def meet(nodes: Nodes, table: str, dest: str, *, keep_hold: bool = False) -> Iterator[Moment]:
    """Open both sides of a table at one moment; waits until they are there. With `keep_hold` the
    worker waits until the end."""
    with ExitStack() as stack:
        control = stack.enter_context(nodes.connect("provider", "provider_db"))
        here = stack.enter_context(nodes.connect("target", "db"))
        above = control
        if nodes.above is not None:
            above = stack.enter_context(nodes.connect("above", "above_db"))
        branch = control.value(query("compare", "node_type"), [nodes.queue]) == "branch"
        can_hold = bool(here.value(query("compare", "can_hold")))
        if branch and not can_hold:
            raise StateError(
                "the provider is a branch, and the worker here is upstream's: "
                "compare with Londiste's own command, or move this node to Vedur"
            )
        can_tick = branch or bool(control.value(query("compare", "can_tick"), [nodes.queue]))
        if not nodes.force:
            _wait_for_lag(nodes, above)
        if not (can_tick and can_hold):
            log.debug("%s: queue of upstream's, writers are stopped", table)
            yield stack.enter_context(_locked(nodes, control, here, table, dest, keep_hold))
            return
        sides = _Sides(nodes, control, above, here, branch)
        for attempt in range(_ATTEMPTS):
            inner = ExitStack()
            try:
                moment = _meet_once(sides, table, dest, inner)
            except MomentPassed:
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
                    _let_go(nodes, above, here, moment.tick)
                reach("moment.let_go")
                yield moment
            return
    raise StateError(
        f'the worker of "{nodes.consumer}" did not stop at a tick in {_ATTEMPTS} attempts: '
        "is it a Vedur worker of this version?"
    )


@contextmanager
def as_they_are(nodes: Nodes, table: str, dest: str) -> Iterator[Moment]:
    """Open both sides of a table now, at no tick: for a node whose worker cannot go on to one.

    The target stands still then, so what differs is what a repair would find at that moment.
    """
    mark = _new_mark()
    with (
        _reader(nodes, "provider", table, mark) as reader,
        _reader(nodes, "target", dest, mark) as replica,
    ):
        names = [str(db.one(query("compare", "export")).name) for db in (reader, replica)]
        yield Moment(names[0], names[1], 0, True, mark, (reader, replica))


@dataclass(frozen=True)
class _Sides:
    """Sessions in which a moment is agreed on: `control` with the node that the rows are compared
    with, which may be a branch, `above` with the provider (often the same), `here` with this
    one."""

    nodes: Nodes
    control: Database
    above: Database
    here: Database
    branch: bool


def _meet_once(sides: _Sides, table: str, dest: str, stack: ExitStack) -> Moment:
    """Try to meet at one tick; the snapshots are kept by `stack`. Raises `MomentPassed` where the
    worker was faster."""
    nodes, control, above, here = sides.nodes, sides.control, sides.above, sides.here
    mark = _new_mark()
    with ExitStack() as waiting:
        goal = None
        if sides.branch and nodes.above is not None:
            goal = waiting.enter_context(_not_behind(nodes, control, above, here))
        reader = stack.enter_context(_reader(nodes, "provider", table, mark))
        if sides.branch:
            tick, source = _tick_of(nodes, here, reader)
        else:
            tick, source = _tick_from(nodes, control, here, reader)
        stack.callback(_let_go, nodes, above, here, tick)
        if goal is not None and goal != tick:
            _forget_hold(nodes, here, goal)
    reach("moment.ticked")
    _wait_for_tick(nodes, above, here, tick)
    replica = stack.enter_context(_reader(nodes, "target", dest, mark))
    position = read_position(replica, nodes.queue, nodes.consumer)
    if position != tick:
        raise MomentPassed
    reach("moment.reached")
    target = str(replica.one(query("compare", "export")).name)
    return Moment(source, target, tick, True, mark, (reader, replica))


def _new_mark() -> str:
    return f"{MARK} {secrets.token_hex(4)}"


@contextmanager
def _reader(nodes: Nodes, which: str, table: str, mark: str) -> Iterator[Database]:
    """Open a transaction that is to be exported; the table can be neither rewritten nor truncated.
    Waits for the lock.

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
    """Read the tick that a branch's snapshot is, and the snapshot's name; sets the hold at that
    tick.

    If the branch goes on and the worker here passes the tick before it knows of the hold, that is
    seen, and there is another attempt.
    """
    tick = reader.value(query("compare", "branch_position"), [nodes.queue])
    if tick is None:
        raise StateError(f'the provider keeps no position in queue "{nodes.queue}"')
    exported = reader.one(query("compare", "export"))
    _hold(nodes, here, int(tick))
    return int(tick), str(exported.name)


@contextmanager
def _not_behind(
    nodes: Nodes, control: Database, above: Database, here: Database
) -> Iterator[int | None]:
    """Wait until a branch that is not the provider shows a tick that the worker here has not
    passed. Where the branch is behind, both workers are asked to stop at one tick, which is given;
    the hold of the one here stays."""
    queue = nodes.queue
    goal = read_newest_tick(above, queue)
    position = read_position(here, queue, nodes.consumer)
    if goal is None or position is None or _shown(nodes, control) >= position:
        yield None
        return
    info = get_node_info(control, queue)
    worker = info.worker_name if info is not None else None
    if worker is None or not control.value(query("compare", "can_hold")):
        raise StateError(
            "that node is behind this one, and its worker cannot be asked to stop at a tick: "
            "compare with another node (--node)"
        )
    clock = nodes.clock
    deadline = clock.monotonic() + nodes.max_wait
    try:
        while _shown(nodes, control) < goal:
            _hold(nodes, here, goal)
            control.value(query("compare", "set_hold"), [queue, worker, goal, f"{HOLD} seconds"])
            if clock.monotonic() > deadline:
                raise LaggingError(LAGGING)
            clock.sleep(0.1)
        reach("moment.awaited")
        yield goal
    except BaseException:
        _forget_hold(nodes, here, goal)
        raise
    finally:
        if not control.closed:
            control.value(query("compare", "drop_hold"), [queue, worker, goal])


def _shown(nodes: Nodes, control: Database) -> int:
    """Read the tick that a branch shows."""
    tick = control.value(query("compare", "branch_position"), [nodes.queue])
    if tick is None:
        raise StateError(f'that node keeps no position in queue "{nodes.queue}"')
    return int(tick)


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
    wake_worker(control, nodes.queue)


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

    thread = Thread(target=renew, name="hold", daemon=True)
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
        position = read_position(here, nodes.queue, nodes.consumer)
        if position is None:
            raise StateError(f'consumer "{nodes.consumer}" keeps no position on this node')
        if position == tick:
            return
        if position > tick:
            raise MomentPassed
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
    """Wait until the consumer is no longer far away: until then no snapshot is held. A queue at
    rest has old ticks and nothing pending: that is no lag."""
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
    """Wait for a tick that was begun after the lock: the first one to appear may have begun
    before."""
    deadline = nodes.clock.monotonic() + nodes.lock_timeout
    first = last = read_newest_tick(control, nodes.queue) or 0
    while last < first + 2:
        control.value(query("compare", "force_tick"), [nodes.queue])
        try:
            control.value(query("compare", "ticker"), [nodes.queue])
        except DatabaseError as error:
            log.debug("waiting for the queue's own ticker: %s", error)
        last = read_newest_tick(control, nodes.queue) or 0
        if nodes.clock.monotonic() > deadline:
            raise StateError(f'queue "{nodes.queue}" gets no tick: is its ticker running?')
        if last < first + 2:
            nodes.clock.sleep(0.1)
    return last


def _wait_locked(nodes: Nodes, here: Database, tick: int) -> None:
    deadline = nodes.clock.monotonic() + nodes.lock_timeout
    while True:
        position = read_position(here, nodes.queue, nodes.consumer)
        if position is not None and position >= tick:
            return
        if nodes.clock.monotonic() > deadline:
            raise LaggingError("Consumer lagging too much, exiting")
        nodes.clock.sleep(0.1)


# -- yielding to DDL -------------------------------------------------------------------------------


@dataclass
class Watch:
    """Whether somebody waited for us, and on which node."""

    waited_on: str = ""


#: How a moment is come by: `meet`, or another context manager like it.
Meet = Callable[[Nodes, str, str], AbstractContextManager[Moment]]


def at_one_moment(
    nodes: Nodes, table: str, dest: str, work: Callable[[Moment], T], meet: Meet = meet
) -> T:
    """Do `work` at one moment of both sides of a table, again if it had to yield to DDL."""
    for _ in range(_YIELDS):
        with meet(nodes, table, dest) as moment:
            with _watched(nodes, table, dest, moment) as watch:
                answer, error = _try(work, moment)
            # An answer after somebody went first may be about another state of the table.
            if not watch.waited_on:
                if error is not None:
                    raise error
                moment.check()
                return answer[0]
        log.info(
            "%s: yielded to TRUNCATE or DDL waiting on the %s, starting again",
            dest,
            watch.waited_on,
        )
    raise StateError(
        f'table "{dest}" was truncated or altered by others {_YIELDS} times in a row while '
        "it was read: run the command again when that has ended"
    )


def _try(work: Callable[[Moment], T], moment: Moment) -> tuple[list[T], Exception | None]:
    try:
        return [work(moment)], None
    except Exception as error:  # ours or Spark's: only the caller knows if it was to be expected
        return [], error


@contextmanager
def _watched(nodes: Nodes, table: str, dest: str, moment: Moment) -> Iterator[Watch]:
    watch, done = Watch(), threading.Event()
    threads = [
        Thread(
            target=_look_for_waiters,
            args=(nodes, which, name, moment.mark, watch, done),
            daemon=True,
        )
        for which, name in (("provider", table), ("target", dest))
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _look_for_waiters(
    nodes: Nodes, which: str, table: str, mark: str, watch: Watch, done: threading.Event
) -> None:
    asked = [parse_name(table).quoted, f"{GRACE} seconds"]
    try:
        with nodes.connect(which, "watch") as db:
            while not nodes.clock.wait(done, _LOOK_EVERY):
                if not watch.waited_on and db.value(query("compare", "waiting"), asked):
                    watch.waited_on = which
                if watch.waited_on:
                    # Again and again: a task may have begun just now.
                    db.value(query("compare", "make_way"), [mark])
    except DatabaseError as error:
        log.debug("nobody watches for waiters on the %s: %s", which, error.message)
