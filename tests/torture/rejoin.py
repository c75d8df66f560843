"""A leaf that was set back, as by a restore, the operator's rejoin, and faults at its steps.

The worker is paused while the consumer on the root is moved to the newest tick and what the leaf
knows of its own tick is forgotten: then the leaf lacks events that its consumer has passed.
`status` must say so. Rejoin, broken at a step and run again, makes all tables equal.
"""

from __future__ import annotations

from tests.torture import checks
from tests.torture.faults import FAULTS, Cycle, NotReached, Run
from tests.torture.rig import ROOT
from tests.torture.steps import REACH, TITLES, choose, meanwhile, with_command
from vedur.failpoint import POINTS

_MOVE = "select pgq.register_consumer_at(queue_name, %s, %s) from pgq.queue"
_AWAY = 600.0


def _set_back(c: Cycle) -> None:
    """Events are lost for the leaf; the load goes on meanwhile."""
    c.rig.ok(c.node, "pause")
    before = c.rig.position(c.node)
    c.rig.query(ROOT, "update t.big set v = v + 1")
    c.rig.wait(
        lambda: c.rig.last_tick(c.provider) > before + 1, "ticks that the leaf will lack", 60
    )
    c.rig.query(c.provider, _MOVE, [c.node, c.rig.last_tick(c.provider)])
    c.rig.query(c.node, "delete from vedur.position")
    c.rig.ok(c.node, "resume")
    c.must_say_error("Lost position")


def at_rejoin(point: str, action: str) -> Run:
    """A fault in the command; the same command again brings the node back."""
    repairs = point in ("rejoin.applied", "rejoin.repaired")

    def run(c: Cycle) -> None:
        # to repair all tables takes Spark's time; most times the worker copies what is left
        copy = ("--copy",) if c.rng.random() < 0.8 else ()
        words = ("rejoin", "--apply") if repairs else ("rejoin", "--apply", *copy)
        c.note["copied"] = bool(copy)
        _set_back(c)
        try:
            with_command(
                c, point, action,
                lambda control: c.rig.command(c.node, *words, control=control, timeout=_AWAY),
            )  # fmt: skip
        finally:
            for _ in range(10):
                again = c.rig.command(c.node, "rejoin", "--apply", *copy, timeout=_AWAY)
                if "run rejoin again" not in again.err:  # the worker may be at work already
                    break
        if again.code != 0:
            raise checks.Failed(f"rejoin after {point}: {again.code}: {again.err}")
        if c.rig.value(c.node, "select count(*) from vedur.rejoin"):
            raise checks.Failed("rejoin leaves tables behind")

    return run


def at_position(point: str, action: str) -> Run:
    """The root has forgotten that batches were finished; the worker moves its consumer on."""

    def run(c: Cycle) -> None:
        other = choose(c, "batch") if action == "hold" else None
        c.rig.ok(c.node, "pause")
        c.rig.arm(c.process, point, action)
        text = "select min(tick_id) from pgq.tick where tick_id < %s"
        older = c.rig.value(c.provider, text, [c.rig.position(c.node)])
        if older is not None:
            c.rig.query(c.provider, _MOVE, [c.node, older])
        c.rig.ok(c.node, "resume")
        if older is None or not c.rig.fired(c.process, REACH):
            raise NotReached(point)
        meanwhile(c, c.process, other)

    return run


def at_location(point: str, action: str) -> Run:
    """A fault while all nodes are told an address."""

    def run(c: Cycle) -> None:
        words = ("change-location", c.node, c.rig.through(c.node))
        with_command(
            c, point, action, lambda control: c.rig.command(c.node, *words, control=control)
        )
        c.rig.ok(c.node, *words)

    return run


def register() -> None:
    """Put these into the draw; commands that start Spark are dear."""
    makers = {"rejoin": (at_rejoin, 0.2), "position": (at_position, 1.0),
              "location": (at_location, 0.3)}  # fmt: skip
    for work, (maker, weight) in makers.items():
        for what in POINTS[work]:
            for action, title in TITLES.items():
                point = f"{work}.{what}"
                FAULTS[f"{title} at {point}"] = (weight, maker(point, action))


register()
