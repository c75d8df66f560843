"""Which relations a script takes for granted: names with a schema that it does not make; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import postgast

from vedur.names import QualifiedName
from vedur.script.parse_tree import children, messages
from vedur.script.scope import full_name

#: Statements that make a relation, and their field that names it.
_MAKES = {
    "CreateStmt": "relation",
    "ViewStmt": "view",
    "IntoClause": "rel",
    "CreateSeqStmt": "sequence",
    "CompositeTypeStmt": "typevar",
}
#: DROP and COMMENT name these by a list of strings.
_LISTED = frozenset(
    {
        "OBJECT_TABLE",
        "OBJECT_SEQUENCE",
        "OBJECT_VIEW",
        "OBJECT_MATVIEW",
        "OBJECT_FOREIGN_TABLE",
        "OBJECT_INDEX",
    }
)


@dataclass
class Mentions:
    """`needed` must be there, `made` comes with the script; `schemas` are made by it."""

    needed: list[QualifiedName] = field(default_factory=list)
    made: list[QualifiedName] = field(default_factory=list)
    schemas: set[str] = field(default_factory=set)

    def comes(self, name: QualifiedName) -> bool:
        """Does the script make it, or something that it comes with? PostgreSQL names indexes and
        sequences of a table after it."""
        if name.schema in self.schemas or name.schema == "pg_temp":
            return True
        return any(
            name.schema == made.schema
            and (name.name == made.name or name.name.startswith(f"{made.name}_"))
            for made in self.made
        )


def read_mentions(statements: Sequence[str]) -> Mentions:
    """Return what statements mention; one that our parser does not know is passed over: the server
    may be newer."""
    found = Mentions()
    for statement in statements:
        try:
            tree = postgast.parse(statement)
        except postgast.PgQueryError:
            continue
        for raw in tree.stmts:
            _read(raw.stmt, found)
    found.needed = [n for n in dict.fromkeys(found.needed) if n not in found.made]
    return found


def _read(root: Any, found: Mentions) -> None:
    nodes = list(messages(root))
    optional = any(getattr(node, "missing_ok", False) for node in nodes)  # IF EXISTS
    for node in nodes:
        kind = type(node).__name__
        if kind == "CreateSchemaStmt":
            found.schemas.add(node.schemaname)
        if kind in _MAKES and node.HasField(_MAKES[kind]):
            _make(found, getattr(node, _MAKES[kind]), None, None)
        if kind == "IndexStmt" and node.idxname:
            _make(found, node.relation, None, node.idxname)
        if kind == "RenameStmt" and node.HasField("relation"):
            _make(found, node.relation, None, node.newname)
        if kind == "AlterObjectSchemaStmt" and node.HasField("relation"):
            _make(found, node.relation, node.newschema, None)
        if optional:
            continue
        if kind == "RangeVar" and node.schemaname:
            found.needed.append(full_name(node))
        if kind in ("DropStmt", "CommentStmt"):
            found.needed += _listed(node, "remove_type" if kind == "DropStmt" else "objtype")


def _make(found: Mentions, relation: Any, schema: str | None, name: str | None) -> None:
    old = full_name(relation)
    found.made.append(QualifiedName(schema or old.schema, name or old.name))


def _listed(node: Any, field: str) -> list[QualifiedName]:
    enum = node.DESCRIPTOR.fields_by_name[field].enum_type
    if enum.values_by_number[getattr(node, field)].name not in _LISTED:
        return []
    names = []
    for _, item in children(node):
        strings = [part.string.sval for part in item.list.items if part.HasField("string")]
        if len(strings) == 2:
            names.append(QualifiedName(*strings))
    return names
