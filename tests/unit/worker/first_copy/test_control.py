"""What decides over copies: settings that reach it later, and how long the worker waits for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from vedur.catalog import TableInfo
from vedur.catalog.parts import TablePart
from vedur.errors import ConnectError
from vedur.worker.first_copy.context import CopySetup, CopySource, TableJob
from vedur.worker.first_copy.control import Copying, Schedule
from vedur.worker.first_copy.hand_over import HandOver
from vedur.worker.first_copy.parts import PartWaits


def test_new_settings_reach_everything_that_starts_later() -> None:
    nothing = cast(Any, None)
    old, new = (CopySetup("q", "job", f"dbname={name}") for name in ("old", "new"))
    copying = Copying(old, nothing, nothing)
    loader, make_applier = cast(Any, object()), cast(Any, object())
    copying.reconfigure(new, loader, make_applier)
    assert copying.setup is new
    parts = (
        copying._settler, copying._groups, copying._hand_over, copying._ownership, copying._waits,
        copying._catch_ups.seats,
    )  # fmt: skip
    assert [part.setup for part in parts] == [new] * 6
    assert copying._groups.loader is loader
    assert copying.loader is loader
    assert copying.make_applier is make_applier
    assert copying._catch_ups.make_applier is make_applier


def test_the_worker_waits_for_a_copy_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[str | None] = []

    def change(db: Any, queue: str, seen: TableInfo, snapshot: str | None, state: str) -> TableInfo:
        assert snapshot == "1:1:"
        moves.append(state)
        return replace(seen, merge_state=state)

    def change_all(
        db: Any, queue: str, held: Any, state: str, *, keep_snapshot: bool
    ) -> list[TableInfo]:
        assert keep_snapshot
        return [change(db, queue, table, table.custom_snapshot, state) for table in held]

    hand_over_module = "vedur.worker.first_copy.hand_over"
    monkeypatch.setattr(f"{hand_over_module}.change_table_states", change_all)
    monkeypatch.setattr(
        f"{hand_over_module}.hold_tables", lambda db, queue, seen: {t.table_name for t in seen}
    )
    monkeypatch.setattr(f"{hand_over_module}.change_table_state", change)
    # the node still stands where the worker saw it
    monkeypatch.setattr(f"{hand_over_module}.lock_worker_position", lambda db, queue: 7)
    clock = cast(Any, MagicMock())
    hand_over = HandOver(CopySetup("q", "job", "dbname=x"), clock, lambda _name: None)

    def answer(state: str, now: float) -> bool:
        clock.monotonic.return_value = now
        table = TableInfo("public.t", True, state, "1:1:", None, None, None, 0, "public.t")
        return hand_over.answer(cast(Any, MagicMock()), [table], 7)

    assert answer("wanna-sync:5", 0.0)
    assert answer("do-sync:7", 59.0)
    assert moves == ["do-sync:7"]
    assert not answer("do-sync:7", 60.0)
    assert moves == ["do-sync:7", "catching-up"]
    assert not answer("catching-up", 61.0)
    assert answer("wanna-sync:7", 62.0)  # the same tick once more: another full wait
    assert answer("do-sync:7", 121.0)
    assert not answer("do-sync:7", 122.0)


def test_a_part_says_now_and_then_for_whom_it_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lead may be gone for long: whoever waits for it says so, but not in every round."""
    states = {"s1": "ok", "s2": None, "s3": None, "s4": "in-copy", "s5": "in-copy"}
    parts = [
        TablePart(queue, "public.t", f"{queue}_root", state, None, False, "leaf", None, False)
        for queue, state in reversed(states.items())
    ]
    monkeypatch.setattr("vedur.worker.first_copy.parts.read_parts", lambda db, dest: parts)
    monkeypatch.setattr("vedur.worker.first_copy.parts.read_kept_load", lambda *_, **__: None)
    shown: list[str] = []  # what is written for `status`
    monkeypatch.setattr(CopySetup, "wait", lambda _setup, _db, _table, what: shown.append(what))
    clock, nothing = cast(Any, MagicMock()), cast(Any, None)
    left: list[str] = []  # removed now, they would leave something behind
    waiting = PartWaits(CopySetup("s5", "job", "dbname=x"), clock, lambda: None, left.append)
    caplog.set_level("INFO", "vedur")
    waits = TableInfo("public.t", True, "in-copy", None, None, None, "wait-copy", 1, "public.t")

    def said(now: float, table: TableInfo) -> list[tuple[str, str]]:
        clock.monotonic.return_value = now
        caplog.clear()
        waiting.must_wait(nothing, table)
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    [(level, message)] = said(0.0, waits)
    assert level == "INFO"
    assert 'waits until table "public.t" of queue "s2" (node "s2_root"), the first' in message
    assert said(299.0, waits) == []
    assert said(300.0, waits) == [("WARNING", message)]
    assert said(301.0, replace(waits, copy_role=None)) == []  # it goes on
    crowded = replace(waits, copy_role="wait-replay", table_attrs="max_parallel_copy=1")
    told = [("INFO", 'public.t: its copy waits for that of table "public.t" of queue "s4" '
             '(node "s4_root")')]  # fmt: skip
    assert said(302.0, crowded) == told
    assert said(602.0, crowded) == told
    queues = ("s2", "s2", "s4", "s4")
    assert shown == [f'wait for table "public.t" of queue "{q}" (node "{q}_root")' for q in queues]
    assert left == ["public.t"] * 4


