"""A script as one node runs it: whether it belongs there, and its statements in the node's names.

The same answer serves the root that starts a script, the workers that replay it, and the
operator who only wants to see it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database
from vedur.script.attrs import ScriptAttrs, matches
from vedur.script.rename import rename_tables
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
