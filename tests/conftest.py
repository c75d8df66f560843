"""Fixtures are plugins, one file for each kind of thing they provide."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures.logs",
    "tests.fixtures.pg",
    "tests.fixtures.proxy",
    "tests.fixtures.spark",
]
