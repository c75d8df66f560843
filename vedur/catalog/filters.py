"""Can this condition, or this column list, be kept? Asked before anything is stored.

The parser says what a condition looks at, both servers say whether they understand it, and the
target says whether its answer depends on the row alone: it tries to make a partial index of it on
an empty temporary table, which PostgreSQL allows for just such conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from vedur.catalog.structure import Structure
from vedur.change.columns import Columns, source_names
from vedur.change.condition import Condition, parse_condition
from vedur.db import Database
from vedur.errors import DatabaseError, UsageError
from vedur.names import QualifiedName
from vedur.sql import query

log = logging.getLogger(__name__)

#: What PostgreSQL answers to a partial index whose condition may change its mind.
_NOT_IMMUTABLE = "42P17"
_NO_RIGHT = "42501"


class _Undo(Exception):
    """Leaves nothing behind of a try."""


def require_columns(table: str, columns: Columns, provider: Structure) -> None:
    """The provider has all columns of the list, and the list has the key."""
    known = [column.name for column in provider.columns]
    lacking = [source for source, _ in columns if source not in known]
    if lacking:
        raise UsageError(
            f'table "{table}" has no column {_listed(lacking)} on the provider: '
            f"it has {_listed(known)}"
        )
    key = [name for name in provider.key if name not in dict(columns)]
    if key:
        raise UsageError(
            f'the column list of table "{table}" lacks {_listed(key)}: changes find their rows by '
            f"the key ({', '.join(provider.key)}), so it must come along"
        )


def require_local_columns(table: str, columns: Columns, local: Structure) -> None:
    """The table here has all columns of the list, and can do without any others."""
    known = [column.name for column in local.columns]
    lacking = [here for _, here in columns if here not in known]
    if lacking:
        raise UsageError(
            f'table "{local.table}" has no column {_listed(lacking)} here: it has '
            f"{_listed(known)}; add it, or give another name as {lacking[0]}=NAME"
        )
    taken = {here for _, here in columns}
    for column in local.columns:
        free = column.default is not None or column.identity or column.generated
        if column.name not in taken and column.not_null and not free:
            raise UsageError(
                f'column "{column.name}" of table "{local.table}" is NOT NULL without a default '
                f'and not in the column list of "{table}": rows without it cannot be stored'
            )


def require_condition(
    text: str,
    db: Database,
    local: Structure,
    provider: Database,
    remote: Structure,
    columns: Columns | None,
    *,
    force: bool = False,
) -> Condition:
    """Both sides understand it, and it depends on the row alone.

    `force` accepts a condition whose answer can change without a change of the row.
    """
    condition = parse_condition(text, {local.table.name, remote.table.name})
    names = dict(columns) if columns is not None else {c.name: c.name for c in remote.columns}
    usable = [names[c.name] for c in remote.columns if c.name in names]
    usable = [name for name in usable if local.column(name) is not None]
    unknown = [name for name in condition.columns if name not in usable]
    if unknown:
        raise UsageError(
            f'condition "{text}" of table "{local.table}" names {_listed(unknown)}: it can look '
            f"at the columns that come here, {_listed(usable)}"
        )
    _require_told(text, condition, local, provider, remote, source_names(columns) or {})
    there = condition.written(source_names(columns), "t")
    _try(db, local.table, condition.written(alias="t"), text)
    _try(provider, remote.table, there, text)
    _require_stable(db, local.table, condition, force)
    return condition


def _require_told(
    text: str,
    condition: Condition,
    local: Structure,
    provider: Database,
    remote: Structure,
    names: Mapping[str, str],
) -> None:
    """Changes tell what the condition looks at: a generated column is computed when the row is
    written here, and capture can be told to leave a column out."""
    head = f'condition "{text}" of table "{local.table}" looks at'
    for name in condition.columns:
        column = local.column(name)
        if column is not None and column.generated:
            expression = f": {column.default}" if column.default else ""
            raise UsageError(
                f'{head} "{name}", a generated column, which changes do not bring: '
                f"write out its expression{expression}"
            )
    rows = provider.query(query("catalog", "ignored_columns"), [remote.table.quoted])
    ignored = {row.name for row in rows}
    for name in condition.columns:
        if (there := names.get(name, name)) in ignored:
            raise UsageError(
                f'{head} "{name}", but capture on the provider leaves "{there}" out '
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
            f'condition "{text}" of table "{table}" cannot be used: {_first(error)}'
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
    said = f'condition "{condition.text}" of table "{table}" depends on more than the row'
    if not force:
        raise UsageError(
            f"{said} (time, settings): rows would have to come and go without a change; "
            "write it with constants, or accept that with --force"
        )
    log.warning("%s: rows that no change touches stay as they are", said)


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
        return _first(error)


def _first(error: DatabaseError) -> str:
    return error.message.strip().splitlines()[0]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
