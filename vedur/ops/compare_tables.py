"""Which tables of this node can be put beside the provider's, and how: what `compare`, `repair`,
`change-filter` and `rejoin` have in common."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from vedur.catalog.copy_source import NEAREST
from vedur.catalog.quarantine import count_quarantined
from vedur.catalog.tables import TableInfo, get_table_list, is_in_sync, other_mask, sharing
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import handler_problem, require_handlers, stored_handler
from vedur.node.endpoint import Endpoint
from vedur.node.info import NodeInfo
from vedur.node.moment import Meet, Moment, Nodes, at_one_moment, meet
from vedur.ops.combined import require_own_rows
from vedur.ops.copy_node import CopyNodes
from vedur.ops.session import Session, choose, is_glob, meant
from vedur.tables.part_rows import why_untold

if TYPE_CHECKING:
    from vedur.pipeline.compare import Pair

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Tables that a line names of each kind.
_NAMED = 10


def make_nodes(
    session: Session,
    info: NodeInfo,
    *,
    force: bool = False,
    max_wait: float = 60.0,
    other: str | None = None,
) -> Nodes:
    """Return both ends of the local node's subscription; `other` is the name of a node to compare
    with instead of the provider, whose place is read."""
    settings = session.settings
    if not info.provider_location or not info.worker_name:
        raise StateError(f'node "{info.node_name}" knows no location of its provider')
    above = Endpoint.of_node(settings, info.provider_location)
    there = above
    if other is not None and other != info.provider_node:
        places = {m.node_name: m.node_location for m in session.members()}
        if other not in places:
            raise StateError(f"Unknown node: {other}")
        there = Endpoint.of_node(settings, places[other])
    return Nodes(
        provider=there,
        above=None if there is above else above,
        target=Endpoint.of_local(settings),
        queue=session.queue,
        consumer=info.worker_name,
        clock=session.clock,
        max_wait=max_wait,
        lock_timeout=settings.lock_timeout,
        force=force,
    )


def warn_below(info: NodeInfo, done: str, command: str) -> None:
    """Say that a change of rows on a branch is in no queue."""
    if info.is_branch:
        log.warning("nodes below this one %s with it: run %s on each of them", done, command)


def local_tables(session: Session, asked: tuple[str, ...]) -> tuple[NodeInfo, list[TableInfo]]:
    """Read the node, and its tables that are asked for."""
    info = session.require_node()
    if info.is_root:
        raise UsageError("the root has no provider to compare with: run this on another node")
    require_own_rows(info, "comparing rows")
    local = get_table_list(session.db, session.queue).local.by_name
    if asked:
        for name in asked:
            if not is_glob(name) and meant(name, local) not in local:
                raise StateError(f"Table not subscribed: {meant(name, local)}")
        local = {name: local[name] for name in choose(asked, local)}
    return info, list(local.values())


@dataclass
class Counterparts:
    """The node that each table of this one is put beside: the one that is named, or the provider,
    or, where the provider lacks the table or has a part of it, the nearest one above."""

    session: Session
    info: NodeInfo
    named: str | None = None
    _found: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._provider = CopyNodes(self.session, self.info)
        self._nearest = CopyNodes(self.session, self.info, NEAREST)
        self._named = CopyNodes(self.session, self.info, self.named) if self.named else None

    def why_not(self, table: TableInfo) -> str:
        """Read why a table cannot be put beside another node's; empty if it can."""
        if reason := unready_here(table):
            return reason
        mapping, name = table.mapping, table.table_name
        if self._named is not None:
            self._found[name] = self.named
            reason = self._named.of(mapping).why_not_compared(mapping)
            return f'Table {name} not ready on node "{self.named}": {reason}' if reason else ""
        self._found[name] = None
        provider = self._provider.of(mapping)
        reason = provider.why_not_compared(mapping)
        if not reason:
            return ""
        try:
            node = self._nearest.of(mapping)
        except StateError as error:
            log.debug("%s", error)
            there = provider.tables.find(name)
            if there is None or not there.ready:
                return f"Table {name} not ready yet on provider"
            return f"Table {name} cannot be compared with the provider: {reason}"
        log.info('%s: compared with node "%s"; the provider: %s', name, node.name, reason)
        self._found[name] = node.name
        return ""

    def node_of(self, table: TableInfo) -> str | None:
        """Return the node of a table that was found to be ready; None for the provider."""
        return self._found[table.table_name]

    def nodes_of(self, table: TableInfo, *, force: bool, max_wait: float) -> Nodes:
        """Make both ends for a table that was found to be ready."""
        other = self.node_of(table)
        return make_nodes(self.session, self.info, force=force, max_wait=max_wait, other=other)


