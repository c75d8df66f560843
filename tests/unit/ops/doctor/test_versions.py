"""The doctor knows which minor releases import snapshots with a race."""

from __future__ import annotations

import pytest

from vedur.ops.doctor.server import snapshot_note


@pytest.mark.parametrize(
    ("version", "mended"),
    [(150019, "15.20"), (160015, "16.16"), (180006, "18.7"), (180000, "18.7"), (140001, "14.25")],
)
def test_a_release_with_the_race_is_named(version: int, mended: str) -> None:
    assert snapshot_note(version).startswith(f"; {mended} mends")


@pytest.mark.parametrize("version", [150020, 160016, 180007, 190000, 170012])
def test_a_release_without_it_is_not(version: int) -> None:
    assert snapshot_note(version) == ""
