"""Is a table of the provider still what the snapshot of a copy saw?

No lock keeps the production's DDL away during a copy of hours. So what was rewritten meanwhile is
noticed instead: a rewrite (ALTER TABLE, VACUUM FULL, CLUSTER, and TRUNCATE) gives a table another
file, a table in the place of another has another number, and partitions come and go. Then rows of
the snapshot may have been passed over or read twice, and the copy of the table begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vedur.db import Database
from vedur.errors import TableChanged
from vedur.names import QualifiedName
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.copy.plan import TableCopy


def read_shape(db: Database, name: QualifiedName, columns: Sequence[str]) -> dict[int, str]:
    """Read what a table on the provider is made of as the transaction sees it, part by part."""
    return read_shapes(db, [(name, columns)])[0]


def read_shapes(
    db: Database, tables: Sequence[tuple[QualifiedName, Sequence[str]]]
) -> list[dict[int, str]]:
    """Read what several tables with these columns are made of, as `read_shape`."""
    parts = _parts(db, tables)
    return [{oid: made_of for oid, _, made_of in of_table} for of_table in parts]


def unchanged(db: Database, plan: TableCopy) -> bool:
    """Compare the table of now with what the snapshot saw; `db` sees the present.

    Columns that are not copied do not count, nor does a partition that came after the snapshot if
    a trigger has seen all its rows: such partitions come every hour somewhere.
    """
    assert plan.source is not None
    now = _parts(db, [(plan.source, plan.columns)])[0]
    seen = plan.shape
    known = {oid: made_of for oid, _, made_of in now if oid in seen}
    return known == seen and all(
        _is_harmless(db, oid, parent, seen) for oid, parent, _ in now if oid not in seen
    )


def unchanged_together(db: Database, plans: Mapping[str, TableCopy]) -> set[str]:
    """Compare plain tables of now with what the snapshot saw, as `unchanged`; returns the names of
    those that are the same."""
    tables = [(plan.source or plan.dest, plan.columns) for plan in plans.values()]
    now = read_shapes(db, tables)
    return {
        name for (name, plan), shape in zip(plans.items(), now, strict=True) if shape == plan.shape
    }


def changed(table: str) -> TableChanged:
    """Say why the rows of a copy cannot be trusted."""
    return TableChanged(
        f'table "{table}" was rewritten, altered or truncated on the provider since its copy '
        "began: its copy begins anew"
    )


def _parts(
    db: Database, tables: Sequence[tuple[QualifiedName, Sequence[str]]]
) -> list[list[tuple[int, int, str]]]:
    asked = {
        "schemas": [name.schema for name, _ in tables],
        "names": [name.name for name, _ in tables],
        "columns": json.dumps([list(columns) for _, columns in tables]),
    }
    found: list[list[tuple[int, int, str]]] = [[] for _ in tables]
    for row in db.query(query("copy", "shape"), asked):
        found[row.nr - 1].append((row.oid, row.parent, row.made_of))
    return found


def _is_harmless(db: Database, oid: int, parent: int, seen: Mapping[int, str]) -> bool:
    """Has a new partition no rows from before it came into its place?

    It is empty, or it was made in its place: by the transaction that put it there, without rows.
    """
    part = db.one(query("copy", "new_part"), [oid])
    if part is None:
        return False  # a foreign table, or gone again
    if part.divided or part.empty:
        return True
    if part.made_by is None or parent not in seen:
        return False
    text = query("copy", "filled_when_made").format(name=part.name, made_by=part.made_by)
    return not db.value(text)
