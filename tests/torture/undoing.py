"""Faults while a takeover is undone: of a root that works, of one that is back, and of one whose
successor is gone.

A cycle begins and ends as in moving_root.py. What was begun is killed before it has promoted
anybody, so the root takes writes again, and has had each commit once.
"""

from __future__ import annotations

import time

from tests.torture import checks
from tests.torture.branch import CASCADE
from tests.torture.faults import Cycle, NotReached, Run, start_server
from tests.torture.moving_root import (
    CLOSED,
    UNDOING,
    again,
    broken,
    counted,
    follow,
    home,
    is_open,
    takeover,
)
from tests.torture.rig import LEAF, MID, ROOT
from tests.torture.steps import TITLES

_DEAD = "select dead from pgq_node.node_location where node_name = %s"
#: Seconds within which a takeover must be undone.
_UNDONE = 300.0


def at_abort(point: str, action: str) -> Run:
    """The command was killed with the root closed, and a fault comes while that is undone."""

    def run(c: Cycle) -> None:
        ini = c.rng.choice((ROOT, MID))
        with counted(c):
            try:
                _close_root(c, ini)
                broken(c, point, action, ini, "takeover", ROOT, "--abort")
            finally:
                home(c)
            follow(c, ROOT, MID, LEAF)

    return run


def at_untagged(point: str, action: str) -> Run:
    """A failover was killed when some nodes or all were told that the root is dead; it is back."""

    def run(c: Cycle) -> None:
        words = takeover(ROOT, MID, "--dead-root")
        step = c.rng.choice(("takeover.tagged", "takeover.caught_up_from"))
        with counted(c):
            c.some_time()
            c.rig.servers[ROOT].stop("immediate")
            try:
                broken(c, step, "kill", MID, *words, spare=ROOT)
            finally:
                start_server(c.rig, ROOT)
            ini = c.rng.choice((ROOT, MID, LEAF))
            came = _undo(c, point, action, ini)
            for node in (MID, LEAF):
                if c.rig.value(node, _DEAD, [ROOT]):
                    raise checks.Failed(f"{node} still takes the root for dead")
            home(c)
            follow(c, ROOT, MID, LEAF)
        if not came:
            raise NotReached(point)

    return run


def at_kept(point: str, action: str) -> Run:
    """The command was killed with the root closed, and the branch that was to be root is gone: the
    root goes on without it. Then the branch is back, and has missed nothing."""

    def run(c: Cycle) -> None:
        with counted(c):
            try:
                _close_root(c, c.rng.choice((ROOT, MID)))
                c.rig.servers[MID].stop("immediate")
                try:
                    came = _undo(c, point, action, ROOT, f"--dead={MID}")
                finally:
                    start_server(c.rig, MID)
                again(c, ROOT, "tag-alive", MID)
            finally:
                home(c)
            follow(c, ROOT, MID, LEAF)
        if not came:
            raise NotReached(point)

    return run


def _close_root(c: Cycle, ini: str) -> None:
    words = takeover(ROOT, MID, "--no-compare")
    broken(c, f"takeover.{c.rng.choice(CLOSED)}", "kill", ini, *words)
    if is_open(c, ROOT):
        raise checks.Failed("the root takes writes, though a takeover has closed it")


def _undo(c: Cycle, point: str, action: str, ini: str, *more: str) -> bool:
    """Break --abort, and give it again until it says that there is nothing to undo; returns whether
    it was broken."""
    words = ("takeover", ROOT, "--abort", *more)
    came = True
    try:
        broken(c, point, action, ini, *words, spare=MID if more else None)
    except NotReached:
        came = False
    deadline = time.monotonic() + _UNDONE
    while True:
        done = c.rig.command(ini, *words)
        if "there is nothing to undo" in done.err:
            break
        if "Traceback" in done.err or time.monotonic() > deadline:
            raise checks.Failed(f"{' '.join(words)}: {done.code}: {done.err}")
    if not is_open(c, ROOT):
        raise checks.Failed("the takeover is undone, and the root takes no writes")
    return came


def register() -> None:
    """Put all of them into the draw of the laboratory with a branch."""
    makers = {"takeover.untagged": at_untagged, "takeover.kept": at_kept}
    for point in UNDOING:
        for action, title in TITLES.items():
            CASCADE[f"{title} at {point}"] = (1.0, makers.get(point, at_abort)(point, action))


register()
