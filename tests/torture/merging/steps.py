"""Faults at the named steps of merging: of parts, of a combined queue, of a process of several
queues."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.torture.checks import Failed
from tests.torture.faults import NotReached, our_backends
from tests.torture.merging.cycle import MergeCycle
from tests.torture.merging.faults import MERGE, Run, copy_part, copy_whole, crash, start_again
from tests.torture.merging.rig import (
    COMPANY,
    FULL,
    HALL,
    LEAF,
    MEMBERS,
    PROCESSES,
    STAND,
    TICKERS,
)
from tests.torture.merging.schema import PARTS
from tests.torture.processes import java_of
from tests.torture.steps import REACH, TITLES, break_held, with_command
from vedur.failpoint import POINTS

#: Seconds within which a command that is given again and again must be done.
_DONE = 300.0
_TAKEOVER = ("--max-lag=120", "--timeout=60", "--no-compare")


# -- what brings a process to a step -------------------------------------------------------------


def _copy(c: MergeCycle) -> None:
    (copy_whole if c.rng.random() < 0.6 else copy_part)(c)


def _burst(c: MergeCycle) -> None:
    """Many changes in many ticks of one part while its worker rests: there is something ahead."""
    ini = c.rig.ini(FULL, c.part)
    c.rig.ok(ini, "pause")
    try:
        for _ in range(6):
            c.rig.query(c.part, "update t.bills set v = v + 1")
            c.rig.query(c.part, "update t.stock set amount = amount + 1")
            began = c.rig.last_tick(c.part, c.part)
            there = lambda b=began: c.rig.last_tick(c.part, c.part) > b  # noqa: E731
            c.rig.wait(there, "a tick", 60)
    finally:
        c.rig.ok(ini, "resume")


def _script(c: MergeCycle) -> None:
    """A script that every part sends: where they meet it is run once, or once for each."""
    each = c.rng.random() < 0.4
    name = f"script_{time.time_ns() // 1_000_000}.sql"
    path = c.rig.base / name
    head = "--*-- Per-Part: yes\n" if each else ""
    path.write_text(f"{head}insert into t.ran (script) values ('{name}');\n")
    c.rig.scripts[name] = each
    c.note["each"] = each
    for part in c.rng.sample(PARTS, len(PARTS)):
        _again(c, part, "execute", str(path))


def _again(c: MergeCycle, ini: str, *words: str) -> None:
    """The same command until it is done, as an operator would; it says why when it is not."""
    deadline = time.monotonic() + _DONE
    while (done := c.rig.command(ini, *words)).code != 0:
        if "Traceback" in done.err:
            raise Failed(f"{' '.join(words)}: {done.err}")
        if time.monotonic() > deadline:
            raise Failed(f"{' '.join(words)}, again and again: {done.code}: {done.err}")
        time.sleep(0.3)


# -- while a process is held at a step -----------------------------------------------------------


def _terminate(place: str) -> Run:
    def run(c: MergeCycle) -> None:
        for pid in our_backends(c.rig, place or c.part):
            c.rig.query(place or c.part, "select pg_terminate_backend(%s)", [pid])

    return run


def _cut(place: str) -> Run:
    def run(c: MergeCycle) -> None:
        with c.rig.cut_off(place or c.part):
            time.sleep(c.rng.uniform(0.0, 1.5))

    return run


def _kill_java_held(c: MergeCycle) -> None:
    java = java_of(c.worker.pid)
    if java is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(java, signal.SIGKILL)


#: What may happen meanwhile.
MEANWHILE: dict[str, Any] = {
    "leaf's server crashes": lambda c: crash(c, LEAF, "immediate"),
    "some parts' server crashes": lambda c: crash(c, c.site, "immediate"),
    "network to the leaf cut": _cut(FULL),
    "network to one part cut": _cut(""),
    "leaf's backends terminated": _terminate(FULL),
    "backends of some parts terminated": _terminate(""),
    "Java killed": _kill_java_held,
    "it waits": lambda c: time.sleep(c.rng.uniform(0.2, 1.5)),
}


def _choose(c: MergeCycle, process: str) -> Run:
    spark = process == "worker" and not c.cheap and not c.rig.plain
    name = c.rng.choice([n for n in MEANWHILE if n != "Java killed" or spark])
    c.note["meanwhile"] = name
    run: Run = MEANWHILE[name]
    return run


# -- faults at named steps -----------------------------------------------------------------------

#: Steps of copies that a part never has: a table for itself, another node than the provider, and
#: tables that are loaded together (each load of a part is one transaction, among others' rows).
_BUNDLED = ("registered", "begun", "emptied", "loaded", "ended")
_NOT_HERE = ("rebuilt", "found", "left", *(f"{step}_together" for step in _BUNDLED))
#: Steps of copies that all parts begin together.
TOGETHER = ("copy.led", "copy.joined", "copy.restored")
_BRING: dict[str, Run] = {"ahead": _burst, "copy": _copy, "script": _script}
_MOST_SKIPPED = {"batch": 12, "combined": 6, "ticker": 10, "root": 2, "copy": 3}


def at_step(process: str | None, point: str, action: str) -> Run:
    """A fault where a process comes to a step; without a name it is the ticker of the part."""
    work = point.partition(".")[0]

    def run(c: MergeCycle) -> None:
        name = process or next(t for t, server in TICKERS.items() if server == c.site)
        breaks = _choose(c, name) if action == "hold" else None
        most = _MOST_SKIPPED.get(work, 0)
        bring = _BRING.get(work, lambda c: None)
        if point in TOGETHER:
            bring = copy_whole
            most = most if point == "copy.joined" else 0
        if point == "copy.foreign_keys":
            most, bring = 0, lambda c: copy_whole(c, "t.bills", "t.lines")
        c.rig.arm(name, point, action, c.rng.randint(0, most))
        bring(c)
        if not c.rig.fired(name, REACH):
            raise NotReached(point)
        if breaks is not None:
            break_held(c, name, breaks)  # type: ignore[arg-type]

    return run


def at_start(point: str, action: str) -> Run:
    """A fault while a process of several queues is started."""

    def run(c: MergeCycle) -> None:
        process = c.rng.choice([*PROCESSES])
        c.note["process"] = process
        breaks = _choose(c, process) if action == "hold" else None
        c.some_time()
        c.rig.arm(process, point, action)
        if c.rng.random() < 0.5:
            c.rig.processes[process].kill()
        else:
            start_again(c, process)
        if not c.rig.fired(process, REACH):
            raise NotReached(point)
        if breaks is not None:
            break_held(c, process, breaks)  # type: ignore[arg-type]

    return run


def at_end_of_queue(point: str, action: str) -> Run:
    """A fault where one queue of a process has ended; the others go on, unless it is killed."""

    def run(c: MergeCycle) -> None:
        process = c.rng.choice([*PROCESSES])
        ini = c.rng.choice(PROCESSES[process])
        c.note |= {"process": process, "queue": ini}
        breaks = _choose(c, process) if action == "hold" else None
        c.some_time()
        c.rig.arm(process, point, action)
        c.rig.ask(c.rng.choice(("-s", "-k")), ini)
        if not c.rig.fired(process, REACH):
            raise NotReached(point)
        if breaks is not None:
            break_held(c, process, breaks)  # type: ignore[arg-type]
        if action == "kill":
            return
        pidfile = c.rig.base / "pid" / f"{ini}.pid"
        c.rig.wait(lambda: not pidfile.exists(), f"{ini} to end", 180.0)
        if process == "worker":
            c.others_go_on(ini.rpartition("_")[2])
        start_again(c, process)

    return run


def _takeover(c: MergeCycle, old: str, new: str) -> None:
    _again(c, new, "takeover", old, f"--node={new}", *_TAKEOVER)


def _back(c: MergeCycle) -> None:
    """`hall` is the root of the combined queue again, and its parts merge there."""
    text = "select node_type from pgq_node.node_info where queue_name = %s"
    if c.rig.value(HALL, text, [COMPANY]) != "root":
        _takeover(c, STAND, HALL)
    found = [c.rig.value(place, text, [COMPANY]) for place in (HALL, STAND)]
    if found != ["root", "branch"]:
        raise Failed(f"{HALL} should be the root and {STAND} its branch: {found}")


def at_joined(point: str, action: str) -> Run:
    """A fault where a part that has waited goes on as one that merges: behind a takeover."""

    def run(c: MergeCycle) -> None:
        breaks = _choose(c, STAND) if action == "hold" else None
        c.rig.arm(STAND, point, action, c.rng.randint(0, len(MEMBERS) - 1))
        try:
            _takeover(c, HALL, STAND)
            if not c.rig.fired(STAND, REACH):
                raise NotReached(point)
            if breaks is not None:
                break_held(c, STAND, breaks)  # type: ignore[arg-type]
            c.load.awake()
            began = {part: c.rig.last_tick(part, part) for part in MEMBERS}
            for part in MEMBERS:
                there = lambda p=part: c.rig.position(STAND, p) > began[p]  # noqa: E731
                c.rig.wait(there, f"{part} to be merged on the new root", 300)
        finally:
            c.rig.disarm()
            _back(c)

    return run


def at_takeover(point: str, action: str) -> Run:
    """A fault in the takeover of a combined queue; the same command again ends it."""

    def run(c: MergeCycle) -> None:
        breaks = _choose(c, STAND) if action == "hold" else None
        words = ("takeover", HALL, f"--node={STAND}", *_TAKEOVER)
        try:
            with_command(
                c,  # type: ignore[arg-type]
                point,
                action,
                lambda control: c.rig.command(STAND, *words, control=control),
                breaks=breaks,  # type: ignore[arg-type]
            )
            _takeover(c, HALL, STAND)
        finally:
            _back(c)

    return run


def register() -> None:
    """Put faults at steps into the draw."""
    makers: dict[str, tuple[float, Callable[[str, str], Run]]] = {
        "combined.published": (6, lambda p, a: at_step(HALL, p, a)),
        "combined.handled": (5, lambda p, a: at_step(STAND, p, a)),
        "combined.moved": (5, lambda p, a: at_step(STAND, p, a)),
        "combined.joined": (5, at_joined),
        "queues.claimed": (5, at_start),
        "queues.begun": (5, at_start),
        "queues.left": (5, at_end_of_queue),
        "takeover.parts_level": (4, at_takeover),
    }
    for work, process in (
        ("batch", "worker"), ("ahead", "worker"), ("copy", "worker"), ("script", "worker"),
        ("root", "roots"), ("ticker", None),
    ):  # fmt: skip
        for what in POINTS[work]:
            if what not in _NOT_HERE:
                weight = {"batch": 3.0, "copy": 2.0}.get(work, 1.5)
                makers[f"{work}.{what}"] = (weight, lambda p, a, at=process: at_step(at, p, a))  # type: ignore[misc]
    for point, (weight, make) in makers.items():
        for action, title in TITLES.items():
            MERGE[f"{title} at {point}"] = (weight, make(point, action))


register()
