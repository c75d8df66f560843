"""Faults of the laboratory where eight parts are merged.

A fault of one part must not hold the others: where it lasts for a while, their changes must go on
arriving meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.torture.checks import Failed
from tests.torture.faults import (
    NotReached,
    Skipped,
    backend_kill,
    flap,
    signals,
    stall,
    start_server,
)
from tests.torture.merging.cycle import MergeCycle
from tests.torture.merging.rig import (
    EAST,
    FULL,
    HALL,
    LEAF,
    PLACES,
    PROCESSES,
    STAND,
    TICKERS,
    WEST,
)
from tests.torture.merging.schema import KEYED, PARTS, TOLD, WHOLE
from tests.torture.processes import java_of, spark_pythons

Run = Callable[[MergeCycle], None]
#: name -> (weight, function)
MERGE: dict[str, tuple[float, Run]] = {}


def fault(name: str, weight: float = 4) -> Callable[[Run], Run]:
    """Register a fault."""

    def put(run: Run) -> Run:
        MERGE[name] = (weight, run)
        return run

    return put


def _parts_of(server: str) -> tuple[str, ...]:
    return tuple(part for part in PARTS if PLACES[part] == server)


# -- processes -----------------------------------------------------------------------------------


def _kill(process: str) -> Run:
    def run(c: MergeCycle) -> None:
        c.some_time()
        c.rig.processes[process].kill()

    return run


fault("worker of eight queues: kill -9", 4)(_kill("worker"))
fault("worker of eight roots: kill -9", 3)(_kill("roots"))
fault("worker of the combined root: kill -9", 3)(_kill(HALL))
fault("worker of the combined branch: kill -9", 3)(_kill(STAND))


@fault("all workers: kill -9", 3)
def kill_all(c: MergeCycle) -> None:
    c.some_time()
    for process in c.rng.sample([*PROCESSES], len(PROCESSES)):
        c.rig.processes[process].kill()


@fault("ticker of some parts: kill -9", 3)
def kill_ticker(c: MergeCycle) -> None:
    c.some_time()
    ticker = next(name for name, server in TICKERS.items() if server == c.site)
    c.rig.processes[ticker].kill()


@fault("worker of eight queues: stopped (SIGSTOP) for seconds", 3)
def freeze(c: MergeCycle) -> None:
    c.some_time()
    pid = c.worker.pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(c.rng.uniform(0.5, 3.0))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@fault("one queue is stopped (-s), then all", 4)
def stop_one(c: MergeCycle) -> None:
    """The others go on without it; the process ends with the last, and all are there again."""
    c.some_time()
    _stop_queue(c, "worker", c.rig.ini(FULL, c.part))
    c.others_go_on(c.part)
    start_again(c, "worker")


@fault("one queue is ended at once (-k), then all", 4)
def cut_one(c: MergeCycle) -> None:
    c.some_time()
    _stop_queue(c, "worker", c.rig.ini(FULL, c.part), "-k")
    c.others_go_on(c.part)
    start_again(c, "worker", "-k")


@fault("one queue reads its ini again (-r), worker: kill -9", 2)
def reload_one(c: MergeCycle) -> None:
    c.some_time()
    c.rig.ask("-r", c.rig.ini(FULL, c.part))
    c.some_time(0.3)
    c.worker.kill()


def _stop_queue(c: MergeCycle, process: str, ini: str, word: str = "-s") -> None:
    pidfile = c.rig.base / "pid" / f"{ini}.pid"
    done = c.rig.ask(word, ini)
    if done.code != 0:
        raise Failed(f"{word} {ini}: {done.code}: {done.err}")
    c.rig.wait(lambda: not pidfile.exists(), f"{ini} to end", 180.0)
    if not c.rig.processes[process].alive:
        raise Failed(f"the process has ended with {ini}")


def start_again(c: MergeCycle, process: str, word: str = "-s") -> None:
    """End the queues that still run; whoever keeps the process alive starts it with all."""
    before = c.rig.processes[process].restarts
    c.rig.ask(word, *PROCESSES[process])
    again = lambda: c.rig.processes[process].restarts > before  # noqa: E731
    c.rig.wait(again, f"{process} to be started again", 180.0)


def _java(c: MergeCycle) -> int:
    java = java_of(c.worker.pid)
    if java is None:
        raise NotReached("no Java")
    return java


@fault("Spark's Java: kill -9", 4)
def kill_java(c: MergeCycle) -> None:
    java = _java(c)
    c.some_time()
    with contextlib.suppress(ProcessLookupError):
        os.kill(java, signal.SIGKILL)


def _kill_python(daemon: bool) -> Run:
    def run(c: MergeCycle) -> None:
        tops, tasks = spark_pythons(c.worker.pid)
        c.some_time()
        found = tops if daemon else tasks
        if not found:
            raise NotReached("no such process")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    return run


fault("Spark's Python task process: kill -9", 4)(_kill_python(False))
fault("Spark's Python daemon: kill -9", 2)(_kill_python(True))


# -- servers -------------------------------------------------------------------------------------


def crash(c: MergeCycle, server: str, mode: str, away: float = 0.0) -> None:
    """Stop a server and start it again; without the server of some parts the others go on."""
    if mode == "kill":
        c.rig.servers[server].kill()
    else:
        c.rig.servers[server].stop(mode)
    try:
        if away and server == LEAF:
            time.sleep(away)
            c.must_say_away(c.part, FULL)
        elif away:
            time.sleep(away / 2)
            gone = _parts_of(server)
            c.others_go_on(*gone)
            c.must_say_away(c.rig.ini(FULL, gone[0]), f"{gone[0]}_root")
    finally:
        start_server(c.rig, server)


def _server(server: str | None, mode: str) -> Run:
    def run(c: MergeCycle) -> None:
        c.some_time()
        away = c.rng.choice((0.0, c.rng.uniform(0.5, 2.0)))
        c.note["server"] = server or c.site
        crash(c, server or c.site, mode, away)

    return run


for _title, _where in (("some parts'", None), ("leaf's", LEAF)):
    fault(f"{_title} server: immediate stop", 5)(_server(_where, "immediate"))
    fault(f"{_title} server: postmaster kill -9", 4)(_server(_where, "kill"))
    fault(f"{_title} server: fast restart", 3)(_server(_where, "fast"))


@fault("servers of all parts: immediate stop", 3)
def both_servers(c: MergeCycle) -> None:
    c.some_time()
    for server in (EAST, WEST):
        c.rig.servers[server].stop("immediate")
    for server in (EAST, WEST):
        start_server(c.rig, server)


@fault("some parts' server: immediate stop, worker: kill -9", 4)
def server_and_worker(c: MergeCycle) -> None:
    """The process is started while a server of parts is away."""
    c.some_time()
    c.note["server"] = c.site
    c.rig.servers[c.site].stop("immediate")
    try:
        c.worker.kill()
        c.others_go_on(*_parts_of(c.site))
    finally:
        start_server(c.rig, c.site)


def _at_site(make: Callable[..., Callable[[Any], None]], *words: str) -> Run:
    return lambda c: make(c.part, *words)(c)


def _at_leaf(make: Callable[..., Callable[[Any], None]], *words: str) -> Run:
    return lambda c: make(FULL, *words)(c)


for _title, _there in (("some parts'", _at_site), ("leaf's", _at_leaf)):
    fault(f"{_title} server: one backend kill -9", 3)(_there(backend_kill))
    fault(f"{_title} server: backends terminated", 4)(_there(signals, "pg_terminate_backend"))
    fault(f"{_title} server: statements cancelled", 4)(_there(signals, "pg_cancel_backend"))


# -- network -------------------------------------------------------------------------------------


@fault("network to one part: cut", 6)
def cut_part(c: MergeCycle) -> None:
    c.some_time()
    c.note["part"] = c.part
    with c.rig.cut_off(c.part):
        away = c.rng.choice((0.1, 0.5, 2.0))
        time.sleep(away)
        if away > 0.4:
            c.others_go_on(c.part)
            c.must_say_away(c.rig.ini(FULL, c.part), f"{c.part}_root")


@fault("network to some parts: cut, and they come back one by one", 4)
def cut_several(c: MergeCycle) -> None:
    c.some_time()
    parts = c.rng.sample(PARTS, c.rng.randint(3, 7))
    with contextlib.ExitStack() as stack:
        for part in parts:
            stack.enter_context(c.rig.cut_off(part))
        c.others_go_on(*parts)
        for part in parts:
            c.some_time(0.4)
            c.rig.proxies[part].restore()


@fault("network to one part: stalled", 5)
def stall_part(c: MergeCycle) -> None:
    c.some_time()
    c.note["part"] = c.part
    proxy = c.rig.proxies[c.part]
    proxy.stall()
    try:
        c.others_go_on(c.part)
        if c.rng.random() < 0.5:
            proxy.drop()
    finally:
        proxy.restore()


fault("network to one part: connections dropped again and again", 4)(_at_site(flap))
fault("network to the leaf: connections dropped again and again", 4)(_at_leaf(flap))
fault("network to the leaf: stalled", 4)(_at_leaf(stall))


@fault("network to the leaf: cut", 5)
def cut_leaf(c: MergeCycle) -> None:
    c.some_time()
    with c.rig.cut_off(FULL):
        away = c.rng.choice((0.1, 0.5, 2.0))
        time.sleep(away)
        if away > 0.4:
            c.must_say_away(c.part, FULL)


@fault("network: packets vanish", 2)
def vanish(c: MergeCycle) -> None:
    """Nobody closes a connection: they hang until the packets come through, or time is out."""
    if c.rig.wire is None:
        raise Skipped("no network namespace")
    c.some_time()
    c.rig.wire.cut()
    try:
        away = c.rng.choice((c.rng.uniform(1.0, 8.0), 40.0))
        c.note["seconds"] = round(away, 1)
        time.sleep(away)
    finally:
        c.rig.wire.join()


# -- locks ---------------------------------------------------------------------------------------


@fault("leaf: merged table locked by a long transaction", 4)
def locked(c: MergeCycle) -> None:
    c.some_time()
    with c.rig.connect(FULL) as db, db.transaction():
        db.execute("set local lock_timeout = '30s'")
        with contextlib.suppress(psycopg.errors.LockNotAvailable):
            table = c.rng.choice((*WHOLE, *TOLD, *KEYED))
            db.execute(f"lock table {table} in access exclusive mode")  # type: ignore[call-overload]
        time.sleep(c.rng.uniform(0.5, 5.0))


@fault("leaf: rows of one part locked by a long transaction", 4)
def rows_locked(c: MergeCycle) -> None:
    """That part waits; the others, whose rows are in the same tables, do not."""
    c.some_time()
    c.note["part"] = c.part
    with c.rig.connect(FULL) as db, db.transaction():
        db.execute("set local lock_timeout = '30s'")
        db.execute("select from t.bills where part = %s for update", [c.part])
        db.execute("select from t.stock where part = %s for update", [c.part])
        c.others_go_on(c.part)


# -- what brings parts to their copies -----------------------------------------------------------


def copy_whole(c: MergeCycle, *names: str, gone: str = "") -> None:
    """Tables of all parts go, unless they are gone already, and come again by one command."""
    names = names or tuple(c.rng.sample((*WHOLE, *KEYED), c.rng.choice((1, 1, 2, 3))))
    most = c.rng.choice((0, 0, 1, 3))
    c.note["by"] = f"remove-table of all parts, add-table --merge-all {' '.join(names)}"
    if most:
        c.note["by"] += f" --max-parallel-copy={most}"
    for part in c.rng.sample(PARTS, len(PARTS)):
        if part != gone:
            c.rig.ok(c.rig.ini(FULL, part), "remove-table", *names)
    c.rig.add_whole(*names, by=c.rng.choice(PARTS), most=most)


def copy_part(c: MergeCycle) -> None:
    """One part is copied anew, while the others are replayed into the same table."""
    ini = c.rig.ini(FULL, c.part)
    names, add = c.rng.choice(((TOLD, c.rig.add_told), (KEYED, c.rig.add_keyed)))
    if c.rng.random() < 0.5:
        c.note["by"] = f"resync of {c.part}, {' '.join(names)}"
        c.rig.ok(ini, "resync", *names)
    else:
        c.note["by"] = f"remove-table, add-table of {c.part}, {' '.join(names)}"
        c.rig.ok(ini, "remove-table", *names)
        add(c.part)


@fault("copies of all parts, worker: kill -9", 5)
def kill_in_copies(c: MergeCycle) -> None:
    copy_whole(c)
    for _ in range(c.rng.randint(1, 3)):
        c.some_time(1.5)
        c.worker.kill()


@fault("copies of all parts, some parts' server: immediate stop", 5)
def crash_in_copies(c: MergeCycle) -> None:
    copy_whole(c)
    c.some_time(1.5)
    c.note["server"] = c.site
    crash(c, c.site, "immediate")


@fault("copies of all parts, network to one part: cut", 5)
def cut_in_copies(c: MergeCycle) -> None:
    copy_whole(c)
    c.some_time(1.0)
    with c.rig.cut_off(c.part):
        time.sleep(c.rng.uniform(0.5, 3.0))


@fault("copy of one part, leaf's server: immediate stop", 4)
def crash_in_copy(c: MergeCycle) -> None:
    copy_part(c)
    c.some_time(1.0)
    crash(c, LEAF, "immediate")


@fault("a part is removed in the middle of the copies", 5)
def removed_in_copies(c: MergeCycle) -> None:
    """What it has loaded cannot be told from the rows of others: all begin anew."""
    copy_whole(c, "t.notes")
    c.some_time(1.0)
    c.rig.ok(c.rig.ini(FULL, c.part), "remove-table", "t.notes")
    c.some_time(0.5)
    copy_whole(c, "t.notes", gone=c.part)
