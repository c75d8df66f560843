"""How a node's position and its consumer's go together, and what rejoin decides: pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from vedur.change.snapshot import Snapshot
from vedur.node.epoch import Match
from vedur.node.position import AppliedTick, Counter, Fit, Place, is_lost, judge, lost
from vedur.ops.rejoin.plan import Found, Way, make_plan

TICK = AppliedTick(13, datetime(2026, 1, 1, tzinfo=UTC), 500, "100:100:", "src")
OTHER = replace(TICK, event_seq=501)


def place(last: int, next: int | None = None, tick: AppliedTick | None = TICK) -> Place:
    return Place(last, next, 0, tick)


@pytest.mark.parametrize(
    ("applied", "there", "fit"),
    [
        pytest.param(TICK, place(13), Fit.SAME, id="same"),
        pytest.param(None, place(13), Fit.SAME, id="same-as-far-as-known"),
        pytest.param(TICK, place(13, tick=OTHER), Fit.OTHER, id="same-number-other-tick"),
        pytest.param(TICK, place(12, 13), Fit.COMMITTED, id="committed-not-finished"),
        pytest.param(None, place(12, 13), Fit.COMMITTED, id="committed-as-far-as-known"),
        pytest.param(TICK, place(12, 13, OTHER), Fit.OTHER, id="another-tick-is-open"),
        pytest.param(TICK, place(9), Fit.AHEAD, id="finish-was-forgotten"),
        pytest.param(TICK, place(9, 11), Fit.AHEAD, id="with-a-batch-open"),
        pytest.param(None, place(9), Fit.UNKNOWN, id="ahead-and-not-known"),
        pytest.param(TICK, place(9, tick=None), Fit.MISSING, id="tick-never-written"),
        pytest.param(None, place(9, tick=None), Fit.MISSING, id="never-written-not-known"),
        pytest.param(TICK, place(20), Fit.BEHIND, id="leaf-restored"),
        pytest.param(TICK, place(20, 21), Fit.BEHIND, id="leaf-restored-batch-open"),
        pytest.param(TICK, place(20, tick=None), Fit.BEHIND, id="leaf-restored-tick-gone"),
        pytest.param(TICK, place(20, tick=OTHER), Fit.OTHER, id="both-restored"),
        pytest.param(replace(TICK, id=7), place(13), Fit.SAME, id="what-is-kept-is-of-another"),
    ],
)
def test_judge(applied: AppliedTick | None, there: Place, fit: Fit) -> None:
    assert judge(13, applied, there) is fit


@pytest.mark.parametrize("what", ["time", "event_seq", "snapshot"])
def test_each_of_three_tells_ticks_apart(what: str) -> None:
    other = {"time": datetime(2026, 1, 2, tzinfo=UTC), "event_seq": 1, "snapshot": "1:1:"}
    assert not TICK.same(replace(TICK, **{what: other[what]}))
    assert TICK.same(replace(TICK, provider="another name"))


def found(applied: AppliedTick | None, there: Place | None, tick: AppliedTick | None) -> Found:
    return Found(13, applied, there, tick, 10, 20)


@pytest.mark.parametrize(
    ("what", "way", "why"),
    [
        (found(TICK, place(13), TICK), Way.NOTHING, "both stand at tick 13"),
        (found(TICK, place(12, 13), TICK), Way.NOTHING, "both stand"),
        (found(TICK, place(20), TICK), Way.MOVE, "still has tick 13"),
        (found(TICK, place(9), TICK), Way.MOVE, "still has tick 13"),
        (found(TICK, None, TICK), Way.MOVE, "still has tick 13"),
        (found(None, place(20), TICK), Way.REPAIR, "nothing tells whether tick 13"),
        (found(None, None, TICK), Way.REPAIR, "nothing tells whether tick 13"),
        (found(TICK, place(20), OTHER), Way.REPAIR, "another one than this node"),
        (found(TICK, place(13, tick=OTHER), OTHER), Way.REPAIR, "another one"),
        (replace(found(TICK, place(20), None), first=15), Way.REPAIR, "no longer has tick 13"),
        (replace(found(TICK, place(9), None), last=12), Way.REPAIR, "never wrote tick 13"),
        (found(TICK, place(20), None), Way.REPAIR, "has no tick 13"),
    ],
)
def test_plan(what: Found, way: Way, why: str) -> None:
    plan = make_plan(what)
    assert plan.way is way
    assert why in plan.why
    assert make_plan(what, force=True).way is Way.REPAIR


@pytest.mark.parametrize("match", [Match.AHEAD, Match.FORKED])
def test_a_node_of_another_reign_is_repaired_although_positions_fit(match: Match) -> None:
    plan = make_plan(replace(found(TICK, place(13), TICK), match=match))
    assert plan.way is Way.REPAIR
    assert "root" in plan.why


def test_messages_name_the_command() -> None:
    for fit in (Fit.BEHIND, Fit.MISSING, Fit.OTHER):
        message = lost(fit, 13, "dst", "src", place(9)).message
        assert is_lost(message) and 'run "rejoin"' in message
    assert not is_lost("Lost position: batch 1..2, dst has 2: another worker was quicker")
    counter = Counter(5_000, (3 << 32) + 7)
    assert counter.behind and not Counter(7, 7).behind
    assert "--epoch=4" in counter.error("src").message


@pytest.mark.parametrize("text", ["5:5:", "5:9:5,7", "5:9:6"])
def test_a_snapshot_is_written_as_it_was_read(text: str) -> None:
    assert Snapshot.parse(text).text == text
