"""Names of metrics: Prometheus' conventions, and the ones that dashboard and alerts ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path

from vedur.web.metrics import GENERAL, METRICS

ROOT = Path(__file__).parents[3]


def exposed() -> set[str]:
    """The names as a scraper sees them."""
    return {name for name, *_ in GENERAL} | {
        f"{item.name}_total" if item.counter else item.name for item in METRICS
    }


def test_names_follow_the_conventions() -> None:
    assert len(exposed()) == len(METRICS) + len(GENERAL)
    for name in exposed():
        assert re.fullmatch(r"vedur_[a-z]+(_[a-z]+)*", name), name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|count|sum|bucket)$", name), name
    for item in METRICS:
        assert not item.name.endswith("_total")
        assert item.help and not item.help.endswith(".")


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    board = json.loads((ROOT / "packaging" / "grafana" / "vedur.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) >= 10
    used = {name for text in queries for name in re.findall(r"\bvedur_\w+", text)}
    assert used <= exposed(), used - exposed()
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_alert_rules_ask_for_metrics_that_exist() -> None:
    text = (ROOT / "docs" / "how-to" / "operate.md").read_text()
    used = set(re.findall(r"\bvedur_[a-z_]+", text))
    assert {"vedur_up", "vedur_node_lag_seconds", "vedur_node_errors"} <= used
    assert used <= exposed(), used - exposed()
