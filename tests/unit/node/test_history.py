"""Whether a tick of another provider is the one that a node has applied."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from vedur.node.epoch import Reign
from vedur.node.history import KnownTick, explain_deposed, explain_other, will_learn
from vedur.node.position import AppliedTick

TICK = AppliedTick(95, datetime(2026, 1, 1, tzinfo=UTC), 500, "7:7:", "mid")
LATER = replace(TICK, time=TICK.time + timedelta(seconds=1), provider="src")
FIRST = Reign("a", 1, "src", 0)
SECOND = Reign("b", 2, "mid", 90, "a", "failover")
OTHER = Reign("c", 2, "low", 92, "a", "failover")


def known(tick: AppliedTick | None, of_branch: bool = False) -> KnownTick | None:
    return None if tick is None else KnownTick(tick, of_branch)


@pytest.mark.parametrize(
    ("applied", "there", "says"),
    [
        (known(TICK), known(TICK), ""),
        (known(TICK), known(replace(TICK, event_seq=499, snapshot="9:9:")), ""),
        (known(TICK), known(LATER), "restored from a backup"),
        (known(replace(TICK, id=94)), known(LATER), ""),  # what is kept is of another tick
        (None, known(LATER), ""),
        (known(TICK), None, ""),
        # the first tick of a branch of Londiste has the time of its creation
        (known(TICK), known(replace(LATER, event_seq=1), True), ""),
        (known(replace(LATER, event_seq=1), True), known(TICK), ""),
        (known(TICK), known(replace(LATER, event_seq=1)), "restored from a backup"),
        (known(replace(LATER, event_seq=1)), known(TICK), "restored from a backup"),
    ],
)
def test_ticks_are_known_by_their_time(
    applied: KnownTick | None, there: KnownTick | None, says: str
) -> None:
    for reigns in ((), (FIRST,)):
        found = explain_other(reigns, reigns, 95, applied, there)
        assert says in found and bool(says) == bool(found)


def test_reigns_tell_where_ticks_do_not() -> None:
    assert explain_other((FIRST,), (FIRST, SECOND), 90, None, None) == ""
    ahead = explain_other((FIRST,), (FIRST, SECOND), 91, None, None)
    assert ahead.startswith('root "mid" has taken over at tick 90')
    forked = explain_other((FIRST, OTHER), (FIRST, SECOND), 95, known(TICK), known(TICK))
    assert forked == "the two follow different roots"
    assert explain_other((FIRST, SECOND), (FIRST,), 95, known(TICK), known(TICK)) == ""


def test_a_provider_of_an_earlier_reign_may_learn_of_the_next() -> None:
    assert explain_deposed((FIRST,), (FIRST, SECOND), 95) == ""
    assert explain_deposed((FIRST, SECOND), (FIRST, SECOND), 95) == ""
    assert 'which "mid" has replaced at tick 90' in explain_deposed((FIRST, SECOND), (FIRST,), 95)
    assert will_learn((FIRST, SECOND), 90) and will_learn((FIRST, SECOND), None)
    assert not will_learn((FIRST, SECOND), 91) and not will_learn((), 91)
