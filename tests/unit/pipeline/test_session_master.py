"""How many tasks a session on this machine runs at once."""

from __future__ import annotations

import os

import pytest

from vedur.pipeline.spark.session import _merged


@pytest.mark.parametrize(
    ("given", "most", "more", "slots"),
    [
        ("local[*]", None, 0, "*"),
        ("local[*]", 8, 0, "*"),
        ("local[*]", 2, 0, "2"),
        ("local[*]", 8, 3, "7"),
        ("local[*]", 6, 3, "6"),
        ("local[2]", 8, 3, "2"),
        ("local", 8, 3, "1"),
    ],
)
def test_slots(
    given: str, most: int | None, more: int, slots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    merged = _merged({"spark.master": given}, most, more)
    assert merged["spark.master"] == f"local[{slots},4]"
