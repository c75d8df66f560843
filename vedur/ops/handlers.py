"""Handlers as `add-table` and `change-handler` see them: chosen, asked, and refused in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vedur.catalog.tables import TableInfo, read_facts
from vedur.change.attrs import COLUMNS, COPY_CONDITION, HANDLER, HANDLER_MARK
from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.handlers.api import Handler, Scope
from vedur.handlers.registry import (
    Handled,
    branch_refusal,
    parse_stored,
    registry,
    require_apart,
)
from vedur.names import quote_ident
from vedur.node.info import NodeInfo
from vedur.ops.passed import require_branch
from vedur.ops.session import Session
from vedur.sql import query
from vedur.tables.checks import TableAt, require_condition
from vedur.tables.mapping import TableMap
from vedur.tables.match import read_unique_keys
from vedur.tables.row_function import TableFacts
from vedur.tables.structure import read_structure
from vedur.tables.target import Partitions, require_partitions

if TYPE_CHECKING:
    from vedur.ops.add_table import AddTable


def needs_table(options: AddTable) -> bool:
    """Must there be a table here for what the operator asked for?"""
    return not options.handler or registry().find(options.handler).needs_table


def plan_handler(session: Session, info: NodeInfo, options: AddTable, table: str) -> Handled | None:
    """Make the handler that was asked for and read what it asks this node for; None for none.

    Raises where the handler does not know the table, or cannot be on such a node.
    """
    attrs = options.attrs()
    return read_handled(session.db, info, table, attrs)


def read_handled(
    db: Database, info: NodeInfo, table: str, attrs: dict[str, str | None]
) -> Handled | None:
    """Do the same for attributes of a table."""
    stored = attrs.get(HANDLER)
    if not stored:
        return None
    name, given = parse_stored(stored)
    handler = registry().make(name, table, given)
    _require_place(info, stored, handler)
    text = handler.facts_query()
    if text is not None and info.is_root:
        return Handled(stored, handler, Scope())  # the root has all rows
    facts = None
    if text is not None:
        facts, problem = read_facts(db, text)
        if problem:
            raise StateError(f'handler "{stored}" cannot be used for table "{table}": {problem}')
    handled = registry().resolve(stored, table, attrs.get(COLUMNS), facts)
    require_apart(handled, attrs.get(COPY_CONDITION), attrs.get(COLUMNS))
    require_branch(info, handled)
    return handled


def _require_place(info: NodeInfo, stored: str, handler: Handler) -> None:
    if handler.root_only and not info.is_root:
        raise UsageError(f'handler "{stored}" is for the root: use vtable on this node')
    if info.is_root and (problem := handler.root_problem()):
        raise UsageError(f'handler "{stored}" cannot be on the root: {problem}')
    if info.is_branch and (refusal := branch_refusal(stored, handler)):
        raise UsageError(refusal)


def require_emptied(table: TableInfo) -> None:
    """Raise where a new copy leaves the rows that are here: they were made by other rules, or by
    none, and would stay beside the new ones."""
    if table.keeps_rows:
        raise StateError(
            f'"{table.table_name}" was added with --skip-truncate, so a new copy leaves the rows '
            f'that are in "{table.dest_table}", which were not made by the rules as they are now: '
            f'nothing is changed; remove-table it here, empty "{table.dest_table}", then add-table '
            "it"
        )


def handler_mark(handled: Handled | None) -> dict[str, str | None]:
    """Return what is stored beside a handler, to notice when its rules change; nothing for most."""
    return {HANDLER_MARK: handled.mark} if handled is not None and handled.mark else {}


def all_words(
    handled: Handled | None, args: Sequence[str], names: Mapping[str, str], root: bool
) -> list[str]:
    """Return the words for `londiste.local_add_table`: the operator's, then the handler's. Pure.

    Flags of the trigger that the operator gives count more than the handler's.
    """
    words = list(handled.handler.trigger_words(names)) if handled is not None else []
    if any(arg.startswith("tgflags=") for arg in args):
        words = [word for word in words if not word.startswith("tgflags=")]
    if not root and not {"expect_sync", "virtual_table"}.isdisjoint(words):
        words.append("no_merge")  # else every queue that has the table would give it
    return [*args, *(word for word in words if word not in args)]


def _require_steady_hours(
    table: TableMap, target: Partitions, types: Mapping[str, str], db: Database
) -> None:
    """Raise where hours of the time zone have no partition of their own."""
    if target.field is None:
        return
    zoned = types[target.field].endswith("with time zone")
    if zoned and target.period == "hour" and not db.value(query("replay", "zone_is_steady")):
        zone = db.value(query("replay", "zone"))
        raise StateError(
            f'table "{table.dest}" cannot be spread over partitions: hours of the time zone of '
            f'this database ({zone}) are skipped or repeated, and column "{target.field}" '
            "(part_field) goes by it: set it to UTC (alter database), or use period=day"
        )


def _require_partitions_can_be_made(
    table: TableMap, target: Partitions, key: str | None, db: Database
) -> None:
    """Raise where Vedur's own way to make partitions would fail: a table that is declared
    partitioned in another way (`key`), or a role that may not. An operator's own function or
    statements may do what these cannot."""
    if not target.usual:
        return
    if key is not None and key.replace('"', "") != f"RANGE ({target.field})":
        raise StateError(
            f'table "{table.dest}" is partitioned by {key}, and partitions by time need RANGE '
            f"({target.field}): declare it so, or say how to make them (part_template)"
        )
    name = table.local_name
    row = db.one(query("replay", "may_make_partitions"), [name.schema, name.name])
    if row is not None and not (row.owns and row.creates):
        lacks = "create tables in its schema" if row.owns else "make partitions of it, as its owner"
        raise StateError(
            f'role "{row.role}" may not spread table "{table.dest}" over partitions: it must be '
            f"able to {lacks}"
        )


def require_times(table: TableMap, db: Database) -> None:
    """Raise where rows that are here, and stay, have no partition."""
    if table.partitions is None or table.partitions.field is None:
        return
    field = table.partitions.field
    words = {"dest": table.local_name.quoted, "field": quote_ident(field)}
    if db.value(query("replay", "timeless").format(**words)):
        raise StateError(
            f'table "{table.dest}" has rows here whose column "{field}" (part_field) is NULL or '
            "infinity: no partition is for them; change or delete them first"
        )


def require_handler_fit(
    handled: Handled | None, table: TableMap, db: Database, there: TableAt
) -> None:
    """Raise unless both servers understand the condition of a handler, and its function over rows
    can serve the table."""
    if handled is None:
        return
    local = read_structure(db, table.local_name)
    if local is None:
        return  # the contract has its own words for that
    if table.partitions is not None:
        here = {column.name: column.type for column in local.columns}
        keyed = bool(read_unique_keys(db, table.local_name))
        require_partitions(table.dest, table.partitions, here, local.kind == "p", keyed)
        _require_steady_hours(table, table.partitions, here, db)
        _require_partitions_can_be_made(table, table.partitions, local.partition_key, db)
    if handled.scope.condition:
        only = replace(table, condition=handled.scope.condition)
        require_condition(only, TableAt(db, local), there, vouched=True)
    if table.rows is not None:
        types = {column.name: column.type for column in there.structure.columns}
        keys = read_unique_keys(db, table.local_name)
        table.rows.check(TableFacts(keys, types, dict(table.columns or ())))
        made = table.rows.output(tuple(types))
        lost = [name for name in there.structure.key if name not in made]
        if lost:
            raise StateError(
                f'handler "{handled.stored}" leaves out column "{lost[0]}" of the key of table '
                f'"{table.name}": changes could not find their rows'
            )
