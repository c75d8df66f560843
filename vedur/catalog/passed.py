"""Which tables a node may have below a branch that passes on a part of them only.

A node below must ask for the same part itself: a condition of its own (`--where`, or its handler's)
that is the one by which events are left out. Then events that it does not get would have changed
nothing here, whatever the branch had of the table when it left them out: a row that is being
copied, waits in quarantine or was never there. Every other table would lose rows in silence, so
nothing is applied to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from vedur.catalog.tables import TableInfo
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import Handled, resolve
from vedur.names import parse_name
from vedur.queue.passed import LeftOut, PassedPart
from vedur.tables.filter import Columns, parse_condition


def conditions_of(table: TableInfo) -> frozenset[str]:
    """Return the conditions that all rows of a table here fulfil; none where a column has another
    name here, since a text would then mean another thing elsewhere."""
    handled = resolve(table)
    if handled is not None and not handled.scope.applies:
        return frozenset()
    return asked_for(table.copy_condition, handled, table.columns)


def asked_for(
    condition: str | None, handled: Handled | None, columns: Columns | None
) -> frozenset[str]:
    """Return the conditions that a table with such a condition, handler and column list has."""
    if any(name != here for name, here in columns or ()):
        return frozenset()
    texts = (condition, handled.scope.condition if handled is not None else None)
    return frozenset(text for text in texts if text)


def unserved(
    tables: Iterable[TableInfo], parts: Iterable[PassedPart]
) -> Iterator[tuple[TableInfo, PassedPart]]:
    """Find tables that take changes here and need more than the part that is passed on."""
    by_name = {table.table_name: table for table in tables if table.local}
    for part in parts:
        table = by_name.get(part.table)
        if table is None or not table.mapping.applies:
            continue
        if part.condition not in conditions_of(table):
            yield table, part


def require_served(tables: Iterable[TableInfo], parts: Iterable[PassedPart], provider: str) -> None:
    """Raise unless tables that take changes here need no more of their events than the provider
    passes on."""
    for table, part in unserved(tables, parts):
        raise explain(part, provider, f"this node has it {_how(table)}")


def explain(part: PassedPart, provider: str, how: str) -> StateError:
    """Make the error that says what is wrong, and the ways out."""
    when = "passes on" if part.until is None else f"has, up to tick {part.until},"
    return StateError(
        f'table "{part.table}": node "{provider}" {when} only events of rows where '
        f"{part.condition}, and {how}: nothing is applied or changed; have the table with the "
        "handler that asks for these rows (remove-table it here, then add-table it), or read from "
        "a node that passes on all of it (change-provider)"
    )


def _how(table: TableInfo) -> str:
    found = sorted(conditions_of(table))
    return f"where {' and '.join(found)}" if found else "whole"


def own_rules(tables: Iterable[TableInfo]) -> list[LeftOut]:
    """Return what a branch leaves out of the events of its tables, as their handlers say."""
    found = []
    for table in tables:
        handled = resolve(table) if table.local else None
        if handled is not None and handled.scope.passes_on:
            if any(name != here for name, here in table.columns or ()):
                raise StateError(
                    f'table "{table.table_name}" has other names of columns here, so nodes below '
                    "would not know which rows are passed on: use pass_on=all"
                )
            found.append(rule_of(table.table_name, table.dest_table, handled))
    return found


def rule_of(name: str, dest: str, handled: Handled) -> LeftOut:
    """Return what a handler leaves out of the events of a table; raises where its condition cannot
    be read."""
    text = handled.scope.passes_on or ""
    return LeftOut(name, parse_name(dest).quoted, text, *_read(text))


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a condition under the alias t, and the columns that it looks at."""
    condition = parse_condition(text)
    if not condition.columns:
        raise UsageError(f'condition "{text}" looks at no column: it tells no rows apart')
    return condition.written(alias="t"), condition.columns


def require_key(rule: LeftOut, key: Iterable[str]) -> None:
    """Raise unless the key of a table has all columns by which events are left out."""
    have = list(key)
    for name in rule.columns:
        if name not in have:
            raise UsageError(
                f'table "{rule.table}" cannot be passed on in part (pass_on=own): which rows are '
                f'in the part depends on column "{name}", which is not in its key '
                f"({', '.join(have) or 'it has none'}), so a row could leave the part, and nodes "
                "below would not be told; add the column to the key, or use pass_on=all"
            )
