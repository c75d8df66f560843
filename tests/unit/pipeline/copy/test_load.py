"""Connections of all loads together."""

from __future__ import annotations

import threading

import pytest

from vedur.errors import CopyAbandoned
from vedur.pipeline.copy.load import Budget


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
            assert started.wait(120)
            thread.join(0.1)
            assert got == []
        thread.join(120)
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


def test_queues_take_out_of_a_common_budget() -> None:
    """One that holds all of its own leaves the rest to the others."""
    common = Budget(4)
    first, second = Budget(3, common), Budget(3, common)
    with first.load(), second.load(), first.take(10) as mine:
        assert mine == 2  # two loads share the common one
        with second.take(10) as theirs:
            assert theirs == 2
    with first.load(), first.take(10) as mine:
        assert mine == 3
        with second.load(), second.take(10) as theirs:
            assert theirs == 1
    assert common._used == first._used == second._used == 0


@pytest.mark.parametrize("common", [None, Budget(2)], ids=["its own", "common"])
def test_a_load_that_waits_for_others_can_be_given_up(common: Budget | None) -> None:
    """Others hold all for as long as they like; what it held of its own goes back."""
    mine = Budget(2, common)
    first = common or mine
    stopped = threading.Event()
    ended: list[str] = []

    def wait() -> None:
        try:
            with mine.load(), mine.take(2, stopped.is_set):
                ended.append("has got it")
        except CopyAbandoned:
            ended.append("given up")

    thread = threading.Thread(target=wait, daemon=True)
    with first.take(2) as all_of_it:
        assert all_of_it == 2
        thread.start()
        thread.join(0.1)
        stopped.set()
        thread.join(60)
        assert ended == ["given up"]
    assert mine._used == mine._loads == first._used == first._loads == 0
