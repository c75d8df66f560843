"""The whole set in detail, asked again and again by a page or a monitor.

`SetReader` keeps one connection to each node, read-only by the server's own word and with a limit
on every statement. A node that could not be reached is left alone for a while, so one dead node
does not slow every look. `Overview.as_dict` is the JSON of the status page.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from vedur.clock import SYSTEM, Clock
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.db.conninfo import parse
from vedur.errors import ConnectError, DatabaseError, StateError
from vedur.log import mask
from vedur.node.endpoint import Endpoint
from vedur.node.info import Location, get_node_info, get_queue_locations, has_schema
from vedur.sql import query
from vedur.status.detail import NodeDetail, read_detail
from vedur.status.quarantine import stuck_dict
from vedur.status.rotation import find_holders
from vedur.status.snapshot import DEAD, TAGGED, UNREACHABLE, NodeStatus, with_tree
from vedur.threads import Thread

log = logging.getLogger(__name__)

#: Opens a connection: connect string, name for messages.
Connect = Callable[[str, str], Database]

#: Connections at a time; each is mostly waiting for a server.
_MAX_THREADS = 16
#: Seconds for which a node that cannot be reached is not asked again.
_LEAVE_ALONE = 15.0
#: The local database among the connections, which are known by location; no location is empty.
#: Seconds to wait for a server: whoever looks at the set must not hang.
_CONNECT_TIMEOUT = 3
_LOCAL = ""


@dataclass(frozen=True)
class Overview:
    """All nodes of a set at about one moment."""

    queue: str
    local_node: str
    taken_at: datetime
    nodes: tuple[NodeDetail, ...]

    @property
    def local(self) -> NodeDetail:
        """Return the node that the ini describes."""
        return next(node for node in self.nodes if node.name == self.local_node)

    def node(self, name: str) -> NodeDetail | None:
        return next((node for node in self.nodes if node.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return {
            "queue": self.queue,
            "local_node": self.local_node,
            "taken_at": self.taken_at.isoformat(timespec="milliseconds"),
            "nodes": [node_dict(node) for node in self.nodes],
        }


def node_dict(node: NodeDetail) -> dict[str, Any]:
    """Convert one node to plain values for JSON, with what `status --json` shows of it; the fields
    of both values meet in `lag` only."""
    values = asdict(node)
    del values["status"]
    values["replay_errors"] = [stuck_dict(stuck) for stuck in node.replay_errors]
    status = node.status.as_dict()
    status.pop("lag")  # that of the contract stands here as tick_age
    if values["watermarks"]:
        below = values["watermarks"]["subscribers"]
        values["watermarks"]["subscribers"] = [
            {"node_name": name, "watermark": mark} for name, mark in below
        ]
    return status | values


@dataclass
class SetReader:
    """Reads overviews; one thread at a time. `local` opens a connection to the local database,
    `connect` one to another node, of which it is given the location."""

    queue: str
    local: Callable[[], Database]
    connect: Connect
    clock: Clock = SYSTEM
    leave_alone: float = _LEAVE_ALONE
    _open: dict[str, Database] = field(default_factory=dict)
    _failed: dict[str, tuple[float, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> Overview:
        """Query all nodes. Raises when the local database does not answer or has no node."""
        with self._lock:
            return self._read()

    def ping(self) -> None:
        """Raise unless the local database answers, over a separate connection."""
        with self.local() as db:
            db.value(query("overview", "ping"))

    def close(self) -> None:
        """Close all connections, unless a query hangs: then the end of the process closes them."""
        if self._lock.acquire(timeout=1.0):
            for key in list(self._open):
                self._drop(key)
            self._lock.release()

    def _read(self) -> Overview:
        db = self._connection(_LOCAL, "db")
        try:
            info = get_node_info(db, self.queue) if has_schema(db) else None
            members = get_queue_locations(db, self.queue) if info else []
        except ConnectError:
            self._drop(_LOCAL)
            raise
        if info is None:
            raise StateError(
                f'no node for queue "{self.queue}" in this database: '
                'run "create-root" or "create-leaf" first'
            )

        def ask(member: Location) -> NodeDetail:
            mine = member.node_name == info.node_name
            return self._ask(member, _LOCAL if mine else member.node_location)

        nodes = _side_by_side(ask, members)
        keep = {_LOCAL, *(member.node_location for member in members)}
        for key in self._open.keys() - keep:
            self._drop(key)
        nodes = with_providers(self._with_positions(nodes, members, info.node_name))
        nodes = with_whole_tree(nodes)
        nodes.sort(key=lambda node: (node.status.type != "root", node.name))
        return Overview(self.queue, info.node_name, self.clock.now(), tuple(nodes))

    def _connection(self, key: str, name: str) -> Database:
        connection = self._open.get(key)
        if connection is None or connection.closed:
            connection = self.local() if key == _LOCAL else self.connect(key, name)
            connection.execute(query("overview", "read_only"))
            self._open[key] = connection
        return connection

    def _ask(self, member: Location, key: str) -> NodeDetail:
        name = member.node_name
        if member.dead:
            return NodeDetail(NodeStatus(name, DEAD, failure=TAGGED))
        now = self.clock.monotonic()
        since, failure = self._failed.get(key, (None, ""))
        if since is not None and now - since < self.leave_alone:
            return NodeDetail(NodeStatus(name, UNREACHABLE, failure=failure))
        try:
            detail = read_detail(self._connection(key, f"node.{name}"), self.queue, name)
        except DatabaseError as error:
            self._drop(key)
            failure = mask(error.message)
            if key != _LOCAL:
                self._failed[key] = (now, failure)
            return NodeDetail(NodeStatus(name, UNREACHABLE, failure=failure))
        self._failed.pop(key, None)
        service = parse(member.node_location).get("service")
        return replace(detail, status=replace(detail.status, service=service))

    def _drop(self, key: str) -> None:
        connection = self._open.pop(key, None)
        if connection is not None:
            connection.close()

    def _with_positions(
        self, nodes: list[NodeDetail], members: list[Location], local: str
    ) -> list[NodeDetail]:
        """Add what only the root knows: the age of each tick, and how many events it is behind."""
        root = next((node for node in nodes if node.status.type == "root"), None)
        if root is None:
            return nodes
        place = {member.node_name: member.node_location for member in members}
        key = _LOCAL if root.name == local else place[root.name]
        ticks = [node.status.tick for node in nodes if node.status.tick is not None]
        try:
            db = self._open[key]
            rows = db.query(query("overview", "tick_positions"), [ticks, self.queue])
        except (KeyError, DatabaseError):
            # the root went away between two questions
            return nodes
        at = {row.tick_id: row for row in rows}
        return [_placed(node, at.get(node.status.tick)) for node in nodes]


def _placed(node: NodeDetail, row: Any) -> NodeDetail:
    if row is None:
        return node
    age = None if row.age is None else max(0.0, row.age)
    return replace(node, lag=max(0.0, row.lag), tick_age=age, backlog=max(0, row.events))


def with_providers(nodes: list[NodeDetail]) -> list[NodeDetail]:
    """Give nodes that do not answer the provider that has them among its subscribers."""
    provider = {
        name: node.name
        for node in nodes
        if node.watermarks is not None
        for name, _ in node.watermarks.subscribers
    }
    return [
        replace(node, status=replace(node.status, provider=provider.get(node.name)))
        if not node.reachable and node.status.provider is None
        else node
        for node in nodes
    ]


def with_whole_tree(nodes: list[NodeDetail]) -> list[NodeDetail]:
    """Fill in what only all nodes together tell: lag of each hop, disagreements, who holds back
    rotation. Ages are those of ticks by the root's clock."""
    ages = [replace(node.status, lag=node.tick_age) for node in nodes]
    holders = find_holders(nodes)
    return [
        replace(
            node,
            status=replace(status, lag=node.status.lag),
            held_by=holders.get(node.name),
        )
        for node, status in zip(nodes, with_tree(ages), strict=True)
    ]


