"""Random histories: the queue of a branch equals the root's tick by tick, whatever was merged.

A history is a list of steps on a real root and a real branch: transactions that end late,
savepoints, ticks with nothing or very much in them, scripts and truncates, transactions of the
branch's own server that come and go, rotations, and batches of any number of ticks. A consumer
walks behind the branch and must get the same from both; another registers at any tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from tests.fixtures.examples import examples
from tests.fixtures.pg import Servers, TestServer
from tests.labs.cascade import Cascade, call
from vedur import db as vdb
from vedur.change.snapshot import Snapshot

#: Transactions that may be open at a time, on the root and on the branch.
SESSIONS = 3

Step = tuple[str, int]
session = st.integers(0, SESSIONS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.sampled_from([1, 1, 2, 5, 300])),
        st.tuples(st.just("kind"), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("late"), session),
        st.tuples(st.just("late"), session),
        st.tuples(st.just("savepoint"), session),
        st.tuples(st.just("undo"), session),
        st.tuples(st.just("commit"), session),
        st.tuples(st.just("commit"), session),
        st.tuples(st.just("rollback"), session),
        st.tuples(st.just("tick"), st.sampled_from([1, 1, 1, 2, 20])),
        st.tuples(st.just("tick"), st.just(1)),
        st.tuples(st.just("local"), session),
        st.tuples(st.just("forward"), st.sampled_from([1, 2, 3, 100])),
        st.tuples(st.just("forward"), st.sampled_from([1, 2, 3, 100])),
        st.tuples(st.just("rotate"), st.integers(0, 1)),
        st.tuples(st.just("jump"), st.integers(0, 100)),
    ),
    min_size=5,
    max_size=40,
)
KINDS = ["EXECUTE", "R", "pgq.location-info"]


def is_open(db: vdb.Database) -> bool:
    return db.raw.info.transaction_status is not TransactionStatus.IDLE


class History:
    """Plays steps; `walked` is the tick up to which both nodes were compared."""

    def __init__(self, cascade: Cascade, late: list[vdb.Database], local: list[vdb.Database]):
        self.cascade = cascade
        self.late = late
        self.local = local
        self.walked = cascade.top(cascade.branch)
        for db in (cascade.root, cascade.branch):
            self._register(db, "walker")
        self.compared = 0
        self.rotations = 0

    def _register(self, db: vdb.Database, consumer: str) -> None:
        text = "select pgq.register_consumer_at(%s, %s, %s)"
        db.value(text, [self.cascade.queue, consumer, self.walked])

    def play(self, name: str, n: int) -> None:
        getattr(self, f"_{name}")(n)

    def _insert(self, n: int) -> None:
        self.cascade.insert(n=n)

    def _kind(self, n: int) -> None:
        self.cascade.insert(kind=KINDS[n])

    def _late(self, n: int) -> None:
        self.cascade.insert(self.late[n])

    def _savepoint(self, n: int) -> None:
        if is_open(self.late[n]):
            with self.late[n].transaction():
                self.cascade.insert(self.late[n], n=2)

    def _undo(self, n: int) -> None:
        if is_open(self.late[n]):
            with pytest.raises(ZeroDivisionError), self.late[n].transaction():
                self.cascade.insert(self.late[n])
                raise ZeroDivisionError

    def _commit(self, n: int) -> None:
        self.late[n].commit()

    def _rollback(self, n: int) -> None:
        self.late[n].rollback()

    def _tick(self, n: int) -> None:
        for _ in range(n):
            self.cascade.tick()

    def _local(self, n: int) -> None:
        """A transaction of the branch's server that has nothing to do with the queue."""
        if is_open(self.local[n]):
            self.local[n].commit()
        else:
            self.local[n].value("select txid_current()")

    def _forward(self, n: int) -> None:
        self.cascade.forward(n, parts=1 + n % 3)
        self._walk()

    def _walk(self) -> None:
        cascade = self.cascade
        ticks = [t for t in cascade.ticks(cascade.branch) if t >= self.walked]
        rows = cascade.tick_rows(cascade.root)
        here = cascade.tick_rows(cascade.branch)
        for tick in ticks[:-1]:
            there = cascade.batch(cascade.root, tick, "walker")
            assert cascade.batch(cascade.branch, tick, "walker") == there, tick
            assert here[there[0]] == rows[there[0]]
            self.walked = there[0]
            self.compared += len(there[1])
        assert self.walked == cascade.top(cascade.branch)
        for db in (cascade.root, cascade.branch):
            self._register(db, "walker")

    def _rotate(self, n: int) -> None:
        if n:  # as the root does when all have passed
            call(
                self.cascade.branch,
                "pgq_node.set_global_watermark",
                self.cascade.queue,
                self.walked,
            )
        self.rotations += self.cascade.rotate(self.cascade.branch)

    def _jump(self, n: int) -> None:
        ticks = self.cascade.ticks(self.cascade.branch)
        if len(ticks) > 1:
            self.cascade.require_equal([ticks[n % (len(ticks) - 1)]])
        for db in (self.cascade.root, self.cascade.branch):
            db.value("select pgq.unregister_consumer(%s, 'c')", [self.cascade.queue])

    def finish(self) -> None:
        for n in range(SESSIONS):
            self.late[n].commit()
        self._insert(1)
        self._tick(1)
        self._forward(1_000_000)
        for n in range(SESSIONS):
            self.local[n].commit()
        assert self.walked == self.cascade.top(self.cascade.root)
        self.cascade.require_equal(self.cascade.ticks(self.cascade.branch)[:-1])
        events = self.cascade.root.value(
            "select queue_data_pfx from pgq.queue where queue_name = %s", [self.cascade.queue]
        )
        expected = self.cascade.root.value(f"select count(*) from {events}")
        assert self.compared == expected


