"""TRUNCATE that never reaches a table which was not truncated at the provider."""

from __future__ import annotations

from collections.abc import Sequence

from vedur.db import Database
from vedur.errors import StateError
from vedur.sql import query
from vedur.tables.mapping import TableSpec
from vedur.tables.part_rows import why_untold


def truncate(db: Database, spec: TableSpec) -> None:
    """Empty one table."""
    truncate_together(db, [spec])


def truncate_together(db: Database, specs: Sequence[TableSpec]) -> None:
    """Empty tables; those that others reference are truncated only in the others' company.

    The server refuses to truncate a referenced table, and CASCADE would empty tables that are
    nobody's business here. A delete in replica role does the same without either.
    """
    shared = [spec for spec in specs if _shared(db, spec)]
    for spec in shared:
        _empty_part(db, spec)
    left = {spec.dest: spec for spec in specs if spec not in shared}
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


def _shared(db: Database, spec: TableSpec) -> bool:
    """Has the table rows of others, too?"""
    # The cursor waits for its row also inside a pipeline, where a truncate among other events is.
    rows = db.raw.execute(query("catalog", "sharing"), {"dest": spec.dest}).fetchall()
    return len(rows) > 1  # itself, and others


def _empty_part(db: Database, spec: TableSpec) -> None:
    """Remove the rows of one of several tables that come together."""
    why = why_untold(db, spec.home)
    if why or not spec.condition:
        why = why or "no condition (--where) tells them apart"
        parts = db.query(query("catalog", "parts"), [spec.home])
        if combined := next((p.combined_queue for p in parts if p.combined_queue), None):
            raise StateError(
                f"TRUNCATE would empty {spec.dest}, which has rows of other tables, too, and "
                f"{why}: delete what should go, here and on every node below combined queue "
                f'"{combined}" (in the role of a replica, so that it gets into no queue), then '
                "skip the event, which nodes below do not get"
            )
        raise StateError(
            f"TRUNCATE would empty {spec.dest}, which has rows of other tables, too, and {why}: "
            "delete what should go, then skip the event; to let every TRUNCATE pass by, give the "
            "table a handler with ignore_truncate (change-handler --handler=londiste "
            "--handler-arg=ignore_truncate=1)"
        )
    words = {"only": spec.only, "dest": spec.dest, "condition": spec.condition}
    db.execute(query("replay", "truncate_part").format(**words))


def _referencing(db: Database, dest: str) -> set[str]:
    return {row.from_table for row in db.query(query("replay", "referencing"), [dest])}
