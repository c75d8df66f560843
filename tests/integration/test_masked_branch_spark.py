"""A branch that masks, with tasks in processes of Spark, several at a time and staged ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.test_masked_branch import add, make, masked_chain, on_root
from tests.integration.test_obfuscate import expected, insert, leaks, present
from tests.labs.chain import Chain, make_chain
from tests.labs.handlers import UseHandlers, use_handlers

__all__ = ["make_chain", "use_handlers"]

pytestmark = pytest.mark.spark


@pytest.mark.timeout(600)
def test_masked_on_spark(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers, spark: Any
) -> None:
    chain = make(make_chain, use_handlers, spark=spark, max_batch_events=3000)
    chain.table("public.plain", "create table plain (id int primary key, v text)")
    for node in chain.followers:
        node.parallel = 2
    on_root(chain)
    masked_chain(chain)
    add(chain, "n3")
    for low in range(0, 4000, 1000):
        insert(chain.root, *range(low, low + 1000))
        chain.root.execute(
            f"insert into plain select i, 'plain ' || i from generate_series({low}, {low + 999}) i"
        )
        chain.root.execute("update people set name = 'PLANTED ' || id where id %% 3 = 0", [])
        chain.root.execute("update people set id = id + 10000 where id = %s", [low + 5])
        chain.tick()
    chain.root.execute("delete from people where id %% 50 > 0", [])
    chain.work_until(lambda: chain.states("n3")["public.people"] == "ok")
    chain.catch_up()
    chain.require_same("plain")
    for name in ("n2", "n3"):
        assert present(chain[name].db) == expected(chain.root)
        assert list(leaks(chain[name].db)) == []
