"""Connections, transactions, COPY and calls of SQL functions: the only door to psycopg."""

from __future__ import annotations

from vedur.db.database import (
    Answer,
    CopyReader,
    CopyWriter,
    Database,
    Notification,
    Row,
    command,
    connect,
    exec_query,
    log_contract_call,
    report,
    set_replication_role,
)
from vedur.db.settings import kept_settings

__all__ = [
    "Answer",
    "CopyReader",
    "CopyWriter",
    "Database",
    "Notification",
    "Row",
    "command",
    "connect",
    "exec_query",
    "kept_settings",
    "log_contract_call",
    "report",
    "set_replication_role",
]
