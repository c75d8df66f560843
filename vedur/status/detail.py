"""Everything that one node tells about itself; nothing is written.

A node is asked part by part. A part that the role may not read, or that fails, leaves a sentence
in `NodeDetail.notes` and the rest is still shown; only a lost connection ends the questions. What
only those may read who run nodes is named in `withheld`, and is no trouble.
Connect strings never become part of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from vedur.catalog.quarantine import StuckEvent
from vedur.catalog.sequences import SequenceInfo, get_seq_list
from vedur.catalog.tables import TableInfo, get_table_list, is_in_sync
from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError, PrivilegeError
from vedur.log import mask
from vedur.node.info import get_node_info, get_subscriber_info
from vedur.sql import query
from vedur.status.quarantine import Quarantined, read_quarantine, read_stuck_events
from vedur.status.snapshot import UNREACHABLE, CopyStatus, NodeStatus, read_copies, read_node

T = TypeVar("T")

#: Batches that are shown.
BATCHES = 50
#: Parts that hold rows of tables: a read-only role does not see them, which is right.
_FOR_WRITERS = ("errors", "the quarantine")
#: Seconds after which an open transaction is worth naming.
LONG_TRANSACTION = 60


@dataclass(frozen=True)
class TableStatus:
    """A table of the set as a node has it. `state` is the merge state, None before a copy."""

    name: str
    dest: str
    local: bool
    state: str | None
    condition: str | None

    @property
    def ready(self) -> bool:
        """Return True if the table is on this node and takes changes."""
        return self.local and is_in_sync(self.state)


@dataclass(frozen=True)
class BatchEntry:
    """One applied batch; see vedur.batch_log."""

    batch_nr: int
    prev_tick: int
    tick_id: int
    events: int
    events_total: int
    stage_seconds: float
    merge_seconds: float
    commit_seconds: float
    finish_seconds: float
    seconds_ago: float

    @property
    def seconds(self) -> float:
        """Return the time of all stages together."""
        return self.stage_seconds + self.merge_seconds + self.commit_seconds + self.finish_seconds


@dataclass(frozen=True)
class Consumer:
    """A reader of the node's queue."""

    consumer_name: str
    lag: float | None
    last_seen: float | None
    last_tick: int | None
    pending_events: int | None


@dataclass(frozen=True)
class Transaction:
    """An open transaction that has lasted long. Its statement is not shown: it may hold secrets."""

    pid: int
    role: str
    database: str
    application: str
    state: str
    seconds: float


@dataclass(frozen=True)
class EventTable:
    """One of the tables that a queue's events go to in turn."""

    number: int
    bytes: int


