"""What names of tables mean inside a statement whose tables are being renamed; pure.

In a query a renamed table keeps its old name as an alias, so `table.column`, whole-row references
and FOR UPDATE OF hold as they were written. schema.table.column cannot be said of an alias: it
becomes alias.column. Statements that define something (ALTER TABLE, CREATE INDEX, CREATE POLICY)
have no aliases: there the columns get the new name of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vedur.errors import UsageError
from vedur.names import QualifiedName

Renames = Mapping[QualifiedName, QualifiedName]


@dataclass(frozen=True)
class Entry:
    """A table of one level: what columns may call it, and its old and new name if it is renamed.

    `aliased`: it had no alias, and got its old name as one.
    """

    name: str
    old: QualifiedName | None = None
    new: QualifiedName | None = None
    aliased: bool = False


@dataclass
class Level:
    """The tables of one query, inside those of the query around it."""

    outer: Level | None = None
    entries: list[Entry] = field(default_factory=list)

    def chain(self) -> Iterator[Level]:
        """Yield this level, then what is around it."""
        level: Level | None = self
        while level is not None:
            yield level
            level = level.outer

    def named(self, name: str) -> Entry | None:
        """Return the only entry of this level that is called so."""
        found = [entry for entry in self.entries if entry.name == name]
        return found[0] if len(found) == 1 else None


def full_name(relation: Any) -> QualifiedName:
    """Return the name that a RangeVar says; the contract's default is public."""
    return QualifiedName(relation.schemaname or "public", relation.relname)


def rename_relation(relation: Any, renames: Renames) -> QualifiedName | None:
    """Give a RangeVar its new name, which is returned."""
    new = renames.get(full_name(relation))
    if new is not None:
        relation.schemaname, relation.relname = new.schema, new.name
    return new


def defined(relation: Any, outer: Level | None, renames: Renames) -> Level:
    """Return the level of a statement that defines something on a table."""
    old = full_name(relation)
    return Level(outer, [Entry(old.name, old, renames.get(old))])


def enter(level: Level, targets: list[Any], items: list[Any], ctes: frozenset[str]) -> list[Any]:
    """Enter the tables of a query; the RangeVars that are tables and not names from WITH.

    The target of INSERT, UPDATE, DELETE or MERGE is a table in any case.
    """
    tables = list(targets)
    for item in items:
        for found in _from_items(item):
            if type(found).__name__ != "RangeVar":
                level.entries.append(Entry(found.alias.aliasname))
            elif not found.schemaname and found.relname in ctes:
                level.entries.append(Entry(_called(found)))
            else:
                tables.append(found)
    return tables


def rename_in_query(level: Level, tables: list[Any], renames: Renames) -> bool:
    """Rename the tables of a query, each with its old name as alias where it is needed.

    Of two tables with the same bare name none can have it as alias, and none is called by it.
    """
    taken = [entry.name for entry in level.entries] + [_called(table) for table in tables]
    changed = False
    for table in tables:
        called, old, plain = _called(table), full_name(table), not table.HasField("alias")
        new = rename_relation(table, renames)
        changed = changed or new is not None
        if not plain:
            level.entries.append(Entry(called))
            continue
        alias = new is not None and new.name != called and taken.count(called) == 1
        if alias:
            table.alias.aliasname = called
        level.entries.append(Entry(called, old, new, alias))
    return changed


def map_column(reference: Any, level: Level | None, renames: Renames) -> bool:
    """Let a ColumnRef name its table as it is called now."""
    fields = reference.fields
    names = [item.string for item in fields if item.HasField("string")]
    star = bool(fields) and fields[-1].HasField("a_star")
    qualifiers = len(fields) - 1
    if len(names) + star != len(fields) or qualifiers not in (1, 2):
        return False
    if qualifiers == 1:
        return _map_bare(names[0], level)
    return _map_full(reference, names, level, renames)


def _map_bare(table: Any, level: Level | None) -> bool:
    for near in level.chain() if level else ():
        if any(entry.name == table.sval for entry in near.entries):
            entry = near.named(table.sval)
            if entry is None or entry.new is None or entry.aliased:
                return False
            changed: bool = entry.new.name != table.sval
            table.sval = entry.new.name
            return changed
    return False


def _map_full(reference: Any, names: list[Any], level: Level | None, renames: Renames) -> bool:
    old = QualifiedName(names[0].sval, names[1].sval)
    new = renames.get(old)
    if new is None:
        return False
    passed: list[Level] = []
    for near in level.chain() if level else ():
        entry = next((e for e in near.entries if e.old == old), None)
        if entry is None:
            passed.append(near)
            continue
        if not entry.aliased:
            break
        if any(e.name == entry.name for inner in passed for e in inner.entries):
            raise UsageError(
                f'"{old}" cannot be renamed in this script: a query inside has another '
                f'"{old.name}"; give one of them an alias'
            )
        del reference.fields[0]
        return True
    names[0].sval, names[1].sval = new.schema, new.name
    return True


def _from_items(item: Any) -> Iterator[Any]:
    """Yield the RangeVars of an item of FROM, and whatever else has an alias there."""
    kind = item.WhichOneof("node") if type(item).__name__ == "Node" else None
    if kind is None:
        return
    found = getattr(item, kind)
    if kind == "range_var":
        yield found
        return
    if kind == "join_expr":
        yield from _from_items(found.larg)
        yield from _from_items(found.rarg)
    elif kind == "range_table_sample":
        yield from _from_items(found.relation)
        return
    if "alias" in found.DESCRIPTOR.fields_by_name and found.HasField("alias"):
        yield found


def _called(relation: Any) -> str:
    if relation.HasField("alias"):
        return str(relation.alias.aliasname)
    return str(relation.relname)
