"""Places where tests may break in: nothing happens without a hook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vedur import failpoint


@pytest.fixture
def seen() -> Iterator[list[str]]:
    names: list[str] = []
    failpoint.set_hook(names.append)
    yield names
    failpoint.set_hook(None)


def test_without_a_hook_nothing_happens() -> None:
    failpoint.reach("batch.merged")
    failpoint.reach("no.such place")


def test_the_hook_hears_each_name(seen: list[str]) -> None:
    failpoint.reach("batch.staged")
    failpoint.reach("batch.merged")
    assert seen == ["batch.staged", "batch.merged"]


def test_what_the_hook_raises_arrives(seen: list[str]) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(name)

    failpoint.set_hook(fail)
    with pytest.raises(RuntimeError, match=r"batch\.merged"):
        failpoint.reach("batch.merged")
