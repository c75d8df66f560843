"""Servers that go away in the middle: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.clock import FakeClock
from tests.fixtures.proxy import Proxy
from tests.labs.leaf import Leaf
from tests.labs.pair import WORKER
from vedur.db.conninfo import parse, with_params

pytestmark = pytest.mark.spark


def behind_proxies(leaf: Leaf, make_proxy: Callable[[int], Proxy]) -> tuple[Proxy, Proxy]:
    """Put a proxy before the target and one before the provider."""
    target = make_proxy(int(parse(leaf.leaf.connstr)["port"]))
    provider = make_proxy(int(parse(leaf.root.connstr)["port"]))
    leaf.settings = dataclasses.replace(
        leaf.settings,
        db=with_params(leaf.leaf.connstr, host="127.0.0.1", port=str(target.port)),
        remote_extra_connstr=f"host=127.0.0.1 port={provider.port}",
    )
    leaf.worker.settings = leaf.settings
    return target, provider


def test_a_target_that_is_down_is_waited_for(
    make_leaf: Callable[..., Leaf],
    make_proxy: Callable[[int], Proxy],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaf = make_leaf()
    target, _ = behind_proxies(leaf, make_proxy)
    leaf.pair.table("public.t", "create table t (id int primary key, v int)")
    leaf.root.execute("insert into t select i, 0 from generate_series(1, 50) i")
    leaf.catch_up()
    target.cut()
    leaf.root.execute("update t set v = v + 1")
    leaf.pair.tick()
    assert leaf.worker._work_safely()
    assert "Failure to call pgq_node.set_consumer_error()" in caplog.messages
    assert any(m.startswith("Job leaf crashed: ") for m in caplog.messages)
    assert not any(r.exc_info for r in caplog.records if r.name.startswith("vedur"))
    target.restore()
    leaf.catch_up()
    assert len(leaf.same("t")) == 50


@pytest.mark.parametrize("side", ["target", "provider"])
def test_work_goes_on_within_a_second_of_the_servers_return(
    make_leaf: Callable[..., Leaf],
    make_proxy: Callable[[int], Proxy],
    side: str,
) -> None:
    leaf = make_leaf()
    target, provider = behind_proxies(leaf, make_proxy)
    away = target if side == "target" else provider
    leaf.worker.settings = dataclasses.replace(leaf.settings, exception_sleep=20.0)
    leaf.pair.table("public.t", "create table t (id int primary key, v int)")
    leaf.catch_up()
    leaf.root.execute("insert into t values (1, 1)")
    leaf.pair.tick()
    clock = FakeClock()
    leaf.worker.signals.clock = clock
    away.cut()
    while len(clock.waits) < 30:
        assert leaf.worker._work_safely()
    before = len(clock.waits)
    clock.on_wait = away.restore
    while leaf.worker._work_safely():
        pass
    assert leaf.same("t") == ["(1,1)"]
    assert clock.waits[before:] == [1.0]


def test_a_provider_that_is_down_shows_in_status(
    make_leaf: Callable[..., Leaf], make_proxy: Callable[[int], Proxy]
) -> None:
    leaf = make_leaf()
    _, provider = behind_proxies(leaf, make_proxy)
    leaf.pair.table("public.t", "create table t (id int primary key, v int)")
    leaf.catch_up()
    provider.cut()
    leaf.root.execute("insert into t values (1, 1)")
    leaf.pair.tick()
    assert leaf.worker._work_safely()
    error = "select cur_error from pgq_node.local_state where consumer_name = %s"
    assert leaf.leaf.value(error, [WORKER])
    provider.restore()
    leaf.catch_up()
    assert leaf.same("t") == ["(1,1)"]
    assert leaf.leaf.value(error, [WORKER]) is None


@pytest.mark.parametrize("moment", ["stage", "apply", "done"])
def test_connections_lost_around_the_commit(
    make_leaf: Callable[..., Leaf],
    make_proxy: Callable[[int], Proxy],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    leaf = make_leaf()
    target, provider = behind_proxies(leaf, make_proxy)
    leaf.pair.table("public.t", "create table t (id int primary key, v int)")
    leaf.root.execute("insert into t select i, 0 from generate_series(1, 50) i")
    leaf.catch_up()
    applier: Any = leaf.appliers[-1]
    original = getattr(type(applier), moment)
    lost = []

    def losing(self: Any, *args: Any) -> Any:
        if moment == "done" and not lost:
            lost.append(1)
            provider.drop()  # committed on the target, the provider does not hear of it
        result = original(self, *args)
        if not lost:
            lost.append(1)
            target.drop()
        return result

    monkeypatch.setattr(type(applier), moment, losing)
    leaf.root.execute(
        "update t set v = v + 1; delete from t where id = 7; insert into t values (99, 9)"
    )
    leaf.pair.tick()
    for _ in range(4):
        leaf.worker._work_safely()
    leaf.catch_up()
    assert lost
    assert len(leaf.same("t")) == 50
