"""What a branch passes on of a table, where that is not every event as it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Publish:
    """A branch passes on the events of the rows that it has itself, and no others.

    What an update does to a row is told to the nodes below as what it is for them: an insert where
    the row comes to the part that is here, a delete, of the key alone, where it leaves it.
    `extra3` is what such a delete says in ev_extra3; None for nothing.
    """

    extra3: str | None = None
