"""Random histories with random bad rows: nothing is lost, and mend + replay ends in the provider.

Every event is applied or in quarantine. Replays in between, while the tables still refuse rows,
change nothing about that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.ops.change_table import change_table
from vedur.ops.quarantine import replay as ops
from vedur.ops.session import Session
from vedur.queue import batches

__all__ = ["quick_leaf"]

pytestmark = [pytest.mark.hypothesis, pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = {
    "public.a": "create table a (id int primary key, u text unique, v text)",
    "public.b": 'create table b ("K 1" text, k2 int, v text, primary key ("K 1", k2))',
    "public.n": "create table n (id numeric primary key, v text)",
}
#: What the leaf refuses while a history runs: values by check, by length, by a trigger.
PLANT = """
alter table a add constraint no_bad check (v <> 'bad') not valid;
alter table b alter v type varchar(6);
create or replace function refuse() returns trigger language plpgsql as $$
begin
    if new.v = 'bad' then raise exception 'not this one'; end if;
    return new;
end $$;
create trigger refuse before insert or update on n for each row execute function refuse();
alter table n enable always trigger refuse;
"""
MEND = """
alter table a drop constraint no_bad;
alter table b alter v type text;
drop trigger refuse on n;
"""

_id = st.integers(1, 4)
_name = st.sampled_from(["x", "y", "z", "%\\ '\""])
_value = st.sampled_from(["good", "bad", "much too long", "fine", ""])
_number = st.sampled_from(["1", "1.0", "2", "2.00"])

OPS = st.one_of(
    st.tuples(st.just("insert into a values (%s, %s, %s)"), st.tuples(_id, _name, _value)),
    st.tuples(st.just("update a set v = %s where id = %s"), st.tuples(_value, _id)),
    st.tuples(st.just("update a set u = %s where id = %s"), st.tuples(_name, _id)),
    st.tuples(st.just("update a set id = %s where id = %s"), st.tuples(_id, _id)),
    st.tuples(st.just("delete from a where id = %s"), st.tuples(_id)),
    st.tuples(st.just("insert into b values (%s, %s, %s)"), st.tuples(_name, _id, _value)),
    st.tuples(st.just("update b set v = %s where k2 = %s"), st.tuples(_value, _id)),
    st.tuples(st.just('delete from b where "K 1" = %s'), st.tuples(_name)),
    st.tuples(st.just("insert into n values (%s::text::numeric, %s)"), st.tuples(_number, _value)),
    st.tuples(st.just("update n set v = %s where id = %s"), st.tuples(_value, _id)),
    st.tuples(st.just("delete from n where id = %s"), st.tuples(_id)),
    st.tuples(st.just("truncate a"), st.tuples()),
    st.tuples(st.just("truncate b"), st.tuples()),
    st.tuples(st.just("tick"), st.tuples()),
    st.tuples(st.just("tick"), st.tuples()),
    st.tuples(st.just("replay"), st.tuples()),
)
HISTORY = st.lists(OPS, min_size=10, max_size=50)
POLICY = st.sampled_from(["quarantine-row", "quarantine-row", "quarantine-table"])


def replay(leaf: Leaf) -> list[ops.Replayed]:
    with Session(leaf.settings) as session:
        return ops.replay(session, ops.Choice(), spark=leaf.spark or object())


def write(db: Database, text: str, params: tuple[Any, ...]) -> None:
    try:
        db.execute(text, params or None)
    except DatabaseError as error:
        assert error.sqlstate == "23505"  # the root has its rules as well


def check(leaf: Leaf) -> None:
    """No event was quarantined twice."""
    twice = leaf.leaf.query(
        "select ev_id from (select ev_id from vedur.quarantine union all"
        " select ev_id from vedur.quarantine_log) e group by 1 having count(*) > 1"
    )
    assert twice == []


@pytest.mark.parametrize("flags", [None, "AIUDL"], ids=["json", "urlenc"])
def test_mend_and_replay_end_in_the_provider(
    quick_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch, flags: str | None
) -> None:
    run_histories(quick_leaf(), monkeypatch, flags, examples(10, 250))


@pytest.mark.spark
def test_mend_and_replay_on_spark(
    make_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_histories(make_leaf(), monkeypatch, None, 2)


def run_histories(
    leaf: Leaf, monkeypatch: pytest.MonkeyPatch, flags: str | None, count: int
) -> None:
    monkeypatch.setattr(batches, "EVENTS_PER_SLICE", 1)
    for name, ddl in TABLES.items():
        leaf.pair.table(name, ddl, flags=flags)
    leaf.catch_up()
    leaf.pair.tick()
    leaf.catch_up()

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(
        history=HISTORY,
        policies=st.tuples(POLICY, POLICY, POLICY),
        parallel=st.sampled_from([1, 3]),
        flush=st.sampled_from([1, 600, 1 << 20]),
        least=st.sampled_from([1, 2, 32]),  # rows that are taken by column
    )
    def run(
        history: list[tuple[str, tuple[Any, ...]]],
        policies: tuple[str, ...],
        parallel: int,
        flush: int,
        least: int,
    ) -> None:
        runner = leaf.runner
        runner.parallel = parallel
        runner.applier.flush_bytes = flush
        runner.applier.least_run = least  # type: ignore[attr-defined]
        with Session(leaf.settings) as session:
            for name, policy in zip(TABLES, policies, strict=True):
                change_table(session, [name], policy)
        leaf.leaf.execute(PLANT)
        try:
            for text, params in history:
                if text == "tick":
                    leaf.catch_up()
                elif text == "replay":
                    replay(leaf)
                else:
                    write(leaf.root, text, params)
            leaf.catch_up()
            check(leaf)
        finally:
            leaf.leaf.execute(MEND)
        for done in replay(leaf):
            assert (done.stayed, done.error) == (0, None)
        leaf.catch_up()
        for name in TABLES:
            leaf.same(name)
        assert leaf.leaf.query("select * from vedur.quarantine") == []
        check(leaf)
        leaf.root.execute("truncate a, b; delete from n")
        leaf.catch_up()

    run()
