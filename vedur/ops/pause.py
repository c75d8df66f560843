"""pause and resume: ask a consumer, then wait until it has seen the request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vedur.db import Database
from vedur.errors import StateError
from vedur.node.info import ConsumerInfo, get_consumer_info, get_node_info
from vedur.node.killed_move import keep_paused
from vedur.node.move_lock import patiently, try_lock_move, unlock_move
from vedur.node.plan import MOVE_CONSUMER
from vedur.node.setup import set_move_note
from vedur.node.state import set_consumer_paused
from vedur.ops.members import find_consumer, read_members
from vedur.ops.session import Session

log = logging.getLogger(__name__)

_PERIOD = 0.5
#: Seconds after which a consumer that does not answer is named, again and again.
_SAY_EVERY = 10.0


class NoAnswer(StateError):
    """A consumer has not seen a request within the time that it was given."""


def pause(session: Session, *, node: str | None = None, consumer: str | None = None) -> None:
    """Pause a consumer (default: the worker of the local node) and wait until it stands still."""
    _set(session, True, node, consumer)


def resume(session: Session, *, node: str | None = None, consumer: str | None = None) -> None:
    """Let a consumer go on, and wait until it does; a move of it that was killed is given up."""
    _set(session, False, node, consumer)


def _set(session: Session, paused: bool, node: str | None, consumer: str | None) -> None:
    local = session.require_node()
    name = node or local.node_name
    if consumer is not None and node is None and not _has(session.db, session.queue, consumer):
        name, _ = find_consumer(session, read_members(session), consumer)
    remote = name != local.node_name
    db = session.node(name) if remote else session.db
    consumer = consumer or worker_of(db, session.queue)
    prefix = name if remote else ""
    with ExitStack() as stack:
        if not paused and _is_moved(db, session.queue, consumer):
            stack.enter_context(_given_up(session, db, name))
        if paused:
            keep_paused(db, session.queue, consumer)
        set_consumer_paused(db, session.queue, consumer, paused, node=prefix)
    wait_accepted(session, db, name, consumer, paused=paused)


def _is_moved(db: Database, queue: str, consumer: str) -> bool:
    info = get_node_info(db, queue)
    return info is not None and info.attrs.get(MOVE_CONSUMER) == consumer


@contextmanager
def _given_up(session: Session, db: Database, node: str) -> Iterator[None]:
    """Remove the note of a move that was killed, in the transaction of what is done meanwhile; a
    move that is under way ends by itself."""
    queue = session.queue
    if not patiently(try_lock_move, db, queue, session.clock):
        raise StateError(f'another command moves node "{node}" just now: wait for it to end')
    try:
        with db.transaction():
            set_move_note(db, queue, None)
            yield
        log.warning(
            "A move of node '%s' was interrupted, and is given up: see by status that no other "
            "node keeps a subscription of it",
            node,
        )
    finally:
        unlock_move(db, queue)


def worker_of(db: Database, queue: str) -> str:
    """Read the name of the worker of a node."""
    info = get_node_info(db, queue)
    if info is None or info.worker_name is None:
        raise StateError(f'no node for queue "{queue}" there')
    return info.worker_name


def wait_accepted(
    session: Session,
    db: Database,
    node: str,
    consumer: str,
    *,
    paused: bool,
    max_wait: float | None = None,
) -> None:
    """Wait until a consumer has seen the latest request; a consumer that does not run is named.

    Raises NoAnswer after `max_wait` seconds; without it there is no limit.
    """
    state = _state(db, session.queue, consumer)
    if not state.uptodate:
        log.info("Waiting for worker to accept")
    began = said = session.clock.monotonic()
    while not state.uptodate:
        session.clock.sleep(_PERIOD)
        now = session.clock.monotonic()
        if max_wait is not None and now - began >= max_wait:
            raise NoAnswer(
                f'consumer "{consumer}" on node "{node}" has not answered for {now - began:.0f} s'
            )
        if now - said >= _SAY_EVERY:
            log.warning(
                "Consumer '%s' on node '%s' has not answered for %.0f s: is it running?",
                consumer,
                node,
                now - began,
            )
            said = now
        state = _state(db, session.queue, consumer)
    verb = "paused" if paused else "resumed"
    log.info("Consumer '%s' on node '%s' %s", consumer, node, verb)


def _has(db: Database, queue: str, consumer: str) -> bool:
    return any(info.consumer_name == consumer for info in get_consumer_info(db, queue))


def _state(db: Database, queue: str, consumer: str) -> ConsumerInfo:
    for info in get_consumer_info(db, queue):
        if info.consumer_name == consumer:
            return info
    raise StateError(f'no consumer "{consumer}" on queue "{queue}" there')
