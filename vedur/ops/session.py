"""What an operator's command works with: the local database, its node, and other nodes."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from vedur import db as vdb
from vedur.clock import SYSTEM, Clock
from vedur.config import LondisteSettings
from vedur.errors import StateError
from vedur.node.endpoint import Endpoint
from vedur.node.info import (
    Location,
    NodeInfo,
    get_node_info,
    get_queue_locations,
    has_schema,
)

log = logging.getLogger(__name__)


@dataclass
class Session:
    """Connections are opened on first use and closed together. Statements commit by themselves
    unless a transaction is opened."""

    settings: LondisteSettings
    clock: Clock = SYSTEM
    _open: dict[tuple[str, str], vdb.Database] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def queue(self) -> str:
        """The name of the set."""
        return self.settings.queue_name

    @property
    def db(self) -> vdb.Database:
        """The local database."""
        return self.open(Endpoint.of_local(self.settings), "db")

    def open(self, endpoint: Endpoint, name: str) -> vdb.Database:
        """Connect under a name; the second call gives the same connection."""
        key = (name, endpoint.connstr)
        if key not in self._open:
            db = endpoint.titled(self._title()).open(name)
            self._open[key] = self._stack.enter_context(db)
        return self._open[key]

    def remote(self, location: str, name: str) -> vdb.Database:
        """Connect to another node, by its location."""
        return self.open(Endpoint.of_node(self.settings, location), name)

    def _title(self) -> str:
        return f"{self.settings.job_name} (admin)"

    def require_node(self) -> NodeInfo:
        """The local node; an error that says how to make one where there is none."""
        info = get_node_info(self.db, self.queue) if has_schema(self.db) else None
        if info is None:
            raise StateError(
                f'no node for queue "{self.queue}" in this database: '
                'run "create-root" or "create-leaf" first'
            )
        return info

    def members(self) -> list[Location]:
        """All members that the local node knows."""
        return get_queue_locations(self.db, self.queue)

    def provider(self, info: NodeInfo) -> vdb.Database:
        """The node that the local one reads from; for the root a second connection to itself."""
        if not info.provider_location:
            raise StateError(f'node "{info.node_name}" knows no location of its provider')
        return self.remote(info.provider_location, "provider_db")

    def node(self, name: str) -> vdb.Database:
        """A member by name."""
        for member in self.members():
            if member.node_name == name:
                return self.remote(member.node_location, f"node.{name}")
        raise StateError(f"Unknown node: {name}")

    def root(self, start: str) -> tuple[vdb.Database, NodeInfo]:
        """The root of the set, found by following providers from a connect string."""
        seen: set[str] = set()
        connstr = start
        while True:
            db = self.remote(connstr, "root_db")
            info = get_node_info(db, self.queue) if has_schema(db) else None
            if info is None:
                raise StateError(
                    "Root node not initialized?"
                    if not seen
                    else f'provider chain of queue "{self.queue}" is broken: no node there'
                )
            log.debug(
                "db='%s' -- type='%s' provider='%s'",
                connstr,
                info.node_type,
                info.provider_location,
            )
            if info.is_root:
                return db, info
            if info.node_name in seen or not info.provider_location:
                raise StateError(f'no root found: the providers of "{info.node_name}" form a ring')
            seen.add(info.node_name)
            connstr = info.provider_location

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
