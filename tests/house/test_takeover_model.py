"""docs/design/takeover-model.md is true of the code, and spin agrees with the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.cases import MISTAKES, SCENARIOS
from model.spin import MODEL, ModelError, Search, missing_programs, read_search, search, trail
from tests.fixtures.wants import wanting
from tests.house.test_overview import PACKAGE, missing_from

PAGE = PACKAGE.parent / "docs" / "design" / "takeover-model.md"

needs_spin = pytest.mark.skipif(bool(missing_programs()), reason=wanting("spin"))


def test_what_the_page_names_exists() -> None:
    assert missing_from(PAGE.read_text("utf-8")) == [], f"{PAGE.name}: moved or renamed"


def test_every_process_of_the_model_is_on_the_page() -> None:
    processes = set(re.findall(r"^proctype (\w+)", MODEL.read_text("utf-8"), re.MULTILINE))
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE))
    assert sorted(processes - rows) == []
    # inlines have rows, too, where they stand for code of their own
    inlines = set(re.findall(r"^inline (\w+)", MODEL.read_text("utf-8"), re.MULTILINE))
    assert sorted(rows - processes - inlines) == [], "the model has no such process"


def test_every_mistake_can_be_planted() -> None:
    """A flag that the model does not know would plant nothing, and nothing would be found."""
    text = MODEL.read_text("utf-8")
    flags = set(re.findall(r"^#(?:ifdef|ifndef) (\w+)", text, re.MULTILINE))
    flags |= set(re.findall(r"defined\((\w+)\)", text))
    known = {mistake.flag for mistake in MISTAKES}
    assert sorted(known - flags) == []
    settings = {"T", "CRASHES", "LOSSES", "IDLE"}
    scenarios = {flag.split("=")[0] for s in SCENARIOS for flag in s.flags} - settings
    assert sorted(flags - known - settings - scenarios) == [], "planted by nobody"
    assert {mistake.scenario for mistake in MISTAKES} <= {scenario.name for scenario in SCENARIOS}


def test_the_table_of_proofs_names_what_there_is() -> None:
    text = PAGE.with_name("takeover.md").read_text("utf-8")
    named = set(re.findall(r"(?:tests|vedur)/[\w/]+\.py", text))
    assert len(named) > 15
    assert sorted(name for name in named if not (PACKAGE.parent / name).is_file()) == []
    assert f"{len(SCENARIOS)} scenarios hold, {len(MISTAKES)} planted mistakes are found" in text


REPORT = """
State-vector 232 byte, depth reached 173, errors: {errors}
  1173087 states, stored
"""


def test_the_report_of_a_search() -> None:
    assert read_search(REPORT.format(errors=0)) == Search(1173087, "", 0, True)
    told = "pan:1: assertion violated (1==2) (at depth 40)\n" + REPORT.format(errors=1)
    found = read_search(told)
    assert (found.violated, found.depth, found.holds) == ("assertion violated (1==2)", 40, False)
    cut = read_search("error: max search depth too small\n" + REPORT.format(errors=0))
    assert not cut.holds, "a search that leaves states out proves nothing"
    with pytest.raises(ModelError, match="without a report"):
        read_search("pan: out of memory")


@needs_spin
def test_the_model_holds(tmp_path: Path) -> None:
    scenario = next(s for s in SCENARIOS if s.short is not None)
    assert search(scenario.chosen(True), tmp_path, quick=True).holds


@needs_spin
def test_a_planted_mistake_is_found_and_shown(tmp_path: Path) -> None:
    """The two that a takeover must not make; make model plants all."""
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    for flag, name in (("NO_WAIT", "live"), ("NO_EPOCH", "dead")):
        flags = (*by_name[name].chosen(True), flag)
        found = search(flags, tmp_path / flag, quick=True)
        assert "assertion violated" in found.violated, flag
        assert any("takeover.pml" in line for line in trail(flags, tmp_path / flag)), flag
