"""A comparison stands in nobody's way: truncate and DDL go first, and branches are compared too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.test_compare import FILL, USERS, WRITERS, nodes, ready
from tests.labs.compare import Lab, make_lab  # noqa: F401
from vedur.clock import SYSTEM
from vedur.db import connect
from vedur.errors import StateError
from vedur.node import moment as moments
from vedur.node.moment import Moment
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.compare_tables import pair_at_one_moment
from vedur.pipeline.compare import Pair, Sums, checksum, make_pair
from vedur.tables.mapping import TableMap

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MakeLab = Callable[..., Lab]


def read_for_long(lab: Lab, pair: Pair) -> tuple[Sums, Sums]:
    """Read again and again until somebody ends our sessions; the last answer otherwise."""
    found = checksum(lab.spark, pair)
    for _ in range(300):
        found = checksum(lab.spark, pair)
        SYSTEM.sleep(0.1)
    return found


def test_a_replicated_truncate_goes_first(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 500)
    pair = make_pair(lab.root, lab.leaf, TableMap("public.users", "public.users"))
    moments: list[int] = []

    def work(at: Pair, moment: Moment) -> tuple[Sums, Sums]:
        moments.append(moment.tick)
        if len(moments) > 1:
            return checksum(lab.spark, at)
        assert checksum(lab.spark, at)[0].rows == 500
        # on the root it waits as well, so it is the provider's watcher or the target's that sees it
        lab._thread(lambda: run(lab, "truncate users"))
        return read_for_long(lab, at)

    left, right = pair_at_one_moment(nodes(lab), pair, work)
    assert len(moments) == 2
    assert (left.rows, right.rows) == (0, 0)
    assert left == right


def run(lab: Lab, statement: str) -> None:
    with connect(lab.root.connstr, autocommit=True) as db:
        db.execute(statement)


def test_who_always_comes_between_is_told_of(
    make_lab: MakeLab,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moments, "_YIELDS", 1)
    lab = ready(make_lab, 50)
    pair = make_pair(lab.root, lab.leaf, TableMap("public.users", "public.users"))

    def work(at: Pair, _: Moment) -> None:
        lab._thread(lambda: run(lab, "alter table users alter column note set default 'x'"))
        read_for_long(lab, at)

    with pytest.raises(StateError, match=r'"public.users" was truncated or altered by others'):
        pair_at_one_moment(nodes(lab), pair, work)
    assert lab.leaf.value("select count(*) from vedur.hold") == 0


def test_a_session_that_lost_its_lock_proves_nothing(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 50)
    pair = make_pair(lab.root, lab.leaf, TableMap("public.users", "public.users"))

    def work(_: Pair, moment: Moment) -> str:
        lab.root.value(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where application_name = %s",
            [moment.mark],
        )
        return "all is well"

    with pytest.raises(Exception, match="terminating connection"):
        pair_at_one_moment(nodes(lab), pair, work)


def test_a_branch_is_compared_without_locks(make_lab: MakeLab) -> None:  # noqa: F811
    """A provider that takes its ticks from elsewhere: data and position first, then the tick."""
    lab = make_lab()
    lab.pair.table("public.users", USERS + ";" + FILL.format(rows=600))
    lab.root.execute("update pgq_node.node_info set node_type = 'branch'")
    lab.root.execute("update pgq.queue set queue_external_ticker = true")

    def branch() -> None:
        with connect(lab.root.connstr, autocommit=True) as db:
            while not lab.stop.wait(0.5):
                tick: Any = db.value("select max(tick_id) + 1 from pgq.tick")
                with db.transaction():
                    for statement in WRITERS:
                        db.execute(statement)
                    db.execute(
                        "update pgq_node.local_state set last_tick_id = %s"
                        " where consumer_name = 'root_worker'",
                        [tick],
                    )
                db.execute("select pgq.ticker('q', %s, now(), %s)", [tick, tick * 10])

    lab._thread(lab.worker.run)
    lab._thread(branch)
    lab.settle()
    with lab.session() as session:
        seen = set()
        for _ in range(4):
            result = compare(session, CompareOptions(rows=True, max_wait=600.0), lab.spark)
            assert result.bad == 0, result.tables[0].as_json()
            assert result.tables[0].lock_free
            seen.add(result.tables[0].tick)
            while lab.root.value("select max(tick_id) from pgq.tick") in seen:
                lab.stop.wait(0.1)
        assert len(seen) == 4
    lab.plant("insert into users values (-1, 'planted')")
    with lab.session() as session:
        assert compare(session, CompareOptions(max_wait=600.0), lab.spark).bad == 1
