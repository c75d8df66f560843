"""Reading at a moment, and making way for whoever must not wait: TRUNCATE and DDL.

A comparison reads under ACCESS SHARE locks. No writer waits for these; but a TRUNCATE or an ALTER
TABLE does, and everybody who comes after it waits for it. So, like autovacuum, a comparison that
stands in the way gives up what it has: its sessions are ended, the other goes first, and it begins
again at a new moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from vedur.errors import DatabaseError, StateError
from vedur.names import parse_name
from vedur.ops.moment import Moment, Nodes, meet
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.compare import Pair

log = logging.getLogger(__name__)

T = TypeVar("T")

#: How long someone may wait for us; PostgreSQL itself looks whom to disturb after this time.
GRACE = 1.0
_LOOK_EVERY = 0.5
_ATTEMPTS = 5


@dataclass
class Watch:
    """Whether somebody waited for us, and on which node."""

    waited_on: str = ""


#: How a moment is come by: `meet`, or another context manager like it.
Meet = Callable[[Nodes, str, str], AbstractContextManager[Moment]]


def at_one_moment(
    nodes: Nodes, pair: Pair, work: Callable[[Pair, Moment], T], meet: Meet = meet
) -> T:
    """Do `work` with the pair as one moment's snapshots see it, again if it had to make way."""
    for _ in range(_ATTEMPTS):
        with meet(nodes, pair.source.name, pair.dest) as moment:
            with _watched(nodes, pair, moment) as watch:
                answer, error = _try(work, at_moment(pair, moment), moment)
            # An answer after somebody went first may be about another state of the table.
            if not watch.waited_on:
                if error is not None:
                    raise error
                moment.check()
                return answer[0]
        log.info(
            "%s: TRUNCATE or DDL is waiting for it on the %s: made way, begin again",
            pair.dest,
            watch.waited_on,
        )
    raise StateError(
        f'table "{pair.dest}" was truncated or altered by others {_ATTEMPTS} times in a row while '
        "it was read: run the command again when that has ended"
    )


def _try(
    work: Callable[[Pair, Moment], T], pair: Pair, moment: Moment
) -> tuple[list[T], Exception | None]:
    try:
        return [work(pair, moment)], None
    except Exception as error:  # ours or Spark's: only the caller knows if it was to be expected
        return [], error


def at_moment(pair: Pair, moment: Moment) -> Pair:
    """The pair as the moment's snapshots see it."""
    return replace(
        pair,
        source=replace(pair.source, snapshot=moment.source, mark=moment.mark),
        target=replace(pair.target, snapshot=moment.target, mark=moment.mark),
    )


@contextmanager
def _watched(nodes: Nodes, pair: Pair, moment: Moment) -> Iterator[Watch]:
    watch, done = Watch(), threading.Event()
    threads = [
        threading.Thread(
            target=_look, args=(nodes, which, name, moment.mark, watch, done), daemon=True
        )
        for which, name in (("provider", pair.source.name), ("target", pair.dest))
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _look(
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
