"""Tables of which a branch passes on a part only: what commands refuse, before anything is changed.

The worker of a node below notices by itself and stops (`catalog/passed.py`); these are the same
reasons, told to the operator in time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from vedur.catalog.passed import (
    conditions_of,
    explain,
    explain_clear,
    is_mask,
    require_key,
    rule_of,
    unserved,
)
from vedur.catalog.tables import TableInfo, get_table_list
from vedur.db import Database
from vedur.errors import DatabaseError, StateError, UsageError
from vedur.handlers.registry import MASKED_BY, Handled
from vedur.log import mask
from vedur.names import parse_name
from vedur.node.info import NodeInfo, NodeType, get_node_info, get_subscriber_info
from vedur.ops.masks import mask_of
from vedur.ops.session import Session
from vedur.queue.passed import PassedPart, read_passed_parts
from vedur.queue.publish import can_publish
from vedur.tables.structure import read_structure


def require_passed(session: Session, info: NodeInfo, tables: Mapping[str, Collection[str]]) -> None:
    """Raise where the provider passes on a part of one of these tables only, and the table is to
    have other rows here: the conditions that all of its rows are to fulfil are told with it."""
    if info.is_root:
        return
    at = int(info.worker_last_tick or 0)
    for part in read_passed_parts(session.provider(info), session.queue, at):
        conditions = tables.get(part.table)
        if conditions is not None and part.condition not in conditions:
            asked = " and ".join(sorted(conditions)) or "all rows"
            raise explain(part, info.provider_node or "", f"here {asked} are asked for")


def require_keyed(db: Database, name: str, dest: str, handled: Handled | None) -> None:
    """Raise where a handler passes a part of a table on, and the table's key does not tell which
    rows are in it."""
    if handled is None or not handled.scope.passes_on:
        return
    structure = read_structure(db, parse_name(dest))
    if structure is None:
        raise StateError(f'table "{dest}" does not exist here: which events are passed on is '
                         "told by the types of its key")  # fmt: skip
    require_key(rule_of(name, dest, handled), structure.key)


def require_children(session: Session, info: NodeInfo, name: str, handled: Handled | None) -> None:
    """Raise where this branch is to pass on a part of a table of which a node below has more, or
    masked rows of one that a node below has as they are, or where its database has not the
    functions for it."""
    asked = (handled.scope.passes_on or mask_of(info, handled)) if handled is not None else None
    if not asked:
        return
    if not can_publish(session.db):
        raise StateError(
            "the SQL of this branch is of a version that cannot leave events out: run "
            '"create-branch" again with the same arguments'
        )
    members = {member.node_name: member for member in session.members()}
    for child in get_subscriber_info(session.db, session.queue):
        member = members.get(child.node_name)
        if member is None or member.dead:
            continue  # what it finds when it comes back stops it
        try:
            db = session.remote(member.node_location, "child_db")
            below = get_table_list(db, session.queue)
        except DatabaseError as error:
            raise StateError(
                f'node "{child.node_name}", which reads from this one, does not answer, so it is '
                f"not known which rows it needs: nothing is changed ({mask(error.message)})"
            ) from error
        _require_told_on(db, session.queue)
        table = below.local.find(name)
        if table is not None:
            _require_part(table, asked, child.node_name)


def _require_told_on(child: Database, queue: str) -> None:
    """Raise for a branch of Londiste's below: it would not tell nodes below it what is missing."""
    info = get_node_info(child, queue)
    if info is not None and info.node_type is NodeType.BRANCH and not can_publish(child):
        raise StateError(
            f'branch "{info.node_name}" reads from this one and runs Londiste, or an older version '
            "of Vedur's SQL: it would not tell nodes below it which events are missing; nothing "
            "is changed"
        )


def _require_part(table: TableInfo, condition: str, node: str) -> None:
    if condition.startswith(MASKED_BY) and table.mask != condition:
        raise StateError(
            f'node "{node}" reads from this one and has table "{table.table_name}" already, whose '
            f"rows are not {condition}: nothing is changed; remove-table it there first, or let "
            "the node read from another one"
        )
    if table.mapping.applies and condition not in conditions_of(table):
        raise StateError(
            f'node "{node}" reads from this one and has table "{table.table_name}" with other rows '
            f"than those where {condition}: it would lose the others; nothing is changed: give it "
            "the handler first (change-handler on it), or let it read from another node"
        )


def require_same_part(name: str, old: Handled | None, new: Handled) -> None:
    """Raise where a branch passes on a part of a table, and is to pass on another one: nodes below
    would have to change in the same moment."""
    was = old.scope.passes_on if old is not None else None
    if was is not None and new.scope.passes_on not in (None, was):
        raise StateError(
            f'"{name}" is passed on in part, and another part cannot take its place at once: nodes '
            "below could not follow in the same moment; first let this branch pass on all "
            "(change-handler with the handler that it has and pass_on=all), then change the rows "
            "here and below, then pass on the new part (pass_on=own)"
        )


def require_provider_serves(
    db: Database, info: NodeInfo, provider: Database, queue: str, tick: int, name: str
) -> None:
    """Raise where a node that stands at a tick cannot read from another one because this passes on
    only a part of a table that it, or a node below it, may have whole."""
    parts = read_passed_parts(provider, queue, tick)
    tables = get_table_list(db, queue)
    _require_masks(db, info, tables, parts, queue, name)
    if not parts:
        return
    for _, part in unserved(tables, parts):
        raise explain(part, name, f'node "{info.node_name}" has other rows, too')
    if info.node_type is not NodeType.BRANCH:
        return
    have = {(part.table, part.condition) for part in _passed_here(db, queue, tick)}
    have |= {(t.table_name, text) for t in tables.local for text in conditions_of(t)}
    for part in parts:
        if (part.table, part.condition) not in have:
            why = f'nodes below "{info.node_name}" may have other rows, too'
            raise explain(part, name, why)


def _require_masks(
    db: Database,
    info: NodeInfo,
    tables: Iterable[TableInfo],
    parts: Collection[PassedPart],
    queue: str,
    name: str,
) -> None:
    """Raise where rows that came masked to a node, or go on masked from it, would come from another
    node as they are."""
    going_on = {(part.table, part.condition) for part in parts if part.until is None}
    for table in tables:
        if table.mask and not table.masks and (table.table_name, table.mask) not in going_on:
            raise explain_clear(table.table_name, table.mask, name)
    if info.node_type is not NodeType.BRANCH:
        return
    own = {table.table_name for table in tables if table.masks}
    for part in read_passed_parts(db, queue, 0):
        here = (part.table, part.condition)
        if is_mask(part) and part.until is None and part.table not in own and here not in going_on:
            raise explain_clear(part.table, part.condition, name)


def _passed_here(db: Database, queue: str, tick: int) -> list[PassedPart]:
    return [part for part in read_passed_parts(db, queue, tick) if part.until is None]


def require_branch(info: NodeInfo, handled: Handled | None) -> None:
    """Raise where a handler passes on a part of a table on a node that passes nothing on."""
    if handled is not None and handled.scope.passes_on and info.node_type is not NodeType.BRANCH:
        raise UsageError(
            f'handler "{handled.stored}" passes on a part of the table (pass_on=own): that is for '
            f"a branch, and this node is a {info.node_type.value}"
        )
