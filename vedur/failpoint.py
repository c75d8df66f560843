"""Named places where a test may stop, delay or end the process.

`reach(name)` does nothing unless a hook is set, and only code can set one: no ini file, no
environment and no command line of the product leads here, so what is installed cannot be made to
fail. The campaign in tests/torture sets a hook before it calls the ordinary commands.

A name is `<work>.<what has just been done>`. All are listed here, each is used in one place.
"""

from __future__ import annotations

from collections.abc import Callable

#: work -> what has just been done when the place is reached
POINTS: dict[str, tuple[str, ...]] = {
    # worker/batch.py: one batch of a leaf or a branch
    "batch": ("taken", "staged", "merged", "committed", "finished"),
    # pipeline/replay/masked.py: events of a slice that go on masked
    "masked": ("written",),
    # ops/masks.py: what nodes below are told of it
    "mask": ("noted",),
    # worker/apply_range.py: the range behind it, staged meanwhile
    "ahead": ("begun", "taken"),
    # pipeline/spark/resident.py: the task that stays is begun, has an order, has answered, is
    # given up, is told to end
    "resident": ("started", "ordered", "answered", "lost", "closed"),
    # worker/first_copy/context.py: a step of a first copy begins (`Step` there)
    "copy": (
        "register",
        "snapshot",
        "in_copy",
        "strip",
        "truncate",
        "load",
        "rebuild",
        "catch_up",
        "hand_over",
        "foreign_keys",
        # worker/first_copy/table.py, catch_up.py: inside the steps
        "marked",
        "emptied",
        "left",
        "loaded",
        "rebuilt",
        "merged",
        "replayed",
        "ok",
        # many tables at a time: table.py registers, bundle.py loads, catch_up_together.py the rest
        "registered_together",
        "begun_together",
        "emptied_together",
        "loaded_together",
        "ended_together",
        "moved_together",
        "ok_together",
        # several parts into one table: control.py announces one, table.py leads or joins, parts.py
        "announced",
        "led",
        "joined",
        "restored",
        # worker/first_copy/places.py: a node to copy from
        "found",
    ),
    # worker/system_events.py: a script of the set on a leaf; first_copy/scripts.py: set copies back
    "script": ("started", "copies", "run", "finished"),
    # node/moment.py: both nodes at one moment, for compare and repair
    "moment": ("awaited", "begun", "exported", "held", "ticked", "reached", "let_go"),
    "compare": ("counted",),
    "repair": ("planned", "fetched", "applied", "committed"),
    # ops/change_filter.py
    "filter": ("planned", "staged", "switched", "committed"),
    "execute": ("started", "run", "finished", "committed"),
    # ops/quarantine/skip.py; worker/batch.py quarantines, ops/quarantine/replay.py applies
    "skip": ("checked", "asked"),
    "quarantine": ("written", "applied", "released"),
    "ticker": ("ticked", "operated"),
    # worker/roles/leaf.py: the consumer is moved to the tick that a node has applied
    "position": ("moved",),
    # ops/rejoin/run.py: this node's position, the consumer's, then table by table
    "rejoin": ("planned", "placed", "moved", "applied", "repaired"),
    # ops/resurrect/run.py: the deposed root, then its place on the new one, then its tables
    "resurrect": ("closed", "drained", "saved", "kept", "turned", "subscribed", "finished"),
    # ops/create_node.py, ops/change_provider.py, ops/change_location.py
    "create": ("ticked", "subscribed"),
    "provider": ("paused", "subscribed", "changed", "untagged", "resumed", "held", "unsubscribed"),
    "location": ("checked", "told"),
    # ops/drop_node.py, ops/tag_node.py, ops/rename_node.py, ops/move_position.py
    "drop": ("reparented", "forgotten"),
    "tag": ("told",),
    "rename": ("announced", "switched", "forgotten"),
    "tick": ("set",),
    # worker/roles/branch.py, worker/branch_queue.py: what a branch does beyond a leaf
    "branch": ("left_out", "published", "reported", "synced", "reopened"),
    # worker/combined_queue.py, worker/roles/part.py: what a part of a combined queue does
    "combined": ("published", "handled", "moved", "joined"),
    # ops/processes/many.py: a process of several queues; all pidfiles, all threads, one has ended
    "queues": ("claimed", "begun", "left"),
    # worker/roles/root.py
    "root": ("watermark", "sequences"),
    # worker/roles/reign.py: a root that was replaced, or made by another program
    "reign": ("deposed", "adopted", "closed_other"),
    # ops/takeover: run.py, undo.py, options.py, verify.py, failover.py, leave.py;
    # ops/change_provider.py sets the copies of an orphan back ("recopied")
    "takeover": (
        "checked",
        "moved",
        "caught_up",
        "hooked",
        "closed",
        "drained",
        "ticked",
        "followed",
        "parts_level",
        "promoted",
        "turned",
        "finished",
        "compared",
        "barred",
        "reopened",
        "kept",
        "untagged",
        "branch_moved",
        "tagged",
        "caught_up_from",
        "failed_over",
        "pointed",
        "recopied",
        "orphan_led",
        "orphan_moved",
        "left",
    ),
}

NAMES: frozenset[str] = frozenset(f"{work}.{what}" for work in POINTS for what in POINTS[work])

Hook = Callable[[str], None]
_hook: Hook | None = None


def reach(name: str) -> None:
    """Tell the hook that this place is reached; a hook may not return."""
    if _hook is not None:
        _hook(name)


def set_hook(hook: Hook | None) -> None:
    """Have `hook` called with the name of every place that is reached; for tests only."""
    global _hook
    _hook = hook
