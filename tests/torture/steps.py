"""Faults at named steps: every failpoint of the product, with each of several things done there.

`kill` ends the process there, `error` lets the step fail, and while a process is held there,
something else can break: a server, the network, Java, its backends.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence

import psycopg

from tests.torture import checks
from tests.torture.commands import Done
from tests.torture.faults import FAULTS, Cycle, NotReached, Run, crash, our_backends
from tests.torture.processes import java_of
from tests.torture.rig import LEAF, MID, ROOT
from tests.torture.schema import NAMES, OWNER, PART_CONDITIONS, PART_HERE
from vedur.failpoint import NAMES as STEPS
from vedur.failpoint import POINTS

#: What the page calls them.
TITLES = {"kill": "kill -9", "error": "error", "hold": "another fault"}
#: How long a step may take to come round under load.
REACH = 60.0
#: work -> (process that does it, share of the draw); commands that start Spark are dear
WORKS = {
    "batch": ("worker", 60),
    "ahead": ("worker", 12),
    "resident": ("worker", 25),
    "copy": ("worker", 70),
    "script": ("worker", 10),
    "ticker": ("ticker", 8),
    "root": ("root", 6),
    "moment": ("command", 6),
    "compare": ("command", 1),
    "repair": ("command", 4),
    "execute": ("command", 16),
    "filter": ("command", 3),
}


#: Steps that come where there is a branch: tests/torture/branch.py.
_BELOW_A_BRANCH = ("moment.awaited",)
#: Steps of tables that are merged from several queues.
MERGED = ("copy.announced", "copy.led", "copy.joined", "copy.restored")
#: Steps of a table that is copied alone.
ALONE = ("copy.emptied", "copy.loaded", "copy.rebuilt")
#: Steps of tables to which nothing happens.
QUIET = ("copy.moved_together", "copy.ok_together")
#: Steps at the end of the task that stays, which under load comes of a fault only.
LOST = ("resident.lost", "resident.closed")
#: Works of the worker that use Spark.
_SPARK = ("batch", "ahead", "copy", "resident")
#: Commands that compare or repair use Spark.
_STARTS_COMMAND = re.compile(
    r" at (moment|compare|repair|filter|rejoin|takeover\.compared|quarantine\.(applied|released))"
)
_STARTS_WORKER = re.compile(
    "(worker|leaf): kill|Java: kill|kill -9 at (batch|ahead|resident|copy|script|quarantine|branch)"
    "| at (takeover|reign|resurrect|queues)"
)


def what_and_step(fault: str) -> tuple[str, str]:
    """Return what a fault does, and the named step at which it does that; none for other faults."""
    what, _, where = fault.partition(" at ")
    step = where.split(" ")[0]
    return (what, step) if step in STEPS else (fault, "")


def is_dear(name: str, plain: bool = False) -> bool:
    """Does the fault make somebody start Spark? That takes minutes on a busy machine; `plain`
    workers do without."""
    if _STARTS_COMMAND.search(name):
        return True
    return not plain and bool(_STARTS_WORKER.search(name)) and not name.startswith("root's")


def _cut(name: str) -> Run:
    def run(c: Cycle) -> None:
        c.rig.proxies[name].cut()
        time.sleep(c.rng.uniform(0.0, 1.0))
        c.rig.proxies[name].restore()

    return run


def _terminate(name: str) -> Run:
    def run(c: Cycle) -> None:
        for pid in our_backends(c.rig, name):
            c.rig.query(name, "select pg_terminate_backend(%s)", [pid])

    return run


def _crash(name: str) -> Run:
    return lambda c: crash(c, name, "immediate", 0.0)


def _java(c: Cycle) -> None:
    java = java_of(c.worker.pid)
    if java is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(java, signal.SIGKILL)


def _rewrite(c: Cycle) -> None:
    """All tables of the root get new files; one that the held process has locked is left."""
    with c.rig.connect(ROOT) as db:
        db.execute("set lock_timeout = '1s'")
        for table in NAMES:
            with contextlib.suppress(
                psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable
            ):
                db.execute(f"vacuum full {OWNER}.{table}")  # type: ignore[call-overload]


def _nothing(c: Cycle) -> None:
    time.sleep(c.rng.uniform(0.2, 1.5))


#: What may happen while a process is held at a step.
MEANWHILE: dict[str, Run] = {
    "leaf's server crashes": _crash(LEAF),
    "branch's server crashes": _crash(MID),
    "root's server crashes": _crash(ROOT),
    "network to the leaf cut": _cut(LEAF),
    "network to the branch cut": _cut(MID),
    "network to the root cut": _cut(ROOT),
    "leaf's backends terminated": _terminate(LEAF),
    "branch's backends terminated": _terminate(MID),
    "root's backends terminated": _terminate(ROOT),
    "Java killed": _java,
    "root's tables rewritten": _rewrite,
    "it waits": _nothing,
}


# -- what brings a process to the step -----------------------------------------------------------


def _burst(c: Cycle) -> None:
    """Many changes in many ticks while the worker rests, so that there is something ahead."""
    c.rig.ok(c.node, "pause")
    try:
        # the load may have removed most of its rows
        c.rig.query(
            ROOT,
            "insert into t.big select g, 0, 'burst' from generate_series(1, 3000) g"
            " on conflict do nothing",
        )
        for _ in range(6):
            c.rig.query(ROOT, "update t.big set v = v + 1")
            began = c.rig.last_tick(c.provider)
            c.rig.wait(lambda began=began: c.rig.last_tick(c.provider) > began, "a tick", 60)
    finally:
        c.rig.ok(c.node, "resume")


def _copy(c: Cycle) -> None:
    _copy_tables(c, c.rng.sample([*NAMES, "part"], c.rng.choice((1, 1, 2, 4))))


def _copy_alone(c: Cycle) -> None:
    _copy_tables(c, [c.rng.choice(NAMES)])


def _copy_together(c: Cycle) -> None:
    _copy_tables(c, c.rng.sample(NAMES, c.rng.randint(3, min(6, len(NAMES)))))


def _copy_tables(c: Cycle, tables: Sequence[str]) -> None:
    names = [f"{OWNER}.{table}" for table in tables]
    if c.rng.random() < 0.4:
        c.note["by"] = f"remove-table, add-table {' '.join(names)}"
        c.rig.ok(c.node, "remove-table", *names)
        c.rig.add_tables(c.node, *names)
    else:
        c.note["by"] = f"resync {' '.join(names)}"
        c.rig.ok(c.node, "resync", *names)


def _merged_copy(c: Cycle) -> None:
    """A table that is added as one part of a merge goes through the steps of one."""
    part = f"{OWNER}.part"
    c.note["by"] = f"remove-table, add-table --no-merge {part}"
    c.rig.ok(LEAF, "remove-table", part)
    c.rig.ok(
        LEAF, "add-table", "--no-merge", f"--dest-table={OWNER}.{PART_HERE}",
        f"--copy-condition={PART_CONDITIONS[0]}", part,
    )  # fmt: skip


def _end_resident(c: Cycle) -> None:
    """The task that stays loses its session: it is told to end, and given up."""
    text = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'vedur resident task'"
    )
    try:
        c.rig.wait(lambda: c.rig.query(c.node, text), "a task that stays", REACH)
    except TimeoutError as error:
        raise NotReached("no task stays") from error


def _script_file(c: Cycle) -> str:
    """A script that adds a column, or drops the one that is there."""
    found = c.rig.query(
        ROOT, "select attname from pg_attribute where attrelid = 't.ddl'::regclass"
        " and attnum > 0 and not attisdropped and attname like 'c%'",
    )  # fmt: skip
    number = time.time_ns() // 1_000_000
    change = (
        f"drop column {found[0][0]}" if found else f"add column c{number % 10**6} int default 7"
    )
    path = c.rig.base / f"script_{number}.sql"
    path.write_text(f"alter table t.ddl {change};\nupdate t.ddl set note = 'script';\n")
    return str(path)


def _script(c: Cycle) -> None:
    c.rig.ok(ROOT, "execute", _script_file(c))


def _bring(work: str, point: str) -> Run:
    if point in MERGED:
        return _merged_copy
    if point in ALONE:
        return _copy_alone
    if point.endswith("_together"):
        return _copy_together
    if point in LOST:
        return _end_resident
    return _BRING.get(work, lambda c: None)


_BRING: dict[str, Run] = {"ahead": _burst, "copy": _copy, "script": _script}


# -- faults at steps of daemons ------------------------------------------------------------------


def at_step(work: str, what: str, action: str) -> Run:
    """A fault where a daemon comes to a step."""
    point = f"{work}.{what}"

    def run(c: Cycle) -> None:
        other = choose(c, work) if action == "hold" else None
        process = WORKS[work][0]
        process = c.process if process == "worker" else process
        most = {"batch": 4, "ticker": 12, "copy": 0}
        c.rig.arm(process, point, action, c.rng.randint(0, most.get(work, 0)))
        if point in QUIET:
            c.load.pause()
        try:
            _bring(work, point)(c)
            if not c.rig.fired(process, REACH):
                raise NotReached(point)
        finally:
            if point in QUIET:
                c.load.resume()
        meanwhile(c, process, other)

    return run


def choose(c: Cycle, work: str, spare: str | None = None) -> str:
    """What else breaks while a process is held; a node that is to be spared is away already."""
    spark = work in _SPARK and not c.cheap and not c.rig.plain
    names = [n for n in MEANWHILE if n != "Java killed" or spark]
    if MID not in c.rig.nodes:
        names = [n for n in names if "branch" not in n]
    if spare is not None:
        names = [n for n in names if (spare if spare != MID else "branch") not in n]
    name = c.rng.choices(names, [1 if n == "Java killed" else 6 for n in names])[0]
    c.note["meanwhile"] = name
    return name


def meanwhile(c: Cycle, process: str, name: str | None) -> None:
    """Break it, then let the process go on."""
    if name is not None:
        break_held(c, process, MEANWHILE[name])


def break_held(c: Cycle, process: str, breaks: Run) -> None:
    """Break something, then let the process go on that is held at a step."""
    try:
        breaks(c)
    finally:
        c.rig.release(process)


# -- faults at steps of commands -----------------------------------------------------------------


def with_command(
    c: Cycle,
    point: str,
    action: str,
    command: Callable[[str], Done],
    spare: str | None = None,
    breaks: Run | None = None,
) -> tuple[Done, bool]:
    """Run a command in the background, and break something when it comes to the point: what
    `breaks` does while it is held there, or one of `MEANWHILE`."""
    if action == "hold" and breaks is None:
        breaks = MEANWHILE[choose(c, "command", spare)]
    c.rig.arm("command", point, action)
    done: list[Done] = []
    thread = threading.Thread(target=lambda: done.append(command(str(c.rig.control("command")))))
    thread.start()
    deadline = time.monotonic() + 300
    reached = False
    while not reached and thread.is_alive() and time.monotonic() < deadline:
        reached = c.rig.fired("command", 0.2) if thread.is_alive() else False
        if not reached and thread.is_alive():
            c.rig.arm("command", point, action)
    reached = reached or c.rig.fired("command", 0.05)
    if reached and action == "hold" and breaks is not None:
        break_held(c, "command", breaks)
    thread.join()
    c.rig.disarm()
    if not reached:
        raise NotReached(f"{point}: {done[0].err.strip()[-300:]}")
    result = done[0]
    c.note["exit"] = result.code
    if action == "kill" and result.code != -9:
        raise checks.Failed(f"{point}: killed, but it ended with {result.code}: {result.err}")
    if action == "error" and result.code == 0:
        raise checks.Failed(f"{point}: failed, but it ended with 0: {result.err}")
    return result, reached


def _compare(point: str, action: str) -> Run:
    def run(c: Cycle) -> None:
        table = f"{OWNER}.{c.rng.choice([*NAMES, 'part'])}"
        done, _ = with_command(
            c, point, action,
            lambda control: c.rig.command(c.node, "compare", table, control=control),
        )  # fmt: skip
        if "do not match" in done.err:
            raise checks.Failed(f"compare sees a difference that is none: {done.err}")
        if done.code == 0 and action == "hold" and "srcdb" not in done.err:
            raise checks.Failed(f"compare has not compared: {done.err}")

    return run


def _repair(point: str, action: str) -> Run:
    def run(c: Cycle) -> None:
        c.load.pause()
        c.rig.wait(
            lambda: c.rig.position(c.node) >= c.rig.last_tick(), "the node before damage", 300
        )
        c.rig.query(
            c.node,
            "set session_replication_role = replica;"
            "delete from t.acct where id % 7 = 0;"
            "update t.acct set note = 'damage' where id % 5 = 0;"
            "insert into t.acct select g, null, 0, 'extra' from generate_series(5000, 5020) g",
        )
        c.load.resume()
        with_command(
            c, point, action,
            lambda control: c.rig.command(c.node, "repair", "--apply", "t.acct", control=control),
        )  # fmt: skip
        again = c.rig.command(c.node, "repair", "--apply", "t.acct", timeout=400)
        if again.code != 0:
            raise checks.Failed(f"repair after {point}: {again.code}: {again.err}")

    return run


def _execute(point: str, action: str) -> Run:
    def run(c: Cycle) -> None:
        path = _script_file(c)
        with_command(
            c, point, action, lambda control: c.rig.command(ROOT, "execute", path, control=control)
        )
        applied = "select count(*) from londiste.applied_execute where execute_file = %s"
        name = path.rpartition("/")[2]
        before = c.rig.value(ROOT, applied, [name])
        again = c.rig.command(ROOT, "execute", path)
        if again.code != 0:
            raise checks.Failed(f"execute after {point}: {again.code}: {again.err}")
        if point == "execute.committed" and before != 1:
            raise checks.Failed(f"{name} is not there after its commit")
        if point != "execute.committed" and action != "hold" and before != 0:
            raise checks.Failed(f"{name} is there without its commit")
        for node in c.rig.followers:
            arrived = lambda node=node: c.rig.value(node, applied, [name]) == 1  # noqa: E731
            c.rig.wait(arrived, f"{name} on the {node}", 300)

    return run


def _filter(point: str, action: str) -> Run:
    def run(c: Cycle) -> None:
        old = c.rig.part_condition()
        new = next(x for x in PART_CONDITIONS if x != old)
        with_command(
            c, point, action,
            lambda control: c.rig.command(
                LEAF, "change-filter", f"{OWNER}.part", f"--where={new}", control=control
            ),
        )  # fmt: skip
        now = c.rig.part_condition()
        if action != "hold" and now != (new if point == "filter.committed" else old):
            raise checks.Failed(f"{point}: the condition is {now}")
        # what a dead command has staged goes with the next one
        c.rig.ok(LEAF, "change-filter", f"{OWNER}.part", f"--where={new if now == old else old}")

    return run


def register() -> None:
    """Put all of them into the draw."""
    makers: dict[str, Callable[[str, str], Run]] = {
        "moment": _compare, "compare": _compare, "repair": _repair, "execute": _execute,
        "filter": _filter,
    }  # fmt: skip
    for work, whats in POINTS.items():
        if work not in WORKS:
            continue  # tests/torture/nodes.py, quarantine.py, rejoin.py
        share = WORKS[work][1] / (len(whats) * 4)
        for what in whats:
            if f"{work}.{what}" in _BELOW_A_BRANCH:
                continue
            for action, part in (("kill", 0.3), ("error", 1.5), ("hold", 2.0)):
                maker = makers.get(work)
                point = f"{work}.{what}"
                run = maker(point, action) if maker else at_step(work, what, action)
                FAULTS[f"{TITLES[action]} at {point}"] = (share * part, run)


register()
