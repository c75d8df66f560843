"""wait-sync, wait-root, wait-provider: return when the local node has got there.

They poll, because the worker may be of another program; a missing worker is not an error, it may
be started any time.
"""

from __future__ import annotations

import logging

from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import InternalError, StateError
from vedur.log import mask
from vedur.node.info import NodeInfo, get_node_info
from vedur.ops.session import Session
from vedur.sql import query
from vedur.status.snapshot import read_copies, read_node

log = logging.getLogger(__name__)

#: Often enough for an operator who looks on, seldom enough for a copy that takes hours.
_PERIOD = 0.5


def wait_sync(session: Session) -> None:
    """Wait until the copy of every local table is done."""
    log.info("Waiting until all tables are in sync")
    session.require_node()
    pending = _pending(session)
    total = len(get_table_list_local(session))
    if pending:
        log.info("%s/%s table(s) to copy", len(pending), total)
    told: set[str] = set()
    while pending:
        session.clock.sleep(_PERIOD)
        # the wait goes on, since worker and copies try again by themselves
        new = _errors(session) - told
        for text in sorted(new):
            log.warning("%s", text)
        told |= new
        now = _pending(session)
        for name in sorted(pending - now):
            log.info("%s: finished (%s/%s)", name, total - len(now), total)
        pending = now
    log.info("All done")


def _errors(session: Session) -> set[str]:
    """Read what holds up copies or the worker, one line each."""
    found = {
        f"{error.consumer}: {error.error}"
        for error in read_node(session.db, session.queue, "").errors
    }
    return found | {
        f"{copy.table_name}: copy failed, it is tried again: {mask(copy.error)}"
        for copy in read_copies(session.db, session.queue)
        if copy.error
    }


def get_table_list_local(session: Session) -> list[str]:
    """Names of the tables that are replicated here."""
    return [t.table_name for t in get_table_list(session.db, session.queue) if t.local]


def _pending(session: Session) -> set[str]:
    tables = get_table_list(session.db, session.queue)
    return {t.table_name for t in tables if t.local and not t.ready}


def wait_root(session: Session) -> None:
    """Wait until the local node has what the root has now."""
    info = session.require_node()
    if info.is_root:
        log.info("Current node is root, no need to wait")
        return
    root, _ = session.root(_provider_location(info))
    _wait(session, root, force=True)


def wait_provider(session: Session) -> None:
    """Wait until the local node has what its provider has now."""
    info = session.require_node()
    if info.is_root:
        log.info("Current node is root, no need to wait")
        return
    provider = session.provider(info)
    above = get_node_info(provider, session.queue)
    # only a root has a ticker; a branch repeats the ticks of its provider
    _wait(session, provider, force=above is not None and above.is_root)


def _provider_location(info: NodeInfo) -> str:
    if not info.provider_location:
        raise StateError(f'node "{info.node_name}" knows no location of its provider')
    return info.provider_location


def last_tick(db: Database, queue: str) -> int:
    """The newest tick of a node that has a queue."""
    row = db.one(query("admin", "last_tick"), [queue])
    if row is None:
        raise StateError(f'queue "{queue}" has no ticks there: is the ticker running?')
    return int(row.tick_id)


def _wait(session: Session, there: Database, *, force: bool) -> None:
    """Wait for a tick that was begun after this moment, so that everything before is in it."""
    tick = last_tick(there, session.queue)
    moment = there.value(query("admin", "now"))
    log.info("Waiting for tick > %s", tick)
    if force:
        there.value(query("admin", "force_tick"), [session.queue])
    while True:
        info = get_node_info(session.db, session.queue)
        if info is None or info.worker_last_tick is None:
            raise InternalError(f'BUG: node of queue "{session.queue}" vanished while waiting')
        goal = there.value(query("admin", "tick_after"), [session.queue, moment])
        if goal is not None and info.worker_last_tick >= goal:
            log.info("Got tick %s, exiting", info.worker_last_tick)
            return
        session.clock.sleep(_PERIOD)
