"""Which tables the statements of a script may read or change, as far as their text tells; pure.

Asked where a table does not stand at the script's place in the stream (a first copy), so every
doubt counts as a yes. Only statements that touch no rows but those of the tables that they name are
read for names. Whatever may run other code (DO, functions, triggers and foreign keys behind an
UPDATE, CASCADE), and whatever the parser does not know, may reach any table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import postgast

from vedur.names import QualifiedName
from vedur.script.parse_tree import messages

#: Statements that touch the rows of no table.
NONE = frozenset(
    {
        "alter_default_privileges_stmt",
        "alter_owner_stmt",
        "alter_seq_stmt",
        "comment_stmt",
        "create_enum_stmt",
        "create_function_stmt",
        "create_policy_stmt",
        "create_role_stmt",
        "create_seq_stmt",
        "create_trig_stmt",
        "grant_role_stmt",
        "grant_stmt",
        "variable_set_stmt",
        "view_stmt",
    }
)
#: Statements that touch the tables that they name, and no others.
NAMED = frozenset(
    {
        "alter_object_schema_stmt",
        "alter_table_stmt",
        "create_stmt",
        "drop_stmt",
        "index_stmt",
        "rename_stmt",
    }
)
#: Functions of PostgreSQL that stand in defaults and indexes, and touch no table.
_HARMLESS = frozenset(
    {
        "clock_timestamp",
        "date_trunc",
        "gen_random_uuid",
        "length",
        "lower",
        "md5",
        "nextval",
        "now",
        "random",
        "statement_timestamp",
        "timezone",
        "transaction_timestamp",
        "upper",
    }
)


@dataclass
class Touched:
    """Tables by name; those without a schema may be in any. `everything`: nobody can say."""

    everything: bool = False
    names: set[tuple[str, str]] = field(default_factory=set)

    def reaches(self, tables: Iterable[QualifiedName]) -> bool:
        """May one of these tables be touched?"""
        if self.everything:
            return True
        return any((s, t.name) in self.names for t in tables for s in ("", t.schema))


def read_touched(statements: Sequence[str]) -> Touched:
    """Read which tables statements may touch, by the names that stand in them."""
    found = Touched()
    for statement in statements:
        try:
            tree = postgast.parse(statement)
        except postgast.PgQueryError:  # newer than the parser
            return Touched(everything=True)
        for raw in tree.stmts:
            _read(raw.stmt, found)
    return found


def _read(statement: Any, found: Touched) -> None:
    kind = statement.WhichOneof("node")
    if kind in NONE:
        return
    inner = getattr(statement, kind)
    if kind not in NAMED or _goes_further(kind, inner):
        found.everything = True
        return
    for node in messages(inner):
        if type(node).__name__ == "RangeVar":
            found.names.add((node.schemaname, node.relname))
    if kind == "drop_stmt":  # by lists of strings, whatever it is that is dropped
        found.names.update(("", node.sval) for node in messages(inner) if _is_string(node))


def _goes_further(kind: str, inner: Any) -> bool:
    """Does a statement reach what it does not name: by CASCADE, a type, a function?"""
    if kind == "drop_stmt" and _enum(inner, "behavior") == "DROP_CASCADE":
        return True
    if kind in ("alter_object_schema_stmt", "rename_stmt") and not inner.HasField("relation"):
        return True
    return any(name not in _HARMLESS for name in _functions(inner))


def _functions(inner: Any) -> Iterator[str]:
    """Yield the functions that are called, by their bare names unless they are said to be
    elsewhere."""
    for node in messages(inner):
        if type(node).__name__ == "FuncCall":
            names = [part.string.sval for part in node.funcname]
            yield names[-1] if names[:-1] in ([], ["pg_catalog"]) else ".".join(names)


def _is_string(node: Any) -> bool:
    return type(node).__name__ == "String"


def _enum(message: Any, name: str) -> str:
    values = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number
    return str(values[getattr(message, name)].name)
