"""A worker whose Spark has gone; that Java is really killed is in acceptance/test_worker_crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.in_process import quick_leaf  # noqa: F401
from tests.labs.leaf import Leaf


def test_it_is_seen_and_started_again_while_nothing_happens(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    leaf.catch_up()
    lost = False
    leaf.worker.spark_lost = lambda thorough: lost
    assert not leaf.worker._work_safely(), "there is nothing to do"
    runner = leaf.runner
    lost = True
    assert leaf.worker._work_safely(), "it looks again"
    assert "Spark has ended on its own: it is started again" in caplog.text
    lost = False
    leaf.root.execute("insert into t values (1)")
    leaf.catch_up()
    assert leaf.runner is not runner
    assert leaf.same("t") == ["(1)"]
