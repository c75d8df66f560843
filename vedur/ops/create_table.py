"""Create a table on the local node like the provider's: `add-table --create`, `--create-full`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from vedur.catalog.tables import existing
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.log import TRACE
from vedur.names import QualifiedName, parse_name, quote_ident
from vedur.script.column_ddl import rename_columns
from vedur.script.on_node import rename_tables
from vedur.sql import query
from vedur.tables import ddl
from vedur.tables.filter import Columns
from vedur.tables.indexes import ForeignKey, add_pending_fkey
from vedur.tables.partitions import create_partitions, read_partitions
from vedur.tables.structure import Structure, foreign_keys, read_structure
from vedur.tables.subset import restrict

log = logging.getLogger(__name__)

#: Undefined type or collation, function, schema: what a table needs and this node lacks.
_LACKING = ("42704", "42883", "3F000")
#: Everything but Vedur's own schemas: they are here, and each of their objects would be an error.
_DUMP = "\"pg_dump --schema-only -N 'pgq*' -N londiste -N 'vedur*'\""


def create_table(
    db: Database,
    provider: Database,
    table: str,
    dest: str,
    *,
    full: bool,
    columns: Columns | None = None,
) -> list[str]:
    """Make table `dest` in `db` like `table` in `provider`, if it is not there; returns the DDL.

    `table` is the provider's own name of it, `columns` the column list, None for all. Belongs in
    the transaction that registers the table.
    """
    if existing(db, [dest], ("r", "p", "f", "v", "m")):
        log.debug("%s exists already, not created", dest)
        return []
    structure = read_structure(provider, parse_name(table))
    if structure is None:
        raise StateError(f'table "{table}" does not exist on the provider: it cannot be copied')
    if columns is not None:
        structure, left = restrict(structure, columns)
        if full and left:
            log.info("%s: created without %s, which need other columns", dest, ", ".join(left))
    statements = _statements(db, provider, structure, dest, full)
    for statement in statements:
        log.log(TRACE, "%s", statement)
        try:
            db.execute(statement)
        except DatabaseError as error:
            if error.sqlstate not in _LACKING:
                raise
            raise StateError(
                f'table "{dest}" cannot be made like the provider\'s: {error.message}: bring '
                f"types, domains, functions and extensions first ({_DUMP}), or create the table "
                "yourself and run the command without --create or --create-full"
            ) from error
    return statements


def _statements(
    db: Database, provider: Database, structure: Structure, dest: str, full: bool
) -> list[str]:
    target = parse_name(dest)
    sequences = {column.sequence for column in structure.columns if column.sequence}
    here = existing(db, sorted(sequences), ("S",))
    found: list[str] = []
    schemas = {target.schema} | ({parse_name(name).schema for name in sequences} if full else set())
    for schema in sorted(schemas):
        if not db.value(query("admin", "has_schema"), [schema]):
            found.append(f"create schema {quote_ident(schema)}")
    made = sorted(sequences - here) if full else []
    found += [text for name in made if (text := ddl.create_sequence(provider, name))]
    roles = {structure.owner} | {grant.grantee for grant in structure.grants if grant.grantee}
    rows = db.query(query("catalog", "existing_roles"), [sorted(roles)])
    found += ddl.create_table(
        structure,
        target,
        sequences=here | set(made),
        roles={row.name for row in rows},
        full=full,
    )
    if structure.partition_key:
        found += _partitions(db, provider, structure, target, full)
    for column in structure.columns:
        if column.sequence in made and parse_name(column.sequence).schema == target.schema:
            found.append(ddl.own_sequence(column.sequence, target, column.name))
    return found


def _partitions(
    db: Database, provider: Database, structure: Structure, target: QualifiedName, full: bool
) -> list[str]:
    """Read statements for the provider's partitions, under the names that they have there."""
    parts = read_partitions(provider, structure.table)
    taken = existing(db, [str(part.table) for part in parts], ("r", "p", "f", "v", "m"))
    if taken:
        raise StateError(
            f'partitions of "{target}" cannot be made, their names are taken: '
            f"{', '.join(sorted(taken))}: rename those tables, or create the table with partitions "
            "of other names by hand and run the command again"
        )
    schemas = sorted({part.table.schema for part in parts} - {target.schema})
    found = [
        f"create schema {quote_ident(schema)}"
        for schema in schemas
        if not db.value(query("admin", "has_schema"), [schema])
    ]
    return [*found, *create_partitions(parts, structure.table, target, full=full)]


def plan_foreign_keys(
    db: Database,
    provider: Database,
    table: str,
    local: Mapping[str, str],
    columns: Mapping[str, Columns] | None = None,
) -> list[ForeignKey]:
    """Hand the provider's foreign keys from and to `table` to the worker; returns them.

    `local` maps the provider's table names to those here; keys to tables that are not here are
    left out. `columns` are the column lists of those that have one; keys over columns that do not
    come here are left out, too. They are made when both tables are in sync, because before that
    rows are missing.
    """
    lists = columns or {}
    here = {(key.from_table, key.fkey_name) for key in foreign_keys(db, list(local.values()))}
    found = []
    for key in foreign_keys(provider, [table]):
        if key.from_table not in local or key.to_table not in local:
            continue
        definition = _key_here(key, lists)
        if definition is None:
            log.info("%s: foreign key %s needs columns that do not come here, not made",
                     local[key.from_table], key.fkey_name)  # fmt: skip
            continue
        moved = ForeignKey(
            local[key.from_table],
            local[key.to_table],
            key.fkey_name,
            rename_tables(definition, local).strip().rstrip(";"),
        )
        if (moved.from_table, moved.fkey_name) not in here:
            add_pending_fkey(db, moved)
            found.append(moved)
    return found


def _key_here(key: ForeignKey, lists: Mapping[str, Columns]) -> str | None:
    """Return the statement of a foreign key with the names that columns have here; None if one does
    not come here."""
    mine, theirs = lists.get(key.from_table), lists.get(key.to_table)
    if mine is None and theirs is None:
        return key.fkey_def
    return rename_columns(
        key.fkey_def,
        None if mine is None else dict(mine),
        None if theirs is None else dict(theirs),
    )
