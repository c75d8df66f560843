"""A database without an encoding, whose text can be any bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from vedur import db as vdb


@pytest.fixture
def ascii_root(newest: Any) -> Iterator[vdb.Database]:
    """An autocommit connection to a new database without an encoding."""
    name = f"ascii_{newest.create_database()}"
    newest.admin.execute(
        f"create database {name} template template0 encoding 'SQL_ASCII' locale 'C'"
    )
    with vdb.connect(newest.connstr(name), autocommit=True) as db:
        yield db


@contextmanager
def writing_bytes(db: vdb.Database) -> Iterator[psycopg.Connection[Any]]:
    """A session that sends statements as they are."""
    with psycopg.connect(db.connstr, autocommit=True) as app:
        app.execute("set client_encoding = 'SQL_ASCII'")
        yield app
