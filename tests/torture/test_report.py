"""The page that the campaign makes of its records."""

from __future__ import annotations

import json
from typing import Any

from tests.torture.report import LOAD, PAGE, RESULTS, load, page
from vedur.failpoint import POINTS


def record(fault: str, outcome: str = "recovered", seed: int = 1, **more: Any) -> dict[str, Any]:
    base = {"seed": seed, "cycle": 1, "fault": fault, "outcome": outcome, "note": {}}
    numbers = {"recovery": 2.0, "seconds": 4.0, "machine": 3.0, "transactions": 10}
    return base | numbers | more


def test_cycles_are_counted_by_fault_with_median_and_maximum() -> None:
    records = [record("ticker: kill -9", recovery=t) for t in (1.0, 2.0, 9.0)]
    assert "| ticker: kill -9 | 3 | 3 | 2.0 | 9.0 |" in page(records)
    assert "**3 crash-recover cycles, 0 differences.**" in page(records)


def test_failures_are_not_hidden() -> None:
    bad = record("error at batch.merged", "FAILED", error="Failed: t.acct: (1, a), root has (2, b)")
    other = record("ticker: kill -9", "FAILED", error="Failed: files left: [x]")
    text = page([bad, other, record("error at batch.merged")])
    assert "**1 crash-recover cycles, 1 differences.**" in text
    assert "ticker: kill -9: `Failed: files left: [x]` Not looked into yet." in text
    assert "| error at batch.merged | 2 | 1 | 2.0 | 2.0 |" in text


def test_steps_that_were_not_reached_count_for_nothing() -> None:
    text = page([record("error at ahead.taken", "not reached"), record("ticker: kill -9", seed=2)])
    assert "**1 crash-recover cycles" in text
    assert "| error at ahead.taken" not in text
    assert "- ahead.taken: another fault, error, kill -9" in text
    assert "1 cycles whose step did not come in time" in text
    assert "2 (1)" in text


def test_a_step_is_whole_with_an_error_a_kill_and_another_fault_in_any_laboratory() -> None:
    ways = ["error at batch.merged", "another fault at batch.merged on the branch"]
    records = [record(way, lab="cascade") for way in ways]
    text = page(records).partition("Named steps of all")[2]
    assert " 0 have a record of an error, a kill -9 and another fault" in text
    assert "| batch.merged | 1 | – | 1 |" in text
    text = page([*records, record("kill -9 at batch.merged")]).partition("Named steps of all")[2]
    assert " 1 have a record of an error, a kill -9 and another fault" in text
    assert "| batch.merged | 1 | 1 | 1 |" in text
    for work, whats in POINTS.items():
        assert all(f"| {work}.{what} |" in text for what in whats)


def test_words_of_a_fault_that_are_no_step_are_left_in_its_name() -> None:
    name = "one queue is ended at once (-k), then all"
    text = page([record(name, lab="merge")]).partition("Eight parts into one: 1")[2]
    assert f"| {name} | 1 | 1 | 2.0 | 2.0 |" in text.partition("Faults at named steps")[0]


def test_memory_of_the_process_of_eight_queues_is_that_with_java() -> None:
    records = [record("all workers: kill -9", lab="merge", megabytes=m) for m in (700, 900, 1100)]
    records += [record("all workers: kill -9", lab="merge", plain=True, megabytes=200)]
    text = page([*records, record("all workers: kill -9", lab="merge")])
    assert "tasks took 1,100 MB at most,\n900 MB in the median of 3 cycles" in text
    assert "MB at most" not in page(records[3:])


def test_what_broke_while_a_step_was_held_has_its_own_table() -> None:
    held = {"meanwhile": "leaf's server crashes"}
    text = page([record("another fault at batch.merged", note=held)])
    assert "| leaf's server crashes | 1 | 2.0 | 2.0 |" in text


def test_the_page_is_made_from_the_record() -> None:
    campaign = json.loads(LOAD.read_text()) if LOAD.exists() else None
    assert PAGE.read_text() == page(load([RESULTS]), campaign), (
        "docs/reliability.md is out of date: python -m tests.torture.report"
    )
