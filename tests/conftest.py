"""Fixtures are plugins, one file for each kind of thing they provide."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Generator

import pytest

pytest_plugins = [
    "tests.fixtures.place",  # others import these three
    "tests.fixtures.wants",
    "tests.fixtures.examples",
    "tests.fixtures.draw",
    "tests.fixtures.initdb",
    "tests.fixtures.logs",
    "tests.fixtures.pg",
    "tests.fixtures.proxy",
    "tests.fixtures.schedule",
    "tests.fixtures.spark",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, nor later among what was: all of it stays, and
    each process of a run would go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


#: A file with more tests than this takes a while, however quick each is.
_MANY = 40


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no process is left alone with one at the end; otherwise random."""
    count = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    long = {item.path for item in items if item.get_closest_marker("spark")}
    long |= {path for path, tests in count.items() if tests > _MANY}
    items.sort(key=lambda item: (item.path not in slow, item.path not in long))
