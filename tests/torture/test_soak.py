"""What is made of the record of a load campaign."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.torture.report import page
from tests.torture.soak import compact, grows
from tests.torture.soak_plot import draw
from tests.torture.soak_verdict import load_section, slope, trends

MEMORY = ("java", "driver", "tasks", "pg_root", "pg_leaf", "ticker", "root_worker")


def report(**columns: list[float]) -> dict[str, Any]:
    times = [5.0 * i for i in range(360)]
    base = {f"mb_{role}": [100.0] * len(times) for role in MEMORY}
    sizes = {"queue_mb": [9.0] * len(times), "stage_mb": [1.0] * len(times)}
    found = {
        "t": times,
        "lag": [0.5] * len(times),
        "events": [10.0] * len(times),
        "rate": [700.0] * len(times),
        "rotations": [float(i // 6) for i in range(len(times))],
    }
    return {
        "minutes": 30.0,
        "rate": 700,
        "events": 2_500_000,
        "steps": [{"rate": 700, "reached": 699, "max_lag": 1.2, "bounded": True}],
        "servers": {"root": 16, "leaf": 18},
        "cpus": 2,
        "machine": {"before": 1.0, "after": 2.0},
        "columns": {**found, **base, **sizes, **columns},
        "downs": [{"t": 600.0, "rate": 595}],
        "proof": {"rows": 1_000_000, "compare": "equal", "caught_up_seconds": 1.5},
    }


def test_a_slope_is_that_of_the_line() -> None:
    assert slope([0, 1, 2, 3], [5, 7, 9, 11]) == pytest.approx(2.0)
    assert slope([1, 1], [5, 7]) == 0.0


def test_memory_that_grows_is_named() -> None:
    leak = [100.0 + 0.05 * i for i in range(360)]  # 36 MB an hour
    text = load_section(report(mb_driver=leak, lag=[0.5] * 359 + [7.25]))
    assert "memory of driver (Python) grew" in text
    assert "| driver (Python) | 113 | 118 | +36.0 | grows |" in text
    assert "| Java | 100 | 100 | +0.0 | steady |" in text
    assert "largest lag 7.2 s, 59 tables rotated" in text
    assert "to 595 after 10 min" in text


def test_a_queue_that_is_not_rotated_is_said_to_grow() -> None:
    filling = [1.0 * i for i in range(360)]
    teeth = [float(i % 40) for i in range(360)]
    assert "Event tables of the queue **grew**" in load_section(report(queue_mb=filling))
    assert "Event tables of the queue did not grow: at most 39" in load_section(
        report(queue_mb=teeth)
    )


def test_a_beginning_that_warms_up_is_no_leak() -> None:
    warm = [min(300.0, 100.0 + 2 * i) for i in range(360)]
    assert all(trend.steady for trend in trends(report(mb_java=warm)["columns"]))
    assert "no memory grew" in load_section(report(mb_java=warm))


def test_memory_that_comes_to_its_level_late_is_told_from_a_leak() -> None:
    late = [min(500.0, 200.0 + i) for i in range(360)]
    assert "no memory grew without end (Java's at 500 MB levelled off)" in load_section(
        report(mb_java=late)
    )
    assert "memory of Java grew" in load_section(report(mb_java=[200.0 + i for i in range(360)]))


@pytest.mark.parametrize(
    ("lags", "verdict"),
    [([1, 1, 1, 1, 1, 1], False), ([1, 2, 4, 6, 8, 10], True), ([20, 15, 10, 9, 7, 6], False)],
)
def test_what_a_growing_lag_is(lags: list[float], verdict: bool) -> None:
    assert grows(lags) is verdict


def test_the_record_can_be_read_again_and_the_picture_is_the_same() -> None:
    made = report()
    again = json.loads(compact(made))
    assert again == made
    picture = draw(again)
    assert picture == draw(made)
    assert picture.startswith("<?xml") and "queue's event tables" in picture


def test_the_page_has_it_where_there_is_a_record() -> None:
    record = {"seed": 1, "cycle": 1, "fault": "ticker: kill -9", "outcome": "recovered"}
    record |= {"note": {}, "recovery": 2.0, "seconds": 4.0, "machine": 3.0, "transactions": 10}
    assert "## Load without faults" in page([record], report())
    assert "## Load without faults" not in page([record])
