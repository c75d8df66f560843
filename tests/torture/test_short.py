"""The short part of the campaign: a few faults of different kinds, drawn by the seed of the run."""

from __future__ import annotations

import random

import pytest

from tests.integration import (
    test_combined_takeover,
    test_failover,
    test_resurrect,
    test_takeover,
    test_takeover_compare,
    test_takeover_doubts,
    test_takeover_second_fault,
)
from tests.torture.campaign import Campaign
from tests.torture.labs import faults_of
from vedur.failpoint import NAMES

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]

SEED = 20
#: How many faults of each list below a run has.
DRAWN = 4
SHORT = (
    "leaf's server: immediate stop",
    "error at batch.merged",
    "kill -9 at batch.committed",
    "network to the root: cut",
    "leaf's disk: full",
    "ticker: kill -9",
    "Spark's Python task process: kill -9",
)


@pytest.mark.draw("programs")
def test_a_few_faults_leave_nothing_different_and_nothing_behind() -> None:
    with Campaign(SEED, say=False) as campaign:
        outcomes = {name: campaign.cycle(name)["outcome"] for name in random.sample(SHORT, DRAWN)}
    assert {n: o for n, o in outcomes.items() if o not in ("recovered", "skipped")} == {}
    assert sum(outcome == "recovered" for outcome in outcomes.values()) >= DRAWN - 1


SHORT_CASCADE = (
    "branch's server: immediate stop",
    "error at branch.published",
    "worker: kill -9 on the branch",
    "kill -9 at batch.committed on the branch",
    "error at provider.changed",
    "kill -9 at takeover.promoted",
    "leaf copies from the root, branch's worker: kill -9",
)
#: Works whose steps move the root. The campaign breaks them (tests/torture/moving_root.py);
#: besides, their processes are killed in these tests, which name the steps, in other sets, and
#: tests/integration/test_takeover_faults.py kills servers and cuts the network at them.
ALSO_ELSEWHERE = ("takeover", "reign", "resurrect")
KILLERS = (
    test_combined_takeover,
    test_takeover,
    test_takeover_compare,
    test_takeover_doubts,
    test_takeover_second_fault,
    test_failover,
    test_resurrect,
)
#: Steps that no laboratory of the campaign has: tests/integration/test_combined.py and
#: test_combined_takeover.py break what parts of a combined queue do, test_many_queues.py a process
#: of several queues.
ONLY_ELSEWHERE = ("combined.", "queues.", "takeover.parts_level")


@pytest.mark.draw("programs")
def test_a_few_faults_of_a_cascade() -> None:
    with Campaign(SEED, say=False, lab="cascade", plain=True, cheap=True) as campaign:
        drawn = random.sample(SHORT_CASCADE, DRAWN)
        outcomes = {name: campaign.cycle(name)["outcome"] for name in drawn}
    assert outcomes == dict.fromkeys(drawn, "recovered")


def test_somebody_is_killed_at_every_step_that_moves_the_root() -> None:
    killed = frozenset().union(*(module.KILLED for module in KILLERS))
    assert killed == {name for name in NAMES if name.partition(".")[0] in ALSO_ELSEWHERE}


def test_the_campaign_reaches_every_named_step() -> None:
    known = faults_of("pair").keys() | faults_of("cascade").keys()
    for name in NAMES:
        if name.startswith(ONLY_ELSEWHERE):
            continue
        for what in ("kill -9", "error", "another fault"):
            assert any(fault.startswith(f"{what} at {name}") for fault in known), name
