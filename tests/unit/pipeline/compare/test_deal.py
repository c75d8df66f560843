"""Into how many tasks a comparison falls, and how many of them run at once."""

from __future__ import annotations

import pytest

from vedur.pipeline.compare.plan import Deal, Use, deal


@pytest.mark.parametrize(
    ("slots", "cuts", "limit", "use", "expected"),
    [
        (2, 1, 8, Use.ALL, Deal(1)),
        (2, 26, 8, Use.ALL, Deal(8)),
        (2, 100, 8, Use.ALL, Deal(25)),
        (16, 100, 8, Use.ALL, Deal(8)),  # never more connections than that
        (16, 100, 8, Use.BUT_ONE, Deal(8)),
        (2, 1, 8, Use.BUT_ONE, Deal(1, 2, 1)),
        (2, 0, 8, Use.BUT_ONE, Deal(0)),  # a table whose partitions are all gone
        (2, 26, 2, Use.BUT_ONE, Deal(7, 1, 1)),
        (2, 26, 8, Use.BUT_ONE, Deal(4, 2, 1)),
        (3, 100, 8, Use.BUT_ONE, Deal(13, 2, 2)),
        (3, 100, 3, Use.BUT_ONE, Deal(25, 1, 2)),
        (8, 100, 8, Use.BUT_ONE, Deal(25, 1, 7)),
        (8, 10, 8, Use.BUT_ONE, Deal(7, 1, 7)),
        (1, 26, 8, Use.BUT_ONE, Deal(26)),
        (2, 26, 8, Use.BY_TURNS, Deal(26)),
        (9, 100, 8, Use.BY_TURNS, Deal(100, 1, 8)),
    ],
)
def test_deal(slots: int, cuts: int, limit: int, use: Use, expected: Deal) -> None:
    assert deal(slots, cuts, limit, use) == expected


def test_the_limit_holds() -> None:
    for slots in range(1, 20):
        for limit in range(1, 20):
            for use in Use:
                found = deal(slots, 1000, limit, use)
                at_once = min(found.tasks, found.lanes or slots) * found.connections
                left = 1 if use is Use.BUT_ONE and 1 < slots <= limit else 0
                assert at_once + left <= limit
