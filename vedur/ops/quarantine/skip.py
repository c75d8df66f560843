"""skip: an operator decides that an event, or all events of a tick, are not applied here.

The decision is recorded; the worker carries it out in the transaction of the batch, and puts what
it skips into quarantine.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.catalog.quarantine import ask_skip, available, get_open_skips, get_stuck_events
from vedur.change.event import parse_type
from vedur.change.quarantine import SkipRequest
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.node.info import NodeInfo
from vedur.ops.session import Session
from vedur.queue.batches import get_subscription
from vedur.sql import query

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SkipOptions:
    """What the command line says."""

    event: int | None = None
    tick: int | None = None
    reason: str = ""
    force: bool = False

    def check(self) -> None:
        """Require exactly one of event and tick, and a reason."""
        if (self.event is None) == (self.tick is None):
            raise UsageError("skip needs either --event=N or --tick=N, use --help for help")
        if not self.reason.strip():
            raise UsageError("skip needs --reason=TEXT: it is kept with what is skipped")


def require_quarantine(session: Session) -> NodeInfo:
    """Read the local node; raises where the role cannot use the quarantine."""
    info = session.require_node()
    if not available(session.db):
        raise StateError(
            "this role may not use vedur.quarantine, or the database has the SQL of an earlier "
            "version: grant it londiste_writer, or run "
            f'"create-{info.node_type}" again, which brings the SQL up to date and changes no node'
        )
    return info


def skip(session: Session, options: SkipOptions) -> SkipRequest:
    """Record a decision; the worker carries it out."""
    options.check()
    info = require_quarantine(session)
    if info.is_root or info.worker_name is None:
        raise StateError(f'node "{info.node_name}" applies no events: skip is for other nodes')
    consumer = _stuck_consumer(session, options.event) or info.worker_name
    for request in get_open_skips(session.db, session.queue, consumer):
        if (request.ev_id, request.tick_id) == (options.event, options.tick):
            raise StateError(f"that is asked for already, by {request.asked_by}: {request.reason}")
    make = _event if options.event is not None else _tick
    request = make(session, info, options)
    reach("skip.checked")
    ask_skip(session.db, session.queue, consumer, request)
    reach("skip.asked")
    what = f"event {options.event}" if options.event is not None else f"tick {options.tick}"
    log.info("%s will be skipped by %s and kept in quarantine", what, consumer)
    return request


def _stuck_consumer(session: Session, event: int | None) -> str | None:
    """Return the consumer that the event stops: the worker, or a first copy that catches up."""
    for row in get_stuck_events(session.db, session.queue):
        if event is not None and row.ev_id == event:
            return row.consumer_name
    return None


def _event(session: Session, info: NodeInfo, options: SkipOptions) -> SkipRequest:
    for row in get_stuck_events(session.db, session.queue):
        if row.ev_id == options.event:
            return SkipRequest(0, options.reason, "", row.ev_id, row.ev_txid, row.table_name)
    provider = session.provider(info)
    place = get_subscription(provider, session.queue, info.worker_name or "")
    if place is None:
        raise StateError(f'consumer "{info.worker_name}" is not registered on the provider')
    text = query("quarantine", "find_event").format(events=place.events)
    found = provider.one(text, [options.event])
    if found is None:
        raise StateError(
            f'event {options.event} is not in the queue: run "errors" to see what blocks replay'
        )
    asked = [found.ev_txid, session.queue, info.worker_last_tick]
    if provider.value(query("quarantine", "applied_by"), asked):
        raise StateError(f"event {options.event} is applied here already")
    if not options.force:
        raise StateError(
            f'event {options.event} is not blocking replay: run "errors" to see what is, '
            "or use --force to skip it when it arrives"
        )
    said = parse_type(found.ev_type)
    table = None if said.op == "-" else found.ev_extra1 or said.table
    return SkipRequest(0, options.reason, "", found.ev_id, found.ev_txid, table)


def _tick(session: Session, info: NodeInfo, options: SkipOptions) -> SkipRequest:
    assert options.tick is not None
    at = info.worker_last_tick or 0
    if options.tick <= at:
        raise StateError(f"tick {options.tick} is applied here already, the node is at {at}")
    if not session.provider(info).value(
        query("quarantine", "has_tick"), [session.queue, options.tick]
    ):
        raise StateError(f"there is no tick {options.tick} on the provider")
    stopped = [
        row
        for row in get_stuck_events(session.db, session.queue)
        if row.consumer_name == info.worker_name and row.prev_tick < options.tick <= row.tick_id
    ]
    if not stopped and not options.force:
        raise StateError(
            f'tick {options.tick} is not blocking replay: run "errors" to see what is, '
            "or use --force to skip it when it arrives"
        )
    return SkipRequest(0, options.reason, "", tick_id=options.tick)
