"""The state of every node of a set, asked in parallel; nothing is written.

A node that cannot be asked is part of the answer, with the reason: its type is `dead` where an
operator has tagged it so, and `unreachable` where it does not answer. Lag is time:
on the root that of the ticker, elsewhere the age, by the root's clock, of the tick that is
applied. `SetStatus.as_dict` is the JSON that `status --json` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vedur.catalog.quarantine import StuckEvent, get_stuck_events
from vedur.catalog.watch import TableProblem, read_table_problems
from vedur.db import Database
from vedur.db.conninfo import parse
from vedur.errors import DatabaseError, StateError, first_line
from vedur.log import mask
from vedur.node.info import (
    ConsumerInfo,
    Location,
    NodeInfo,
    get_consumer_info,
    get_node_info,
    get_subscriber_info,
    has_schema,
)
from vedur.sql import query
from vedur.status.agreement import Disagreement, find_disagreements
from vedur.threads import Pool

#: Types of nodes that cannot be asked: one that was tagged, and one that should answer.
DEAD, UNREACHABLE = "dead", "unreachable"
#: Who may have made the SQL of a node.
VEDUR, LONDISTE = "Vedur", "Londiste"
TAGGED = "tagged as dead"
#: Connections at a time; each is mostly waiting for a server.
_MAX_THREADS = 16

Connect = Callable[[str, str], Database]


@dataclass(frozen=True)
class ConsumerError:
    """What stops a consumer; where one event does, which one, of which row, and in which ticks.

    What is not known is left out of JSON.
    """

    consumer: str
    error: str
    table: str | None = None
    key: str | None = None
    ev_id: int | None = None
    prev_tick: int | None = None
    tick: int | None = None
    sqlstate: str | None = None

    @property
    def line(self) -> str:
        """Format the error in one line; one that is not about an event reads as in Londiste."""
        if self.ev_id is None:
            return f"{self.consumer}: {self.error}"
        facts = [f"SQLSTATE {self.sqlstate}"] if self.sqlstate else []
        facts += [f"table {self.table}"] if self.table and self.table not in self.error else []
        facts += [f"key {self.key}"] if self.key else []
        facts.append(f"tick {self.tick}")
        return f"{self.consumer}: {self.error} ({', '.join(facts)})"


@dataclass(frozen=True)
class CopyError:
    """A table whose first copy fails, and the reason of the last time."""

    table: str
    error: str


@dataclass(frozen=True)
class ResidentLoss:
    """Why a worker does without its resident task, and for how many seconds."""

    reason: str
    seconds: float


@dataclass(frozen=True)
class CopyWait:
    """A table whose first copy waits for other parts of the table that it goes to."""

    table: str
    waits: str


@dataclass(frozen=True)
class NodeStatus:
    """One node. `failure` says why nothing more is known; its type is then `dead` if tagged
    as dead, else `unreachable`.

    copy_errors    what holds up first copies, until they are past it
    copy_waits     first copies of parts that wait for those of others, and for which
    software       whose SQL it has, with the version: "Vedur 0.1.0", "Londiste 3.8"
    resident_loss  since when, and why, live batches are ordinary Spark jobs, which take longer
    hop_lag        how much older the tick that it has applied is than its provider's
    subscribers    nodes for which it keeps a subscription, null where that is not known
    disagreements  what other nodes see otherwise: who reads from whom
    """

    name: str
    type: str
    provider: str | None = None
    service: str | None = None
    tables_ok: int | None = None
    tables_half: int | None = None
    tables_ignored: int | None = None
    lag: float | None = None
    tick: int | None = None
    paused: bool = False
    uptodate: bool = True
    attrs: dict[str, str] = field(default_factory=dict)
    errors: tuple[ConsumerError, ...] = ()
    copy_errors: tuple[CopyError, ...] = ()
    copy_waits: tuple[CopyWait, ...] = ()
    quarantined: int | None = None
    resident_loss: ResidentLoss | None = None
    table_problems: tuple[TableProblem, ...] = ()
    failure: str | None = None
    software: str | None = None
    hop_lag: float | None = None
    subscribers: tuple[str, ...] | None = None
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def answers(self) -> bool:
        """Could the node be asked?"""
        return self.type not in (DEAD, UNREACHABLE)

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON; of errors, only what is known."""
        errors = [
            {name: value for name, value in asdict(error).items() if value is not None}
            for error in self.errors
        ]
        return asdict(self) | {"errors": errors}


