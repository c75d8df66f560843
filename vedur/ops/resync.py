"""resync: copy tables again; the worker begins as soon as it sees the state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from vedur.catalog.rejoin import end_rejoin
from vedur.catalog.tables import (
    TableInfo,
    change_table_attr,
    get_table_list,
    local_set_table_state,
    shared_tables,
    sharing,
)
from vedur.change.attrs import COPY_NODE, HANDLER_MARK, encode_attrs
from vedur.errors import DatabaseError, StateError, UsageError
from vedur.log import mask
from vedur.node.info import NodeInfo
from vedur.node.position import wake_worker
from vedur.ops.combined import require_nobody_below, require_own_rows
from vedur.ops.copy_node import CopyNodes, copy_node_option
from vedur.ops.handlers import read_handled, require_emptied
from vedur.ops.session import Session, choose
from vedur.tables.part_rows import why_untold

log = logging.getLogger(__name__)


def resync(
    session: Session,
    tables: Sequence[str],
    *,
    everything: bool = False,
    copy_node: str | None = None,
    find_copy_node: bool = False,
) -> None:
    """Set the state of tables back to the beginning; with a node to copy from, that is stored, and
    without one the stored one is used."""
    if not tables and not everything:
        raise UsageError("resync needs TABLE... or --all, use --help for help")
    wanted = copy_node_option(copy_node, find_copy_node)
    info = session.require_node()
    if info.is_root:
        raise StateError("resync cannot be used on the root: there is nothing to copy from")
    require_own_rows(info, "resync")
    local = get_table_list(session.db, session.queue).local.by_name
    names = choose(tables, local, everything=everything)
    marks = {name: _read_mark(session, info, local[name]) for name in names}
    local |= {name: _with_mark(local[name], marks[name]) for name in names}
    require_nobody_below(session, info, names)
    _require_sources(session, info, [local[name] for name in names], wanted)
    for name in names:
        table = local[name]
        if not table.keeps_rows and (others := sharing(session.db, session.queue, table)):
            _require_part(session, table, others)
    for name in names:
        with session.db.transaction():
            if wanted is not None:
                change_table_attr(session.db, session.queue, name, COPY_NODE, wanted)
            if marks[name] is not None:
                change_table_attr(session.db, session.queue, name, HANDLER_MARK, marks[name])
            # Indexes that a half-done copy has dropped stay recorded for the next copy.
            local_set_table_state(session.db, session.queue, name, None, None)
            end_rejoin(session.db, session.queue, name)  # a copy instead of a repair
    if names:
        _wake(session, info)


def _wake(session: Session, info: NodeInfo) -> None:
    """Let the worker look at once. It does so by itself, and tables that are copied from another
    node do not need the provider here: one that does not answer is passed over."""
    try:
        wake_worker(session.provider(info), session.queue)
    except (DatabaseError, StateError) as error:
        log.debug("the worker wakes up by itself: %s", mask(error.message))


def _read_mark(session: Session, info: NodeInfo, table: TableInfo) -> str | None:
    """Read the mark of the handler's rules as they are now, with which the copy makes its rows;
    None for a handler that has none. Raises where the handler cannot serve the table, or where
    rows that older rules made would stay."""
    handled = read_handled(session.db, info, table.table_name, table.attrs)
    mark = (handled.mark if handled is not None else None) or None
    if mark != (table.attrs.get(HANDLER_MARK) or None):
        if table.masks:
            raise StateError(
                f'the rules by which "{table.table_name}" is masked have changed, and events and '
                "rows of nodes below are masked by the old ones: nothing is changed; put the rules "
                "back, or remove-table it here and below, and add-table it when the queue of this "
                "branch has no event of it any more"
            )
        require_emptied(table)
    return mark


def _with_mark(table: TableInfo, mark: str | None) -> TableInfo:
    if mark is None:
        return table
    return replace(table, table_attrs=encode_attrs({**table.attrs, HANDLER_MARK: mark}))


def _require_part(session: Session, table: TableInfo, others: Sequence[str]) -> None:
    """Raise unless a copy of one part can replace its own rows and leave those of others alone."""
    name, dest = table.table_name, table.dest_table
    merged = shared_tables(session.db, session.queue).get(name, False)
    why = why_untold(session.db, dest) if merged else "they are not parts of a merge"
    if why:
        raise StateError(
            f'resync of "{name}" would empty "{dest}", which has rows of {", ".join(others)}, too, '
            f"and cannot replace its own rows alone: {why}. Give each part a condition (--where), "
            "or remove all parts (remove-table) and add them again with --merge-all"
        )


def _require_sources(
    session: Session, info: NodeInfo, tables: Sequence[TableInfo], wanted: str | None
) -> None:
    """Raise unless every table can be copied from the node that is asked for, or stored."""
    nodes: dict[str | None, CopyNodes] = {}
    for table in tables:
        source = wanted or table.copy_node
        node = nodes.setdefault(source, CopyNodes(session, info, source))
        if source is None:
            there = node.of(table.mapping).tables.local.find(table.table_name)
            if there is None:
                raise UsageError(
                    f"Table {table.table_name} does not exist on provider, need to switch to "
                    "different provider, or to copy it from another node (--find-copy-node)"
                )
        node.require(table.mapping)
