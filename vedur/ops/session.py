"""What an operator's command works with: its node and other nodes, the node's record of the set,
and the names that the operator gives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Self

from vedur import db as vdb
from vedur.catalog.sequences import (
    SequenceInfo,
    get_seq_list,
    global_remove_seq,
    global_update_seq,
)
from vedur.catalog.tables import (
    TableInfo,
    TableSet,
    get_table_list,
    global_add_table,
    global_remove_table,
)
from vedur.clock import SYSTEM, Clock
from vedur.config import LondisteSettings
from vedur.errors import StateError, UsageError
from vedur.names import fqname, readings, sql_parts
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
        """Read the local node; raises an error that says how to make one where there is none."""
        info = get_node_info(self.db, self.queue) if has_schema(self.db) else None
        if info is None:
            raise StateError(
                f'no node for queue "{self.queue}" in this database: '
                'run "create-root" or "create-leaf" first'
            )
        return info

    def members(self) -> list[Location]:
        """Read all members that the local node knows."""
        return get_queue_locations(self.db, self.queue)

    def provider(self, info: NodeInfo) -> vdb.Database:
        """Open the node that the local one reads from; for the root a second connection to
        itself."""
        if not info.provider_location:
            raise StateError(f'node "{info.node_name}" knows no location of its provider')
        return self.remote(info.provider_location, "provider_db")

    def node(self, name: str) -> vdb.Database:
        """Open a member by name."""
        for member in self.members():
            if member.node_name == name:
                return self.remote(member.node_location, f"node.{name}")
        raise StateError(f"Unknown node: {name}")

    def root(self, start: str) -> tuple[vdb.Database, NodeInfo]:
        """Find the root of the set by following providers from a connect string; opens each of
        them."""
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


# -- the node's record of the set -----------------------------------------------------------------

# What a node records of the set is made equal to what its provider records. Below a branch, what
# the provider does not record is forgotten only if the root does not have it. The worker does the
# same through events; a command that runs before it has must not fail. Bookkeeping, so it speaks at
# DEBUG only.


def wanted(name: str, only: Iterable[str], skip: Iterable[str]) -> bool:
    """Does the ini let this node record the name (register_only_…, register_skip_…)?"""
    only = tuple(only)
    if only and not any(fnmatchcase(name, pattern) for pattern in only):
        return False
    return not any(fnmatchcase(name, pattern) for pattern in skip)


def sync_tables(session: Session, db: vdb.Database, provider: vdb.Database) -> TableSet:
    """Record tables that the provider has, forget those that the set has no more; returns the
    provider's."""
    settings, queue = session.settings, session.queue
    there, here = get_table_list(provider, queue), set(get_table_list(db, queue).names)
    gone = here.difference(there.names)
    if gone and (root := _root_above_branch(session, db, provider)):
        gone.difference_update(get_table_list(root, queue).names)
    for name in gone:
        log.debug("Table %s gone but exists on subscriber, removing", name)
        global_remove_table(db, queue, name)
    record_tables(settings, db, [table for table in there if table.table_name not in here])
    return there


def record_tables(
    settings: LondisteSettings, db: vdb.Database, tables: Iterable[TableInfo]
) -> None:
    """Record tables of the provider that the node does not know yet."""
    for name in [table.table_name for table in tables]:
        if wanted(name, settings.register_only_tables, settings.register_skip_tables):
            log.debug("Table %s info missing from subscriber, adding", name)
            global_add_table(db, settings.queue_name, name)


def _root_above_branch(
    session: Session, db: vdb.Database, provider: vdb.Database
) -> vdb.Database | None:
    """Find the root where the provider is a branch: that may leave out what the set has
    (register_only_..., register_skip_...), and passes the events on all the same."""
    above, here = get_node_info(provider, session.queue), get_node_info(db, session.queue)
    if above is None or above.is_root or here is None or not here.provider_location:
        return None
    return session.root(here.provider_location)[0]


