"""A script as one node runs it: whether it belongs there, and its statements in the node's names.

The same answer serves the root that starts a script, the workers that replay it, and the
operator who only wants to see it.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedur.catalog.script import without_transaction
from vedur.catalog.script_attrs import ScriptAttrs, matches
from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import get_table_list
from vedur.change.rename import rename_tables
from vedur.db import Database


@dataclass(frozen=True)
class ScriptHere:
    """`fits` is None where only some of the script's conditions are met."""

    fits: bool | None
    statements: tuple[str, ...] = ()


def script_here(db: Database, queue: str, script: str, attrs: ScriptAttrs) -> ScriptHere:
    """What the node of `db` runs for a script; reads the catalogs only."""
    tables = {t.table_name: t.dest_table for t in get_table_list(db, queue) if t.local}
    sequences = {s.seq_name for s in get_seq_list(db, queue) if s.local}
    fits = matches(db, attrs, tables, sequences)
    if not fits:
        return ScriptHere(fits)
    text = attrs.substitute(script, tables, sequences)
    renames = {old: new for old, new in tables.items() if old != new}
    return ScriptHere(True, without_transaction(rename_tables(text, renames)))
