"""The pages that describe a first copy say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from vedur.worker.first_copy.context import Step
from vedur.worker.first_copy.states import _NEXT, MergeState

DOCS = Path(__file__).parents[4] / "docs" / "design"


def test_the_page_lists_the_steps() -> None:
    page = (DOCS / "first-copy.md").read_text()
    listed = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert listed == [(str(int(step)), step.title) for step in Step]


def test_the_page_lists_the_transitions() -> None:
    page = (DOCS / "table-states.md").read_text()
    rows = re.findall(r"^\| (\S+?),? .*?\| (worker|copy) \| `([a-z-]+)", page, re.MULTILINE)
    rows = [r for r in rows if r[0] != "`ok`"]
    listed = {}
    for word, owner, following in rows:
        name = word.strip("`").partition(":")[0]
        state = MergeState.parse(None if name == "(none)" else name).state
        listed[state] = (owner, following)
    assert listed == {s: (str(owner), str(n)) for s, (owner, n) in _NEXT.items()}
