"""What the campaign decides without a laboratory: which faults come first, which ticks differ."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.__main__ import untried
from tests.torture.checks import Failed
from tests.torture.merging.checks import require_same
from tests.torture.queues import Ticks, own_watermarks


def test_what_no_laboratory_has_a_record_of_comes_first(tmp_path: Path) -> None:
    records = [
        {"fault": "error at batch.merged", "outcome": "recovered"},
        {"fault": "kill -9 at batch.merged", "outcome": "FAILED"},
        {"fault": "ticker: kill -9", "outcome": "recovered", "lab": "cascade"},
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    anywhere, here = untried(path, "cascade")
    assert "error at batch.merged" not in anywhere  # the other laboratory has broken this step
    assert "error at batch.merged on the branch" not in anywhere
    killed = {"kill -9 at batch.merged", "kill -9 at batch.merged on the branch"}
    assert len(killed & anywhere) == 1  # one of them is enough
    assert killed <= here
    assert {"error at batch.merged", "error at batch.merged on the branch"} <= here
    assert "ticker: kill -9" not in anywhere | here


def ticks(*, md5: str = "m", told: list[str] | None = None) -> Ticks:
    return {7: ("time", 100, 3, md5, told)}


def test_a_watermark_of_its_own_is_told_by_a_synced_branch_only() -> None:
    root, behind, ahead = ticks(told=["50"]), ticks(told=["49"]), ticks(told=["51"])
    assert own_watermarks(root, root, synced=False) == 0
    assert own_watermarks(root, behind, synced=True) == 1
    for have, synced in ((behind, False), (ahead, True), (ahead, False)):
        with pytest.raises(Failed, match="root has"):
            own_watermarks(root, have, synced=synced)


@pytest.mark.parametrize(
    "have",
    [
        pytest.param({}, id="a tick is missing"),
        pytest.param(ticks() | {8: ("time", 100, 0, None, None)}, id="a tick too many"),
        pytest.param(ticks(md5="other"), id="an event differs"),
    ],
)
def test_nothing_else_may_differ(have: Ticks) -> None:
    with pytest.raises(Failed, match="root has"):
        own_watermarks(ticks(), have, synced=True)


@pytest.mark.parametrize(
    ("have", "said"),
    [
        pytest.param(["a", "b"], "1 missing, 0 too many", id="a row is lost"),
        pytest.param(["a", "b", "b", "c"], "0 missing, 1 too many", id="a row comes twice"),
        pytest.param(["a", "b", "x"], "1 missing, 1 too many", id="a row differs"),
    ],
)
def test_the_union_of_parts_is_exact(have: list[str], said: str) -> None:
    union = Counter(["a", "b"]) + Counter(["c"])
    require_same("t", Counter(["c", "b", "a"]), union)
    with pytest.raises(Failed, match=f"the root has 3: {said}"):
        require_same("t", Counter(have), union)
