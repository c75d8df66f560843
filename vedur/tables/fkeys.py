"""Foreign keys that a first copy has taken away, and those that are there."""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Database, Row
from vedur.db.contract import exec_query
from vedur.sql import query


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key with the statement that makes it."""

    from_table: str
    to_table: str
    fkey_name: str
    fkey_def: str


def _from_row(row: Row) -> ForeignKey:
    return ForeignKey(row.from_table, row.to_table, row.fkey_name, row.fkey_def)


def find_table_fkeys(db: Database, table: str) -> list[ForeignKey]:
    """Foreign keys from and to a table that exist now."""
    return [_from_row(row) for row in exec_query(db, "londiste.find_table_fkeys", table)]


def get_table_pending_fkeys(db: Database, table: str) -> list[ForeignKey]:
    """Foreign keys from and to a table that wait to come back."""
    return [_from_row(row) for row in exec_query(db, "londiste.get_table_pending_fkeys", table)]


def get_valid_pending_fkeys(db: Database, queue: str) -> list[ForeignKey]:
    """Foreign keys that can come back now, because both sides are in sync."""
    return [_from_row(row) for row in exec_query(db, "londiste.get_valid_pending_fkeys", queue)]


def add_pending_fkey(db: Database, key: ForeignKey) -> None:
    """Let the worker make a foreign key once both of its tables are in sync here."""
    values = [key.from_table, key.to_table, key.fkey_name, key.fkey_def]
    db.execute(query("catalog", "add_pending_fkey"), values)


def drop_table_fkey(db: Database, table: str, name: str) -> None:
    """Take a foreign key away and remember it."""
    db.call("londiste.drop_table_fkey", table, name)
