"""The columns of two tables put together, by name or by the node's column list.

Copy and compare match columns by the one rule that is here. What they do with the pairs differs:
copy leaves out columns that the target generates, and asks whether values can go in binary; compare
looks at generated columns too, and asks what the text of a value looks like on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vedur.db import Database
from vedur.errors import StateError
from vedur.names import QualifiedName
from vedur.sql import query
from vedur.tables.filter import Columns
from vedur.tables.mapping import PartColumn, TableMap

_LENGTH = re.compile(r"\([^)]*\)")
#: By these bare names SQL means one character, one bit.
_FIXED = re.compile(r"^(character|bit)(?! varying)")
_WITHOUT_LENGTH = {"character": "bpchar", "bit": "bit varying"}
_MOMENT = "timestamp without time zone"
#: Types that read a moment without a zone the same, written with a space or with a T.
_READ_MOMENTS = frozenset((_MOMENT, "date"))
_ZONED_MOMENT = "timestamp with time zone"


def without_length(kind: str) -> str:
    """Return a type as SQL writes it without its length: timestamp(3) with time zone has it in
    the middle."""
    return _LENGTH.sub("", kind)


def unbounded(kind: str) -> str:
    """Return a type without its length: a cast to varchar(3) would cut a longer value in silence,
    where the assignment to the column refuses it."""
    if '"' in kind:
        return kind
    return _FIXED.sub(lambda found: _WITHOUT_LENGTH[found[0]], without_length(kind))


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalog of one side describes it.

    `type` is its type as SQL writes it, of a domain the base type, and `builtin` says that the
    server brought it along; `type_oid` is the declared type, and `plain` allows its binary form.
    `zoned` and `naming`: its text depends on the time zone, or on the search path, of a session.
    """

    name: str
    type: str
    generated: bool = False
    builtin: bool = True
    type_oid: int = 0
    plain: bool = False
    zoned: bool = False
    naming: bool = False

    @property
    def bare_type(self) -> str:
        """Its type without a length."""
        return without_length(self.type)


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """One column on both sides."""

    source: Column
    target: Column


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """The columns of two tables: those of both in the provider's order, and names of the others.

    Columns of the provider that a column list leaves out are in none of them.
    """

    pairs: tuple[ColumnPair, ...]
    only_source: tuple[str, ...]
    only_target: tuple[Column, ...]


def read_columns(db: Database, table: QualifiedName) -> list[Column]:
    """Read the columns of a table in order, none if there is no such table.

    Types that the search path does not reach are written with their schemas.
    """
    return read_columns_of(db, [table])[0]


def read_columns_of(db: Database, tables: Sequence[QualifiedName]) -> list[list[Column]]:
    """Read the columns of each of several tables, as `read_columns`."""
    names = [[table.schema for table in tables], [table.name for table in tables]]
    found: list[list[Column]] = [[] for _ in tables]
    for r in db.query(query("catalog", "columns"), names):
        found[r.nr - 1].append(
            Column(r.name, r.type, r.generated, r.builtin, r.type_oid, r.plain, r.zoned, r.naming)
        )
    return found


def read_unique_keys(db: Database, table: QualifiedName) -> list[tuple[str, ...]]:
    """Read the column sets of a table's valid and total unique indexes."""
    return read_unique_keys_of(db, [table])[0]


def read_unique_keys_of(
    db: Database, tables: Sequence[QualifiedName]
) -> list[list[tuple[str, ...]]]:
    """Read the same of each of several tables."""
    names = [[table.schema for table in tables], [table.name for table in tables]]
    found: list[list[tuple[str, ...]]] = [[] for _ in tables]
    for row in db.query(query("catalog", "unique_columns"), names):
        found[row.nr - 1].append(tuple(row.columns))
    return found


def read_keys(db: Database, table: QualifiedName) -> list[tuple[str, ...]]:
    """Read the column sets that are unique and never null, the primary key first: that is what
    changes name rows by."""
    rows = db.query(query("catalog", "unique_keys"), [table.quoted])
    return [tuple(r.columns) for r in rows]


def match_columns(
    source: Sequence[Column], target: Sequence[Column], chosen: Columns | None = None
) -> ColumnMatch:
    """Match columns of the provider with those here: all by their names, or those of the list."""
    names = {c.name: c.name for c in source} if chosen is None else dict(chosen)
    here = {c.name: c for c in target}
    wanted = [c for c in source if c.name in names]
    pairs = tuple(ColumnPair(c, here[names[c.name]]) for c in wanted if names[c.name] in here)
    matched = {pair.target.name for pair in pairs}
    return ColumnMatch(
        pairs,
        tuple(c.name for c in wanted if names[c.name] not in here),
        tuple(c for c in target if c.name not in matched),
    )


def without_part_column(
    table: TableMap, source: Sequence[Column], target: Sequence[Column]
) -> list[Column]:
    """Return the columns of the target without the one that tells the part; raises StateError where
    it is not there, or where the provider has one of its name."""
    if table.part is None:
        return list(target)
    name = table.part.name
    rest = [column for column in target if column.name != name]
    incoming = dict(table.columns or ((column.name, column.name) for column in source))
    if len(rest) == len(target) or name in incoming.values():
        where = "is no column here" if len(rest) == len(target) else "comes from the provider, too"
        raise StateError(
            f'table "{table.dest}": its part column "{name}" {where}: it must be a column that '
            "this node alone has"
        )
    return rest


def part_constants(part: PartColumn, kind: str) -> dict[str, str]:
    """Return what every new row of a part has beside its own columns: the column that tells it, and
    its value as SQL. A value that is too long for the column is refused when it is stored."""
    return {part.name: f"{part.literal}::{unbounded(kind)}"}


def unsteady_value(pair: ColumnPair) -> str | None:
    """Say why an event would not bring what a copy brings; None where both bring the same.

    A type whose text depends on the session, or on the format of the event, keeps its values only
    where the other side has the same type, which reads all of these texts alike.
    """
    there, here = pair.source, pair.target
    # a server with quote_all_identifiers writes "date"
    theirs, mine = (column.bare_type.replace('"', "") for column in (there, here))
    same = theirs == mine or not (there.builtin or here.builtin)
    if here.generated or same:  # types of users are the operator's business
        return None
    if there.zoned:
        reason = "its text depends on the time zone of the session that writes it"
    elif there.naming:
        reason = "its text depends on the search path of the session that writes it"
    elif theirs == _MOMENT and mine == _ZONED_MOMENT:
        reason = "which moment it is would depend on the time zone of the session that reads it"
    elif theirs == _MOMENT and mine not in _READ_MOMENTS:
        reason = "events write it with a T, a copy with a space"
    else:
        return None
    return (
        f'column "{here.name}" is {there.type} on the provider and {here.type} here, and {reason}: '
        f'give it the same type here (alter table ... alter column "{here.name}" type ...), or '
        "leave it out (--columns)"
    )


def unsteady_values(match: ColumnMatch) -> str | None:
    """Say why the first such column of a table cannot be replicated; None where all can."""
    return next((reason for pair in match.pairs if (reason := unsteady_value(pair))), None)
