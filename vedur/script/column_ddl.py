"""DDL of a table for a node that takes some of its columns, perhaps under other names; pure.

Names are changed in the parse tree, made by PostgreSQL's own parser. A statement that mentions
none of the renamed columns keeps its text to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import postgast

from vedur.errors import UsageError
from vedur.script.parse_tree import messages


class _Unknown(Exception):
    """A column that does not come along."""


def rename_columns(
    statement: str,
    names: Mapping[str, str] | None,
    referenced: Mapping[str, str] | None = None,
) -> str | None:
    """Return the statement with columns called by `names`; None if it needs one that is not in
    them.

    `referenced` are the columns of the table that a foreign key points to. A mapping that is None
    has all columns as they are.
    """
    try:
        tree = postgast.parse(statement)
    except postgast.PgQueryError as error:
        raise UsageError(f"definition cannot be parsed: {error}: {statement}") from None
    try:
        changed = [_rename(node, names, referenced) for node in messages(tree)]
    except _Unknown:
        return None
    return postgast.deparse(tree) if any(changed) else statement


def _rename(
    node: Any, names: Mapping[str, str] | None, referenced: Mapping[str, str] | None
) -> bool:
    kind = type(node).__name__
    if kind == "ColumnRef" and node.fields and node.fields[-1].HasField("string"):
        return _strings(node.fields[-1:], names)
    if kind == "IndexElem" and node.name:
        old, node.name = node.name, _new(node.name, names)
        return bool(old != node.name)
    if kind == "Constraint":
        lists = [_strings(items, names) for items in (node.keys, node.including, node.fk_attrs)]
        lists.append(_strings(node.pk_attrs, referenced))
        return any(lists)
    return False


def _strings(items: Any, names: Mapping[str, str] | None) -> bool:
    changed = False
    for item in items:
        old, item.string.sval = item.string.sval, _new(item.string.sval, names)
        changed |= bool(old != item.string.sval)
    return changed


def _new(name: str, names: Mapping[str, str] | None) -> str:
    if names is None:
        return name
    if name not in names:
        raise _Unknown(name)
    return names[name]
