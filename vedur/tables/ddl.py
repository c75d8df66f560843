"""DDL that makes a table or sequence like another, for `add-table --create`.

Names inside definitions are changed through PostgreSQL's parser (`change.rename`), never in the
text. What the first copy takes away and brings back is in `table_ddl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from vedur.db import Database
from vedur.names import QualifiedName, parse_name, quote_ident
from vedur.script.on_node import rename_tables
from vedur.sql import query
from vedur.tables.structure import ColumnDefinition, Structure

_IDENTITY = {"a": "always", "d": "by default"}
_GENERATED = {"s": "stored", "v": "virtual"}


def create_table(
    structure: Structure,
    dest: QualifiedName,
    *,
    sequences: Set[str] = frozenset(),
    roles: Set[str] = frozenset(),
    full: bool = False,
) -> list[str]:
    """Return statements that make `structure` under the name `dest`.

    Without `full`: columns and the key, which is a unique index where there is no primary key.
    With it: constraints except foreign keys (the other tables may not be here yet), indexes,
    triggers, rules, grants and owner too. `sequences` are those that exist (or will) where it
    runs: a default of any other is left out; grants and owner are left out for roles that are not
    in `roles`.
    """
    statements = [_create(structure, dest, sequences)]
    renames = {str(structure.table): str(dest)}
    names = _Names(structure.table, dest)
    for constraint in structure.constraints:
        is_key = constraint.kind == "p" or constraint.name == structure.key_name
        if is_key or (full and constraint.kind in "uxc"):
            statements.append(
                f"alter table {dest.quoted} add constraint "
                f"{quote_ident(names.new(constraint.name))} {constraint.definition}"
            )
    parts = [i for i in structure.indexes if full or i.name == structure.key_name]
    parts += [*structure.triggers, *structure.rules] if full else []
    for part in parts:
        moved = rename_tables(part.definition, renames)
        statements.append(_rename_object(moved, part.name, names.new(part.name)))
    if full:
        statements += _rights(structure, dest, roles)
    return [statement.rstrip().rstrip(";") for statement in statements]


def _create(structure: Structure, dest: QualifiedName, sequences: Set[str]) -> str:
    lines = ",\n    ".join(_column(column, sequences) for column in structure.columns)
    partition = f" partition by {structure.partition_key}" if structure.partition_key else ""
    options = f" with ({', '.join(structure.options)})" if structure.options else ""
    return f"create table {dest.quoted} (\n    {lines}\n){partition}{options}"


def _column(column: ColumnDefinition, sequences: Set[str]) -> str:
    words = [quote_ident(column.name), column.type]
    if column.collation:
        words.append(f"collate {column.collation}")
    if column.generated:
        words.append(f"generated always as ({column.default}) {_GENERATED[column.generated]}")
    elif column.identity:
        words.append(f"generated {_IDENTITY[column.identity]} as identity")
    elif column.default and (column.sequence is None or column.sequence in sequences):
        words.append(f"default {column.default}")
    if column.not_null:
        words.append("not null")
    return " ".join(words)


@dataclass(frozen=True)
class _Names:
    """Index and constraint names usually carry the table's name; keep that when it changes."""

    source: QualifiedName
    dest: QualifiedName

    def new(self, name: str) -> str:
        if self.source.name == self.dest.name:
            return name
        if self.source.name in name:
            return name.replace(self.source.name, self.dest.name)
        # an index lives in the schema, where the old name may be taken by the old table
        return f"{self.dest.name}_{name}" if self.source.schema == self.dest.schema else name


def _rename_object(definition: str, old: str, new: str) -> str:
    if old == new:
        return definition
    for spelled in (old, quote_ident(old)):
        for word in ("index ", "trigger ", "rule "):
            head, found, tail = definition.partition(f"{word.upper()}{spelled} ")
            if found:
                return f"{head}{word}{quote_ident(new)} {tail}"
    return definition


def _rights(structure: Structure, dest: QualifiedName, roles: Set[str]) -> Iterator[str]:
    for grant in structure.grants:
        if grant.grantee is None or grant.grantee in roles:
            who = "public" if grant.grantee is None else quote_ident(grant.grantee)
            option = " with grant option" if grant.grantable else ""
            yield f"grant {grant.privilege.lower()} on {dest.quoted} to {who}{option}"
    if structure.owner in roles:
        yield f"alter table {dest.quoted} owner to {quote_ident(structure.owner)}"


def create_sequence(db: Database, sequence: str, dest: str | None = None) -> str | None:
    """Read the statement that makes a sequence like the one in `db`; None where it is not there."""
    name = parse_name(sequence)
    row = db.one(query("catalog", "sequence_structure"), [name.schema, name.name])
    if row is None:
        return None
    cycle = "cycle" if row.seqcycle else "no cycle"
    return (
        f"create sequence if not exists {parse_name(dest or sequence).quoted} as {row.type} "
        f"increment by {row.seqincrement} minvalue {row.seqmin} maxvalue {row.seqmax} "
        f"start with {row.seqstart} cache {row.seqcache} {cycle}"
    )


def own_sequence(sequence: str, table: QualifiedName, column: str) -> str:
    """Return the statement that ties a sequence to its column, as `serial` does."""
    owner = f"{table.quoted}.{quote_ident(column)}"
    return f"alter sequence {parse_name(sequence).quoted} owned by {owner}"
