"""Connections, transactions, COPY and calls of SQL functions: the only door to psycopg."""

from __future__ import annotations

from vedur.db.database import (
    CopyReader,
    CopyWriter,
    Database,
    Notification,
    Row,
    connect,
    set_replication_role,
)

__all__ = [
    "CopyReader",
    "CopyWriter",
    "Database",
    "Notification",
    "Row",
    "connect",
    "set_replication_role",
]
