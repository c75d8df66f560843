"""Plans of a takeover: how far it is, who has most, who is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vedur.errors import StateError
from vedur.node.epoch import Reign, ReignKind
from vedur.node.plan import Member
from vedur.node.takeover import (
    Note,
    Rival,
    TakeoverProgress,
    failover_steps,
    find_heirs,
    find_rival,
    graves,
    is_beyond,
    judge_progress,
    numbered,
    plan_branch,
    plan_failover,
    plan_live,
    plan_rest,
    read_note,
    replaced,
)

ROOT = Member("n1", "root", worker="w1", tick=10, first_tick=1, last_tick=10, subscribers=("n2",))
NEW = Member("n2", "branch", "n1", "w2", 10, 1, 10, subscribers=("n4",))
NOTE = {"takeover_to": "n2", "takeover_epoch": "e", "takeover_txid": "7"}
CLOSED = replace(ROOT, closed=True, attrs=NOTE)
TICKED = replace(CLOSED, attrs={**NOTE, "takeover_tick": "11"})
BEGAN = (Reign("a", 1, "n1", 1), Reign("e", 2, "n2", 11, "a", ReignKind.TAKEOVER))
PROMOTED = replace(NEW, type="root", provider=None, reigns=BEGAN)
#: By a failover, after the takeover was begun: it has the right name, and not the epoch.
FAILED_OVER = replace(PROMOTED, reigns=(BEGAN[0], replace(BEGAN[1], epoch="f", first_tick=9)))
TURNED = replace(ROOT, type="branch", provider="n2")
DEAD = Member("n1", dead=True, failure="it is tagged as dead")


@pytest.mark.parametrize(
    "old,new,progress",
    [
        (ROOT, NEW, TakeoverProgress.OPEN),
        (CLOSED, NEW, TakeoverProgress.CLOSED),
        (TICKED, NEW, TakeoverProgress.TICKED),
        (TICKED, PROMOTED, TakeoverProgress.PROMOTED),
        (TICKED, replace(PROMOTED, type="branch", provider="n3"), TakeoverProgress.PROMOTED),
        (TURNED, PROMOTED, TakeoverProgress.DONE),
    ],
)
def test_nodes_tell_how_far_it_is(old: Member, new: Member, progress: TakeoverProgress) -> None:
    assert judge_progress(old, new) is progress


@pytest.mark.parametrize(
    "old,new,said",
    [
        (ROOT, replace(PROMOTED, reigns=()), "two roots"),
        (replace(TICKED, reigns=BEGAN[:1]), FAILED_OVER, 'run "resurrect" with the ini of "n1"'),
        (replace(CLOSED, reigns=BEGAN[:1]), FAILED_OVER, 'run "resurrect" with the ini of "n1"'),
        (TICKED, FAILED_OVER, 'run "resurrect" with the ini of "n1"'),
        (replace(TURNED, provider="n3"), PROMOTED, 'a branch of "n3"'),
        (TURNED, NEW, "is not the root"),
        (replace(ROOT, closed=True), NEW, "no takeover of Vedur has done that"),
        (replace(CLOSED, attrs={**NOTE, "takeover_to": "n9"}), NEW, "--node=n9 again to finish"),
    ],
)
def test_what_is_none_of_ours_is_refused(old: Member, new: Member, said: str) -> None:
    with pytest.raises(StateError, match=said):
        judge_progress(old, new)


def test_who_was_made_root_after_another_one() -> None:
    old = replace(ROOT, reigns=BEGAN[:1])
    leaf = Member("n4", "leaf", "n2", "w4", 12, reigns=BEGAN)
    silent = Member("n2", failure="it does not answer")
    assert find_rival({"n1": old, "n2": NEW}, "n1") is None
    assert find_rival({"n1": old, "n2": PROMOTED}, "n1") == Rival("n2", "n2", BEGAN[1])
    rival = find_rival({"n1": old, "n2": silent, "n4": leaf}, "n1")
    assert rival == Rival("n2", "n4", BEGAN[1])
    assert find_heirs({"n1": old, "n2": silent, "n4": leaf}, "n1") == [leaf]
    kept = replace(old, reigns=(BEGAN[0], Reign("k", 2, "n1", 11, "a", ReignKind.KEPT)))
    assert find_rival({"n1": kept, "n2": silent, "n4": leaf}, "n1") is None
    assert "run the same takeover again" in replaced("n1", rival, Note("n2", "e", 7, 11))
    assert 'as "n4" says' in replaced("n1", rival, Note("n2", "other", 7, 11))


def test_a_note_without_a_tick_is_a_root_that_is_closed() -> None:
    note = read_note(CLOSED)
    assert note is not None and (note.to, note.epoch, note.txid, note.tick) == ("n2", "e", 7, None)
    assert read_note(ROOT) is None


def test_steps_that_are_done_are_marked() -> None:
    members = {"n1": TICKED, "n2": NEW}
    progress, others, steps = plan_live(members, "n1", "n2", everybody=True)
    assert (progress, others) == (TakeoverProgress.TICKED, [])
    lines = numbered(steps)
    assert [line.endswith("(done)") for line in lines] == [True] * 5 + [False] * 3


def branch(name: str, tick: int, provider: str = "n1") -> Member:
    return Member(name, "branch", provider, f"w{name}", tick, 1, tick)


def test_the_branch_with_the_newest_tick_is_the_source() -> None:
    leaf = Member("n4", "leaf", "n1", "w4", 15)
    ahead = replace(leaf, name="n5", tick=21)
    members = {"n1": DEAD, "n2": branch("n2", 10), "n3": branch("n3", 20), "n4": leaf, "n5": ahead}
    plan = plan_failover(members, "n1", "n2", ())
    assert (plan.source, plan.tick) == ("n3", 20)
    assert (plan.orphans, plan.ahead) == (("n3", "n4"), ("n5",))
    assert plan_failover(members, "n1", "n3", ()).source is None


def test_a_node_that_is_silent_must_be_named() -> None:
    silent = Member("n3", failure="timeout")
    members = {"n1": DEAD, "n2": branch("n2", 10), "n3": silent}
    with pytest.raises(StateError, match="nodes do not answer: n3"):
        plan_failover(members, "n1", "n2", ())
    assert plan_failover(members, "n1", "n2", ("n3",)).tick == 10


def test_another_root_or_a_leaf_is_refused() -> None:
    other = replace(ROOT, name="n3")
    with pytest.raises(StateError, match='"n3" is root'):
        plan_failover({"n1": DEAD, "n2": branch("n2", 1), "n3": other}, "n1", "n2", ())
    leaf = Member("n2", "leaf", "n1", "w2", 5)
    with pytest.raises(StateError, match="only a branch can become root"):
        plan_failover({"n1": DEAD, "n2": leaf}, "n1", "n2", ())


FIRST = Reign("e1", 1, "n1", 0)
SECOND = Reign("e2", 2, "n2", 11, "e1", ReignKind.FAILOVER)
THIRD = Reign("e3", 3, "n3", 30, "e2", ReignKind.FAILOVER)


@pytest.mark.parametrize(
    ("theirs", "position", "beyond"),
    [
        ([FIRST], 11, False),
        ([FIRST], 12, True),
        ([FIRST, SECOND], 12, False),
        ([], 11, False),
        ([], 12, True),  # the set had no epochs
        ([FIRST, Reign("e9", 2, "n9", 5, "e1")], 7, True),
    ],
)
def test_who_has_applied_more_than_the_new_root(
    theirs: list[Reign], position: int, beyond: bool
) -> None:
    assert is_beyond([FIRST, SECOND], theirs, position) is beyond
    assert not is_beyond([], theirs, position)


def test_the_rest_of_a_failover_does_not_lead_who_has_more() -> None:
    new = replace(branch("n2", 11), type="root", provider=None, subscribers=("n5",))
    more, less = Member("n4", "leaf", "n1", "w4", 12), Member("n5", "leaf", "n1", "w5", 10)
    pointed = Member("n6", "leaf", "n2", "w6", 12)
    members = {"n1": DEAD, "n2": new, "n4": more, "n5": less, "n6": pointed}
    plan = plan_rest(members, "n1", "n2", (), ["n4"])
    assert (plan.orphans, plan.ahead) == (("n5",), ("n4", "n6"))


def test_roots_that_were_lost_before_are_remembered() -> None:
    members = {"n1": DEAD, "n2": replace(DEAD, name="n2"), "n3": branch("n3", 30)}
    assert graves([FIRST, SECOND], members, "n2", "n3") == {"n1": 11}
    assert graves([FIRST, SECOND, THIRD], members, "n3", "n4") == {"n1": 11, "n2": 30}
    back = {**members, "n1": branch("n1", 30)}
    assert graves([FIRST, SECOND], back, "n2", "n3") == {}, "it has come back"
    moved = replace(SECOND, kind=ReignKind.TAKEOVER)
    assert graves([FIRST, moved], members, "n2", "n3") == {}, "it was turned, not lost"
    assert graves([SECOND], members, "n2", "n3") == {}, "nobody knows whom it replaced"


def test_the_place_of_a_branch() -> None:
    root = replace(ROOT, subscribers=("n2",))
    old = replace(branch("n2", 10), subscribers=("n3", "n4"))
    new, leaf = branch("n3", 10, "n2"), Member("n4", "leaf", "n2", "w4", 9)
    members = {"n1": root, "n2": old, "n3": new, "n4": leaf}
    assert plan_branch(members, "n2", "n3", everybody=False) == ("n1", [("n3", "n1"), ("n2", "n3")])
    gone = {**members, "n2": Member("n2", dead=True, failure="gone")}
    above, moves = plan_branch(gone, "n2", "n3", everybody=True)
    assert (above, moves) == ("n1", [("n3", "n1"), ("n4", "n3")])
    with pytest.raises(StateError, match="nodes can only read from a branch"):
        plan_branch(members, "n2", "n4", everybody=False)


def follows(name: str, tick: int, *reigns: Reign) -> Member:
    return replace(branch(name, tick), reigns=reigns)


def test_the_newest_reign_comes_before_the_newest_tick() -> None:
    """n3 missed the reign of n2, and went on with n1 to a higher tick."""
    n3, n4, n5 = (
        follows("n3", 50, FIRST),
        follows("n4", 20, FIRST, SECOND),
        follows("n5", 11, FIRST),
    )
    leaf = Member("n6", "leaf", "n3", "w6", 50, reigns=(FIRST,))
    other = replace(leaf, name="n7", tick=11, provider="n2")
    dead = {name: replace(DEAD, name=name) for name in ("n1", "n2")}
    members = {**dead, "n3": n3, "n4": n4, "n5": n5, "n6": leaf, "n7": other}
    plan = plan_failover(members, "n2", "n5", ("n1",))
    assert (plan.source, plan.tick, plan.teller) == ("n4", 20, "n4")
    assert (plan.orphans, plan.ahead) == (("n4", "n7"), ("n3", "n6"))
    assert plan.graves == (("n3", 11),)
    assert any(
        'keep what "n3" needs from tick 11' in line for line in numbered(failover_steps(plan))
    )
    with pytest.raises(StateError, match=r'"n2" took over at tick 11 .*let "n4" take over'):
        plan_failover(members, "n2", "n3", ("n1",))
    # the set had no epochs before n2; a branch of Londiste's never has any, and counts by its tick
    members = {**dead, "n3": replace(n3, reigns=(), epochs=True), "n4": follows("n4", 20, SECOND)}
    assert plan_failover(members, "n2", "n4", ("n1",)).ahead == ("n3",)
    members["n3"] = replace(n3, reigns=())
    assert plan_failover(members, "n2", "n4", ("n1",)).source == "n3"
    members["n3"] = follows("n3", 50, FIRST, Reign("e9", 2, "n9", 5, "e1"))
    members["n4"] = n4
    with pytest.raises(StateError, match=r"follow different roots.*--dead"):
        plan_failover(members, "n2", "n4", ("n1",))


def test_a_root_whose_reign_is_over_is_no_root() -> None:
    n3 = follows("n3", 20, FIRST, SECOND)
    closed = replace(ROOT, closed=True, reigns=(FIRST,))
    gone = {"n2": replace(DEAD, name="n2"), "n3": n3}
    plan = plan_failover({**gone, "n1": closed}, "n2", "n3", ())
    assert (plan.ahead, plan.graves) == (("n1",), (("n1", 11),))
    with pytest.raises(StateError, match=r'"n1" was replaced by "n2".*let its worker run'):
        plan_failover({**gone, "n1": replace(closed, closed=False)}, "n2", "n3", ())
    noted = replace(CLOSED, reigns=(FIRST,))  # for n2, and nobody knows that n2 was promoted
    with pytest.raises(StateError, match="run takeover n1 --abort --dead=n2"):
        plan_failover({**gone, "n1": noted, "n3": follows("n3", 9, FIRST)}, "n2", "n3", ())
    members = {"n1": closed, "n2": follows("n2", 20, FIRST, SECOND), "n3": n3}
    members["n2"] = replace(members["n2"], type="root", provider=None)
    assert find_rival(members, "n2") is None
    rest = plan_rest(members, "n9", "n2", (), [])
    assert rest.ahead == ("n1",)
    with pytest.raises(StateError, match=r'"n1" was replaced by "n2".*"resurrect".*ini of "n1"'):
        judge_progress(members["n2"], closed)
