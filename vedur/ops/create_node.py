"""create-root, create-branch, create-leaf: install the SQL and make a database a node.

Steps of a node that follows another: find the root; tell root and provider where the new node
is; subscribe at the provider; copy the member list; create the node; record the set's tables.
A node begins at a tick of now: whatever the queue still holds of before, the end of an earlier
node of its name, tables that have left the set, scripts, is not for it. The queue of a branch
begins with that tick, and has the provider's settings.
The provider and the new node commit one after the other at the end, the node last: a failure
leaves at most a location and a subscription, and the same command can be run again. The other way
round there would be a node that its provider does not know.

What our worker cannot serve is refused before anything is written: a node below a branch whose SQL
is too old to pass events on, and a leaf that is to be merged into a queue which has no root or
branch in the same database.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass

from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import get_table_list
from vedur.change.attrs import encode_attrs
from vedur.db import Database, exec_query, log_contract_call
from vedur.db.conninfo import has_host, parse
from vedur.db.install import install
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.log import mask_connstr
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import (
    ReignKind,
    begin_reign,
    forget_reigns,
    keeps_epochs,
    replace_reigns,
)
from vedur.node.fresh_tick import fresh_tick
from vedur.node.info import (
    SYNC_WATERMARK,
    Location,
    NodeInfo,
    NodeType,
    get_node_info,
    get_queue_locations,
    get_subscriber_info,
    has_schema,
    passes_nothing_on,
)
from vedur.node.part import begin_waiting
from vedur.node.position import (
    AppliedTick,
    complete_tick,
    forget_position,
    keeps_ticks,
    set_consumer_completed,
)
from vedur.node.setup import create_node as create
from vedur.node.setup import (
    is_told_to_forget,
    register_location,
    register_subscriber,
    require_own_consumer,
    set_node_attrs,
    unregister_subscriber,
)
from vedur.ops.session import Session, record_sequences, record_tables
from vedur.sql import query

log = logging.getLogger(__name__)

#: Seconds that a provider which has yet to read of an earlier node of a name is waited for.
FORGET_WAIT = 60.0
_PERIOD = 0.2

_OTHER_JOB = "give this node another job_name in its ini"


@dataclass(frozen=True)
class NewNode:
    """What the operator asked for."""

    kind: NodeType
    name: str
    location: str
    provider: str | None = None
    check: bool = True
    combined: str | None = None
    sync_watermark: str | None = None


def plan_node(
    session: Session,
    kind: NodeType,
    name: str | None,
    location: str | None,
    provider: str | None = None,
    **more: object,
) -> NewNode:
    """Return the node that the command line asks for, completed from the ini; raises where it
    cannot be made."""
    settings = session.settings
    name = name or settings.node_name
    location = location or settings.public_node_location
    provider = provider or settings.initial_provider_location or None
    if not name:
        raise UsageError("Node name must be given either in command line or config")
    if not location:
        raise UsageError("Node public location must be given either in command line or config")
    if kind is not NodeType.ROOT and not provider:
        raise UsageError("Please specify --provider")
    if more.get("combined") and kind is not NodeType.LEAF:
        raise UsageError("--merge can be used only for leafs")
    return NewNode(kind, name, location, provider, **more)  # type: ignore[arg-type]


def create_node(session: Session, node: NewNode) -> None:
    """Make the local database a node."""
    db = session.open(Endpoint.of_local(session.settings), "new_node")
    known = get_node_info(db, session.queue) if has_schema(db) else None
    if known is None and node.combined:  # one that is there only gets its SQL brought up to date
        _require_combined(db, session.queue, node.combined)
    if not has_host(node.location):
        log.warning("No host= in public connect string, bad idea")
    if db.encoding == "SQL_ASCII":
        log.warning(
            "the database has no encoding (SQL_ASCII): text that is not valid UTF-8 cannot be "
            "replicated"
        )
    install(db)
    existing = get_node_info(db, session.queue)
    if existing is not None:
        _require_same(db, session.queue, existing, node)
        log.info("Node is already initialized as %s", existing.node_type)
        return
    if node.check and node.location != session.settings.db:
        check_same_database(session, db, node.location)
    log.info("Initializing node")
    if node.kind is NodeType.ROOT:
        with db.transaction():
            register_location(db, session.queue, node.name, node.location)
            create(db, session.queue, node.kind, node.name, session.settings.consumer_name)
            # upstream's default of 3 s is the floor of its latency; an idle queue backs off anyway
            lag = f"{session.settings.ticker_max_lag} seconds"
            db.call("pgq.set_queue_config", session.queue, "ticker_max_lag", lag)
            if keeps_epochs(db):
                forget_reigns(db, session.queue)
                begin_reign(db, session.queue, ReignKind.CREATED, announce=False)
    else:
        _join(session, db, node)
    log.info("Done")


def _require_combined(db: Database, queue: str, combined: str) -> None:
    """Raise unless this database is a root or a branch of the queue that a part is merged into."""
    if combined == queue:
        raise StateError(f'queue "{queue}" cannot be merged into itself: say another --merge')
    info = get_node_info(db, combined) if has_schema(db) else None
    if info is None or not info.node_type.has_queue:
        found = "no node" if info is None else "a leaf"
        raise StateError(
            f'this database is {found} of queue "{combined}", and a part can only be merged into a '
            "root or a branch: nothing is changed; run create-root or create-branch first, with "
            f'the ini of "{combined}"'
        )


def _require_same(db: Database, queue: str, existing: NodeInfo, node: NewNode) -> None:
    """Raise where the node that is there is not the one that is asked for: it is not changed."""
    name = existing.node_name
    if (existing.node_type, name) != (node.kind, node.name):
        raise StateError(
            f'this database is already initialized as {existing.node_type} "{name}": '
            "nothing is changed; drop-node takes it out of the set first"
        )
    stored = {m.node_name: m.node_location for m in get_queue_locations(db, queue)}.get(name, "")
    if node.combined and existing.combined_queue != node.combined:
        into = f'into "{existing.combined_queue}"' if existing.combined_queue else "into no queue"
        raise StateError(
            f'node "{name}" is already initialized and merged {into}: nothing is changed; '
            "drop-node takes it out of the set first"
        )
    if stored and parse(stored) != parse(node.location):
        raise StateError(
            f'node "{name}" is already initialized with another connect string '
            f"({mask_connstr(stored)}), which is kept: "
            f'"change-location {name} CONNSTR" changes it on all nodes'
        )


def check_same_database(session: Session, db: Database, location: str) -> None:
    """Raise unless the public connect string leads here; a lock taken here shows whether it
    does."""
    key = secrets.randbits(62)
    public = session.open(Endpoint(location), "pub_db")
    db.value(query("admin", "advisory_lock"), [key])
    try:
        if public.value(query("admin", "try_advisory_lock"), [key]):
            raise StateError(
                "Public connect string points to different database than local connect string"
            )
    finally:
        db.value(query("admin", "advisory_unlock"), [key])


def _join(session: Session, db: Database, node: NewNode) -> None:
    assert node.provider is not None
    queue = session.queue
    worker = session.settings.consumer_name
    root, _ = session.root(node.provider)
    members = _members(root, session, node)
    provider = session.remote(node.provider, "provider_db")
    provider_info = _provider_info(provider, queue)
    require_serving(provider, provider_info)
    above = provider_info.node_name
    require_own_consumer(provider, queue, node.name, worker, above, _OTHER_JOB)
    if not provider_info.is_root:
        _wait_until_forgotten(session, root, provider, node.name)
    register_location(root, queue, node.name, node.location)
    start = fresh_tick(provider, queue, provider_info, session.clock)
    reach("create.ticked")
    # what the queue has told before that tick is not told again
    tables, sequences = get_table_list(provider, queue), get_seq_list(provider, queue)
    with db.transaction():
        with provider.transaction():
            require_own_consumer(provider, queue, node.name, worker, above, _OTHER_JOB)
            register_location(provider, queue, node.name, node.location)
            if node.check:
                _end_subscription(provider, queue, node.name)
            answer = register_subscriber(provider, queue, node.name, worker)
            provider.call("pgq.register_consumer_at", queue, worker, start.id)
            register_location(db, queue, node.name, node.location)
            for member in members:
                if member.node_name != node.name:
                    register_location(
                        db, queue, member.node_name, member.node_location, member.dead
                    )
            create(
                db,
                queue,
                node.kind,
                node.name,
                worker,
                above,
                # a branch's queue begins with this tick; a leaf says upstream's, and moves below
                start.id if node.kind is NodeType.BRANCH else answer.row.global_watermark,
                node.combined,
            )
            forget_position(db, queue)  # that of an earlier node in this database
            replace_reigns(db, provider, queue)
            _begin_at(db, queue, worker, start)
            if node.combined and _is_branch(db, node.combined):
                begin_waiting(db, queue, start.id)
            if node.kind is NodeType.BRANCH:
                _begin_queue(provider, db, queue, start, node.sync_watermark)
            record_tables(session.settings, db, tables)
            record_sequences(session.settings, db, sequences)
        reach("create.subscribed")


def _is_branch(db: Database, combined: str) -> bool:
    info = get_node_info(db, combined)
    return info is not None and info.is_branch


def _wait_until_forgotten(session: Session, root: Database, provider: Database, name: str) -> None:
    """Wait until a branch has read that an earlier node of the name left the set: it would end the
    subscription of the new one when it does."""
    deadline = session.clock.monotonic() + FORGET_WAIT
    said = False
    while True:
        info = _provider_info(provider, session.queue)
        tick = int(info.worker_last_tick or 0)
        if not is_told_to_forget(root, session.queue, name, tick):
            return
        if session.clock.monotonic() >= deadline:
            raise StateError(
                f'provider "{info.node_name}", at tick {tick}, has not read yet that an earlier '
                f'node "{name}" left the set: nothing is changed; see that its worker runs, and '
                "run it again when it has, or choose another provider or another name"
            )
        if not said:
            log.info("Waiting until '%s' has read that '%s' left the set", info.node_name, name)
            said = True
        session.clock.sleep(_PERIOD)


def _end_subscription(provider: Database, queue: str, name: str) -> None:
    """Remove what a creation has left that was broken off between the two commits: the location,
    which was checked to lead here, is the same, and here is no node."""
    if name in [item.node_name for item in get_subscriber_info(provider, queue)]:
        unregister_subscriber(provider, queue, name)


def _begin_at(db: Database, queue: str, worker: str, start: AppliedTick) -> None:
    """Store the first position of the new node: that of its consumer on the provider."""
    if keeps_ticks(db):
        complete_tick(db, queue, worker, start, silent=True)
    else:
        set_consumer_completed(db, queue, worker, start.id)


def _begin_queue(
    provider: Database, db: Database, queue: str, start: AppliedTick, sync_watermark: str | None
) -> None:
    """Make the queue of a new branch the provider's as of a tick: that tick is its only one, and
    its settings are the same. Nobody can then begin at a tick whose events it does not have."""
    values = {"queue": queue, "tick": start.id, "time": start.time, "event_seq": start.event_seq}
    db.execute(query("admin", "begin_branch"), values)
    row = provider.one(query("admin", "queue_settings"), [queue])
    for name, value in row._asdict().items():
        db.call("pgq.set_queue_config", queue, name, value)
    if sync_watermark:
        set_node_attrs(db, queue, encode_attrs({SYNC_WATERMARK: sync_watermark}), quiet=True)


def require_serving(provider: Database, info: NodeInfo) -> None:
    """Refuse a provider that would never send an event."""
    if not info.node_type.has_queue:
        raise StateError(f'node "{info.node_name}" is a leaf: nobody can read from it')
    if passes_nothing_on(provider, info):
        raise StateError(
            f'the SQL of branch "{info.node_name}" is of a version that passes no events on: run '
            '"create-branch" again there, it brings the SQL up to date'
        )


def _members(root: Database, session: Session, node: NewNode) -> list[Location]:
    log_contract_call(exec_query, root, "pgq_node.get_node_info", session.queue)
    members = get_queue_locations(root, session.queue)
    for member in members:
        # the same location under the same name is a creation that did not get to its end
        if member.node_name == node.name and member.node_location != node.location:
            raise StateError(f"Node '{node.name}' already exists")
    return members


def _provider_info(provider: Database, queue: str) -> NodeInfo:
    info = get_node_info(provider, queue)
    if info is None:
        raise StateError("provider node not found")
    return info