@dataclass(frozen=True)
class SetStatus:
    """All nodes of a queue, seen from one of them."""

    queue: str
    local_node: str
    nodes: tuple[NodeStatus, ...]

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return asdict(self) | {"nodes": [node.as_dict() for node in self.nodes]}


def read_set(
    db: Database,
    queue: str,
    local: NodeInfo,
    members: Sequence[Location],
    connect: Connect,
    dead: Sequence[str] = (),
) -> SetStatus:
    """Query all members at once. `connect(location, name)` opens a connection, which is closed
    here."""

    def ask(member: Location) -> NodeStatus:
        if member.dead or member.node_name in dead:
            return NodeStatus(member.node_name, DEAD, failure=TAGGED)
        if member.node_name == local.node_name:
            return read_node(db, queue, member.node_name)
        try:
            with connect(member.node_location, f"node.{member.node_name}") as remote:
                return read_node(remote, queue, member.node_name)
        except (DatabaseError, StateError) as error:
            return NodeStatus(member.node_name, UNREACHABLE, failure=mask(error.message))

    with Pool(max(1, min(_MAX_THREADS, len(members)))) as pool:
        nodes = [
            replace(node, service=parse(member.node_location).get("service"))
            for node, member in zip(pool.map(ask, members), members, strict=True)
        ]
    placed = _with_lags(db, queue, local, members, nodes, connect)
    return SetStatus(queue, local.node_name, with_tree(placed))


def with_tree(nodes: Sequence[NodeStatus]) -> tuple[NodeStatus, ...]:
    """Fill in what only all nodes together tell: the lag of each hop, and who disagrees."""
    lags = {node.name: node.lag for node in nodes}
    found = find_disagreements(nodes)

    def hop(node: NodeStatus) -> float | None:
        above = lags.get(node.provider or "")
        return None if node.lag is None or above is None else max(0.0, node.lag - above)

    return tuple(
        replace(
            node,
            hop_lag=hop(node),
            disagreements=tuple(item for item in found if item.node == node.name),
        )
        for node in nodes
    )


def read_node(db: Database, queue: str, name: str) -> NodeStatus:
    """Read one node alone; the lag of a node that is not the root needs the root's clock."""
    info = get_node_info(db, queue) if has_schema(db) else None
    if info is None:
        return NodeStatus(name, UNREACHABLE, failure=f'no node for queue "{queue}" there')
    if name and info.node_name != name:
        return NodeStatus(
            name, UNREACHABLE, failure=f'the database at its location has node "{info.node_name}"'
        )
    counts = db.one(query("status", "table_counts"), [queue])
    consumers, copies = get_consumer_info(db, queue), _unfinished_copies(db, queue)
    tick, lag = info.worker_last_tick, None
    if info.is_root:
        own = db.one(query("status", "queue_info"), [queue])
        tick, lag = own.last_tick_id, own.ticker_lag
    return NodeStatus(
        name=info.node_name,
        type=str(info.node_type),
        provider=None if info.is_root else info.provider_node,
        tables_ok=counts.ok,
        tables_half=counts.half,
        tables_ignored=counts.ignored,
        lag=lag,
        tick=tick,
        paused=info.worker_paused,
        uptodate=info.worker_uptodate,
        attrs=info.attrs,
        errors=_errors(consumers, read_stuck_events(db, queue)),
        copy_errors=tuple(CopyError(c.table_name, _line(c.error)) for c in copies if c.error),
        copy_waits=tuple(CopyWait(c.table_name, c.step_name) for c in copies if c.waits),
        quarantined=read_quarantined(db, queue),
        resident_loss=_read_resident_loss(db, queue),
        table_problems=read_table_problems(db, queue),
        subscribers=tuple(item.node_name for item in get_subscriber_info(db, queue)),
        software=read_software(db),
    )


def _unfinished_copies(db: Database, queue: str) -> list[CopyStatus]:
    """Read how far first copies are; none where the role may not read it."""
    if not db.value(query("status", "may_read_copies")):
        return []
    return read_copies(db, queue)


