"""Which tables a node may have below a branch that passes on a part of them only.

A node below must ask for the same part itself: a condition of its own (`--where`, or its handler's)
that is the one by which events are left out. Then events that it does not get would have changed
nothing here, whatever the branch had of the table when it left them out: a row that is being
copied, waits in quarantine or was never there. Every other table would lose rows in silence, so
nothing is applied to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from vedur.catalog.tables import TableInfo
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import MASKED_BY, Handled, resolve
from vedur.names import parse_name
from vedur.queue.passed import LeftOut, PassedPart
from vedur.tables.filter import Columns, parse_condition


def conditions_of(table: TableInfo) -> frozenset[str]:
    """Return the conditions that all rows of a table here fulfil; none where a column has another
    name here, since a text would then mean another thing elsewhere."""
    handled = resolve(table)
    if handled is not None and not handled.scope.applies:
        return frozenset()
    masked = masks_of(table.mapping.masked)
    return asked_for(table.copy_condition, handled, table.columns) | masked


def masks_of(masked: str | None) -> frozenset[str]:
    """Return the rules by which rows come masked, as a part that a table asks for."""
    return frozenset([masked] if masked else ())


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


def is_mask(part: PassedPart) -> bool:
    """Is it about rows that go on masked, and not about a part of them?"""
    return part.condition.startswith(MASKED_BY)


def require_masked(
    tables: Iterable[TableInfo], parts: Sequence[PassedPart], provider: str, tick: int
) -> None:
    """Raise unless the provider passes on masked events of all tables whose rows here came masked,
    by the same rules and up to a tick: clear values would come among them."""
    for table in tables:
        masked = table.mapping.masked if table.mask else None
        if masked and not _has_mask(parts, table.table_name, masked, tick):
            raise explain_clear(table.table_name, masked, provider)


def _has_mask(parts: Sequence[PassedPart], table: str, masked: str, tick: int) -> bool:
    return any(
        (part.table, part.condition) == (table, masked)
        and (part.until is None or part.until >= tick)
        for part in parts
    )


def explain_clear(table: str, masked: str, provider: str) -> StateError:
    """Make the error about rows that are masked here and would come as they are."""
    return StateError(
        f'table "{table}" is {masked} here, and node "{provider}" does not pass on its events so: '
        "nothing is applied or changed, because values as they are would come among masked ones; "
        "read from a node that masks it so (change-provider), or remove-table it here, empty it "
        "and add-table it anew"
    )


def own_masks(tables: Iterable[TableInfo]) -> list[TableInfo]:
    """Return the tables whose events a branch passes on masked, in whatever state they are; raises
    where it is not noted with one by which rules."""
    found = []
    for table in tables:
        handled = resolve(table) if table.local else None
        if handled is None or not handled.publishes:
            continue
        if table.mask != handled.mask:
            raise StateError(
                f'table "{table.table_name}" has handler "{handled.stored}", and events of it may '
                "have been passed on by other rules, or as they are: nothing is applied; "
                "remove-table it here, and add-table it when no event of it is in the queue of "
                "this branch any more"
            )
        found.append(table)
    return found


def explain(part: PassedPart, provider: str, how: str) -> StateError:
    """Make the error that says what is wrong, and the ways out."""
    if is_mask(part):
        when = "passes on" if part.until is None else f"has, up to tick {part.until},"
        return StateError(
            f'table "{part.table}": node "{provider}" {when} its events {part.condition}, and '
            f"{how}: nothing is applied or changed, because masked values would come among others, "
            "or be masked a second time; remove-table it here, empty it and add-table it without a "
            "handler that rewrites rows, or read from another node (change-provider)"
        )
    when = "passes on" if part.until is None else f"has, up to tick {part.until},"
    return StateError(
        f'table "{part.table}": node "{provider}" {when} only events of rows where '
        f"{part.condition}, and {how}: nothing is applied or changed; have the table with the "
        "handler that asks for these rows (remove-table it here, then add-table it), or read from "
        "a node that passes on all of it (change-provider)"
    )


def _how(table: TableInfo) -> str:
    if table.mapping.rows is not None:
        return f'with handler "{table.mapping.handler}"'
    if table.mapping.masked:
        return str(table.mapping.masked)
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
