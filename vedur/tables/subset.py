"""A table's structure cut down to a column list, as `add-table --columns --create` makes it. Pure.

Indexes and constraints come along when all their columns do; triggers and rules stay behind,
because what they do with the other columns cannot be seen. A generated column whose sources stay
behind becomes a plain one: its values come with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vedur.errors import StateError
from vedur.script.column_ddl import rename_columns
from vedur.tables.filter import Columns, parse_condition
from vedur.tables.structure import ColumnDefinition, Constraint, Definition, Structure

#: Definitions of constraints are read as a part of this statement.
_HEAD = "ALTER TABLE t ADD CONSTRAINT c "


def restrict(structure: Structure, columns: Columns) -> tuple[Structure, list[str]]:
    """Return the structure with these columns under their new names, and the names of what was
    left."""
    names = dict(columns)
    if structure.partition_key and any(source != here for source, here in columns):
        raise StateError(
            f'table "{structure.table}" is partitioned: create it by hand to rename its columns'
        )
    constraints = [(c, _constraint(c, names)) for c in structure.constraints]
    indexes = [(i, rename_columns(i.definition, names)) for i in structure.indexes]
    left = [c.name for c, moved in constraints if moved is None and c.kind != "f"]
    left += [i.name for i, moved in indexes if moved is None]
    left += [part.name for part in (*structure.triggers, *structure.rules)]
    cut = replace(
        structure,
        columns=tuple(_column(c, names) for c in structure.columns if c.name in names),
        key=tuple(names[name] for name in structure.key),
        constraints=tuple(Constraint(c.name, c.kind, d) for c, d in constraints if d is not None),
        indexes=tuple(Definition(i.name, d) for i, d in indexes if d is not None),
        triggers=(),
        rules=(),
    )
    return cut, left


def _column(column: ColumnDefinition, names: Mapping[str, str]) -> ColumnDefinition:
    moved = replace(column, name=names[column.name])
    if not column.generated or column.default is None:
        return moved
    source = parse_condition(column.default)
    if not set(source.columns) <= names.keys():
        return replace(moved, generated="", default=None)
    if all(names[name] == name for name in source.columns):
        return moved
    return replace(moved, default=source.written(names))


def _constraint(constraint: Constraint, names: Mapping[str, str]) -> str | None:
    moved = rename_columns(f"{_HEAD}{constraint.definition}", names)
    return None if moved is None else moved.removeprefix(_HEAD)
