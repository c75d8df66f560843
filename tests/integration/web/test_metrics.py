"""Values of metrics, as the databases have them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.samples import Sample

from tests.labs.status_page import QUEUE, Browser, SetLab
from tests.labs.tree import Tree, tree
from tests.unit.web.test_metrics import exposed
from vedur.node.state import set_consumer_error
from vedur.web.metrics import GENERAL, METRICS

__all__ = ["tree"]

OpenPage = Callable[..., Browser]


def _key(sample: Sample) -> tuple[str | None, ...]:
    """Name, node, and the labels that are neither queue nor node."""
    more = [value for key, value in sample.labels.items() if key not in ("queue", "node")]
    return sample.name, sample.labels.get("node"), *more


def test_values(lab: SetLab, open_page: OpenPage) -> None:
    lab.dbs["src"].execute("insert into shop.orders select i, 'x' from generate_series(1, 300) i")
    tick = lab.tick()
    lab.applied("dst", tick)
    lab.log_batch("dst", tick - 2, tick - 1, 40, 0.5, 0.25, 0.125, 0.0625)
    lab.log_batch("dst", tick - 1, tick, 2, 1.5, 0.25, 0.125, 0.0625)
    set_consumer_error(lab.dbs["eu"], QUEUE, lab.worker("eu"), "division by zero")
    page = open_page(lab.sessions["src"])
    answer = page.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = {_key(s): s.value for family in read_text(answer.text) for s in family.samples}
    assert samples["vedur_up", None] == 1
    assert samples["vedur_node_up", "eu"] == 1
    assert samples["vedur_node_lag_seconds", "dst"] == 0
    assert samples["vedur_node_lag_seconds", "eu"] > 0
    assert samples["vedur_node_backlog_events", "eu"] >= 300
    assert samples["vedur_node_tick_id", "dst"] == tick
    assert samples["vedur_node_tables", "dst", "ok"] == 2
    assert samples["vedur_node_errors", "eu"] == 1
    assert samples["vedur_node_batches_total", "dst"] == 2
    assert samples["vedur_node_events_applied_total", "dst"] == 42
    assert samples["vedur_node_last_batch_seconds", "dst", "stage"] == 1.5
    assert samples["vedur_queue_events_total", "src"] >= 300
    assert samples["vedur_queue_size_bytes", "src", "0"] > 0
    assert samples["vedur_consumer_pending_events", "src", "eu_job"] >= 300
    assert samples["vedur_problems", None, "fail"] == 1
    # every name that is declared and has something to say is there, and no other
    names = {key[0] for key in samples}
    silent = {"vedur_copy_rows", "vedur_copy_estimated_rows", "vedur_copy_bytes"}
    silent |= {"vedur_node_quarantine_events", "vedur_sequence_published_value"}
    assert names == exposed() - silent


def test_values_of_a_tree(tree: Tree, open_page: OpenPage) -> None:
    """A branch has all, the leaf below it is 100 s behind and holds both queues."""
    tree.add("mid", "branch")
    tree.add("dst", "leaf", "mid")
    first = tree.tick()
    tree.everybody_reaches(first)
    last = tree.tick()
    tree.reach("mid", last)
    for name in ("src", "mid"):
        tree.dbs[name].execute(
            "update pgq.tick set tick_time = tick_time - interval '100 s' where tick_id <= %s",
            [first],
        )
    for name, below, mark in (("src", "mid", first), ("mid", "dst", last)):
        tree.dbs[name].execute(
            "select pgq.register_consumer_at('q', %s, %s)", [f".{below}.watermark", mark]
        )
    answer = open_page(tree.sessions["src"]).get("/metrics")
    samples = {_key(s): s.value for family in read_text(answer.text) for s in family.samples}
    lags = {key[1]: value for key, value in samples.items() if key[0].endswith("_hop_lag_seconds")}
    assert lags == pytest.approx({"mid": 0, "dst": 100}, abs=5)
    held = {key[1:]: value for key, value in samples.items() if key[0].endswith("_held_seconds")}
    assert held.keys() >= {("src", "dst", "mid")}
    assert held == pytest.approx(dict.fromkeys(held, 100), abs=60)


def test_openmetrics_where_asked_for(lab: SetLab, open_page: OpenPage) -> None:
    page = open_page(lab.sessions["src"])
    answer = page.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(read_openmetrics(answer.text))) == len(METRICS) + len(GENERAL)
