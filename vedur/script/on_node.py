"""A script as one node runs it: whether it belongs there, and its statements in the node's names.

The same answer serves the root that starts a script, the workers that replay it, and the
operator who only wants to see it.

`execute` sends the same script to every node. Where a node knows a table under another name, the
names are replaced in the statement's parse tree, made by PostgreSQL's own parser (libpg_query),
never in its text: a string, a comment or a column of the same name stays what it is. Statements
that mention no renamed table keep their text to the letter.

What is followed: every reference to a relation (FROM, ALTER, CREATE INDEX/TRIGGER/VIEW ... ON,
REFERENCES, INSERT, TRUNCATE, DROP, COMMENT, GRANT, OWNED BY), columns written as table.column or
schema.table.column, a table's row type and %TYPE, and a name given as a literal to regclass or to
a function that takes a relation, such as nextval('s.seq'). In queries a table keeps its old name
as an alias, so whatever is said of it there holds (see `scope.py`). Names without a schema count
as names in public. Not followed: the body of a function, which is text until it runs, and names
of objects that have no name in the set, such as indexes and types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import postgast

from vedur.db import Database
from vedur.errors import UsageError
from vedur.names import QualifiedName, parse_name
from vedur.script.attrs import ScriptAttrs, matches
from vedur.script.parse_tree import children
from vedur.script.scope import (
    Level,
    Renames,
    defined,
    enter,
    map_column,
    rename_in_query,
    rename_relation,
)
from vedur.script.script import without_transaction


@dataclass(frozen=True)
class ScriptHere:
    """`fits` is None where only some of the script's conditions are met."""

    fits: bool | None
    statements: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalNames:
    """What a node has of its set: destination of each table by its name in the set, sequences."""

    tables: dict[str, str]
    sequences: set[str]


def script_here(db: Database, names: LocalNames, script: str, attrs: ScriptAttrs) -> ScriptHere:
    """Read the catalogs and return what the node of `db` runs for a script."""
    fits = matches(db, attrs, names.tables, names.sequences)
    if not fits:
        return ScriptHere(fits)
    text = attrs.substitute(script, names.tables, names.sequences)
    renames = {old: new for old, new in names.tables.items() if old != new}
    return ScriptHere(True, without_transaction(rename_tables(text, renames)))


# -- its tables under other names; pure -----------------------------------------------------------

#: DROP, COMMENT and friends name these objects by a list of strings instead of a RangeVar.
_RELATION_KINDS = frozenset(
    {"OBJECT_TABLE", "OBJECT_SEQUENCE", "OBJECT_VIEW", "OBJECT_MATVIEW", "OBJECT_FOREIGN_TABLE"}
)
#: These name an object *of* a relation: the last string is the object, the rest the relation.
_OF_RELATION_KINDS = frozenset(
    {"OBJECT_COLUMN", "OBJECT_TRIGGER", "OBJECT_RULE", "OBJECT_POLICY", "OBJECT_TABCONSTRAINT"}
)
#: Their first argument is a relation, written as a literal.
_REGCLASS_FUNCTIONS = frozenset(
    {"nextval", "currval", "setval", "pg_get_serial_sequence", "to_regclass"}
)

#: Where a query says what it reads, and what it writes.
_SOURCES = {
    "SelectStmt": "from_clause",
    "InsertStmt": "",
    "UpdateStmt": "from_clause",
    "DeleteStmt": "using_clause",
    "MergeStmt": "source_relation",
}
#: What stands between FROM and its tables.
_IN_FROM = frozenset(("Node", "JoinExpr", "RangeTableSample"))
#: The one table that the expressions of these statements are about.
_DEFINED = {
    "AlterTableStmt": "relation",
    "CreateStmt": "relation",
    "IndexStmt": "relation",
    "CopyStmt": "relation",
    "CreatePolicyStmt": "table",
    "AlterPolicyStmt": "table",
}


def rename_tables(script: str, renames: Mapping[str, str]) -> str:
    """Return the script with the relations of `renames` (contract names) called by their local
    names."""
    wanted = {parse_name(old): parse_name(new) for old, new in renames.items() if old != new}
    if not wanted:
        return script
    try:
        tree = postgast.parse(script)
    except postgast.PgQueryError as error:
        raise UsageError(f"script cannot be parsed: {error}") from None
    data = script.encode()
    parts: list[str] = []
    changed = False
    for raw in tree.stmts:
        if _rename_in(raw.stmt, wanted):
            changed = True
            single = postgast.ParseResult(version=tree.version, stmts=[raw])
            single.stmts[0].stmt_location = single.stmts[0].stmt_len = 0
            parts.append(postgast.deparse(single))
        else:
            end = raw.stmt_location + raw.stmt_len if raw.stmt_len else len(data)
            parts.append(data[raw.stmt_location : end].decode().strip())
    return ";\n".join(parts) + ";\n" if changed else script


def _rename_in(root: Any, renames: Renames) -> bool:
    walk = _Walk(renames)
    walk.node(root, None, frozenset())
    return walk.changed


