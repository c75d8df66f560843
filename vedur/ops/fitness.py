"""Which tables add-table cannot add, each with its reason; asked before the first one is added.

The contract's functions refuse a table at a time, when those before it are added already. Here
all are looked at first, so that one command tells everything and changes nothing. Also asked for
one table alone: whether its first copy would empty a table that others bring rows to.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vedur.catalog.tables import TableSet, is_in_sync
from vedur.change.attrs import COPY_CONDITION, MERGE, decode_attrs, keeps_rows
from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import joins
from vedur.names import parse_name, quote_ident
from vedur.ops.handlers import needs_table
from vedur.ops.session import Session
from vedur.sql import query
from vedur.tables.mapping import PartColumn, TableMap
from vedur.tables.match import (
    Column,
    match_columns,
    read_columns,
    read_columns_of,
    read_unique_keys_of,
    unsteady_values,
    without_part_column,
)

if TYPE_CHECKING:
    from vedur.ops.add_table import AddTable

log = logging.getLogger(__name__)

NO_KEY = "it has no primary key, and no unique index over NOT NULL columns"
_NO_PRIMARY = (
    "it has no primary key, which the SQL that is installed in this database asks for: "
    "alter table ... add primary key"
)
_KINDS = {
    "f": "it is a foreign table, whose changes no trigger can see completely",
    "v": "it is a view",
    "m": "it is a materialized view",
    "S": "it is a sequence, see add-seq",
    "i": "it is an index",
    "I": "it is an index",
    "c": "it is a type",
}
_UNLOGGED = "it is unlogged: a crash empties it, and no event tells (alter table ... set logged)"
_TEMPORARY = "it is temporary: other sessions do not see it"


def why_not(db: Database, name: str) -> str | None:
    """Read why something of this name is no table that can be replicated; None where nothing has
    it."""
    row = db.one(query("catalog", "relation_facts"), [[name]])
    if row is None:
        return None
    if row.is_partition:
        return f"it is a partition: add {row.parent}, its partitions come with it"
    return _kind_reason(row.kind, row.persistence)


def left_out(db: Database) -> dict[str, str]:
    """Read unlogged and foreign tables of a database, with the reason."""
    found = {}
    for row in db.query(query("catalog", "left_out_relations")):
        reason = _kind_reason(row.kind, row.persistence)
        if reason is not None:
            found[row.name] = reason
    return found


def _kind_reason(kind: str, persistence: str) -> str | None:
    if kind in _KINDS:
        return _KINDS[kind]
    return {"u": _UNLOGGED, "t": _TEMPORARY}.get(persistence)


def unfit_keys(db: Database, tables: Sequence[str]) -> dict[str, str]:
    """Read tables that exist and have no key by which changes could find their rows."""
    rows = _keys(db, tables)
    ours = bool(db.value(query("catalog", "takes_unique_keys")))
    missing = NO_KEY if ours else _NO_PRIMARY
    usable = {name for name, row in rows.items() if row.key and (ours or row.is_primary)}
    return {name: missing for name in rows if name not in usable}


def _keys(db: Database, tables: Sequence[str]) -> dict[str, Any]:
    split = [parse_name(table) for table in tables]
    asked = [[name.schema for name in split], [name.name for name in split]]
    return {row.name: row for row in db.query(query("catalog", "table_keys"), asked)}


def _unlogged(db: Database, tables: Sequence[str]) -> dict[str, str]:
    """Read which tables a crash of this server would empty, whole or in part, with the reason."""
    rows = db.query(query("catalog", "unlogged_tables"), [list(tables)])
    return {
        row.name: f"table {row.unlogged} is unlogged: a crash of this server empties it, and "
        "nothing brings its rows back (alter table ... set logged)"
        for row in rows
    }


def require_logged(db: Database, tables: Sequence[str]) -> None:
    """Raise where a crash of this server would empty one of the tables, whole or in part."""
    for table, reason in _unlogged(db, tables).items():
        raise StateError(f"{table} cannot be added: {reason}")


def unfit_tables(
    session: Session, root: bool, options: AddTable, tables: Sequence[str]
) -> dict[str, str]:
    """Read the reasons why tables of the set cannot be added here, by name; nothing is changed."""
    db = session.db
    places = {table: options.place(table) for table in tables}
    present = _keys(db, list(places.values()))
    unfit = unfit_keys(db, list(places.values())) | _unlogged(db, list(places.values()))
    makes = not root and (options.create or options.create_full)
    found: dict[str, str | None] = {}
    for table, place in places.items():
        if place not in present and not needs_table(options):
            found[table] = None
        elif place not in present:
            how = "create it" if root else "create it, or use --create"
            found[table] = None if makes else f"table {place} does not exist here: {how}"
        else:
            found[table] = unfit.get(place)
        if found[table] is None and not root:
            found[table] = sharing(session, options, table, place)
    return {table: reason for table, reason in found.items() if reason is not None}


def sharing(session: Session, options: AddTable, table: str, dest: str) -> str | None:
    """Read why a table cannot join others in one local table; None where it can, or is alone.

    A first copy empties its table, and with it what others have brought. And only conditions can
    tell whose a row is: compare, repair, resync and TRUNCATE ask them.
    """
    asked = {"dest": dest, "queue": session.queue, "table": table}
    rows = session.db.query(query("catalog", "feeding"), asked)
    for row in rows:
        attrs = decode_attrs(row.table_attrs)
        who = (
            f'table "{row.table_name}" of queue "{row.queue_name}" brings rows to "{dest}" already'
        )
        if joins(options.attrs()) and joins(attrs):
            if not options.expect_sync:
                return (
                    f"{who}, and a first copy can come from one of them only: add this one with "
                    "--expect-sync"
                )
            continue
        other, own = PartColumn.read(attrs, row.queue_name), options.part_of(session.queue)
        told = (options.copy_condition or own) and (attrs.get(COPY_CONDITION) or other)
        if problem := _untold_by_column(own, other, told=bool(told)):
            return f"{who}, and {problem}"
        if row.queue_name != session.queue and row.node_type == "leaf" and not options.expect_sync:
            reason = _joining(options, row, who, told=bool(told))
            if reason is None and row.has_ddl and unfit_keys(session.db, [dest]):
                reason = (
                    f"{who}, and its first copy has taken the key of that away until its rows are "
                    "there: wait for it first (wait-sync with the ini of that queue)"
                )
            if reason is not None:
                return reason
            continue
        if not told:
            return (
                f"{who}, and only conditions can tell whose a row is: give each of them a "
                "condition (--where), such that no row fulfils two, or a part column "
                "(--part-column=NAME=VALUE) with its own value"
            )
        if not (options.skip_truncate or options.expect_sync):
            return (
                f"{who}, and the first copy of this one would empty it: use --skip-truncate, or "
                "--expect-sync if its rows are there"
            )
        if not is_in_sync(row.merge_state) and not keeps_rows(attrs):
            return f"{who}, and its first copy, which empties it, is not done: wait for it first"
    return None


def _untold_by_column(own: PartColumn | None, other: PartColumn | None, *, told: bool) -> str:
    """Return why a column does not tell the rows of two tables apart; empty where it does, or where
    none is to. Pure."""
    if other is not None and other == own:
        return (
            "tells its rows by the same value of the same column "
            f"(--part-column={other.name}={other.value})"
        )
    if (own or other) and not told:
        return (
            "where a column tells the rows of one part, each of the others must have a part column "
            "(--part-column), too, or a condition (--where): else it would change rows of all"
        )
    return ""


def _joining(options: AddTable, row: Any, who: str, *, told: bool) -> str | None:
    """Return why a table cannot be merged with one of another queue; None where it can."""
    if options.merge_all:
        return (
            f"{who}, and --merge-all takes all parts at once: remove that one first, or add this "
            "one with --no-merge"
        )
    if not options.no_merge:
        return (
            f"{who}: to merge both, add this one with --no-merge; and only conditions can tell "
            "whose a row is: give each of them a condition (--where), such that no row fulfils "
            "two, or a part column (--part-column)"
        )
    attrs = decode_attrs(row.table_attrs)
    begun = row.merge_state is not None and not is_in_sync(row.merge_state)
    if begun and not keeps_rows(attrs) and MERGE not in attrs:
        return f"{who}, and its first copy, which empties it, is not done: wait for it first"
    if not told:
        log.warning(
            "%s: nothing tells its rows from those of %s: TRUNCATE, resync, compare and repair "
            "will be refused. Give each part a condition (--where), such that no row fulfils two, "
            "or a part column (--part-column)",
            options.tables[0] if options.tables else row.table_name, who.partition(" brings")[0],
        )  # fmt: skip
    return None


def require_alone(session: Session, options: AddTable, table: str) -> None:
    """Refuse a table whose copy would take the rows of others away."""
    reason = sharing(session, options, table, options.place(table))
    if reason is not None:
        raise StateError(f'table "{table}" cannot be added: {reason}')


@dataclass(frozen=True)
class TablePair:
    """A table on its provider and here: columns, the provider's key, column sets that are unique
    here."""

    theirs: list[Column]
    mine: list[Column]
    key: list[str]
    unique: list[tuple[str, ...]]


def read_pairs(
    db: Database, provider: Database, there: TableSet, options: AddTable, tables: Sequence[str]
) -> dict[str, TablePair]:
    """Read both sides of tables, of those that the provider has; a few statements for all."""
    known = {table: there.local.find(table) for table in tables}
    names = {table: parse_name(found.dest_table) for table, found in known.items() if found}
    mine = [parse_name(options.place(table)) for table in names]
    keys = _keys(provider, [str(name) for name in names.values()])
    columns = read_columns_of(provider, list(names.values()))
    found = zip(
        names.items(), columns, read_columns_of(db, mine), read_unique_keys_of(db, mine),
        strict=True,
    )  # fmt: skip
    return {
        table: TablePair(theirs, here, keys[str(name)].key if str(name) in keys else [], unique)
        for (table, name), theirs, here, unique in found
    }


def unsteady(pair: TablePair | None, table: TableMap) -> str | None:
    """Return why events would bring other values than a first copy; None where both bring the same,
    or the table is not there on one side. Pure."""
    if pair is None:
        return None
    return unsteady_values(match_columns(pair.theirs, pair.mine, table.columns))


def require_part_column(
    session: Session, provider: Database, there: TableSet, mapping: TableMap
) -> None:
    """Raise unless the column that is to tell the part's rows is one of this node alone, and takes
    the value as it is. Reads both tables, as far as they are there."""
    part = mapping.part
    if part is None:
        return
    known = there.local.find(mapping.name)
    mine = read_columns(session.db, mapping.local_name)
    if not mine:
        return  # the contract has its own words for a table that is missing
    if mapping.rows or mapping.partitions or mapping.calls or not mapping.copies:
        raise UsageError(
            f'table "{mapping.name}" cannot have a part column beside handler "{mapping.handler}"'
        )
    theirs = read_columns(provider, parse_name(known.dest_table)) if known is not None else []
    without_part_column(mapping, theirs, mine)
    own = next(column for column in mine if column.name == part.name)
    if own.generated:
        raise UsageError(f'part column "{part.name}" of table "{mapping.dest}" is a generated one')
    words = {"value": part.literal, "type": own.type, "column": quote_ident(part.name)}
    stored = session.db.value(query("catalog", "part_value").format(**words))
    if stored != part.value:
        raise UsageError(
            f'part column "{part.name}" of table "{mapping.dest}" ({own.type}) would hold '
            f'"{stored}" and not "{part.value}": give its value as --part-column={part.name}=VALUE'
        )


def require_steady(pair: TablePair | None, table: TableMap) -> None:
    """Refuse a table whose types here would not keep the values that events bring."""
    reason = unsteady(pair, table)
    if reason is not None:
        raise StateError(f'table "{table.name}" cannot be added: {reason}')


def warn_keys(db: Database, pair: TablePair | None, options: AddTable, table: str) -> None:
    """Say where the key that events carry has no unique index here: replay would be slow."""
    if pair is None or not pair.key:
        return
    mine = parse_name(options.place(table))
    chosen = dict(options.column_list or ())
    key = {chosen.get(name, name) for name in pair.key}
    part = options.part_of("")
    own = {part.name} if part is not None else set()
    if any(set(columns) - own == key for columns in pair.unique):
        return
    columns = ", ".join(sorted(key))
    odd = db.one(query("catalog", "no_unique_key"), [sorted(key), mine.schema, mine.name])
    if odd is None:
        log.warning(
            "%s: the provider's key (%s) has no unique index here: every change would read the "
            "whole table. Create one: create unique index on %s (%s)",
            table, columns, mine.quoted, columns,
        )  # fmt: skip
    elif odd.served:
        log.warning(
            "%s: the provider's key (%s) cannot be unique here, because the table is partitioned "
            "by %s: changes are applied one by one, an index finds their rows",
            table, columns, odd.partition_key,
        )  # fmt: skip
    else:
        log.warning(
            "%s: the provider's key (%s) has no index here: every change would read the whole "
            "table. It cannot be unique, because the table is partitioned by %s, so create a "
            "plain index: create index on %s (%s)",
            table, columns, odd.partition_key, mine.quoted, columns,
        )  # fmt: skip
