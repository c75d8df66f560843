"""The worker end to end: queue, tick, Spark, staged commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.oracle.leaf import Leaf
from tests.oracle.pair import QUEUE, WORKER
from vedur.db import connect
from vedur.errors import LostPosition
from vedur.queue.slices import Slice, Tick, whole
from vedur.worker.batch import position_allows

pytestmark = pytest.mark.spark


FORMATS = [pytest.param("", id="urlenc"), pytest.param("J", id="json"), pytest.param("Q", id="sql")]


@pytest.mark.parametrize("flags", FORMATS)
def test_a_row_changed_on_the_root_arrives_on_the_leaf(
    make_leaf: Callable[..., Leaf], flags: str
) -> None:
    leaf = make_leaf()
    leaf.pair.table(
        "public.t",
        "create table t (id int primary key, a text, n numeric)",
        flags=f"AIUD{flags}" if flags else None,
    )
    leaf.root.execute("insert into t select i, 'x' || i, i * 1.10 from generate_series(1, 100) i")
    leaf.catch_up()
    assert len(leaf.same("t")) == 100
    leaf.root.execute("update t set a = 'new\tline\n\\ & = % + ''' where id < 10")
    leaf.root.execute("update t set a = null where id = 11; delete from t where id > 90")
    leaf.root.execute("update t set a = 'null', n = 'NaN' where id = 12")
    leaf.catch_up()
    assert len(leaf.same("t")) == 90


def test_restart_rule() -> None:
    assert position_allows(4, 7, 4)
    assert not position_allows(4, 7, 7)
    with pytest.raises(LostPosition, match=r"^Lost position: batch 4\.\.7, dst has 5$"):
        position_allows(4, 7, 5)


def test_a_batch_committed_before_a_crash_is_not_applied_again(
    make_leaf: Callable[..., Leaf],
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, n int)")
    leaf.root.execute("insert into t values (1, 1)")
    leaf.catch_up()
    last = leaf.root.value(
        "select sub_last_tick from pgq.subscription s join pgq.consumer c "
        "on c.co_id = s.sub_consumer where co_name = %s",
        [WORKER],
    )
    leaf.root.execute("insert into t values (2, 2)")
    leaf.catch_up()
    # As if the worker had died between its commit and finish_batch.
    leaf.root.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, WORKER, last])
    while leaf.worker.work():
        pass
    assert len(leaf.same("t")) == 2
    leaf.root.execute("insert into t values (3, 3)")
    leaf.catch_up()
    assert len(leaf.same("t")) == 3


def test_an_old_transaction_that_writes_late_across_slices(
    make_leaf: Callable[..., Leaf],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="vedur")
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.root.execute("insert into t values (1, 'old'), (2, 'other')")
    leaf.catch_up()
    late, early = connect(leaf.root.connstr), connect(leaf.root.connstr)
    leaf.root.execute("delete from t where id = 1")
    late.execute("update t set v = 'x' where id = 2")
    early.execute("insert into t values (1, 'new')")
    border = early.value("select txid_current()")
    early.commit()
    late.execute("update t set v = 'late' where id = 1")
    late.commit()
    late.close()
    early.close()

    def cut_there(first: Tick, last: Tick, *_: object) -> list[Slice]:
        total = whole(first, last)
        return [
            dataclasses.replace(total, high=border),
            dataclasses.replace(total, low=border, also=()),
        ]

    monkeypatch.setattr("vedur.worker.batch.cut", cut_there)
    leaf.catch_up()
    assert leaf.same("t") == ["(1,late)", "(2,x)"]
    assert "public.t: replayed row by row" in caplog.messages