Play = Callable[[list[Step]], History]


@pytest.fixture(params=["ours", "upstream"])
def play(
    request: pytest.FixtureRequest,
    servers: Servers,
    newest: TestServer,
    oldest: TestServer,
    make_db_on: Callable[..., vdb.Database],
) -> Iterator[Play]:
    """Play a history in a queue of its own; root and branch are on servers of different versions
    where there are two, so their transaction numbers have nothing in common."""
    root = make_db_on(newest, autocommit=True)
    if request.param == "upstream":
        branch = make_db_on(servers.get(15), "beside", autocommit=True)
    else:
        branch = make_db_on(oldest, autocommit=True)
    with ExitStack() as stack:
        late, local = (
            [stack.enter_context(vdb.connect(db.connstr)) for _ in range(SESSIONS)]
            for db in (root, branch)
        )

        def run(history: list[Step]) -> History:
            for db in (*late, *local):
                db.rollback()
            played = History(Cascade(root, branch).create(), late, local)
            for name, n in history:
                played.play(name, n)
            played.finish()
            return played

        yield run


@given(history=steps)
@settings(
    max_examples=examples(8, 200),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_branch_equals_the_root_tick_by_tick(play: Play, history: list[Step]) -> None:
    play(history)


def test_a_history_with_everything_in_it(play: Play) -> None:
    """Rotations that really happen, with transactions open on both sides."""
    history: list[Step] = []
    for round_ in range(6):
        n = round_ % SESSIONS
        history += [
            *[("late", n), ("savepoint", n), ("undo", n), ("insert", 3), ("tick", 1)],
            *[("local", n), ("kind", n), ("tick", 2), ("commit", (n + 1) % SESSIONS)],
            *[("insert", 300), ("tick", 1), ("forward", 100 if n else 2), ("jump", round_)],
            *[("local", n), ("rotate", 1), ("commit", n), ("tick", 1), ("forward", 100)],
        ]
    played = play(history)
    assert played.rotations >= 3
    assert played.compared > 1800


# -- places ----------------------------------------------------------------------------------------

#: Transactions of an imaginary provider: each begins somewhere and ends some steps later.
lives = st.lists(st.integers(0, 8), min_size=1, max_size=30)


@given(
    lives=lives,
    moments=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    base=st.sampled_from([3, (1 << 31) - 9, (1 << 32) - 40, (1 << 40) + 3, (1 << 62) + 3]),
)
@settings(
    max_examples=examples(30, 600),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_transaction_belongs_to_the_first_tick_that_sees_it(
    placing: vdb.Database, lives: list[int], moments: list[int], base: int
) -> None:
    texts = []
    for moment in sorted(moments):
        running = [base + n for n, length in enumerate(lives) if n < moment <= n + length]
        top = base + min(moment, len(lives))
        low = min(running, default=top)
        texts.append(f"{low}:{top}:{','.join(map(str, running))}")
    snapshots = [Snapshot.parse(text) for text in texts]
    ids = list(range(len(texts)))
    rows = placing.query(
        "select t.txid, coalesce(l.tick, width_bucket(t.txid, b.xmaxes) + 1) - 1 as place"
        " from vedur.tick_borders(%s::bigint[], %s::text[]) b"
        " cross join unnest(%s::bigint[]) as t (txid)"
        " left join lateral ("
        "   select k.tick from unnest(b.late_txids, b.late_ticks) as k (txid, tick)"
        "   where k.txid = t.txid) l on true",
        [ids, texts, [base + n for n in range(len(lives))]],
    )
    for row in rows:
        places = (at for at, snapshot in enumerate(snapshots) if snapshot.contains(row.txid))
        assert row.place == next(places, len(texts))


@pytest.fixture
def placing(oldest: TestServer, make_db_on: Callable[..., vdb.Database]) -> vdb.Database:
    return make_db_on(oldest, autocommit=True)
