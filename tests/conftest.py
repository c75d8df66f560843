"""Fixtures are plugins, one file for each kind of thing they provide."""

from __future__ import annotations

import pytest

pytest_plugins = [
    "tests.fixtures.place",  # others import these two
    "tests.fixtures.wants",
    "tests.fixtures.examples",
    "tests.fixtures.initdb",
    "tests.fixtures.logs",
    "tests.fixtures.pg",
    "tests.fixtures.proxy",
    "tests.fixtures.spark",
]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no process is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
