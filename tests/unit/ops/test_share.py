"""How many of Spark's slots a queue may fill."""

from __future__ import annotations

import pytest

from vedur.ops.processes.share import Share, share_of


@pytest.mark.parametrize("slots", range(1, 40))
def test_one_queue_that_hangs_leaves_a_slot_to_each_of_the_others(slots: int) -> None:
    assert share_of(slots, 1) == Share(slots, slots)
    for queues in range(2, 20):
        share = share_of(slots, queues)
        assert share.replay >= 1 and share.copies >= 1
        if slots > queues:
            assert sum(share) <= slots - (queues - 1)
        else:
            assert share == Share(1, 1)
