"""A bad event while a table catches up after its copy: policies and skips hold there too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.integration.test_quarantine_events import (
    REFUSALS,
    ended,
    fill,
    key,
    quarantined,
    replay,
    session,
    two_tables,
)
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call
from vedur.catalog import get_table_list
from vedur.change.quarantine import Policy
from vedur.clock import SYSTEM
from vedur.errors import StateError
from vedur.node.position import register_consumer, set_consumer_completed
from vedur.ops.change_table import change_table
from vedur.ops.quarantine import list_errors as ops_errors
from vedur.ops.quarantine import replay as ops
from vedur.ops.quarantine.skip import SkipOptions, skip
from vedur.pipeline.replay.stage import SparkReplay
from vedur.status.snapshot import read_node
from vedur.status.tree import info_lines
from vedur.worker.first_copy.context import CopySetup, CopySource, TableJob
from vedur.worker.first_copy.control import Copying
from vedur.worker.first_copy.table import ProviderSnapshot, SnapshotLoad

__all__ = ["quick_leaf"]

CONSUMER = "leaf.copy.public.t"
PATIENCE = 300.0
CHECK = REFUSALS["check"]


@dataclass
class Catching:
    """A leaf whose table t was copied, and has the queue to catch up with."""

    leaf: Leaf
    copying: Copying

    def state(self) -> str | None:
        text = "select merge_state from londiste.table_info where table_name = 'public.t'"
        return cast("str | None", self.leaf.leaf.value(text))

    def work_until(self, true: Callable[[], bool]) -> None:
        """Rounds of the worker; the copy runs in its own thread beside them."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, (self.state(), self.errors())
            self.leaf.pair.tick()
            self.leaf.worker.work()
            time.sleep(0.01)

    def errors(self) -> list[ops_errors.ErrorReport]:
        with session(self.leaf) as opened:
            return ops_errors.errors(opened)

    def refused(self) -> bool:
        return any(report.kind == "event" for report in self.errors())


