"""The arithmetic and the page of the benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from bench import report, stats
from bench.__main__ import PARTS
from bench.peers.lineup import Lineup
from bench.progress import LINE, Steps
from bench.targets import TARGETS, Target
from vedur.errors import StateError

RUNS = {"native": [2.0, 4.0, 8.0], "vedur": [1.0, 1.0, 16.0]}


def test_ratios_are_taken_within_rounds() -> None:
    found = stats.summary(RUNS)
    # 1/2, 1/4, 16/8: not the ratio of medians, which is 1/4
    assert found["vedur"] == {
        "median": 1.0, "min": 1.0, "max": 16.0, "ratio": 0.5, "ratio_min": 0.25, "ratio_max": 2.0,
    }  # fmt: skip
    assert stats.spread(found["vedur"]) == "0.50 (0.25..2.00)"


def test_without_the_other_there_is_no_ratio() -> None:
    found = stats.summary({"vedur": [3.0]})
    assert found == {"vedur": {"median": 3.0, "min": 3.0, "max": 3.0}}
    assert stats.spread(found["vedur"]) == ""


def test_rounds_of_different_length_are_no_summary() -> None:
    with pytest.raises(ValueError, match="zip"):
        stats.summary({"native": [1.0, 2.0], "vedur": [1.0]})


def test_quantiles_stay_within_what_was_seen() -> None:
    found = stats.quantiles([float(n) for n in range(1, 11)])
    assert found["p50"] == 5.5
    assert found["p50"] < found["p90"] < found["p99"] <= found["max"] == 10.0


def test_latency_is_the_median_over_rounds() -> None:
    rounds = [{"peer": "vedur", "p50": v, "p90": v, "p99": v, "max": v} for v in (1.0, 5.0, 2.0)]
    assert stats.quantiles_of_rounds(rounds)["vedur"]["p50"] == 2.0


def test_a_table_of_seconds() -> None:
    lines = report.seconds(stats.summary(RUNS), events=100).splitlines()
    assert lines[0].endswith("| ratio to native (min..max) | events/s |")
    assert lines[3] == "| vedur | 1.00 (1.00..16.00) | 0.50 (0.25..2.00) | 100 |"


def _apply(events: int) -> dict[str, Any]:
    return {
        "apply": {
            "events": events, "rounds": 3, "loads": [1.0, 2.5], "seconds": RUNS,
            "bulk_seconds": RUNS, "catch_up": stats.summary(RUNS), "bulk": stats.summary(RUNS),
            "absent": {"slony": "not installed: slon"},
        }
    }  # fmt: skip


def test_a_null_sink_has_a_row_where_it_was_measured() -> None:
    found = _apply(400_000)
    assert "null sink" not in report._apply(found)
    rows = [{"events": 400_000, "seconds": s, "cpu": s / 2, "written": 1} for s in (0.5, 0.8, 0.6)]
    found["apply"]["null_sink"] = rows
    assert "writes nothing: 0.60 s, 0.75 µs of its CPU an event." in report._apply(found)


def test_a_page_is_filled_between_its_marks_only() -> None:
    page = (
        "before\n<!-- bench:apply -->\nold\n<!-- /bench -->\n"
        "between\n<!-- bench:copy -->\n<!-- /bench -->\nafter\n"
    )
    filled = report.fill(page, _apply(400_000), ["apply"])
    assert filled.startswith("before\n<!-- bench:apply -->\n")
    assert filled.endswith("<!-- /bench -->\nafter\n")
    assert "old" not in filled
    assert "\nbetween\n" in filled
    assert "Catching up with 400,000 events" in filled
    assert "![apply](images/bench_apply.svg)" in filled
    assert "slony did not take part: not installed: slon." in filled
    assert "Load average before the rounds: 1.0 to 2.5." in filled
    assert "Not measured yet: `make bench PART=copy`." in filled
    assert report.fill(filled, _apply(400_000), ["apply"]) == filled


def test_the_pages_have_all_places() -> None:
    manual, readme = (page.read_text() for page in report.PAGES)
    for name in report.BLOCKS:
        assert f"<!-- bench:{name} -->" in (readme if name == "everyone" else manual)


def test_the_pages_are_as_the_reports_make_them() -> None:
    """But for the plots, which only a run of the report draws."""
    reports = report.load(report.RESULTS)
    for page, at in report.PAGES.items():
        text = page.read_text()
        plots = [path.stem for path in report.RESULTS.glob("*.svg")]
        assert report.fill(text, reports, plots, at) == text, "run python -m bench.report"


def test_everyone_in_one_table() -> None:
    lines = report.block("everyone", _apply(400_000), ["apply"], "docs/images").splitlines()
    assert lines[0] == "| seconds, medians | vedur | native |"
    assert lines[2] == "| catching up with 400,000 events | 1 | 4 |"
    assert lines[-1] == "![apply](docs/images/bench_apply.svg)"


def test_verdicts() -> None:
    target = Target("1", "what", "s", lambda r: float(r["part"]["value"]), 0.4)
    assert target.verdict({"part": {"value": 0.4}}) == "met"
    assert target.verdict({"part": {"value": 0.41}}) == "**not met**"
    assert target.verdict({}) == "not measured"
    unlimited = Target("1", "what", "s", lambda r: 1.0)
    assert unlimited.verdict({}) == "no limit set"
    least = Target("1", "what", "s", lambda r: 2.0, 1.0, ">=", ("part", "rows", 10))
    assert least.verdict({"part": {"rows": 10}}) == "met"
    assert least.verdict({"part": {"rows": 9}}) == "the run was too small"


def test_targets_without_a_run_are_named_so() -> None:
    assert {target.verdict({}) for target in TARGETS} == {"not measured"}
    text = report.block("targets", _apply(1000))
    assert "| 0.50 ratio |" in text
    assert "the run was too small" in text


def test_steps_are_read_by_the_runner(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Steps(2)
    bar.done("one thing")
    found = LINE.match(capsys.readouterr().out)
    assert found and found.groups() == ("1", "2", "one thing")


def test_every_part_has_a_small_size() -> None:
    assert all(part.quick for part in PARTS)


class _Failing:
    """A peer that cannot be prepared."""

    closed = False

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self) -> None:
        raise StateError("first line\nno such thing")

    def close(self) -> None:
        self.closed = True


def test_a_peer_that_fails_is_named_and_the_others_go_on() -> None:
    slony = _Failing("slony")
    lineup = Lineup([slony])  # type: ignore[list-item]
    assert not lineup.attempt(slony, slony.prepare, "set-up failed", Steps(1))  # type: ignore[arg-type]
    assert slony.closed
    assert lineup.peers == []
    assert lineup.absent == {"slony": "set-up failed: no such thing"}
    assert not lineup.attempt(slony, lambda: None, "again", Steps(1))  # type: ignore[arg-type]


def test_an_error_of_ours_ends_the_run() -> None:
    ours = _Failing("vedur")
    with pytest.raises(StateError):
        Lineup([ours]).attempt(ours, ours.prepare, "set-up failed", Steps(1))  # type: ignore[list-item,arg-type]
