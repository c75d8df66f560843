"""TRUNCATE that never reaches a table which was not truncated at the provider."""

from __future__ import annotations

from collections.abc import Sequence

from vedur.change.condition import written
from vedur.change.table import TableSpec
from vedur.db import Database
from vedur.sql import query


def truncate(db: Database, spec: TableSpec) -> None:
    """Empty one table."""
    truncate_together(db, [spec])


def truncate_together(db: Database, specs: Sequence[TableSpec]) -> None:
    """Empty tables; those that others reference are truncated only in the others' company.

    The server refuses to truncate a referenced table, and CASCADE would empty tables that are
    nobody's business here. A delete in replica role does the same without either.
    """
    left = {spec.dest: spec for spec in specs}
    for spec in specs:
        if spec.condition and _shared(db, spec.dest):
            # its own rows only: others bring theirs to the same table
            del left[spec.dest]
            text = query("replay", "truncate_part").format(
                only=spec.only, dest=spec.dest, condition=written(spec.condition, alias="t")
            )
            db.execute(text)
    references = {d: _referencing(db, d) for d in left}
    by_delete: list[TableSpec] = []
    while True:
        blocked = [d for d in left if not references[d] <= set(left)]
        if not blocked:
            break
        by_delete += [left.pop(d) for d in blocked]
    if left:
        # One command: the server accepts references among the tables named together.
        names = [f"{s.only} {s.dest}" for s in left.values()]
        db.execute(query("replay", "truncate").format(tables=", ".join(names)))
    for spec in by_delete:
        db.execute(query("replay", "truncate_by_delete").format(only=spec.only, dest=spec.dest))


def _referencing(db: Database, dest: str) -> set[str]:
    return {row.from_table for row in db.query(query("replay", "referencing"), [dest])}


def _shared(db: Database, dest: str) -> bool:
    return int(db.value(query("replay", "sharing"), [dest])) > 1
