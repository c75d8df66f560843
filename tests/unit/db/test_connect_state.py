"""What a refused connection tells about the server."""

from __future__ import annotations

import psycopg
import pytest

from vedur.db import driver_errors

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
    assert driver_errors.connect_state(psycopg.OperationalError(PREFIX + message)) == state


def test_a_state_that_is_there_stays() -> None:
    error = psycopg.errors.InsufficientPrivilege("the database system is starting up")
    assert driver_errors.connect_state(error) == "42501"


SEVERAL = """connection failed: {one}
Multiple connection attempts failed. All failures were:
- host: 'a', port: '1', hostaddr: '127.0.0.1': connection failed: {one}
\tIs the server running on that host and accepting TCP/IP connections?
- host: 'b', port: '2', hostaddr: '127.0.0.2': connection failed: {two}
"""
NOBODY = PREFIX + "Connection refused"


@pytest.mark.parametrize(
    ("message", "silent"),
    [
        (NOBODY + "\n\tIs the server running on that host?", True),
        ("connection timeout expired", True),
        (PREFIX + "No route to host", True),
        ("failed to resolve host 'gone': [Errno -2] Name or service not known", True),
        (PREFIX + "server closed the connection unexpectedly\n\tThis probably means", True),
        (PREFIX + "FATAL:  sorry, too many clients already", False),
        (PREFIX + "FATAL:  the database system is shutting down", False),
        (PREFIX + 'FATAL:  password authentication failed for user "Connection refused"', False),
        (PREFIX + 'ВАЖНО:  пользователь "x" не прошёл проверку (timed out)', False),
        (PREFIX + "fe_sendauth: no password supplied", False),
        (PREFIX + "server does not support SSL, but SSL was required", False),
        (SEVERAL.format(one=NOBODY, two=NOBODY), True),
        (SEVERAL.format(one=NOBODY, two=PREFIX + "FATAL:  no pg_hba.conf entry for host"), False),
        ("what nobody has thought of", False),
    ],
)
def test_a_server_that_turns_somebody_away_is_there(message: str, silent: bool) -> None:
    assert driver_errors.is_silence(message) is silent
