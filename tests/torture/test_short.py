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
from tests.torture.labs import LABS, faults_of
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
SHORT_MERGE = (
    "worker of eight queues: kill -9",
    "some parts' server: immediate stop",
    "network to one part: cut",
    "kill -9 at copy.led",
    "error at copy.joined",
    "kill -9 at combined.published",
    "kill -9 at queues.begun",
)


@pytest.mark.draw("programs")
def test_a_few_faults_of_a_cascade() -> None:
    with Campaign(SEED, say=False, lab="cascade", plain=True, cheap=True) as campaign:
        drawn = random.sample(SHORT_CASCADE, DRAWN)
        outcomes = {name: campaign.cycle(name)["outcome"] for name in drawn}
    assert outcomes == dict.fromkeys(drawn, "recovered")


@pytest.mark.draw("programs")
def test_a_fault_of_eight_parts_that_are_merged() -> None:
    with Campaign(SEED, say=False, lab="merge", plain=True, cheap=True) as campaign:
        drawn = random.choice(SHORT_MERGE)
        assert campaign.cycle(drawn)["outcome"] == "recovered", drawn


def test_somebody_is_killed_at_every_step_that_moves_the_root() -> None:
    killed = frozenset().union(*(module.KILLED for module in KILLERS))
    assert killed == {name for name in NAMES if name.partition(".")[0] in ALSO_ELSEWHERE}


#: Steps of a branch that masks, which no laboratory has: tests/integration/test_masked_branch.py
#: breaks them in its own process, and docs/reliability.md names them as steps without a record.
WITHOUT_LABORATORY = {"masked.written", "mask.noted"}


def test_the_campaign_reaches_every_named_step() -> None:
    known = {fault for lab in LABS for fault in faults_of(lab)}
    assert set(NAMES) > WITHOUT_LABORATORY
    for name in sorted(set(NAMES) - WITHOUT_LABORATORY):
        for what in ("kill -9", "error", "another fault"):
            assert any(fault.startswith(f"{what} at {name}") for fault in known), name