@dataclass(frozen=True)
class QueueHealth:
    """How the queue of a node ticks and rotates; seconds and events."""

    event_tables: int
    current_table: int
    rotation_period: float
    since_rotation: float
    external_ticker: bool
    ticker_paused: bool
    idle_period: float
    ticker_lag: float | None
    events_per_second: float | None
    events_new: int | None
    last_tick: int | None
    first_tick: int | None
    events_total: int | None
    tables: tuple[EventTable, ...] = ()
    consumers: tuple[Consumer, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the size of the events on disk."""
        return sum(table.bytes for table in self.tables)


@dataclass(frozen=True)
class HeldBy:
    """The consumer for which a queue keeps its oldest events.

    consumer  its name in the queue of `node`
    node      where it reads: the last of `path`
    path      the nodes from the queue's own down to that one
    tick      the tick that it has finished
    seconds   how old that tick is
    """

    consumer: str
    node: str
    path: tuple[str, ...]
    tick: int
    seconds: float | None

    @property
    def text(self) -> str:
        """In words."""
        below = f" on node {self.node}" if len(self.path) > 1 else ""
        return f'consumer "{self.consumer}"{below}, at tick {self.tick}'


@dataclass(frozen=True)
class Watermarks:
    """Ticks that lower nodes have reached; what is older may be forgotten."""

    worker: str | None
    global_watermark: int | None
    local_watermark: int | None
    subscribers: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True)
class NodeDetail:
    """One node. `tick_age`, `lag` and `backlog` need the root's clock and are filled in later.

    lag       age of the first tick that the node has not applied, 0 if it has all
    held_by   the consumer for which the node's queue keeps its oldest events
    tick_age  age of the tick that it has applied: what `status` calls lag
    backlog   about how many events it has not applied
    rate      events a second: applied in the last minute; on the root made, by their numbers
    """

    status: NodeStatus
    lag: float | None = None
    tick_age: float | None = None
    backlog: int | None = None
    rate: float | None = None
    server_version: int | None = None
    vedur_version: str | None = None
    worker: str | None = None
    watermarks: Watermarks | None = None
    tables: tuple[TableStatus, ...] = ()
    copies: tuple[CopyStatus, ...] = ()
    sequences: tuple[SequenceInfo, ...] = ()
    batches: tuple[BatchEntry, ...] = ()
    replay_errors: tuple[StuckEvent, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    queue: QueueHealth | None = None
    held_by: HeldBy | None = None
    transactions: tuple[Transaction, ...] = ()
    notes: tuple[str, ...] = field(default=())
    withheld: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def reachable(self) -> bool:
        """Return True if the node answered."""
        return self.status.failure is None


@dataclass
class _Asker:
    """Asks part by part and notes what cannot be read, and what the role may not read."""

    notes: list[str] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)

    def one(self, what: str, read: Callable[[], T | None]) -> T | None:
        """Run a query; returns its row, or None where it cannot be run."""
        try:
            return read()
        except ConnectError:
            raise
        except DatabaseError as error:
            if isinstance(error, PrivilegeError) and what in _FOR_WRITERS:
                self.withheld.append(what)
                return None
            self.notes.append(f"cannot read {what}: {mask(error.message)}")
            return None

    def many(self, what: str, read: Callable[[], Iterable[T]]) -> tuple[T, ...]:
        """Run a query; returns its rows, none where it cannot be run."""
        return tuple(self.one(what, read) or ())


def read_detail(db: Database, queue: str, name: str) -> NodeDetail:
    """Read everything about one node. Raises only `ConnectError`."""
    ask = _Asker()
    status = ask.one("the node", lambda: read_node(db, queue, name))
    status = status or NodeStatus(name, UNREACHABLE, failure="its state cannot be read")
    if status.failure is not None:
        return NodeDetail(
            status,
            server_version=db.server_version,
            notes=tuple(ask.notes),
            withheld=tuple(ask.withheld),
        )
    health = ask.one("the queue", lambda: _queue(db, queue))
    marks = ask.one("watermarks", lambda: _watermarks(db, queue))
    detail = NodeDetail(
        status=status,
        server_version=db.server_version,
        worker=marks.worker if marks else None,
        watermarks=marks,
        tables=ask.many("tables", lambda: _tables(db, queue)),
        copies=ask.many("copies", lambda: read_copies(db, queue)),
        sequences=ask.many("sequences", lambda: get_seq_list(db, queue)),
        queue=health,
        transactions=ask.many("transactions", lambda: _transactions(db)),
        rate=health.events_per_second if health and status.type == "root" else None,
    )
    detail = _with_ours(db, queue, detail, ask)
    return replace(detail, notes=tuple(ask.notes), withheld=tuple(ask.withheld))


def _with_ours(db: Database, queue: str, detail: NodeDetail, ask: _Asker) -> NodeDetail:
    """Read what only Vedur's own tables have; an installation of upstream's may have none."""
    installed = ask.one("what is installed", lambda: db.one(_text("installed")))
    if installed is None:
        return detail
    if installed.component:
        version = ask.one("the version", lambda: str(db.value(_text("version"))))
        detail = replace(detail, vedur_version=version)
    if installed.batch_log and detail.status.type != "root":
        detail = replace(
            detail,
            batches=ask.many("batches", lambda: _batches(db, queue)),
            rate=ask.one("the rate", lambda: float(db.value(_text("applied_rate"), [queue]))),
        )
    if installed.replay_error:
        stuck = ask.many("errors", lambda: read_stuck_events(db, queue))
        detail = replace(detail, replay_errors=stuck)
    if installed.quarantine:
        kept = ask.many("the quarantine", lambda: read_quarantine(db, queue))
        detail = replace(detail, quarantine=kept)
    return detail


def _text(name: str) -> str:
    return query("overview", name)


def _tables(db: Database, queue: str) -> tuple[TableStatus, ...]:
    def shown(table: TableInfo) -> TableStatus:
        return TableStatus(
            table.table_name,
            table.dest_table,
            table.local,
            table.merge_state,
            table.copy_condition,
        )

    return tuple(shown(table) for table in get_table_list(db, queue))


def _queue(db: Database, queue: str) -> QueueHealth | None:
    row = db.one(_text("queue_health"), [queue])
    if row is None:
        return None
    tables = db.query(_text("event_tables"), [queue])
    consumers = db.query(_text("consumers"), [queue])
    return QueueHealth(
        **row._asdict(),
        tables=tuple(EventTable(**table._asdict()) for table in tables),
        consumers=tuple(Consumer(**consumer._asdict()) for consumer in consumers),
    )


def _transactions(db: Database) -> tuple[Transaction, ...]:
    rows = db.query(_text("long_transactions"), [LONG_TRANSACTION])
    return tuple(Transaction(**row._asdict()) for row in rows)


def _batches(db: Database, queue: str) -> tuple[BatchEntry, ...]:
    rows = db.query(_text("batches"), [queue, BATCHES])
    return tuple(BatchEntry(**row._asdict()) for row in rows)


def _watermarks(db: Database, queue: str) -> Watermarks | None:
    info = get_node_info(db, queue)
    if info is None:
        return None
    subscribers = get_subscriber_info(db, queue)
    return Watermarks(
        info.worker_name,
        info.global_watermark,
        info.local_watermark,
        tuple((item.node_name, item.node_watermark) for item in subscribers),
    )