@pytest.fixture
def catching(quick_leaf: Callable[..., Leaf]) -> Iterator[Callable[..., Catching]]:
    made: list[Catching] = []

    def make(policy: str = "stop") -> Catching:
        leaf = quick_leaf()
        two_tables(leaf)
        leaf.leaf.execute(CHECK.plant)
        tick = leaf.root.value("select max(tick_id) from pgq.tick")
        leaf.root.value("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, CONSUMER, tick])
        provider = leaf.leaf.value("select provider_node from pgq_node.local_state limit 1")
        register_consumer(leaf.leaf, QUEUE, CONSUMER, provider, tick)
        call(leaf.leaf, "londiste.local_set_table_state", QUEUE, "public.t", None, "catching-up")
        setup = CopySetup(
            QUEUE, "leaf", leaf.settings.db, retry_sleep=0.05, on_error=Policy(policy)
        )

        def applier(name: str, connstr: str) -> SparkReplay:
            return SparkReplay(cast(Any, None), name, connstr, leaf.settings.db)

        copying = Copying(setup, cast(Any, None), applier)
        leaf.worker.copies = copying
        made.append(Catching(leaf, copying))
        return made[-1]

    yield make
    for one in made:
        one.copying.stop()


@pytest.mark.parametrize("policy", ["quarantine-row", "quarantine-table"])
def test_a_policy_holds_while_a_table_catches_up(
    catching: Callable[..., Catching], policy: str
) -> None:
    lab = catching(policy)
    leaf = lab.leaf
    fill(leaf, CHECK.bad)
    lab.work_until(lambda: lab.state() == "ok")
    kinds = {(row[0], row[2]) for row in quarantined(leaf)}
    assert ("public.t", "error") in kinds
    assert leaf.leaf.value("select count(*) from t where id = 13") == 0
    if policy == "quarantine-row":
        assert quarantined(leaf) == [("public.t", key(13), "error", "row")]
        assert leaf.leaf.value("select count(*) from t") == 29
    assert leaf.leaf.query("select * from vedur.replay_error") == []
    leaf.root.execute("update t set n = 8 where id = 13")  # it holds for the worker, too
    leaf.catch_up()
    waiting = len(quarantined(leaf))
    assert ended(leaf) == []
    leaf.leaf.execute(CHECK.mend)
    assert replay(leaf) == [ops.Replayed("public.t", waiting, 0)]
    assert len(leaf.same("t")) == len(leaf.same("other")) == 30


def test_an_event_that_stops_a_copy_is_shown_and_can_be_skipped(
    catching: Callable[..., Catching],
) -> None:
    lab = catching()
    leaf = lab.leaf
    fill(leaf, CHECK.bad)
    lab.work_until(lab.refused)
    event = leaf.leaf.value("select ev_id from vedur.replay_error")
    (report,) = lab.errors()
    assert (report.table, report.key, report.consumer) == ("public.t", key(13), CONSUMER)
    assert "the first copy cannot catch up" in report.what
    assert any(f"skip --event={event}" in action for action in report.actions)
    lines = info_lines(read_node(leaf.leaf, QUEUE, "leaf"))
    assert any(x.startswith(f"ERR: {CONSUMER}: [ev_id={event},") and key(13) in x for x in lines)
    with session(leaf) as opened:
        skip(opened, SkipOptions(event=event, reason="ticket 12"))
        with pytest.raises(StateError, match="asked for already"):
            skip(opened, SkipOptions(event=event, reason="ticket 12"))
    lab.work_until(lambda: lab.state() == "ok")
    assert quarantined(leaf) == [("public.t", key(13), "skipped", "row")]
    assert leaf.leaf.query("select * from vedur.replay_error") == []
    leaf.catch_up()
    leaf.leaf.execute(CHECK.mend)
    assert replay(leaf) == [ops.Replayed("public.t", 1, 0)]
    leaf.same("t")


def test_a_policy_given_while_a_copy_is_stopped_lets_it_go_on(
    catching: Callable[..., Catching],
) -> None:
    lab = catching()
    leaf = lab.leaf
    fill(leaf, CHECK.bad)
    lab.work_until(lab.refused)
    with session(leaf) as opened:
        change_table(opened, ["t"], "quarantine-row")
    lab.work_until(lambda: lab.state() == "ok")
    assert quarantined(leaf) == [("public.t", key(13), "error", "row")]


def test_an_update_without_a_row_is_named_while_a_table_catches_up(
    catching: Callable[..., Catching], caplog: pytest.LogCaptureFixture
) -> None:
    lab = catching()
    leaf = lab.leaf
    leaf.root.execute("insert into t values (1, 'a', 1)")
    leaf.pair.tick()
    tick = leaf.root.value("select max(tick_id) from pgq.tick")
    leaf.root.value("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, CONSUMER, tick])
    set_consumer_completed(leaf.leaf, QUEUE, CONSUMER, tick)
    leaf.root.execute("update t set n = 2 where id = 1")  # the copy had no such row
    lab.work_until(lambda: lab.state() == "ok")
    after = leaf.root.value("select max(tick_id) from pgq.tick")
    said = next(m for m in caplog.messages if "changed no row" in m)
    assert said.startswith("public.t: 1 update(s) changed no row on this node (")
    assert said.split("ticks: after ")[1].split(" up to ")[0] == str(tick), after


def test_the_worker_leaves_what_a_copy_quarantines(quick_leaf: Callable[..., Leaf]) -> None:
    """It ends a quarantine where a copy has only begun; not once the copy may quarantine events."""
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(CHECK.plant)
    fill(leaf, CHECK.bad)
    leaf.catch_up()
    assert len(quarantined(leaf)) == 1
    for state, left in (("catching-up", 1), ("wanna-sync:1", 1), ("in-copy", 0)):
        call(leaf.leaf, "londiste.local_set_table_state", QUEUE, "public.t", None, state)
        leaf.root.execute("insert into other values (%s, 'x', 1)", [100 + len(state)])
        leaf.catch_up()
        assert len(quarantined(leaf)) == left, state
    assert ended(leaf) == [("obsolete", 1)]


def test_a_new_copy_ends_what_waited_as_it_empties_the_table(
    quick_leaf: Callable[..., Leaf],
) -> None:
    """The worker may be stopped meanwhile, and must not do it later: then others may wait."""
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(CHECK.plant)
    fill(leaf, CHECK.bad)
    leaf.catch_up()
    call(leaf.leaf, "londiste.local_set_table_state", QUEUE, "public.t", None, "in-copy")
    table = next(t for t in get_table_list(leaf.leaf, QUEUE) if t.table_name == "public.t")
    setup = CopySetup(QUEUE, "leaf", leaf.settings.db)
    loader: Any = SimpleNamespace(store=lambda _target, _plan: None)
    group = SnapshotLoad(setup, loader, CopySource("root", leaf.root.connstr), SYSTEM)
    job = TableJob(table, CopySource("root", leaf.root.connstr), CONSUMER)
    with setup.connect() as target:
        plan, taken = SimpleNamespace(task_name="none"), ProviderSnapshot(leaf.root, "", "1:1:")
        group._strip(target, job, plan, taken)
    assert leaf.leaf.value("select count(*) from t") == 0
    assert (quarantined(leaf), ended(leaf)) == ([], [("obsolete", 1)])
