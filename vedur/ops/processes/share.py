"""How many of Spark's slots one queue may fill, where several share a session.

A task that waits, for a lock on its table or for a server that does not answer, keeps its slot, and
no scheduler can take it away. So no queue may fill them all: what is left keeps the others going.
"""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """The most tasks of one queue at a time: in batches, and in first copies."""

    replay: int
    copies: int


def share_of(slots: int, queues: int) -> Share:
    """Return the share of each queue: both together leave a slot to each of the others, as far as
    there are so many. One queue alone may have all for either."""
    if queues == 1:
        return Share(slots, slots)
    most = max(2, slots - queues + 1)
    copies = max(1, most // 2)
    return Share(most - copies, copies)