def chosen_tables(session: Session, asked: tuple[str, ...]) -> tuple[NodeInfo, list[TableInfo]]:
    """Read the local tables that can be compared; logs why others cannot."""
    info, tables = local_tables(session, asked)
    require_handlers(tables)
    there = provided_tables(session, info) if tables else {}
    ready = []
    for table in tables:
        if reason := unready(table, there):
            log.warning("%s", reason)
        else:
            ready.append(table)
    return info, ready


def provided_tables(session: Session, info: NodeInfo) -> dict[str, TableInfo]:
    """Read the tables of the set as the provider has them."""
    return get_table_list(session.provider(info), session.queue).by_name


def unready_here(table: TableInfo) -> str:
    """Return why this side of a table cannot be put beside another yet; empty if it can."""
    if reason := handler_refusal(table):
        return reason
    if not table.ready:
        return f"Table {table.table_name} not synced yet, no point"
    return ""


def handler_refusal(table: TableInfo) -> str:
    """Return why a table's handler keeps it from being put beside another; empty if it does not."""
    if problem := handler_problem(table):
        return problem
    if why := table.mapping.uncomparable:
        return f'Table {table.table_name} has handler "{stored_handler(table)}": {why}'
    return ""


def unready(table: TableInfo, there: Mapping[str, TableInfo]) -> str:
    """Return why the two sides of a table cannot be put beside each other yet; empty if they
    can."""
    if reason := unready_here(table):
        return reason
    state = there.get(table.table_name)
    # a provider that never copied a table may have no state for it
    synced = state is not None and (state.merge_state is None or is_in_sync(state.merge_state))
    if state is None or not synced or not state.local:
        return f"Table {table.table_name} not ready yet on provider"
    return ""


def plan_pair(session: Session, nodes: Nodes, table: TableInfo, where: str | None = None) -> Pair:
    """Read what to compare for a table of the catalog."""
    from vedur.pipeline.compare import make_expected_pair, make_pair

    others = sharing(session.db, session.queue, table)
    if others and not table.mapping.own():
        raise StateError(
            f'"{table.dest_table}" has rows of other tables, too ({listed(others)}), and '
            f'"{table.table_name}" has no condition or part column that tells its rows from '
            "theirs: which rows should be there cannot be told"
        )
    if others and (why := why_untold(session.db, table.dest_table)):
        raise StateError(
            f'"{table.dest_table}" has rows of other tables, too ({listed(others)}), and {why}: '
            "which rows should be there cannot be told"
        )
    provider = session.open(nodes.provider, "provider_db")
    there = get_table_list(provider, session.queue).find(table.table_name)
    mapping = table.mapping_from(there)
    if there is not None and (other := other_mask(there, mapping)):
        raise StateError(
            f'table "{table.table_name}" cannot be put beside that of its provider, which has '
            f"{other}"
        )
    if mapping.rows is None:
        return make_pair(provider, session.db, mapping, shared=bool(others), where=where)
    if where is not None:
        raise StateError(
            f'table "{table.table_name}" has handler "{stored_handler(table)}", which changes rows '
            "on their way here: it can be repaired as a whole, without --where"
        )
    return make_expected_pair(provider, session.db, mapping, shared=bool(others))


def pair_at(pair: Pair, moment: Moment) -> Pair:
    """Return the pair as the moment's snapshots see it, with the partitions that are there."""
    from vedur.pipeline.compare import with_pieces_of

    source, target = moment.readers
    return with_pieces_of(pair.at(moment.source, moment.target, moment.mark), source, target)


def pair_at_one_moment(
    nodes: Nodes, pair: Pair, work: Callable[[Pair, Moment], T], meet: Meet = meet
) -> T:
    """Do `work` with the pair at one moment of both sides, again if it had to yield to DDL."""
    return at_one_moment(
        nodes,
        pair.source.name,
        pair.dest,
        lambda moment: work(pair_at(pair, moment), moment),
        meet,
    )


def one_sided(pair: Pair) -> str:
    """Return what to say of columns that exist on one side only, empty if there are none."""
    if not pair.ignored:
        return ""
    return f"not compared, exist on one side only: {', '.join(pair.ignored)}"


def warn_waiting(session: Session, table: TableInfo, then: str = "") -> int:
    """Say that events of the table wait in quarantine, which is a difference by itself."""
    name = table.table_name
    count = count_quarantined(session.db, session.queue, name)
    if count:
        log.warning(
            "%s: %d event(s) wait in quarantine, so rows may differ from the provider's: "
            "see quarantine list --table=%s%s",
            table.dest_table,
            count,
            name,
            then,
        )
    return count


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
