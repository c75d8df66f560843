"""Random histories: the queue of a branch is the root's, tick by tick, and all tables are equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from tests.fixtures.examples import examples
from tests.integration.test_branch import script
from tests.integration.test_replay_histories import OPS, TABLES, Session
from tests.labs.chain import Chain
from vedur.queue import batches
from vedur.worker import apply_range

pytestmark = [
    pytest.mark.hypothesis,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("without_spark"),
]

IDLE = TransactionStatus.IDLE

#: What happens beside the changes of two sessions; most of the time nothing does.
BESIDE = st.sampled_from(["tick", "tick", "empty", "work", "script", "giant"])
HISTORY = st.lists(
    st.one_of(st.tuples(st.integers(0, 1), OPS), st.tuples(st.just(2), BESIDE)),
    min_size=10,
    max_size=50,
)

GIANT = (
    "insert into a select i, 'g' || i, 1 from generate_series(1000, 1060) i on conflict do nothing"
)


@pytest.mark.draw("histories")
def test_a_branch_equals_the_root(
    make_chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "EVENTS_PER_SLICE", 3)
    monkeypatch.setattr(batches, "DENSE_ROWS", 0)
    monkeypatch.setattr(apply_range, "PREFETCH_EVENTS", 2)
    chain = make_chain(4)
    for name, ddl in TABLES.items():
        # one table is on every node, one on the last only, one on the branches only
        on = {"public.b": ["n4"], "public.n": ["n2", "n3"]}.get(name)
        chain.table(name, ddl, on=on)
    *sessions, giant = (Session(chain.root.connstr) for _ in range(3))
    scripts = iter(range(1_000_000))
    since = chain.catch_up()

    def beside(what: str) -> None:
        if what == "work":
            for node in chain.followers:
                node.worker.work()
        elif what == "script":
            if all(session.db.raw.info.transaction_status == IDLE for session in sessions):
                nr = next(scripts)
                script(chain, f"{nr}.sql", f"create table if not exists made_{nr % 3} (id int)")
        elif what == "giant":
            giant.run(GIANT, ())
            giant.run("delete from a where id >= 1000", ())
            giant.run("commit", ())
        else:
            chain.tick()

    @settings(
        max_examples=examples(6, 150),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(
        history=HISTORY,
        limit=st.sampled_from([1, 7, 40, 100_000]),
        parallel=st.integers(1, 3),
    )
    def run(history: list[tuple[int, Any]], limit: int, parallel: int) -> None:
        nonlocal since
        for node in chain.followers:
            node.worker.settings = dataclasses.replace(node.worker.settings, max_batch_events=limit)
            node.worker._close_connections()  # the runner takes the settings when it is made
            node.settings, node.parallel = node.worker.settings, parallel
        for number, what in history:
            if number == 2:
                beside(what)
            else:
                sessions[number].run(*what)
        for session in sessions:
            session.run("commit", ())
        end = chain.catch_up()
        for name in TABLES:
            on = {"public.b": ("n4",), "public.n": ("n2", "n3")}.get(name, ())
            chain.require_same(name, *on)
        chain.require_queues(since)
        since = end

    run()
    for session in (*sessions, giant):
        session.db.close()
