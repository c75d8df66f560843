"""Connections of all loads together; settings that reach what is already there."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from vedur.catalog import TableInfo
from vedur.pipeline.copy.budget import Budget
from vedur.worker.copying import Copying
from vedur.worker.copying_context import CopySetup


def test_one_load_has_all_and_two_share() -> None:
    budget = Budget(8)
    with budget.load():
        with budget.take(100) as alone:
            assert alone == 8
        with budget.take(3) as few:
            assert few == 3
        with budget.load(), budget.take(100) as one, budget.take(100) as other:
            assert (one, other) == (4, 4)


def test_a_second_load_waits_for_the_first_and_then_gets_its_share() -> None:
    budget = Budget(4)
    got: list[int] = []

    def second() -> None:
        with budget.load():
            started.set()
            with budget.take(100) as count:
                got.append(count)

    started = threading.Event()
    thread = threading.Thread(target=second)
    with budget.load():
        with budget.take(100) as first:
            assert first == 4
            thread.start()
            assert started.wait(10)
            thread.join(0.1)
            assert got == []
        thread.join(10)
        assert got == [2]


def test_a_smaller_budget_lets_nobody_in_until_enough_is_given_back() -> None:
    budget = Budget(4)
    with budget.load(), budget.take(3):
        budget.total = 4
        with budget.take(5) as rest:
            assert rest == 1
        budget.total = 0
    with budget.load(), budget.take(5) as least:
        assert least == 1


def test_new_settings_reach_everything_that_starts_later() -> None:
    nothing = cast(Any, None)
    old, new = (CopySetup("q", "job", f"dbname={name}") for name in ("old", "new"))
    copying = Copying(old, nothing, nothing)
    loader, make_applier = cast(Any, object()), cast(Any, object())
    copying.reconfigure(new, loader, make_applier)
    assert copying.setup is new
    assert copying._settler.setup is new
    assert copying.loader is loader
    assert copying.make_applier is make_applier


def test_the_worker_waits_for_a_copy_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[str | None] = []

    def change(db: Any, queue: str, seen: TableInfo, snapshot: str | None, state: str) -> TableInfo:
        assert snapshot == "1:1:"
        moves.append(state)
        return replace(seen, merge_state=state)

    monkeypatch.setattr("vedur.worker.copying.change_table_state", change)
    clock, nothing = cast(Any, MagicMock()), cast(Any, None)
    copying = Copying(CopySetup("q", "job", "dbname=x"), nothing, nothing, clock)

    def answer(state: str, now: float) -> bool:
        clock.monotonic.return_value = now
        table = TableInfo("public.t", True, state, "1:1:", None, None, None, 0, "public.t")
        target = cast(Any, MagicMock())
        target.value.return_value = 7  # the node still stands where the worker saw it
        return copying._answer(target, [table], 7)

    assert answer("wanna-sync:5", 0.0)
    assert answer("do-sync:7", 59.0)
    assert moves == ["do-sync:7"]
    assert not answer("do-sync:7", 60.0)
    assert moves == ["do-sync:7", "catching-up"]
    assert not answer("catching-up", 61.0)
    assert answer("wanna-sync:7", 62.0)  # the same tick once more: another full wait
    assert answer("do-sync:7", 121.0)
    assert not answer("do-sync:7", 122.0)