def _side_by_side(
    ask: Callable[[Location], NodeDetail], members: list[Location]
) -> list[NodeDetail]:
    """Ask all members at once. By daemon threads: a server that hangs must not hold up the end of
    the process, as it would the threads of an executor."""
    answers: dict[int, NodeDetail] = {}
    waiting = deque(enumerate(members))

    def work() -> None:
        while waiting:
            try:
                at, member = waiting.popleft()
            except IndexError:
                return
            try:
                answers[at] = ask(member)
            except Exception as error:
                log.exception("BUG: asking node %s", member.node_name)
                failure = f"it could not be asked: {type(error).__name__}"
                status = NodeStatus(member.node_name, UNREACHABLE, failure=failure)
                answers[at] = NodeDetail(status)

    threads = [
        Thread(target=work, name=f"vedur-ask-{number}", daemon=True)
        for number in range(min(_MAX_THREADS, len(members)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[at] for at in range(len(members))]


def open_reader(settings: LondisteSettings, purpose: str) -> SetReader:
    """Return a reader of the whole set, seen from one ini; it connects when it reads.

    `purpose` is part of the name that servers see.
    """
    title = f"{settings.job_name} ({purpose})"

    def connect(endpoint: Endpoint, name: str) -> Database:
        return endpoint.with_connect_timeout(_CONNECT_TIMEOUT).open(name)

    return SetReader(
        settings.queue_name,
        lambda: connect(Endpoint.of_local(settings, title), "db"),
        lambda location, name: connect(Endpoint.of_node(settings, location, title), name),
    )
