"""Where the sequences of a new root go on without the old one."""

from __future__ import annotations

import pytest

from vedur.ops.takeover.sequences import Bounds, choose_value

SMALL = Bounds(True, 1, 32767, 32767)
DOWN = Bounds(False, -1000, -1, -10)
BIG = Bounds(True, 1, 2**63 - 1, 40)


@pytest.mark.parametrize(
    ("bounds", "published", "used", "value"),
    [
        (BIG, 30001, None, 30001),
        (BIG, 30001, 200000, 200000),  # more rows than were published
        (BIG, 20, 30, 40),  # never back
        (SMALL, 32767, 3000, 3000),  # published was all that it has: the rows tell
        (SMALL, 32767, None, 32767),
        (SMALL, 30000, 32767, 32767),  # there is no more
        (DOWN, -500, None, -500),
        (DOWN, -500, -700, -700),
        (DOWN, -30000, -20, -20),
    ],
)
def test_a_sequence_goes_on_behind_everything(
    bounds: Bounds, published: int, used: int | None, value: int
) -> None:
    assert choose_value(bounds, published, used) == value