def sync_sequences(
    session: Session, db: vdb.Database, provider: vdb.Database
) -> dict[str, SequenceInfo]:
    """Record sequences that the provider has with their published values, and forget those that the
    set has no more; returns the provider's."""
    settings, queue = session.settings, session.queue
    there = {seq.seq_name: seq for seq in get_seq_list(provider, queue)}
    here = {seq.seq_name: seq for seq in get_seq_list(db, queue)}
    gone = here.keys() - there.keys()
    if gone and (root := _root_above_branch(session, db, provider)):
        gone.difference_update(seq.seq_name for seq in get_seq_list(root, queue))
    for name in gone:
        log.debug("Sequence %s gone but exists on subscriber, removing", name)
        global_remove_seq(db, queue, name)
    record_sequences(settings, db, [seq for name, seq in there.items() if name not in here])
    for name in there.keys() & here.keys():
        if there[name].last_value > here[name].last_value:
            log.debug("Sequence %s value is behind on subscriber, updating", name)
            global_update_seq(db, queue, name, there[name].last_value)
    return there


def record_sequences(
    settings: LondisteSettings, db: vdb.Database, sequences: Iterable[SequenceInfo]
) -> None:
    """Record sequences of the provider that the node does not know yet."""
    for seq in sequences:
        if wanted(seq.seq_name, settings.register_only_seqs, settings.register_skip_seqs):
            log.debug("Sequence %s info missing from subscriber, adding", seq.seq_name)
            global_update_seq(db, settings.queue_name, seq.seq_name, seq.last_value)


# -- which objects are meant: names and globs against what is there; pure -------------------------

# Names come as the contract writes them (`Weird Schema.Order`) or as SQL does
# (`"Weird Schema"."Order"`).


def is_glob(name: str) -> bool:
    """Is the name a pattern, with `*` or `?` outside of double quotes?"""
    parts = sql_parts(name) or (name,)
    return any("*" in part or "?" in part for part in parts if part[0:1] != '"')


def _pattern(text: str) -> str:
    """Return a glob in the contract's form; what stands in double quotes is meant literally."""
    parts = sql_parts(text)
    if parts is None:
        return fqname(text)
    return fqname(".".join(_literal(p) if p[0] == '"' else p for p in parts))


def _literal(quoted: str) -> str:
    bare = quoted[1:-1].replace('""', '"')
    return "".join(f"[{c}]" if c in "*?[" else c for c in bare)


def meant(text: str, known: Collection[str]) -> str:
    """Return the one name that an operator means; the likeliest where none is known.

    Raises `UsageError` where both readings are the name of something.
    """
    found = [name for name in dict.fromkeys(readings(text)) if name in known]
    if len(found) > 1:
        raise UsageError(
            f"{text} can mean {' or '.join(found)}: write the one that is meant with SQL's quotes, "
            'doubling those in the name ("a""b")'
        )
    return found[0] if found else readings(text)[0]


def choose(
    asked: Sequence[str],
    available: Iterable[str],
    *,
    everything: bool = False,
    done: Collection[str] = (),
    skip_missing: bool = False,
    why: Callable[[str], str | None] = lambda name: None,
) -> list[str]:
    """Return the contract names that are meant, in the order asked for, each once.

    `available` is what could be meant; `done` are names that need nothing more, which is said
    for each one asked for by name; `why` gives the reason why a name is not available, if there
    is more to say. A bare glob means schema public.
    """
    if everything and asked:
        raise UsageError("--all takes no names: leave out one of the two")
    names = list(dict.fromkeys(available))
    if everything:
        return names
    known = {*names, *done}
    found: dict[str, None] = {}
    lost = False
    for text in asked:
        if is_glob(text):
            pattern = _pattern(text)
            found |= dict.fromkeys(name for name in names if fnmatchcase(name, pattern))
            continue
        name = meant(text, known)
        if name in names:
            found[name] = None
        elif name in done:
            log.info("%s already processed", name)
        else:
            lost = lost or not skip_missing
            reason = why(name)
            log.warning("%s not available%s", name, f": {reason}" if reason else "")
    if lost:
        raise UsageError("Cannot proceed")
    return list(found)
