"""An error of the root's worker that is over is not shown any longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.node.info import get_node_info
from vedur.node.state import set_consumer_error
from vedur.status.snapshot import read_node
from vedur.worker.loop import Worker

__all__ = ["quick_leaf"]


def test_a_look_that_succeeds_clears_the_error_of_the_root(
    quick_leaf: Callable[..., Leaf],
) -> None:
    leaf = quick_leaf()
    info = get_node_info(leaf.root, QUEUE)
    assert info is not None and info.worker_name is not None
    set_consumer_error(leaf.root, QUEUE, info.worker_name, "the server was restarted")
    assert read_node(leaf.root, QUEUE, info.node_name).errors
    settings = replace(leaf.settings, db=leaf.root.connstr)
    Worker(settings, lambda provider, state: pytest.fail("a root replays nothing")).work()
    assert read_node(leaf.root, QUEUE, info.node_name).errors == ()
