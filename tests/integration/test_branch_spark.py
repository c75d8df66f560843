"""Root, branch and leaf with real workers on Spark, side by side and under load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.test_branch import change
from tests.labs.chain import Chain
from tests.labs.pair import QUEUE, call
from vedur.change.attrs import encode_attrs
from vedur.clock import SYSTEM
from vedur.db import connect

pytestmark = pytest.mark.spark

TABLE = "create table t (id int primary key, v text)"


@pytest.mark.draw("branches")
@pytest.mark.timeout(600)
def test_a_chain_under_load(make_chain: Callable[..., Chain], spark: Any) -> None:
    chain = make_chain(3, spark=spark, local_wm_publish_period=0.2, global_wm_publish_period=0.2)
    chain.table("public.t", TABLE)
    for node in chain.followers:
        node.parallel = 2
    for node in chain.nodes:
        node.db.execute("create table copied (id int primary key, v text)")
    chain.root.execute("insert into copied select i, 'c' || i from generate_series(1, 5000) i")
    call(chain.root, "londiste.local_add_table", QUEUE, "public.copied")
    threads = [threading.Thread(target=node.worker.run, daemon=True) for node in chain.nodes]
    over = threading.Event()
    threads.append(threading.Thread(target=_tick, args=(chain, over), daemon=True))
    for thread in threads:
        thread.start()
    try:
        for node in chain.followers:
            call(node.db, "londiste.global_add_table", QUEUE, "public.copied")
            args = (QUEUE, "public.copied", [], encode_attrs({}), "public.copied")
            call(node.db, "londiste.local_add_table", *args)
        for step in range(40):
            change(chain, step)
            chain.root.execute(f"update copied set v = v || '.' where id % 40 = {step}")
            if step == 20:
                chain.root.execute("truncate t")
                chain.root.execute("insert into t select i, 'big' from generate_series(1, 30000) i")
                chain.root.execute("delete from t where id > 100")
        wanted = {"public.t": "ok", "public.copied": "ok"}
        _wait(lambda: all(chain.states(node.name) == wanted for node in chain.followers))
    finally:
        over.set()
        threads.pop().join(120)
    last = chain.tick()
    _wait(lambda: all(node.position == last for node in chain.followers))
    for node in chain.nodes:
        node.worker.signals.stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(chain.require_same("copied")) == 5000
    chain.require_same("t")
    assert chain.require_queues() > 30_000
    errors = "select cur_error from pgq_node.local_state where cur_error is not null"
    assert [node.db.query(errors) for node in chain.nodes] == [[], [], []]


def _tick(chain: Chain, over: threading.Event) -> None:
    with connect(chain.root.connstr, autocommit=True) as db:
        while not over.wait(0.05):
            db.value("select pgq.force_tick(%s)", [QUEUE])
            db.value("select pgq.ticker(%s)", [QUEUE])


def _wait(done: Callable[[], bool]) -> None:
    end = SYSTEM.monotonic() + 200
    while not done():
        assert SYSTEM.monotonic() < end, "that takes too long"
        SYSTEM.sleep(0.1)
