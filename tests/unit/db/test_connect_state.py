"""What a refused connection tells about the server."""

from __future__ import annotations

import psycopg
import pytest

from vedur.db import database

PREFIX = 'connection failed: connection to server at "127.0.0.1", port 5433 failed: '


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("FATAL:  the database system is starting up", "57P03"),
        ("FATAL:  the database system is shutting down", "57P03"),
        ("FATAL:  the database system is in recovery mode", "57P03"),
        ("FATAL:  the database system is not yet accepting connections\nDETAIL:  ...", "57P03"),
        ("FATAL:  the database system is not accepting connections", "57P03"),
        ('FATAL:  database "the database system" does not exist', None),
        ('FATAL:  role "x" does not exist', None),
        ("Connection refused\n\tIs the server running on that host?", None),
    ],
)
def test_the_state_is_read_from_the_message(message: str, state: str | None) -> None:
    assert database._connect_state(psycopg.OperationalError(PREFIX + message)) == state


def test_a_state_that_is_there_stays() -> None:
    error = psycopg.errors.InsufficientPrivilege("the database system is starting up")
    assert database._connect_state(error) == "42501"