def _read_resident_loss(db: Database, queue: str) -> ResidentLoss | None:
    """Read why there is no resident task; None where nothing is said, or may be read."""
    if not db.value(query("status", "may_read_resident_loss")):
        return None
    row = db.one(query("status", "resident_loss"), [queue])
    return None if row is None else ResidentLoss(_line(row.reason), row.seconds)


def read_software(db: Database) -> str:
    """Read whose SQL a node has. Our version stands for the worker, too: the command that creates
    a node, and the one that upgrades it, install what belongs to their program."""
    found = db.one(query("status", "software"))
    if found.readable:
        version = db.value(query("status", "vedur_version"))
        return f"{VEDUR} {version}"
    return VEDUR if found.vedur else f"{LONDISTE} {found.extension or ''}".strip()


def read_quarantined(db: Database, queue: str) -> int | None:
    """Count the events in quarantine; None where there is none, or the role may not read it."""
    if not db.value(query("quarantine", "readable")):
        return None
    return sum(int(row.events) for row in db.query(query("quarantine", "count"), [queue]))


def read_stuck_events(db: Database, queue: str) -> list[StuckEvent]:
    """Read the events that stop consumers; none where the role may not read them."""
    if not db.value(query("quarantine", "errors_readable")):
        return []
    return [stuck for stuck in get_stuck_events(db, queue) if stuck.ev_id is not None]


def _errors(
    consumers: Sequence[ConsumerInfo], stuck: Sequence[StuckEvent]
) -> tuple[ConsumerError, ...]:
    """Read the errors that stop consumers, with the event where the error is about one."""
    events = {
        row.consumer_name: ConsumerError(
            row.consumer_name,
            _line(row.message),
            row.table_name,
            row.row_key and _line(row.row_key),
            row.ev_id,
            row.prev_tick,
            row.tick_id,
            row.sqlstate,
        )
        for row in stuck
    }
    errors = []
    for consumer in consumers:
        name, text = consumer.consumer_name, (consumer.cur_error or "").strip()
        if text and (name not in events or events[name].error not in _line(text)):
            errors.append(ConsumerError(name, _line(text)))
        elif name in events:
            errors.append(events.pop(name))
    return (*errors, *events.values())


def _line(text: str) -> str:
    return mask(first_line(text))


def _with_lags(
    db: Database,
    queue: str,
    local: NodeInfo,
    members: Sequence[Location],
    nodes: list[NodeStatus],
    connect: Connect,
) -> tuple[NodeStatus, ...]:
    root = next((node for node in nodes if node.type == "root"), None)
    if root is None:
        return tuple(nodes)
    ticks = [node.tick for node in nodes if node.answers and node.type != "root"]
    ages: dict[int, float] = {}
    if ticks and root.name == local.node_name:
        ages = tick_ages(db, queue, ticks)
    elif ticks:
        location = next(m.node_location for m in members if m.node_name == root.name)
        try:
            with connect(location, f"node.{root.name}") as remote:
                ages = tick_ages(remote, queue, ticks)
        except DatabaseError:
            # the root went away between two questions: its lag is all that is lost
            ages = {}
    return tuple(
        replace(node, lag=ages.get(node.tick))
        if node.answers and node.type != "root" and node.tick is not None
        else node
        for node in nodes
    )


def tick_ages(db: Database, queue: str, ticks: Sequence[int | None]) -> dict[int, float]:
    """Read how many seconds ago ticks were written."""
    wanted = [tick for tick in ticks if tick is not None]
    rows = db.query(query("status", "tick_ages"), [queue, wanted])
    return {row.tick_id: max(0.0, row.age) for row in rows}


@dataclass(frozen=True)
class CopyStatus:
    """A first copy that is not finished; step 0 waits for other parts of its table."""

    table_name: str
    step: int
    step_name: str
    slices_done: int
    slices: int
    rows_done: int
    rows_estimated: int | None
    bytes_done: int
    seconds: float
    error: str | None

    @property
    def waits(self) -> bool:
        """Does it wait for other parts before it loads?"""
        return self.step == 0


def read_copies(db: Database, queue: str) -> list[CopyStatus]:
    """Read the first copies under way on a node; none where the worker is not Vedur's."""
    if not db.value(query("status", "has_copy_progress")):
        return []
    rows = db.query(query("status", "copy_progress"), [queue])
    return [CopyStatus(**row._asdict()) for row in rows]
