"""Whose a row is, where tables of several sets bring rows to one local table.

Conditions can tell, or a column that this node alone has and each part fills with its own value:
each of these tables, the parts, must have one or the other, and no row may belong to two. What
would touch the rows of one part alone (resync, compare, repair, a TRUNCATE) asks for that first. A
handler's condition does not count: it is the same for all parts of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from vedur.change.attrs import COPY_CONDITION, decode_attrs
from vedur.db import Database
from vedur.errors import DatabaseError, VedurError
from vedur.names import parse_name, quote_ident
from vedur.sql import query
from vedur.tables.filter import written
from vedur.tables.mapping import PartColumn

#: unique_violation and exclusion_violation
_TAKEN = frozenset(("23505", "23P01"))

E = TypeVar("E", bound=VedurError)


def why_untold(db: Database, dest: str) -> str:
    """Say why the rows of the parts of a local table (its name in the contract's form) cannot be
    told apart; empty if they can, or if there is one part only. Reads the table."""
    found: dict[str, str | None] = {}
    for row in db.query(query("catalog", "parts"), [dest]):
        who = f'table "{row.table_name}" of queue "{row.queue_name}"'
        found[who] = told_by(row)
    if len(found) < 2:
        return ""
    for who, condition in found.items():
        if condition is None:
            return (
                f"{who} has no condition (--where) and no part column (--part-column) that tells "
                "its rows from those of the others"
            )
    words = {
        "dest": parse_name(dest).quoted,
        "sum": " + ".join(f"coalesce(({c}\n)::int, 0)" for c in found.values()),
    }
    if db.query(query("catalog", "in_two_parts").format(**words))[0][0]:
        return (
            f"a row fulfils the conditions of two of them ({', '.join(found)}): give them "
            "conditions of which no row fulfils two (change-filter)"
        )
    return ""


def told_by(part: Any, alias: str = "t") -> str | None:
    """Return what the rows of a part fulfil, as SQL, None where nothing tells them; `part` is a row
    of statement `parts`. Pure."""
    attrs = decode_attrs(part.table_attrs)
    column = PartColumn.read(attrs, part.queue_name)
    if column is not None:
        return column.condition(alias)
    return written(attrs.get(COPY_CONDITION), alias=alias)


def name_conflict(db: Database, dest: str, error: E, key: Mapping[str, str] | None = None) -> E:
    """Read whose row is in the way of another's; returns the same error, with these parts named.

    `key`: the row by the names of its columns here. Conditions tell whose the row is that is there;
    without them all that may have brought it are named.
    """
    if not isinstance(error, DatabaseError) or error.sqlstate not in _TAKEN:
        return error
    parts = db.query(query("catalog", "parts"), [dest])
    if len(parts) < 2:
        return error
    named = [f'"{row.queue_name}" (node "{row.provider_node}")' for row in parts]
    owners = [
        name
        for name, row in zip(named, parts, strict=True)
        if key and _has_row(db, dest, key, told_by(row))
    ]
    said = f"{dest} has rows of several queues, {', '.join(named)}"
    if owners:
        said += f", and the row that is there belongs to {', '.join(owners)}"
    return error.with_values(f"{error.message}; a key of one part is in another's way: {said}")


def _has_row(db: Database, dest: str, key: Mapping[str, str], condition: str | None) -> bool:
    """Has the table a row with this key that fulfils a condition?"""
    if condition is None:
        return False
    words = {
        "dest": parse_name(dest).quoted,
        "match": " and ".join(f"t.{quote_ident(name)}::text = %s" for name in key),
        "condition": condition.replace("%", "%%"),
    }
    text = query("catalog", "part_has_row").format(**words)
    return bool(db.query(text, list(key.values()))[0][0])
