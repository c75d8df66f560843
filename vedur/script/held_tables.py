"""Which relations nobody else may write to while a script runs, as far as it names them; pure.

A script takes its place in the stream when it has run. What others write meanwhile, to rows that
the script has read or passed over, would come before the script on other nodes, and came after it
here. So the relations that the statements read rows of, or write rows to, are locked against
writers before the first statement.

Two kinds of relations wait until the script has come to them: those that an earlier statement of
it locks in a stronger way (taking the weaker lock first would be asking for a deadlock), and those
that it makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import postgast

from vedur.names import QualifiedName
from vedur.script.parse_tree import children, messages
from vedur.script.touched import NAMED, NONE

#: Schema (or nothing, for any) and name.
Relation = tuple[str, str]

#: Statements that read and write no rows, or take the lock that they need on what they name.
_LOCK_THEMSELVES = (
    NONE
    | NAMED
    | {
        "alter_policy_stmt",
        "alter_stats_stmt",
        "cluster_stmt",
        "create_stats_stmt",
        "lock_stmt",
        "reindex_stmt",
        "rule_stmt",
        "truncate_stmt",
        "vacuum_stmt",  # ANALYZE
    }
)
#: What may be the name of a relation in the text of a DO block.
_WORD = re.compile(r"[^\W\d][\w$]*")


def relations_to_hold(
    statements: Sequence[str], header: Iterable[QualifiedName] = ()
) -> tuple[frozenset[Relation], ...]:
    """Return, for each statement, what is to be locked before it; `header` has the relations that
    the script's attributes name. A statement that our parser does not know names nothing."""
    plan: list[frozenset[Relation]] = []
    first: set[Relation] = {(name.schema, name.name) for name in header}
    locked: set[Relation] = set()
    for statement in statements:
        rows, own = _read(statement)
        first.update(r for r in rows if not any(_same(r, other) for other in locked))
        plan.append(frozenset(rows) if locked else frozenset())
        locked |= own
    return (frozenset(first), *plan[1:]) if plan else ()


def _read(statement: str) -> tuple[set[Relation], set[Relation]]:
    """Return the relations whose rows a statement reads or writes, and those that it locks."""
    rows: set[Relation] = set()
    own: set[Relation] = set()
    try:
        tree = postgast.parse(statement)
    except postgast.PgQueryError:  # newer than the parser
        return rows, own
    for raw in tree.stmts:
        kind = raw.stmt.WhichOneof("node")
        inner = getattr(raw.stmt, kind)
        names = _named(inner)
        if kind == "do_stmt":
            rows |= _words(inner)
        elif kind == "insert_stmt" and not inner.HasField("on_conflict_clause"):
            # new rows alone: a key that another session writes is waited for as it is
            rows |= {name for _, child in _beside_target(inner) for name in _named(child)}
        elif kind not in _LOCK_THEMSELVES:
            rows |= names
        else:
            own |= names
    return rows, own


def _beside_target(insert: Any) -> Iterator[tuple[str, Any]]:
    return (found for found in children(insert) if found[0] != "relation")


def _named(inner: Any) -> set[Relation]:
    found = {
        (node.schemaname, node.relname)
        for node in messages(inner)
        if type(node).__name__ == "RangeVar"
    }
    if type(inner).__name__ == "DropStmt":  # by lists of strings, whatever it is that is dropped
        found |= {("", node.sval) for node in messages(inner) if type(node).__name__ == "String"}
    return found


def _words(inner: Any) -> set[Relation]:
    """Return all words of a DO block, as they stand and as they are folded: it is text until it
    runs, and a lock too many does no harm."""
    found: set[Relation] = set()
    for node in messages(inner):
        if type(node).__name__ == "String":
            for word in _WORD.findall(node.sval):
                found |= {("", word), ("", word.lower())}
    return found


def _same(one: Relation, other: Relation) -> bool:
    return one[1] == other[1] and (one[0] == other[0] or not one[0] or not other[0])
