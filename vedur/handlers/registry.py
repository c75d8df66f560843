"""Handlers that tables are registered with: which of them this version can serve; pure.

A node of Londiste may have stored any handler with a table (`shard`, `obfuscate`, `dispatch`, or
one of the operator's own): it decides which rows come and what becomes of their values. Rows that
are moved without it are wrong at best, and in the open at worst. So a table whose handler is not
known stops everything that would move rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from vedur.change.attrs import HANDLER
from vedur.errors import StateError

#: Upstream's name for plain replay.
DEFAULT_HANDLER = "londiste"

REMEDY = (
    "keep Londiste's own worker on this node, or remove-table it here and, if plain rows are "
    "wanted, add-table it again without a handler"
)


class RegisteredTable(Protocol):
    """What must be known of a table to tell its handler; `catalog.TableInfo` has it."""

    @property
    def table_name(self) -> str: ...
    @property
    def table_attrs(self) -> str | None: ...
    @property
    def local(self) -> bool: ...
    @property
    def attrs(self) -> dict[str, str | None]: ...


def unknown_handler(table: RegisteredTable) -> str | None:
    """The stored handler of a local table if this version cannot serve it, with its arguments."""
    if HANDLER not in (table.table_attrs or "") or not table.local:
        return None  # every round of a worker asks this for every table
    stored = (table.attrs.get(HANDLER) or "").strip()
    name, _, arguments = stored.partition("(")
    plain = name.strip() in ("", DEFAULT_HANDLER) and not arguments.removesuffix(")").strip()
    return None if plain else stored


def require_handlers(tables: Iterable[RegisteredTable]) -> None:
    """Raise `StateError` for the first table whose handler this version does not know."""
    for table in tables:
        handler = unknown_handler(table)
        if handler is not None:
            raise StateError(
                f'table "{table.table_name}" is registered with handler "{handler}", which Vedur '
                f"does not have: no rows are moved. Either {REMEDY}"
            )
