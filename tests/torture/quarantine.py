"""An event that the leaf refuses, the operator's skip, the quarantine, and faults at their steps.

The leaf gets a check constraint that the root does not have, and a row breaks it. `status` must
say so. The operator skips the event; when the constraint is gone, the table comes back by
`quarantine replay` or by a new copy.
"""

from __future__ import annotations

import json
from typing import Any

from tests.torture import checks
from tests.torture.faults import FAULTS, Cycle, NotReached, Run
from tests.torture.rig import ROOT
from tests.torture.steps import REACH, TITLES, choose, meanwhile, with_command
from vedur.failpoint import POINTS

TABLE = "t.gone"
_OPEN = "select count(*) from vedur.skip_request where done_at is null"
_HELD = "select count(*) from vedur.quarantine"


def _refuse(c: Cycle) -> int:
    """A row that the leaf refuses; the number of the event that `errors` names."""
    c.rig.query(
        c.node, f"alter table {TABLE} add constraint refuse_bad check (v <> 'bad') not valid"
    )
    c.rig.query(ROOT, f"insert into {TABLE} values (500, 'bad')")
    found: list[int] = []

    def named() -> bool:
        done = c.rig.command(c.node, "errors", "--json")
        said: list[dict[str, Any]] = json.loads(done.out or "[]")
        found[:] = [e["ev_id"] for e in said if e["kind"] == "event" and e["table"] == TABLE]
        return bool(found)

    c.rig.wait(named, "the refused event in errors", 300)
    c.must_say_error("refuse_bad")
    return found[0]


def _cure(c: Cycle) -> None:
    c.rig.query(c.node, f"alter table {TABLE} drop constraint if exists refuse_bad")
    c.rig.query(ROOT, f"delete from {TABLE} where id = 500")


def _skip_args(event: int) -> tuple[str, ...]:
    return ("skip", f"--event={event}", "--reason=torture")


def at_skip(point: str, action: str) -> Run:
    """A fault in the command that records the request."""

    def run(c: Cycle) -> None:
        event = _refuse(c)
        with_command(
            c, point, action,
            lambda control: c.rig.command(c.node, *_skip_args(event), control=control),
        )  # fmt: skip
        text = "select count(*) from vedur.skip_request where ev_id = %s"
        asked = c.rig.value(c.node, text, [event])
        if action != "hold" and asked != (point == "skip.asked"):
            raise checks.Failed(f"{point}: {asked} requests for event {event}")
        if not asked:
            c.rig.ok(c.node, *_skip_args(event))
        _goes_on(c)
        _cure(c)
        c.rig.ok(c.node, "resync", TABLE)

    return run


def _goes_on(c: Cycle) -> None:
    """The worker carries the request out and replicates again."""
    c.rig.wait(lambda: c.rig.value(c.node, _OPEN) == 0, "the skip to be carried out", 300)
    began = c.rig.last_tick()
    c.rig.wait(lambda: c.rig.position(c.node) > began, "changes behind the skipped one", 300)


def at_quarantine(point: str, action: str) -> Run:
    """A fault where the worker quarantines the event, or where it comes back."""

    def run(c: Cycle) -> None:
        event = _refuse(c)
        if point == "quarantine.written":
            name = choose(c, "batch") if action == "hold" else None
            c.rig.arm(c.process, point, action)
            c.rig.ok(c.node, *_skip_args(event))
            if not c.rig.fired(c.process, REACH):
                raise NotReached(point)
            meanwhile(c, c.process, name)
            _goes_on(c)
            _cure(c)
            c.rig.ok(c.node, "resync", TABLE)
            return
        c.rig.ok(c.node, *_skip_args(event))
        _goes_on(c)
        c.rig.query(c.node, f"alter table {TABLE} drop constraint refuse_bad")
        words = ("quarantine", "replay", f"--table={TABLE}")
        with_command(
            c, point, action, lambda control: c.rig.command(c.node, *words, control=control)
        )
        if c.rig.value(c.node, _HELD):
            if point == "quarantine.released" and action != "hold":
                raise checks.Failed("events are in quarantine after they were replayed")
            c.rig.ok(c.node, *words)
        if c.rig.value(c.node, _HELD):
            raise checks.Failed("quarantine replay leaves events behind")

    return run


def cured(run: Run) -> Run:
    """Whatever happens, the leaf takes the table's rows again afterwards."""

    def both(c: Cycle) -> None:
        try:
            run(c)
        except NotReached:
            _cure(c)
            c.rig.ok(c.node, "resync", TABLE)
            raise
        _cure(c)

    return both


def register() -> None:
    """Put these into the draw."""
    for maker, points in ((at_skip, POINTS["skip"]), (at_quarantine, POINTS["quarantine"])):
        work = "skip" if maker is at_skip else "quarantine"
        for what in points:
            for action, title in TITLES.items():
                dear = work == "quarantine" and what != "written"
                weight = (0.2 if dear else 1.0) * (0.3 if action == "kill" and not dear else 1.0)
                point = f"{work}.{what}"
                FAULTS[f"{title} at {point}"] = (weight, cured(maker(point, action)))


register()