def _table(name: str, state: str | None = None) -> TableInfo:
    return TableInfo(name, True, state, None, None, None, None, None, name)


def _job(table: TableInfo) -> TableJob:
    return TableJob(table, CopySource("n1", "dbname=x"), f"copy.{table.table_name}")


def test_a_table_is_due_while_nobody_owns_it_and_its_pause_is_over() -> None:
    clock = cast(Any, MagicMock())
    clock.monotonic.return_value = 0.0
    schedule, table, done = Schedule(clock), _table("t"), _table("done", "ok")
    assert schedule.due([table, done]) == [table]
    assert clock.monotonic.call_count == 1  # every round of the worker asks, of all its tables
    job = _job(table)
    schedule.add(job)
    assert not schedule.due([table])
    assert (schedule.jobs(), schedule.find("t")) == ([job], job)
    schedule.retry(job, 20.0)
    assert (schedule.jobs(), schedule.due([table])) == ([], [])
    clock.monotonic.return_value = 20.0
    assert schedule.due([table])
    # it died before it ended its consumer, whatever its state became meanwhile
    assert schedule.due([_table("t", "ok")])
    schedule.note_end(job)
    assert not schedule.due([_table("t", "ok")])
    schedule.retry(_job(done), 20.0, unfinished=False)
    schedule.retry_at_once()
    assert not schedule.due([done])
    schedule.retry(job, 20.0)
    schedule.retry_at_once()
    assert schedule.due([table])


def test_tables_that_have_gone_are_named_once_and_not_while_somebody_owns_them() -> None:
    clock = cast(Any, MagicMock())
    clock.monotonic.return_value = 0.0
    schedule = Schedule(clock)
    assert schedule.has_traces({"t"})  # not read yet
    schedule.add_trace("early")
    assert not schedule.knows_traces
    schedule.set_traces(["t", "gone", "owned"], ["t"])
    schedule.add_trace("late")
    schedule.retry(_job(_table("tried")), 20.0, unfinished=False)
    owned = _job(_table("owned"))
    schedule.add(owned)
    assert schedule.knows_traces
    assert schedule.take_gone({"t"}) == {"gone", "late", "tried"}
    assert schedule.take_gone({"t"}) == set()
    schedule.release(owned)
    assert schedule.has_traces({"t"})
    assert schedule.take_gone({"t"}) == {"owned"}
    assert schedule.has_traces({"t"})  # not ended
    schedule.note_end(_job(_table("t")))
    assert not schedule.has_traces({"t"})


def test_a_table_that_is_rewritten_again_and_again_is_not_copied_again_at_once() -> None:
    schedule, job = Schedule(cast(Any, MagicMock())), _job(_table("t"))
    assert [schedule.note_change(job) for _ in range(3)] == [True, False, False]
    schedule.note_load(job)
    assert schedule.note_change(job)


def test_a_round_that_breaks_off_leaves_no_table_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target is lost between two tables: the next round must find the first one due, too."""
    module = "vedur.worker.first_copy.control"
    provider = CopySource("n1", "dbname=x")
    places = MagicMock()
    places.provider = places.of_copy.return_value = provider
    monkeypatch.setattr(f"{module}.Places.read", lambda *_: places)
    monkeypatch.setattr(f"{module}.shared_tables", lambda *_: {"part": True})
    monkeypatch.setattr(f"{module}.is_merged", lambda table, shared: table.table_name in shared)
    monkeypatch.setattr(f"{module}.clean_up", lambda *_: None)
    copying = Copying(CopySetup("q", "job", "dbname=x"), cast(Any, None), cast(Any, None))
    for helper in ("_ownership", "_settler", "_hand_over"):
        monkeypatch.setattr(copying, helper, MagicMock())
    started: list[str] = []
    monkeypatch.setattr(
        copying._catch_ups, "start", lambda jobs: started.extend(job.name for job in jobs)
    )
    lost = [ConnectError("the target is gone")]

    def must_wait(target: Any, table: TableInfo) -> bool:
        if lost:
            raise lost.pop()
        return True

    monkeypatch.setattr(copying._waits, "must_wait", must_wait)
    tables = [_table("loaded", "catching-up"), _table("part", "in-copy")]
    target = cast(Any, MagicMock())
    target.query.return_value = []
    with pytest.raises(ConnectError):
        copying.advance(target, "dbname=x", tables, 1)
    assert (copying.schedule.jobs(), started) == ([], [])
    copying.advance(target, "dbname=x", tables, 1)
    assert started == ["loaded"]
    assert [job.name for job in copying.schedule.jobs()] == ["loaded"]
