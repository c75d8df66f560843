"""A real worker on Spark fills the log of batches, and the page shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.leaf import Leaf, make_leaf
from vedur.status.overview import open_reader

__all__ = ["make_leaf"]

pytestmark = [pytest.mark.spark]


def test_batches_of_a_worker(make_leaf: Callable[..., Leaf]) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table public.t (id int primary key, v text)")
    leaf.catch_up()
    leaf.root.execute("insert into t select i, 'x' from generate_series(1, 500) i")
    leaf.catch_up()
    leaf.root.execute("update t set v = 'y' where id <= 40")
    leaf.catch_up()
    assert len(leaf.same("public.t")) == 500
    reader = open_reader(leaf.settings, "test")
    try:
        node = reader.read().local
    finally:
        reader.close()
    newest, before = node.batches[:2]
    assert (newest.events, before.events) == (40, 500)
    assert newest.events_total == before.events_total + 40
    assert newest.tick_id == node.status.tick == leaf.pair.tick() - 1
    for batch in (newest, before):
        assert min(batch.stage_seconds, batch.merge_seconds, batch.commit_seconds) > 0
        assert batch.finish_seconds > 0
    assert node.rate is not None and node.rate >= 540 / 60
