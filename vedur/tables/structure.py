"""The structure of a table as its catalog tells it, and how two structures differ.

`read_structure` asks the server for definitions (`pg_get_…def`) instead of composing them, with
every name qualified; `differences` is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from vedur.db import Database
from vedur.names import QualifiedName
from vedur.sql import query
from vedur.tables.filter import Columns
from vedur.tables.indexes import ForeignKey


@dataclass(frozen=True)
class ColumnDefinition:
    """One column; `sequence` is where its default takes values from."""

    name: str
    type: str
    not_null: bool
    default: str | None
    identity: str
    generated: str
    collation: str | None
    sequence: str | None


@dataclass(frozen=True)
class Constraint:
    """kind: p primary key, u unique, x exclusion, c check, f foreign key."""

    name: str
    kind: str
    definition: str


@dataclass(frozen=True)
class Definition:
    """An index, trigger or rule, with the statement that makes it."""

    name: str
    definition: str


@dataclass(frozen=True)
class Grant:
    """A right of a role; None is PUBLIC."""

    grantee: str | None
    privilege: str
    grantable: bool


@dataclass(frozen=True)
class Structure:
    """Everything about a table but its rows.

    `key` are the columns by which changes find their rows: the primary key, else a unique index
    that can stand for it; `key_name` is the index.
    """

    table: QualifiedName
    kind: str
    owner: str
    partition_key: str | None
    options: tuple[str, ...]
    columns: tuple[ColumnDefinition, ...]
    key: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    indexes: tuple[Definition, ...]
    triggers: tuple[Definition, ...]
    rules: tuple[Definition, ...]
    grants: tuple[Grant, ...]
    key_name: str | None = None

    def column(self, name: str) -> ColumnDefinition | None:
        """Return the column of that name."""
        return next((column for column in self.columns if column.name == name), None)


@contextmanager
def qualified_names(db: Database) -> Iterator[None]:
    """Have definitions that are read inside come with every name qualified."""
    with db.transaction():
        before = db.one(query("catalog", "set_search_path"), ["pg_catalog"]).before
        yield
        # inside an outer transaction a SET LOCAL would outlive the savepoint
        db.one(query("catalog", "set_search_path"), [before])


def read_structure(db: Database, table: QualifiedName) -> Structure | None:
    """Read the structure of a table, None where there is no such table."""
    with qualified_names(db):
        head = db.one(query("catalog", "table_head"), [table.schema, table.name])
        if head is None:
            return None
        key = db.one(query("catalog", "table_keys"), [[table.schema], [table.name]])
        return Structure(
            table=table,
            kind=head.kind,
            owner=head.owner,
            partition_key=head.partition_key,
            options=tuple(head.options or ()),
            columns=_columns(db, head.oid),
            key=tuple(key.key) if key is not None else (),
            key_name=key.index_name if key is not None else None,
            constraints=tuple(
                Constraint(row.name, row.kind, row.definition)
                for row in db.query(query("catalog", "table_constraints"), [head.oid])
            ),
            indexes=_definitions(db, "table_indexes", head.oid),
            triggers=_definitions(db, "table_triggers", head.oid),
            rules=_definitions(db, "table_rules", head.oid),
            grants=tuple(
                Grant(row.grantee, row.privilege, row.grantable)
                for row in db.query(query("catalog", "table_grants"), [head.oid])
            ),
        )


def _columns(db: Database, oid: int) -> tuple[ColumnDefinition, ...]:
    return tuple(
        ColumnDefinition(
            name=row.name,
            type=row.type,
            not_null=row.not_null,
            default=row.default_expr,
            identity=row.identity,
            generated=row.generated,
            collation=row.collation,
            sequence=row.sequence,
        )
        for row in db.query(query("catalog", "table_columns"), [oid])
    )


def _definitions(db: Database, name: str, oid: int) -> tuple[Definition, ...]:
    rows = db.query(query("catalog", name), [oid])
    return tuple(Definition(row.name, row.definition) for row in rows)


def foreign_keys(db: Database, tables: Sequence[str]) -> list[ForeignKey]:
    """Read foreign keys from and to the tables (contract names), with their statements."""
    with qualified_names(db):
        rows = db.query(query("catalog", "foreign_keys"), [list(tables), list(tables)])
        return [
            ForeignKey(row.from_table, row.to_table, row.fkey_name, row.fkey_def) for row in rows
        ]


def differences(
    provider: Structure,
    local: Structure,
    columns: Columns | None = None,
    part_column: str | None = None,
) -> list[str]:
    """Return what keeps the two from holding the same rows, one sentence each, column by column.

    `columns` is the table's column list, None for all; sentences use the names here. `part_column`
    is one that tells the rows of a part, which is here alone and may be in the key.
    """
    found = []
    names = {c.name: c.name for c in provider.columns} if columns is None else dict(columns)
    there = {c.name for c in provider.columns}
    found += [
        f'column "{name}" of the column list is missing on provider'
        for name in names
        if name not in there
    ]
    for theirs in provider.columns:
        if theirs.name not in names:
            continue
        column = replace(theirs, name=names[theirs.name])
        mine = local.column(column.name)
        if mine is None:
            found.append(f'column "{column.name}" ({column.type}) is missing here')
            continue
        if mine.type != column.type:
            found.append(f'column "{column.name}" is {column.type} on provider, {mine.type} here')
        if mine.not_null and not column.not_null:
            found.append(f'column "{column.name}" is NOT NULL here, may be null on provider')
        if bool(mine.generated) != bool(column.generated):
            side = "here" if mine.generated else "on provider"
            found.append(f'column "{column.name}" is generated {side} only')
        if (mine.collation or "") != (column.collation or ""):
            found.append(
                f'column "{column.name}" has collation {column.collation or "default"} on '
                f"provider, {mine.collation or 'default'} here"
            )
    for mine in local.columns:
        if mine.name not in names.values() and mine.name != part_column:
            needs = mine.not_null and mine.default is None and not mine.identity
            if columns is not None and not needs:
                continue  # left alone on purpose
            note = ", and it is NOT NULL without a default" if needs else ""
            found.append(f'column "{mine.name}" ({mine.type}) is missing on provider{note}')
    key = tuple(names.get(name, name) for name in provider.key)
    own = tuple(name for name in local.key if name != part_column)
    if key != own:
        found.append(f"key is {_key(key)} on provider, {_key(local.key)} here")
    return found


def _key(columns: tuple[str, ...]) -> str:
    return f"({', '.join(columns)})" if columns else "missing"
