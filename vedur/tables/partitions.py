"""The partitions of a table: read, made like another's, compared with another's.

A node may have other partitions than its provider, or none: rows go where they belong there. What
matters is that every row of the provider has a place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from vedur.db import Database
from vedur.names import QualifiedName
from vedur.sql import query
from vedur.tables.structure import qualified_names

_DEFAULT = "DEFAULT"
_MODULUS = re.compile(r"modulus (\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Partition:
    """One partition; `key` is how it is partitioned itself, None for one that holds rows.

    `own` are statements that make what it has and its parent has not.
    """

    table: QualifiedName
    parent: QualifiedName
    bound: str
    key: str | None
    options: tuple[str, ...]
    own: tuple[str, ...]


def read_partitions(db: Database, table: QualifiedName) -> tuple[Partition, ...]:
    """Read the partitions of a table, each after its parent; none if it is not partitioned."""
    with qualified_names(db):
        rows = db.query(query("catalog", "partitions"), [table.schema, table.name])
    return tuple(
        Partition(
            QualifiedName(row.schema, row.name),
            QualifiedName(row.parent_schema, row.parent_name),
            row.bound,
            row.partition_key,
            tuple(row.options or ()),
            tuple(row.own),
        )
        for row in rows
    )


def create_partitions(
    parts: Sequence[Partition], source: QualifiedName, dest: QualifiedName, *, full: bool
) -> Iterator[str]:
    """Yield statements that make the partitions of `source` for `dest`, under their own names.

    With `full` also their own constraints and indexes; those of the parent come by themselves.
    """
    for part in parts:
        parent = dest if part.parent == source else part.parent
        key = f" partition by {part.key}" if part.key else ""
        options = f" with ({', '.join(part.options)})" if part.options else ""
        yield (
            f"create table {part.table.quoted} partition of {parent.quoted} "
            f"{part.bound}{key}{options}"
        )
        if full:
            yield from part.own


def partition_differences(
    source: tuple[str | None, Sequence[Partition]], local: tuple[str | None, Sequence[Partition]]
) -> tuple[list[str], list[str]]:
    """Say what the layouts of two tables differ in, one sentence each: partitions whose rows have
    no place here, and what is allowed. A layout is the partition key (None for a plain table) and
    the partitions. Partitions that exist here only are no difference."""
    found = list(_level((), _tree(*source), _tree(*local)))
    return [text for text, bad in found if bad], [text for text, bad in found if not bad]


@dataclass(frozen=True)
class _Level:
    """How one table of the tree is partitioned: its key, and its partitions by bounds."""

    key: str | None
    parts: dict[str, Partition]


_Tree = dict[tuple[str, ...], _Level]


def _tree(key: str | None, parts: Sequence[Partition]) -> _Tree:
    """Return the levels of a layout by the bounds that lead there."""
    found: _Tree = {(): _Level(key, {})}
    paths: dict[QualifiedName, tuple[str, ...]] = {}
    for part in parts:
        above = paths.get(part.parent, ())
        found[above].parts[part.bound] = part
        paths[part.table] = (*above, part.bound)
        found[paths[part.table]] = _Level(part.key, {})
    return found


def _level(path: tuple[str, ...], there: _Tree, here: _Tree) -> Iterator[tuple[str, bool]]:
    """Yield differences of one table of the tree and of all below it; True with what is missing."""
    theirs, mine = there[path], here[path]
    if theirs.key != mine.key:
        where = f" of partition {path[-1]}" if path else ""
        text = f"the layout{where} is other: {_by(theirs.key)} on provider, {_by(mine.key)} here"
        yield text, False
        return
    whole = _DEFAULT in mine.parts or _all_remainders(mine.parts)
    # bounds of its own may hold the same rows; where all are the provider's, nothing else does
    own = any(bound not in theirs.parts for bound in mine.parts)
    for bound, part in theirs.parts.items():
        if bound in mine.parts:
            yield from _level((*path, bound), there, here)
        elif not whole and own:
            yield (
                f"partition {part.table} ({bound}) is not here, others have their own bounds",
                False,
            )
        elif not whole:
            yield f"partition {part.table} ({bound}) is missing here", True


def _by(key: str | None) -> str:
    return f"partitioned by {key}" if key else "not partitioned"


def _all_remainders(bounds: Iterable[str]) -> bool:
    """Do partitions by hash take every row?"""
    found = [_MODULUS.search(bound) for bound in bounds]
    return sum(Fraction(1, int(match[1])) for match in found if match) == 1
