"""Create a table on the local node like the provider's: `add-table --create`, `--create-full`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from vedur.catalog import ddl
from vedur.catalog.fkeys import ForeignKey, add_pending_fkey
from vedur.catalog.structure import Structure, foreign_keys, read_structure
from vedur.catalog.tables import existing
from vedur.change.rename import rename_tables
from vedur.db import Database
from vedur.errors import StateError
from vedur.log import TRACE
from vedur.names import parse_name, quote_ident
from vedur.sql import query

log = logging.getLogger(__name__)


def create_table(
    db: Database, provider: Database, table: str, dest: str, *, full: bool
) -> list[str]:
    """Make table `dest` in `db` like `table` in `provider`, if it is not there; returns the DDL.

    `table` is the provider's own name of it. Belongs in the transaction that registers the table.
    """
    if existing(db, [dest], ("r", "p", "f", "v", "m")):
        log.debug("%s exists already, not created", dest)
        return []
    structure = read_structure(provider, parse_name(table))
    if structure is None:
        raise StateError(f'table "{table}" does not exist on the provider: it cannot be copied')
    statements = _statements(db, provider, structure, dest, full)
    for statement in statements:
        log.log(TRACE, "%s", statement)
        db.execute(statement)
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
    for column in structure.columns:
        if column.sequence in made and parse_name(column.sequence).schema == target.schema:
            found.append(ddl.own_sequence(column.sequence, target, column.name))
    return found


def plan_foreign_keys(
    db: Database, provider: Database, table: str, local: Mapping[str, str]
) -> list[ForeignKey]:
    """Hand the provider's foreign keys from and to `table` to the worker; returns them.

    `local` maps the provider's table names to those here; keys to tables that are not here are
    left out. They are made when both tables are in sync, because before that rows are missing.
    """
    here = {(key.from_table, key.fkey_name) for key in foreign_keys(db, list(local.values()))}
    found = []
    for key in foreign_keys(provider, [table]):
        if key.from_table not in local or key.to_table not in local:
            continue
        moved = ForeignKey(
            local[key.from_table],
            local[key.to_table],
            key.fkey_name,
            rename_tables(key.fkey_def, local).strip().rstrip(";"),
        )
        if (moved.from_table, moved.fkey_name) not in here:
            add_pending_fkey(db, moved)
            found.append(moved)
    return found
