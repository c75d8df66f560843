"""Whether a node can go on at another provider: the tick that it has applied is there. Pure.

Numbers come again. A root that was restored from a backup uses them a second time, and so does a
node that has replaced a root which had gone further. Who believed the number would keep rows that
are lost, and never get those of the ticks that have taken their place.
"""

from __future__ import annotations

from dataclasses import dataclass

from vedur.node.epoch import Match, Reigns, last_reign, match_reigns, next_reign
from vedur.node.position import AppliedTick


@dataclass(frozen=True)
class KnownTick:
    """A tick as one node has it, and whether that node is a branch."""

    tick: AppliedTick
    of_branch: bool

    @property
    def is_made_up(self) -> bool:
        """Is it the first tick of a branch that Londiste has made? It has a time of its own."""
        return self.of_branch and self.tick.event_seq <= 1


def explain_deposed(mine: Reigns, theirs: Reigns, tick: int) -> str:
    """Return why a provider is of an earlier reign than a node, empty if it is not."""
    here, there = last_reign(mine), last_reign(theirs)
    if match_reigns(mine, theirs, tick) is not Match.BEHIND or here is None or there is None:
        return ""
    return (
        f'follows root "{there.root}", which "{here.root}" has replaced at tick {here.first_tick}, '
        "and does not know that"
    )


def will_learn(mine: Reigns, newest: int | None) -> bool:
    """Tell whether a provider at a tick has yet to read of the last reign that a node knows."""
    here = last_reign(mine)
    return here is not None and (newest or 0) <= here.first_tick


def explain_other(
    mine: Reigns, theirs: Reigns, tick: int, applied: KnownTick | None, found: KnownTick | None
) -> str:
    """Return why a provider's tick is another one than a node has applied under that number, empty
    if it is the same or nothing tells. `applied` and `found` are the two, as far as known."""
    match, here = match_reigns(mine, theirs, tick), last_reign(mine)
    if match is Match.FORKED:
        return "the two follow different roots"
    if match is Match.AHEAD and here is not None:
        follows = next_reign(theirs, here.epoch)
        assert follows is not None
        return (
            f'root "{follows.root}" has taken over at tick {follows.first_tick}, and what came '
            f'after it was lost with root "{here.root}"'
        )
    if applied is None or found is None or applied.tick.id != tick:
        return ""
    if applied.is_made_up or found.is_made_up or applied.tick.same_elsewhere(found.tick):
        return ""
    return "a root was restored from a backup, or replaced by a node that was behind"
