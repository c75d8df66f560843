"""What tells that the source of a first copy is not the server any more that the copy knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from vedur.change.snapshot import Snapshot
from vedur.node.position import AppliedTick
from vedur.worker.first_copy.source_check import KnownSource, SourceNow, is_ahead, judge_source

TICK = AppliedTick(7, datetime(2026, 1, 1), 500, "100:100:", "n1")
KNOWN = KnownSource(Snapshot.parse("90:100:95"), "mark", TICK)
NOW = SourceNow(100, "mark", replace(TICK, provider=""))


@pytest.mark.parametrize(
    ("known", "now"),
    [
        (KNOWN, NOW),
        (KNOWN, replace(NOW, next_txid=5000)),
        (KNOWN, replace(NOW, tick=None)),  # it may come yet
        (replace(KNOWN, applied=None), NOW),  # the tick from before the snapshot
        (replace(KNOWN, mark=None), replace(NOW, mark=None)),  # upstream's
        (KnownSource(None, None, None), SourceNow(1, None, None)),
        # a branch that was restored passes a tick on with another snapshot
        (KNOWN, replace(NOW, of_branch=True, tick=replace(TICK, snapshot="1:1:"))),
    ],
)
def test_believed(known: KnownSource, now: SourceNow) -> None:
    assert judge_source(known, now) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(NOW, mark=None), "marked there behind its snapshot"),
        (replace(NOW, mark="other"), "marked there behind its snapshot"),
        (replace(NOW, next_txid=99), "number is 99, and the copy's snapshot has seen 100"),
        (replace(NOW, tick=replace(TICK, event_seq=501)), "its tick 7 is not the tick 7"),
        (replace(NOW, tick=replace(TICK, snapshot="1:1:")), "its tick 7 is not the tick 7"),
        (
            replace(NOW, of_branch=True, tick=replace(TICK, time=TICK.time + timedelta(seconds=1))),
            "its tick 7 is not the tick 7",
        ),
    ],
)
def test_disproved(now: SourceNow, why: str) -> None:
    assert why in (judge_source(KNOWN, now) or "")


def test_numbers_are_looked_at_where_there_are_no_marks() -> None:
    assert judge_source(replace(KNOWN, mark=None), replace(NOW, next_txid=99)) is not None


def test_a_snapshot_may_have_seen_all_numbers_but_no_more() -> None:
    assert [is_ahead(Snapshot.parse("90:100:"), n) for n in (99, 100, 101)] == [True, False, False]
