"""A script of DDL for a node whose tables have other names; pure.

`execute` sends the same script to every node. Where a node knows a table under another name, the
names are replaced in the statement's parse tree, made by PostgreSQL's own parser (libpg_query),
never in its text: a string, a comment or a column of the same name stays what it is. Statements
that mention no renamed table keep their text to the letter.

What is followed: every reference to a relation (FROM, ALTER, CREATE INDEX/TRIGGER/VIEW ... ON,
REFERENCES, INSERT, TRUNCATE, DROP, COMMENT, GRANT, OWNED BY), columns written as
schema.table.column, and a name given as a literal to a function that takes a relation, such as
nextval('s.seq'). Not followed: the body of a function, which is text until it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import postgast

from vedur.change.parsetree import messages
from vedur.errors import UsageError
from vedur.names import QualifiedName, parse_name

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

Renames = Mapping[QualifiedName, QualifiedName]


def rename_tables(script: str, renames: Mapping[str, str]) -> str:
    """The script with the relations of `renames` (contract names) called by their local names."""
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
    changed = False
    for node in messages(root):
        kind = type(node).__name__
        handler = _HANDLERS.get(kind)
        if handler and handler(node, renames):
            changed = True
    return changed


def _range_var(node: Any, renames: Renames) -> bool:
    new = renames.get(QualifiedName(node.schemaname or "public", node.relname))
    if new is None:
        return False
    node.schemaname, node.relname = new.schema, new.name
    return True


def _strings(items: Any) -> list[Any] | None:
    """The String nodes of a list, or None if it holds anything else."""
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


def _column_ref(node: Any, renames: Renames) -> bool:
    # schema.table.column only: with fewer parts it may be an alias, and RangeVar decides
    last_is_star = bool(node.fields) and node.fields[-1].HasField("a_star")
    head = node.fields[:-1] if last_is_star else node.fields
    strings = _strings(head)
    if strings is None or len(strings) != (2 if last_is_star else 3):
        return False
    new = renames.get(QualifiedName(strings[0].sval, strings[1].sval))
    if new is None:
        return False
    strings[0].sval, strings[1].sval = new.schema, new.name
    return True


def _func_call(node: Any, renames: Renames) -> bool:
    names = _strings(node.funcname)
    if not names or names[-1].sval not in _REGCLASS_FUNCTIONS or not node.args:
        return False
    first = node.args[0]
    if first.HasField("type_cast"):
        first = first.type_cast.arg
    if not first.HasField("a_const") or not first.a_const.HasField("sval"):
        return False
    text = first.a_const.sval.sval
    if '"' in text or not text or text.count(".") > 1:
        return False
    new = renames.get(parse_name(text))
    if new is None:
        return False
    first.a_const.sval.sval = new.quoted
    return True


def _def_elem(node: Any, renames: Renames) -> bool:
    # alter sequence ... owned by schema.table.column
    if node.defname != "owned_by" or not node.arg.HasField("list"):
        return False
    return _name_list(node.arg.list.items, renames, extra=1)


_HANDLERS = {
    "RangeVar": _range_var,
    "DropStmt": _drop,
    "CommentStmt": _comment,
    "ColumnRef": _column_ref,
    "FuncCall": _func_call,
    "DefElem": _def_elem,
}
