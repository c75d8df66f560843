"""Can this condition, or this column list, be kept? Asked before anything is stored.

The parser says what a condition looks at, both servers say whether they understand it, and the
target says whether its answer depends on the row alone: it tries to make a partial index of it on
an empty temporary table, which PostgreSQL allows for just such conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from vedur.db import Database
from vedur.errors import DatabaseError, UsageError, first_line
from vedur.names import QualifiedName
from vedur.sql import query
from vedur.tables.filter import Condition, parse_condition
from vedur.tables.mapping import TableMap
from vedur.tables.structure import Structure

log = logging.getLogger(__name__)

#: What PostgreSQL answers to a partial index whose condition may change its mind.
_NOT_IMMUTABLE = "42P17"
_NO_RIGHT = "42501"


class _Undo(Exception):
    """Leaves nothing behind of a try."""


@dataclass(frozen=True)
class TableAt:
    """A table as one database has it; `db` is open."""

    db: Database
    structure: Structure

    @property
    def name(self) -> QualifiedName:
        """What it is called there."""
        return self.structure.table


def require_columns(table: TableMap, provider: Structure) -> None:
    """Raise unless the provider has all columns of the list, and the list has the key."""
    if table.columns is None:
        return
    known = [column.name for column in provider.columns]
    lacking = [source for source, _ in table.columns if source not in known]
    if lacking:
        raise UsageError(
            f'table "{table.name}" has no column {_listed(lacking)} on the provider: '
            f"it has {_listed(known)}"
        )
    key = [name for name in provider.key if name not in dict(table.columns)]
    if key:
        raise UsageError(
            f'the column list of table "{table.name}" lacks {_listed(key)}: changes find their '
            f"rows by the key ({', '.join(provider.key)}), so it must come along"
        )


def require_local_columns(table: TableMap, local: Structure) -> None:
    """Raise unless the table here has all columns of the list and can do without any others."""
    if table.columns is None:
        return
    known = [column.name for column in local.columns]
    lacking = [here for _, here in table.columns if here not in known]
    if lacking:
        raise UsageError(
            f'table "{local.table}" has no column {_listed(lacking)} here: it has '
            f"{_listed(known)}; add it, or give another name as {lacking[0]}=NAME"
        )
    filled = {here for _, here in table.columns}
    if table.part is not None:
        filled.add(table.part.name)
    for column in local.columns:
        free = column.default is not None or column.identity or column.generated
        if column.name not in filled and column.not_null and not free:
            raise UsageError(
                f'column "{column.name}" of table "{local.table}" is NOT NULL without a default '
                f'and not in the column list of "{table.name}": rows without it cannot be stored'
            )


def require_condition(
    table: TableMap, here: TableAt, there: TableAt, *, force: bool = False, vouched: bool = False
) -> Condition:
    """Raise unless both servers understand the table's condition and it depends on the row alone.

    Asks both servers and leaves nothing behind. `force` accepts a condition whose answer can change
    without a change of the row; `vouched`: a handler says that it cannot.
    """
    text, local, remote = table.condition or "", here.structure, there.structure
    condition = parse_condition(text, {local.table.name, remote.table.name})
    names = {c.name: c.name for c in remote.columns}
    if table.columns is not None:
        names = dict(table.columns)
    usable = [names[c.name] for c in remote.columns if c.name in names]
    usable = [name for name in usable if local.column(name) is not None]
    unknown = [name for name in condition.columns if name not in usable]
    if unknown:
        raise UsageError(
            f'condition "{text}" of table "{local.table}" names {_listed(unknown)}: it can look '
            f"at the columns that come here, {_listed(usable)}"
        )
    _require_captured(table, condition, local, there)
    _try(here.db, here.name, condition.written(alias="t"), text)
    _try(there.db, there.name, condition.written(table.source_columns, "t"), text)
    if not vouched:
        _require_stable(here.db, here.name, condition, force)
    return condition


def _require_captured(
    table: TableMap, condition: Condition, local: Structure, there: TableAt
) -> None:
    """Raise unless changes bring what the condition looks at: a generated column is computed when
    the row is written here, and capture can be told to leave a column out."""
    head = f'condition "{condition.text}" of table "{local.table}" looks at'
    for name in condition.columns:
        column = local.column(name)
        if column is not None and column.generated:
            expression = f": {column.default}" if column.default else ""
            raise UsageError(
                f'{head} "{name}", a generated column, which changes do not bring: '
                f"write out its expression{expression}"
            )
    rows = there.db.query(query("catalog", "ignored_columns"), [there.name.quoted])
    ignored = {row.name for row in rows}
    names = table.source_columns or {}
    for name in condition.columns:
        if (source := names.get(name, name)) in ignored:
            raise UsageError(
                f'{head} "{name}", but capture on the provider leaves "{source}" out '
                f"(trigger argument ignore=): no change would tell whether a row belongs here"
            )


def _try(db: Database, table: QualifiedName, condition: str, text: str) -> None:
    try:
        with db.transaction():
            words = {"table": table.quoted, "condition": condition}
            db.query(query("catalog", "try_condition").format(**words))
    except DatabaseError as error:
        if error.sqlstate is None or error.sqlstate[:2] not in ("22", "42"):
            raise
        raise UsageError(
            f'condition "{text}" of table "{table}" cannot be used: {first_line(error.message)}'
        ) from None


def _require_stable(db: Database, table: QualifiedName, condition: Condition, force: bool) -> None:
    rows = db.query(query("catalog", "volatile_functions"), [sorted(condition.functions)])
    if rows:
        raise UsageError(
            f'condition "{condition.text}" of table "{table}" calls {rows[0].name}(), which can '
            "answer otherwise every time: it must depend on the row alone"
        )
    problem = _not_immutable(db, table, condition.written())
    if problem is None:
        return
    complaint = f'condition "{condition.text}" of table "{table}" depends on more than the row'
    if not force:
        raise UsageError(
            f"{complaint} (time, settings): rows would have to come and go without a change; "
            "write it with constants, or accept that with --force"
        )
    log.warning("%s: rows that no change touches stay as they are", complaint)


def _not_immutable(db: Database, table: QualifiedName, condition: str) -> str | None:
    words = {"table": table.quoted, "condition": condition}
    try:
        with db.transaction():
            db.execute(query("catalog", "condition_table").format(**words))
            db.execute(query("catalog", "condition_index").format(**words))
            raise _Undo
    except _Undo:
        return None
    except DatabaseError as error:
        if error.sqlstate == _NO_RIGHT:
            log.debug("cannot look closer at the condition: %s", error)
            return None
        if error.sqlstate != _NOT_IMMUTABLE:
            raise
        return first_line(error.message)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
