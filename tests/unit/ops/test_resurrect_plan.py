"""Who has replaced a root, and at which tick: decided from what the nodes say."""

from __future__ import annotations

import pytest

from vedur.errors import StateError
from vedur.node.epoch import Reign
from vedur.node.plan import Member
from vedur.ops.resurrect.plan import Fork, Successor, find_fork, find_successor

FIRST = Reign("e1", 1, "a", 1)
BY_B = Reign("e2", 2, "b", 10, "e1")
BY_C = Reign("e3", 3, "c", 20, "e2")
RIVAL = Reign("e9", 2, "c", 8, "e1")

A = Member("a", "root", tick=15)
MEMBERS = {"a": A, "b": Member("b", "root", tick=30), "c": Member("c", "branch", "b", tick=30)}


def test_the_next_reign_counts_and_the_newest_root_is_read_from() -> None:
    found = find_successor(A, [FIRST], {"b": [FIRST, BY_B]}, MEMBERS)
    assert found == Successor("b", 10, "e1")
    members = {**MEMBERS, "b": Member("b", "branch", "c"), "c": Member("c", "root")}
    histories = {"b": [FIRST, BY_B], "c": [FIRST, BY_B, BY_C]}
    assert find_successor(A, [FIRST], histories, members) == Successor("c", 10, "e1")


def test_nobody_has() -> None:
    assert find_successor(A, [FIRST], {"b": [FIRST], "c": []}, MEMBERS) is None


def test_a_branch_comes_back_only_if_it_went_too_far() -> None:
    history = {"b": [FIRST, BY_B]}
    beyond, within = (Member("d", "branch", "a", tick=tick) for tick in (11, 10))
    assert find_successor(beyond, [FIRST], history, MEMBERS) == Successor("b", 10, "e1")
    assert find_successor(within, [FIRST], history, MEMBERS) is None


def test_a_root_that_became_one_beside_another() -> None:
    """The last common reign ends where the first of both began."""
    assert find_fork([FIRST, BY_B], [FIRST, RIVAL]) == Fork(RIVAL, 8)
    assert find_fork([FIRST, RIVAL], [FIRST, BY_B]) == Fork(BY_B, 8)
    assert find_fork([FIRST, BY_B], [FIRST]) is None
    assert find_fork([FIRST], [Reign("x", 1, "x", 1)]) is None


def test_a_set_that_had_no_epochs_has_them_from_the_failover_on() -> None:
    begun = Reign("e1", 1, "b", 10, None, "failover")
    assert find_successor(A, [], {"b": [begun]}, MEMBERS) == Successor("b", 10, None)
    assert find_successor(A, [], {"b": [FIRST]}, MEMBERS) is None, "nothing tells where"
    assert find_successor(A, [], {"b": []}, MEMBERS) is None


def test_what_is_refused() -> None:
    with pytest.raises(StateError, match=r'several nodes were made root.*"b".*"c"'):
        find_successor(A, [FIRST], {"b": [FIRST, BY_B], "c": [FIRST, RIVAL]}, MEMBERS)
    silent = {**MEMBERS, "b": Member("b", failure="it is away")}
    with pytest.raises(StateError, match='root "b" does not answer'):
        find_successor(A, [FIRST], {"c": [FIRST, BY_B]}, silent)
    unfinished = {**MEMBERS, "b": Member("b", "branch", "a")}
    with pytest.raises(StateError, match=r'"b" is a branch, although.*run the takeover'):
        find_successor(A, [FIRST], {"b": [FIRST, BY_B]}, unfinished)
    with pytest.raises(StateError, match='node "b", which this node does not know'):
        find_successor(A, [FIRST], {"c": [FIRST, BY_B]}, {"a": A, "c": MEMBERS["c"]})
