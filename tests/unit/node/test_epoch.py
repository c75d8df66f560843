"""Histories of reigns: which provider a node may read from."""

from __future__ import annotations

import pytest

from vedur.node.epoch import Match, Reign, explain, is_other_epoch, last_reign, match_reigns

A = Reign("a", 1, "n1", 1)
B = Reign("b", 2, "n2", 100, "a", "takeover")
C = Reign("c", 3, "n1", 200, "b", "takeover")
OTHER_B = Reign("x", 2, "n3", 90, "a", "failover")


@pytest.mark.parametrize(
    "mine,theirs,position,match",
    [
        ([], [A], 50, Match.SAME),  # a node without epochs
        ([A], [], 50, Match.SAME),  # a provider without
        ([A], [A], 5000, Match.SAME),
        ([A], [A, B], 100, Match.SAME),  # the next reign is ahead of the node
        ([A], [A, B], 101, Match.AHEAD),  # it has what the new root never had
        ([A], [A, B, C], 100, Match.SAME),  # two reigns ahead
        ([A], [A, B, C], 150, Match.AHEAD),  # the first one that it does not know counts
        ([A, B], [A], 100, Match.BEHIND),  # deposed, or restored
        ([A, B, C], [A, B], 300, Match.BEHIND),
        ([A, B], [A, OTHER_B], 100, Match.FORKED),
        ([C], [A, B, C], 300, Match.SAME),  # a node that was told of the last one only
        ([B], [A, B, C], 201, Match.AHEAD),
        ([A], [B], 50, Match.FORKED),
    ],
)
def test_who_may_read_from_whom(
    mine: list[Reign], theirs: list[Reign], position: int, match: Match
) -> None:
    assert match_reigns(mine, theirs, position) is match
    if match is not Match.SAME:
        error = explain(match, mine, theirs, position, "p")
        assert is_other_epoch(error.message)
        assert "nothing is applied" in error.message


def test_the_last_reign_is_the_one_with_the_greatest_number() -> None:
    assert last_reign([C, A, B]) == C
    assert last_reign([]) is None
