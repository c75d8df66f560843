"""The short part of the campaign: a few faults of different kinds, always the same ones."""

from __future__ import annotations

import pytest

from tests.torture.campaign import Campaign
from tests.torture.faults import FAULTS
from vedur.failpoint import NAMES

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]

SEED = 20
SHORT = (
    "leaf's server: immediate stop",
    "error at batch.merged",
    "kill -9 at batch.committed",
    "network to the root: cut",
    "leaf's disk: full",
    "ticker: kill -9",
    "Spark's Python task process: kill -9",
)


def test_a_few_faults_leave_nothing_different_and_nothing_behind() -> None:
    with Campaign(SEED, say=False) as campaign:
        outcomes = {name: campaign.cycle(name)["outcome"] for name in SHORT}
    assert {n: o for n, o in outcomes.items() if o not in ("recovered", "skipped")} == {}
    assert sum(outcome == "recovered" for outcome in outcomes.values()) >= len(SHORT) - 1


#: Works whose steps need a branch, or a set of more nodes than the campaign's laboratory has. Their
#: crashes are in tests/integration: test_branch.py, test_branch_copy.py, test_moving_nodes.py,
#: test_takeover.py, test_failover.py. The list may only become smaller.
ELSEWHERE = {"branch", "drop", "tag", "rename", "tick", "takeover", "reign"}


def test_the_campaign_reaches_every_named_step() -> None:
    for name in NAMES:
        if name.partition(".")[0] in ELSEWHERE:
            continue
        for what in ("kill -9", "error", "another fault"):
            assert f"{what} at {name}" in FAULTS
