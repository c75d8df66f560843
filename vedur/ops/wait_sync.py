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
from vedur.node.position import require_newest_tick
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
    tables = get_table_list(session.db, session.queue)
    pending, total = set(tables.unready.names), len(tables.local)
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
        now = set(get_table_list(session.db, session.queue).unready.names)
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


def wait_root(session: Session) -> None:
    """Wait until the local node has what the root has now."""
    info = session.require_node()
    if info.is_root:
        log.info("Current node is root, no need to wait")
        return
    log.info("Finding root node")
    root, found = session.root(_provider_location(info))
    log.info("Root is %s", found.node_name)
    _wait(session, root, found.node_name, new=True)


def wait_provider(session: Session) -> None:
    """Wait until the local node has what its provider has now."""
    info = session.require_node()
    if info.is_root:
        log.info("Current node is root, no need to wait")
        return
    provider = session.provider(info)
    above = get_node_info(provider, session.queue)
    name = info.provider_node or ""
    log.info("Provider is %s", name)
    _wait(session, provider, name, new=above is not None and above.is_root)


def _provider_location(info: NodeInfo) -> str:
    if not info.provider_location:
        raise StateError(f'node "{info.node_name}" knows no location of its provider')
    return info.provider_location


def _wait(session: Session, there: Database, name: str, *, new: bool) -> None:
    """Wait until the local node has what a node has now.

    With `new` that is a tick which is begun after this moment, so that everything before is in it;
    its ticker is asked for one. A branch has no ticker: what it has now is its newest tick.
    """
    log.info("Fetching last tick for %s", name)
    newest = require_newest_tick(there, session.queue)
    moment = there.value(query("admin", "now"))
    log.info("Waiting for tick > %s", newest if new else newest - 1)
    if new:
        there.value(query("admin", "force_tick"), [session.queue])
    while True:
        info = get_node_info(session.db, session.queue)
        if info is None or info.worker_last_tick is None:
            raise InternalError(f'BUG: node of queue "{session.queue}" vanished while waiting')
        after = [session.queue, moment]
        goal = there.value(query("admin", "tick_after"), after) if new else newest
        if goal is not None and info.worker_last_tick >= goal:
            log.info("Got tick %s, exiting", info.worker_last_tick)
            return
        session.clock.sleep(_PERIOD)
