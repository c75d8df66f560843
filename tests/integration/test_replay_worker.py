"""The worker end to end: queue, tick, Spark, staged commit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER
from vedur.db import connect
from vedur.db.conninfo import with_params
from vedur.errors import LostPosition
from vedur.queue.batches import Slice, Tick, cut, get_ticks, whole
from vedur.worker.apply_range import StageAhead
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
    with pytest.raises(LostPosition, match=r'^Lost position: batch 4\.\.7, dst has 5; .*"rejoin"'):
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


def cut_at(monkeypatch: pytest.MonkeyPatch, border: int) -> None:
    """Let every batch have two slices with this txid between them."""

    def cut_there(first: Tick, last: Tick, *_: object) -> list[Slice]:
        total = whole(first, last)
        return [
            dataclasses.replace(total, high=border),
            dataclasses.replace(total, low=border, also=()),
        ]

    monkeypatch.setattr("vedur.queue.batches.cut", cut_there)


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

    cut_at(monkeypatch, border)
    leaf.catch_up()
    assert leaf.same("t") == ["(1,late)", "(2,x)"]
    said = "public.t: its events are replayed row by row: "
    assert any(message.startswith(said) for message in caplog.messages)


@pytest.mark.parametrize("early", ["delete from t where id = 1", "update t set v = 'x'"])
def test_a_truncate_in_another_slice_than_what_came_before_and_after(
    make_leaf: Callable[..., Leaf],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    early: str,
) -> None:
    caplog.set_level("DEBUG", logger="vedur")
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.pair.table("public.other", "create table other (id int primary key)")
    leaf.root.execute("insert into t values (1, 'old'), (2, 'other')")
    leaf.catch_up()
    late = connect(leaf.root.connstr)
    late.execute("insert into other values (1)")
    leaf.root.execute(early)
    border = leaf.root.value("select txid_current()")
    leaf.root.execute("truncate t")
    late.execute("insert into t values (1, 'late')")
    late.commit()
    late.close()
    cut_at(monkeypatch, border)
    leaf.catch_up()
    assert leaf.same("t") == ["(1,late)"]
    said = "public.t: its events are replayed row by row: "
    assert any(message.startswith(said) for message in caplog.messages)


def test_a_row_deleted_late_is_gone_though_a_truncate_came_between(
    make_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.pair.table("public.other", "create table other (id int primary key)")
    leaf.root.execute("insert into t values (1, 'old')")
    leaf.catch_up()
    late = connect(leaf.root.connstr)
    late.execute("insert into other values (1)")
    leaf.root.execute("update t set v = 'x'")
    border = leaf.root.value("select txid_current()")
    leaf.root.execute("truncate t; insert into t values (1, 'again'), (2, 'stays')")
    late.execute("delete from t where id = 1")
    late.commit()
    late.close()
    cut_at(monkeypatch, border)
    leaf.catch_up()
    assert leaf.same("t") == ["(2,stays)"]


def test_a_truncate_in_another_slice_than_events_that_keep_their_order(
    make_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)", flags="AIUDQ")
    leaf.catch_up()
    leaf.root.execute("insert into t values (1)")
    border = leaf.root.value("select txid_current()")
    leaf.root.execute("truncate t")
    cut_at(monkeypatch, border)
    leaf.catch_up()
    assert leaf.same("t") == []


def test_batches_staged_ahead_arrive_in_order(
    make_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedur.worker.apply_range.PREFETCH_EVENTS", 1)
    leaf = make_leaf(max_batch_events=1200)
    leaf.pair.table("public.t", "create table t (id int primary key, v int unique)")
    taken: list[bool] = []
    take = StageAhead.take

    def counting(self: StageAhead[Any], *args: Any) -> Any:
        got = take(self, *args)
        taken.append(got[0] is not None)
        return got

    monkeypatch.setattr(StageAhead, "take", counting)
    leaf.root.execute("insert into t select i, i from generate_series(1, 400) i")
    for step in range(6):
        leaf.pair.tick()
        leaf.root.execute("update t set v = v + 1000")
        leaf.root.execute("delete from t where id %% 10 = %s", [step])
        leaf.root.execute(
            "insert into t select i, -i from generate_series(500, 540) i "
            "on conflict (id) do update set v = -t.id"
        )
    rounds = 0
    leaf.pair.tick()
    while leaf.worker.work():
        rounds += 1
        leaf.root.execute("update t set v = v + 100000 where id = 540")
        if rounds < 4:
            leaf.pair.tick()
    leaf.catch_up()
    assert taken.count(True) >= 2, taken
    assert len(leaf.same("t")) == 400 - 240 + 41


def test_a_range_of_ticks_holds_what_the_queue_says(make_leaf: Callable[..., Leaf]) -> None:
    leaf = make_leaf()
    root = leaf.root
    root.execute("create table t (id int)")
    long, other = connect(root.connstr), connect(root.connstr)
    first = leaf.pair.tick()
    for number in range(30):
        if number == 5:
            long.execute("select pgq.insert_event('q', 'x', 'long')")
        if number == 12:
            other.execute("select pgq.insert_event('q', 'x', 'other')")
        if number == 20:
            long.commit()
        root.execute("select pgq.insert_event('q', 'x', %s)", [str(number)])
        if number % 4 == 0:
            leaf.pair.tick()
    leaf.pair.tick()
    other.commit()
    leaf.pair.tick()
    long.close()
    other.close()
    root.execute("select pgq.register_consumer_at('q', 'probe', %s)", [first])
    while (batch := root.value("select pgq.next_batch('q', 'probe')")) is not None:
        want = root.query("select ev_id from pgq.get_batch_events(%s) order by 1", [batch])
        ends = root.one("select prev_tick_id, tick_id from pgq.get_batch_info(%s)", [batch])
        ticks = get_ticks(root, QUEUE, *ends)
        for count in (1, 3):
            got = []
            for part in cut(ticks[0], ticks[-1], [], count):
                got += root.query(f"select ev_id from pgq.event_1 where {part.condition}")
            assert sorted(got) == want
        root.execute("select pgq.finish_batch(%s)", [batch])


def test_a_worker_without_superuser_rights(
    make_leaf: Callable[..., Leaf],
) -> None:
    leaf = make_leaf("ours")
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    for db, roles in ((leaf.root, "pgq_reader"), (leaf.leaf, "londiste_writer, pgq_admin")):
        role = "plain_" + str(db.value("select current_database()"))
        db.execute(f'create role "{role}" login; grant {roles} to "{role}"')
    reader = "plain_" + str(leaf.root.value("select current_database()"))
    writer = "plain_" + str(leaf.leaf.value("select current_database()"))
    leaf.leaf.execute(f'grant select, insert, update, delete, truncate on t to "{writer}"')
    leaf.settings = dataclasses.replace(
        leaf.settings,
        db=with_params(leaf.leaf.connstr, user=writer),
        remote_extra_connstr=f"user={reader}",
    )
    leaf.worker.settings = leaf.settings
    try:
        leaf.root.execute("insert into t values (1, 'a'), (2, 'b'); update t set v = 'c'")
        leaf.catch_up()
        leaf.root.execute("truncate t; insert into t values (3, 'd')")
        leaf.catch_up()
        assert leaf.same("t") == ["(3,d)"]
    finally:
        leaf.close()
        leaf.leaf.execute(f'drop owned by "{writer}"; drop role "{writer}"')
        leaf.root.execute(f'drop owned by "{reader}"; drop role "{reader}"')
