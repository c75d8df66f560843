"""Random histories: the Spark replay and the row-by-row oracle end in the same tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.labs.in_process import run_here
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from tests.oracle import plain
from vedur.db import Database, connect
from vedur.errors import DatabaseError
from vedur.pipeline.replay import stage as replay
from vedur.queue import batches

pytestmark = [
    pytest.mark.hypothesis,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

TABLES = {
    "public.a": "create table a (id int primary key, u text unique, v numeric)",
    "public.b": 'create table b ("K 1" text, k2 int, "da""ta" text, primary key ("K 1", k2))',
    "public.n": "create table n (id numeric primary key, v text)",
    "public.c": "create table c (k1 int, k2 text, ok boolean, f float8, primary key (k1, k2))",
    "public.i": (
        "create table i (k text primary key, id int generated always as identity, u int unique)"
    ),
}


def of_oracle(ddl: str) -> str:
    """The oracle writes values as any column takes them."""
    return ddl.replace(" generated always as identity", "")


_id = st.integers(1, 5)
_text = st.sampled_from(["x", "y", "z", "null", "", "a\tb", "\\", "%41+", "ü'\""])

OPS = st.one_of(
    st.tuples(st.just("insert into a values (%s, %s, %s)"), st.tuples(_id, _text, _id)),
    st.tuples(st.just("update a set u = %s where id = %s"), st.tuples(_text, _id)),
    st.tuples(st.just("update a set v = v + %s where id >= %s"), st.tuples(_id, _id)),
    st.tuples(st.just("update a set id = %s where id = %s"), st.tuples(_id, _id)),
    st.tuples(st.just("delete from a where id = %s"), st.tuples(_id)),
    st.tuples(st.just("swap"), st.tuples(_id, _id)),
    st.tuples(st.just("insert into b values (%s, %s, %s)"), st.tuples(_text, _id, _text)),
    st.tuples(st.just('update b set "da""ta" = %s where k2 = %s'), st.tuples(_text, _id)),
    st.tuples(st.just('delete from b where "K 1" = %s'), st.tuples(_text)),
    st.tuples(
        st.just("insert into n values (%s::text::numeric, %s)"),
        st.tuples(st.sampled_from(["1", "1.0", "1.00", "2"]), _text),
    ),
    st.tuples(st.just("update n set v = %s where id = %s"), st.tuples(_text, _id)),
    st.tuples(st.just("delete from n where id = %s"), st.tuples(_id)),
    st.tuples(
        st.just("insert into c values (%s, %s, %s, %s)"),
        st.tuples(_id, _text, st.booleans(), st.sampled_from([0.1, -1e300, None])),
    ),
    st.tuples(st.just("update c set ok = not ok, f = f / 3 where k1 = %s"), st.tuples(_id)),
    st.tuples(st.just("update c set ok = null where k2 = %s"), st.tuples(_text)),
    st.tuples(st.just("delete from c where k1 = %s"), st.tuples(_id)),
    st.tuples(st.just("insert into i (k, u) values (%s, %s)"), st.tuples(_text, _id)),
    st.tuples(st.just("update i set u = %s where k = %s"), st.tuples(_id, _text)),
    st.tuples(st.just("update i set id = default, u = -u where u = %s"), st.tuples(_id)),
    st.tuples(st.just("delete from i where u = %s"), st.tuples(_id)),
    st.tuples(st.just("truncate a"), st.tuples()),
    st.tuples(st.just("truncate b"), st.tuples()),
    st.tuples(st.just("savepoint"), st.tuples()),
    st.tuples(st.just("rollback to"), st.tuples()),
    st.tuples(st.just("commit"), st.tuples()),
)

#: (session, operation): two sessions interleave, so an old transaction can write late.
HISTORY = st.lists(st.tuples(st.integers(0, 1), OPS), min_size=10, max_size=60)


class Session:
    """A connection that runs operations; a failing one is undone alone."""

    def __init__(self, connstr: str) -> None:
        self.db: Database = connect(connstr)
        self.db.execute("set lock_timeout = '20ms'")
        self.db.commit()
        self.saved = False

    def run(self, text: str, params: tuple[Any, ...]) -> None:
        if text == "commit":
            self.db.commit()
            self.saved = False
        elif text == "savepoint":
            self.db.execute("select txid_current(); savepoint mine")
            self.saved = True
        elif text == "rollback to":
            if self.saved:
                self.db.execute("rollback to mine")
        else:
            self.db.execute("savepoint step")
            try:
                if text == "swap":
                    self._swap(*params)
                else:
                    self.db.execute(text, params or None)
                self.db.execute("release step")
            except DatabaseError:
                self.db.execute("rollback to step")

    def _swap(self, one: int, two: int) -> None:
        rows = dict(self.db.query("select id, u from a where id in (%s, %s)", [one, two]))
        if len(rows) == 2:
            self.db.execute("update a set u = 'tmp' where id = %s", [one])
            self.db.execute("update a set u = %s where id = %s", [rows[one], two])
            self.db.execute("update a set u = %s where id = %s", [rows[two], one])


@pytest.mark.draw(1)
@pytest.mark.parametrize("flags", [None, "AIUDJ"], ids=["urlenc", "json"])
@pytest.mark.parametrize("count", [examples(25, 600), 4], ids=["in-process", "spark"])
def test_replay_equals_row_by_row(
    make_leaf: Callable[..., Leaf],
    make_db_on: Callable[..., Database],
    servers: Any,
    monkeypatch: pytest.MonkeyPatch,
    flags: str | None,
    count: int,
) -> None:
    if count > 4:
        monkeypatch.setattr(replay, "run_tasks", run_here)
    monkeypatch.setattr(batches, "EVENTS_PER_SLICE", 1)
    leaf = make_leaf("ours")
    oracle = make_db_on(servers.get(15), "bare", autocommit=True)
    for name, ddl in TABLES.items():
        leaf.pair.table(name, ddl, flags=flags)
        oracle.execute(of_oracle(ddl))
    leaf.catch_up()
    sessions = [Session(leaf.root.connstr) for _ in range(2)]
    position = leaf.pair.tick()
    leaf.catch_up()

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(
        history=HISTORY,
        parallel=st.sampled_from([1, 1, 3]),
        flush=st.sampled_from([1, 600, 1 << 20]),
        least=st.sampled_from([1, 2, 32]),  # rows that are taken by column
        lost=st.booleans(),
        inside=st.booleans(),
    )
    def run(
        history: list[tuple[int, tuple[str, tuple[Any, ...]]]],
        parallel: int,
        flush: int,
        least: int,
        lost: bool,
        inside: bool,
    ) -> None:
        nonlocal position
        # Cut by transactions, or by places in the event tables: inside of transactions, too.
        monkeypatch.setattr(batches, "GIANT_SLICES", 0 if inside else 1 << 40)
        for number, (text, params) in history:
            sessions[number].run(text, params)
        for session in sessions:
            session.run("commit", ())
        if lost:
            for db in (leaf.leaf, oracle):
                with db.transaction():
                    db.execute("set local session_replication_role = replica")
                    db.execute("delete from a where id = 1; delete from n where id = 2")
        end = leaf.pair.tick()
        plain.apply(oracle, plain.events(leaf.root, QUEUE, position, end))
        leaf.parallel = parallel
        runner = leaf.runner
        runner.parallel = parallel
        runner.applier.flush_bytes = flush
        runner.applier.least_run = least  # type: ignore[attr-defined]
        while leaf.worker.work():
            pass
        position = end
        for name in TABLES:
            want = oracle.query(f"select t::text from {name} t order by 1")
            got = leaf.leaf.query(f"select t::text from {name} t order by 1")
            assert got == want, name

    run()
    for session in sessions:
        session.db.close()
