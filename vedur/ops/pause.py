"""pause and resume: ask a consumer, then wait until it has seen the wish."""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.errors import StateError
from vedur.node.info import ConsumerInfo, get_consumer_info, get_node_info
from vedur.node.state import set_consumer_paused
from vedur.ops.session import Session

log = logging.getLogger(__name__)

_PERIOD = 0.5


def pause(session: Session, *, node: str | None = None, consumer: str | None = None) -> None:
    """Pause a consumer (default: the worker of the local node)."""
    _set(session, True, node, consumer)


def resume(session: Session, *, node: str | None = None, consumer: str | None = None) -> None:
    """Let it go on."""
    _set(session, False, node, consumer)


def _set(session: Session, paused: bool, node: str | None, consumer: str | None) -> None:
    local = session.require_node()
    name = node or local.node_name
    remote = name != local.node_name
    db = session.node(name) if remote else session.db
    set_paused(session, db, name, consumer or worker_of(db, session.queue), paused, remote=remote)


def worker_of(db: Database, queue: str) -> str:
    """The name of the worker of a node."""
    info = get_node_info(db, queue)
    if info is None or info.worker_name is None:
        raise StateError(f'no node for queue "{queue}" there')
    return info.worker_name


def set_paused(
    session: Session, db: Database, node: str, consumer: str, paused: bool, *, remote: bool = False
) -> None:
    """Set the wish on a node and wait until the consumer accepts it."""
    set_consumer_paused(db, session.queue, consumer, paused, node=node if remote else "")
    state = _state(db, session.queue, consumer)
    if not state.uptodate:
        log.info("Waiting for worker to accept")
    while not state.uptodate:
        session.clock.sleep(_PERIOD)
        state = _state(db, session.queue, consumer)
    verb = "paused" if paused else "resumed"
    log.info("Consumer '%s' on node '%s' %s", consumer, node, verb)


def _state(db: Database, queue: str, consumer: str) -> ConsumerInfo:
    for info in get_consumer_info(db, queue):
        if info.consumer_name == consumer:
            return info
    raise StateError(f'no consumer "{consumer}" on queue "{queue}" there')