@dataclass
class _Walk:
    """One way down a statement: `level` has the tables around a place, `ctes` the names of WITH."""

    renames: Renames
    changed: bool = False

    def node(
        self, node: Any, level: Level | None, ctes: frozenset[str], in_from: bool = False
    ) -> None:
        """Rename in this message and all that it holds."""
        kind = type(node).__name__
        if kind in _SOURCES:
            self._query(node, kind, level, ctes)
            return
        if kind == "LockingClause":  # FOR UPDATE OF: by the names of this query
            return
        if kind == "RangeVar":
            # those in FROM have been seen to
            self._note(not in_from and rename_relation(node, self.renames) is not None)
        elif kind == "ColumnRef":
            self._note(map_column(node, level, self.renames))
        elif handler := _HANDLERS.get(kind):
            self._note(handler(node, self.renames))
        if kind in _DEFINED and node.HasField(_DEFINED[kind]):
            level = defined(getattr(node, _DEFINED[kind]), level, self.renames)
        for _, child in children(node):
            self.node(child, level, ctes, in_from and kind in _IN_FROM)

    def _note(self, changed: bool) -> None:
        self.changed = self.changed or changed

    def _query(self, node: Any, kind: str, outer: Level | None, ctes: frozenset[str]) -> None:
        if node.HasField("with_clause"):
            ctes = self._with(node.with_clause, outer, ctes)
        level, field = Level(outer), _SOURCES[kind]
        target = [node.relation] if kind != "SelectStmt" else []
        tables = enter(level, target, list(_items(node, field)), ctes)
        self._note(rename_in_query(level, tables, self.renames))
        for name, child in children(node):
            if name == "with_clause" or (target and name == "relation"):
                continue
            # what is inserted, and the sides of a UNION, do not see the tables of this level
            inside = outer if name in ("select_stmt", "larg", "rarg") else level
            self.node(child, inside, ctes, in_from=name == field)

    def _with(self, clause: Any, outer: Level | None, ctes: frozenset[str]) -> frozenset[str]:
        """Walk the queries of WITH; the names that hold after it. Without RECURSIVE each query
        knows the earlier ones only."""
        if clause.recursive:
            ctes |= {cte.common_table_expr.ctename for cte in clause.ctes}
        for cte in clause.ctes:
            self.node(cte, outer, ctes)
            ctes |= {cte.common_table_expr.ctename}
        return ctes


def _items(node: Any, field: str) -> Iterator[Any]:
    """Return the nodes of a field, whether it is a list or a single one."""
    return (child for name, child in children(node) if name == field)


def _strings(items: Any) -> list[Any] | None:
    """Return the String nodes of a list, or None if it holds anything else."""
    found = [item.string for item in items if item.HasField("string")]
    return found if len(found) == len(items) else None


def _name_list(items: Any, renames: Renames, *, extra: int = 0) -> bool:
    """Rename [schema,] relation [, extra names] written as a list of strings."""
    strings = _strings(items)
    if strings is None or not 1 <= len(strings) - extra <= 2:
        return False
    names = strings[: len(strings) - extra]
    schema = names[0].sval if len(names) == 2 else "public"
    new = renames.get(QualifiedName(schema, names[-1].sval))
    if new is None:
        return False
    if len(names) == 2:
        names[0].sval, names[1].sval = new.schema, new.name
        return True
    names[0].sval = new.name
    if new.schema != "public":
        first = type(items[0])()
        first.string.sval = new.schema
        rest = list(items)
        del items[:]
        items.extend([first, *rest])
    return True


def _object(kind: str, node: Any, renames: Renames) -> bool:
    if not node.HasField("list"):
        return False
    if kind in _RELATION_KINDS:
        return _name_list(node.list.items, renames)
    if kind in _OF_RELATION_KINDS:
        return _name_list(node.list.items, renames, extra=1)
    return False


def _kind(node: Any, field: str) -> str:
    value = getattr(node, field)
    return str(node.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[value].name)


def _drop(node: Any, renames: Renames) -> bool:
    kind = _kind(node, "remove_type")
    results = [_object(kind, item, renames) for item in node.objects]  # every item, no shortcut
    return any(results)


def _comment(node: Any, renames: Renames) -> bool:
    return _object(_kind(node, "objtype"), node.object, renames)


def _func_call(node: Any, renames: Renames) -> bool:
    names = _strings(node.funcname)
    if not names or names[-1].sval not in _REGCLASS_FUNCTIONS or not node.args:
        return False
    first = node.args[0]
    return _literal(first.type_cast.arg if first.HasField("type_cast") else first, renames)


def _type_cast(node: Any, renames: Renames) -> bool:
    names = _strings(node.type_name.names)
    if not names or names[-1].sval != "regclass":
        return False
    return _literal(node.arg, renames)


def _literal(node: Any, renames: Renames) -> bool:
    """Rename what a string names, if it is one and a plain name."""
    if not node.HasField("a_const") or not node.a_const.HasField("sval"):
        return False
    text = node.a_const.sval.sval
    if '"' in text or not text or text.count(".") > 1 or not all(text.split(".")):
        return False
    new = renames.get(parse_name(text))
    if new is None:
        return False
    node.a_const.sval.sval = new.quoted
    return True


def _type_name(node: Any, renames: Renames) -> bool:
    # the row type of a table; without a schema it is more likely one of PostgreSQL's own
    extra = 1 if node.pct_type else 0
    return len(node.names) == 2 + extra and _name_list(node.names, renames, extra=extra)


def _def_elem(node: Any, renames: Renames) -> bool:
    # alter sequence ... owned by schema.table.column
    if node.defname != "owned_by" or not node.arg.HasField("list"):
        return False
    return _name_list(node.arg.list.items, renames, extra=1)


_HANDLERS = {
    "DropStmt": _drop,
    "CommentStmt": _comment,
    "FuncCall": _func_call,
    "TypeCast": _type_cast,
    "TypeName": _type_name,
    "DefElem": _def_elem,
}
