"""What the lines about batches say."""

from __future__ import annotations

import logging

import pytest

from vedur.queue.batches import Batch
from vedur.worker.stats import Stats

LOG = logging.getLogger("vedur.test")
BATCH = Batch(7, 812, 815, 0, 2)


def test_the_line_of_a_batch_is_names_with_numbers_and_tells_the_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Upstream's form, which programs read: sorted names, nothing but numbers behind them."""
    caplog.set_level(logging.DEBUG)
    stats = Stats()
    stats.worked(LOG, BATCH, {"count": 2, "ignored_events": 1}, 10.0, 10.5)
    stats.worked(LOG, BATCH, {"count": 0}, 12.0, 12.25)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "{count: 2, duration: 0.50, ignored_events: 1, prev_tick: 812, tick: 815}"),
        ("DEBUG", "{count: 0, duration: 0.25, idle: 1.50, prev_tick: 812, tick: 815}"),
    ]
