"""Faults while the root moves: takeover from a root that works, or that is gone, and the way back.

A cycle begins and ends with `root` as the root, `mid` below it and `leaf` below that. In between
the branch becomes root, and the load goes there. After a fault the same command is given again
until it is done, as an operator would; the way back is a takeover of its own. Writers count what
they have committed, and at the end that is what the tables have.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, LiteralString

from tests.torture import checks
from tests.torture.branch import (
    CASCADE,
    EXTRA,
    connect_extra,
    extra_node,
    is_paused,
    provider_of,
)
from tests.torture.faults import Cycle, NotReached, Run, start_server
from tests.torture.rig import LEAF, MID, ROOT
from tests.torture.schema import NAMES, OWNER
from tests.torture.steps import REACH, TITLES, choose, meanwhile, with_command
from vedur.demo.lab import QUEUE
from vedur.failpoint import POINTS
from vedur.ops.takeover.failover import GRAVESTONE
from vedur.ops.takeover.verify import Verdict

#: Steps of a takeover that are reached where something is not as usual; see `register`.
FAILOVER = ("tagged", "failed_over", "orphan_led", "pointed", "recopied")
SURVIVOR = ("caught_up_from", "left")
#: Steps of what undoes a takeover: tests/torture/undoing.py.
UNDOING = tuple(f"takeover.{what}" for what in ("barred", "reopened", "untagged", "kept"))
#: A step of a combined queue: tests/torture/merging.
COMBINED = ("takeover.parts_level",)
#: Steps that come where the leaf reads from the root that dies.
LEAF_BELOW_ROOT = ("takeover.orphan_led", "takeover.pointed", "takeover.recopied")
#: Steps at which the old root is closed, and the takeover can still be undone.
CLOSED = ("closed", "drained", "ticked", "followed")

_TYPE = "select node_type from pgq_node.node_info where queue_name = %s"
_OPEN = "select vedur.is_root(%s)"
_MARK = "select n from t.mark where id = 1"
_WORKER_NAME = "select worker_name from pgq_node.node_info where queue_name = %s"
#: Seconds within which a command that is given again and again must be done.
_DONE = 300.0
_LAG, _PATIENCE = "--max-lag=120", "--timeout=60"
#: The place that the new root keeps for the old one, moved in time: a tick of another history.
_OTHER_TICK = """
update pgq.tick set tick_time = tick_time + %s * interval '1 second'
where tick_queue = (select queue_id from pgq.queue where queue_name = %s)
  and tick_id = (select last_tick from pgq.get_consumer_info(%s, %s))"""


# -- what the nodes are ----------------------------------------------------------------------------


def _kind(c: Cycle, node: str) -> str:
    return str(c.rig.value(node, _TYPE, [QUEUE]))


def is_open(c: Cycle, node: str) -> bool:
    return bool(c.rig.value(node, _OPEN, [QUEUE]))


def _require_one_root(c: Cycle) -> None:
    if is_open(c, ROOT) and is_open(c, MID):
        raise checks.Failed("both nodes take writes")


def _require_shape(c: Cycle, root: str, branch: str, leaf: str) -> None:
    """Who is root, who reads from it, and whom the leaf reads from."""
    found = (_kind(c, root), _kind(c, branch), provider_of(c, branch), provider_of(c, LEAF))
    if found != ("root", "branch", root, leaf):
        raise checks.Failed(f"{root} should be root and {branch} its branch: {found}")
    if not is_open(c, root) or is_open(c, branch):
        raise checks.Failed(f"{root} should take writes, and {branch} should not")


def follow(c: Cycle, root: str, *nodes: str) -> None:
    """Changes of the root of now arrive."""
    began = c.rig.last_tick(root)
    for node in nodes:
        there = lambda node=node: c.rig.position(node) > began + 1  # noqa: E731
        c.rig.wait(there, f"changes of {root} on {node}", 300)


# -- what the operator and the writers do ----------------------------------------------------------


def takeover(old: str, new: str, *more: str) -> tuple[str, ...]:
    lag = () if {"--dead-root", "--dead-branch"} & set(more) else (_LAG,)
    return ("takeover", old, f"--node={new}", *lag, _PATIENCE, *more)


def _take_place(old: str, new: str) -> tuple[str, ...]:
    """The same for the place of a branch, where no lag is asked for."""
    return ("takeover", old, f"--node={new}", _PATIENCE)


def again(c: Cycle, ini: str, *words: str) -> None:
    """The same command until it is done; it says why when it is not. A takeover is done with a leaf
    that is left because it has applied more: rejoin is its way."""
    deadline = time.monotonic() + _DONE
    while (done := c.rig.command(ini, *words)).code != 0:
        if done.code == int(Verdict.NODES_LEFT) and "has applied more" in done.err:
            return
        if "Traceback" in done.err:
            raise checks.Failed(f"{' '.join(words)}: {done.err}")
        if time.monotonic() > deadline:
            raise checks.Failed(f"{' '.join(words)}, again and again: {done.code}: {done.err}")
        time.sleep(0.3)


def abort(c: Cycle, ini: str) -> None:
    """Undo a takeover that was begun, until the old root is open again."""
    deadline = time.monotonic() + _DONE
    while not is_open(c, ROOT):
        done = c.rig.command(ini, "takeover", ROOT, "--abort")
        if time.monotonic() > deadline:
            raise checks.Failed(f"takeover --abort: {done.code}: {done.err}")


@contextlib.contextmanager
def counted(c: Cycle, *, may_lose: bool = False) -> Iterator[None]:
    """Writers count their commits, and at the end the root has had each of them once."""
    c.load.pause()
    before = int(c.rig.value(ROOT, _MARK))
    c.load.begin_count()
    c.load.resume()
    try:
        yield
    finally:
        c.load.pause()
        done, most = c.load.end_count()
    found = int(c.rig.value(ROOT, _MARK)) - before
    if found > most or (found < done and not may_lose):
        raise checks.Failed(f"{done} to {most} commits, the root has had {found}")
    c.note["commits"] = done


def _made_equal(c: Cycle) -> tuple[str, ...]:
    """Tables that differ are copied by the worker, or repaired, which takes Spark's time."""
    c.note["copied"] = c.cheap or c.rng.random() < 0.8
    return ("--copy",) if c.note["copied"] else ()


def write_to(c: Cycle, node: str) -> None:
    c.rig.writer = node
    c.load.reconnect()


def home(c: Cycle) -> None:
    """The way back: root is root, the branch and the leaf are below it as before."""
    if not is_open(c, ROOT) and _kind(c, ROOT) == "root" and not is_open(c, MID):
        abort(c, ROOT)  # a fault that did not come to its step left it closed
    if _kind(c, MID) == "root":
        again(c, c.rng.choice((ROOT, MID)), *takeover(MID, ROOT, "--no-compare"))
    write_to(c, ROOT)
    if provider_of(c, LEAF) != MID or is_paused(c, LEAF):
        again(c, LEAF, "change-provider", f"--provider={MID}")
    _require_shape(c, ROOT, MID, MID)


# -- a root that works -----------------------------------------------------------------------------


def at_takeover(point: str, action: str) -> Run:
    """A fault while the branch takes over; then the root takes over from it."""
    what = point.partition(".")[2]

    def run(c: Cycle) -> None:
        if what == "moved":  # somebody else reads from the old root, and moves with --all
            c.rig.ok(LEAF, "change-provider", f"--provider={ROOT}")
        ini = c.rng.choice((ROOT, MID))
        more = ("--all",) if what == "moved" else ()
        words = takeover(ROOT, MID, "--no-compare", *more)
        asked = takeover(ROOT, MID, *more) if what == "compared" else words
        with counted(c):
            try:
                broken(c, point, action, ini, *asked)
                _require_one_root(c)
                if what in CLOSED and not is_open(c, ROOT) and c.rng.random() < 0.4:
                    c.note["then"] = "--abort"
                    abort(c, ini)
                again(c, ini, *words)
            except NotReached:
                home(c)
                raise
            _require_shape(c, MID, ROOT, MID)
            write_to(c, MID)
            follow(c, MID, ROOT, LEAF)
            home(c)
            follow(c, ROOT, MID, LEAF)

    return run


def broken(
    c: Cycle, point: str, action: str, ini: str, *words: str, spare: str | None = None
) -> None:
    command = lambda control: c.rig.command(ini, *words, control=control)  # noqa: E731
    with_command(c, point, action, command, spare)


# -- a root that is gone ---------------------------------------------------------------------------


def at_failover(point: str, action: str) -> Run:
    """The server of the root crashes and stays away; the branch is root; the old one comes back.

    Half of the time writers had rested and everything had arrived; else what only the root had is
    lost, and must be gone everywhere, and kept apart.
    """

    def run(c: Cycle) -> None:
        quiet = point != "takeover.pointed" and c.rng.random() < 0.5
        c.note["quiet"] = quiet
        with counted(c, may_lose=not quiet):
            _lose_root(c, point, quiet)
            _there_and_back(c, point, action, keep=quiet)

    return run


def _there_and_back(c: Cycle, point: str, action: str, *, keep: bool) -> None:
    """The root is lost: the branch takes its place, and the old root comes back and takes over."""
    try:
        _fail_over(c, point, action)
    finally:
        _bring_server_back(c, point, action)
    _bring_root_back(c, point, action, keep=keep)
    home(c)
    follow(c, ROOT, MID, LEAF)


def _lose_root(c: Cycle, point: str, quiet: bool) -> None:
    behind, ahead = (MID, LEAF) if point == "takeover.pointed" else (LEAF, MID)
    worker = c.rig.processes[c.rig.worker_name(behind)]
    if point in LEAF_BELOW_ROOT:
        c.rig.ok(LEAF, "change-provider", f"--provider={ROOT}")
    if quiet:
        c.load.pause()
        tick = c.rig.forced_tick(300)
        for node in c.rig.followers:
            c.rig.wait(lambda node=node: c.rig.position(node) >= tick, f"all on {node}", 300)
    if point == "takeover.recopied":  # a first copy loses its source
        c.rig.arm(c.rig.worker_name(LEAF), "copy.strip", "kill")
        worker.held.set()
        c.rig.ok(LEAF, "resync", f"{OWNER}.{c.rng.choice(NAMES)}")
        if not c.rig.fired(c.rig.worker_name(LEAF), REACH):
            worker.held.clear()
            raise NotReached("copy.strip")
    if point in LEAF_BELOW_ROOT:
        # who has more decides whether the leaf can be led, or has what no branch has
        worker.held.set()
        worker.kill()
        stands = c.rig.position(behind)
        more = 0 if quiet else 3  # without load there are few ticks
        c.rig.wait(lambda: c.rig.position(ahead) > stands + more, f"{ahead} to be ahead", 120)
    else:
        c.some_time()
    c.rig.servers[ROOT].stop("immediate")
    worker.held.clear()
    c.load.pause()


def _fail_over(c: Cycle, point: str, action: str) -> None:
    words = takeover(ROOT, MID, "--dead-root")
    if point == "takeover.left":
        # a command that was killed after the survivor had moved has left it the subscription
        for step in ("takeover.caught_up_from", "provider.resumed"):
            broken(c, step, "kill", MID, *words, spare=ROOT)
    if point.startswith("takeover."):
        with contextlib.suppress(NotReached):  # somebody else says so, below
            broken(c, point, action, MID, *words, spare=ROOT)
            c.note["reached"] = True
    again(c, MID, *words)
    if not is_open(c, MID):
        raise checks.Failed("the branch has taken over and takes no writes")
    write_to(c, MID)
    c.load.resume()
    if point == "takeover.pointed":
        again(c, LEAF, "rejoin", "--apply", *_made_equal(c))
    if provider_of(c, LEAF) != MID:
        raise checks.Failed(f"the leaf reads from {provider_of(c, LEAF)}")
    follow(c, MID, LEAF)


def _bring_server_back(c: Cycle, point: str, action: str) -> None:
    """The old root is there again, and learns that it was replaced: from its own worker, or where
    that is dead, from the one of the new root."""
    looks = {"reign.deposed": ROOT, "reign.closed_other": c.rig.worker_name(MID)}.get(point)
    if looks is None:
        start_server(c.rig, ROOT)
        return
    other = choose(c, "command") if action == "hold" else None
    old = c.rig.processes[ROOT]
    if looks != ROOT:
        old.held.set()
        old.kill()
    c.rig.arm(looks, point, action)
    start_server(c.rig, ROOT)
    if looks != ROOT:
        c.rig.processes[looks].kill()  # it looks at the other members when it begins
    c.note["reached"] = c.rig.fired(looks, REACH)
    meanwhile(c, looks, other)
    old.held.clear()


def _bring_root_back(c: Cycle, point: str, action: str, *, keep: bool) -> None:
    if c.rng.random() < 0.5:
        c.rig.wait(lambda: not is_open(c, ROOT), "the old root to be deposed", 300)
    words = ("resurrect", "--keep-rows") if keep else ("resurrect", *_made_equal(c))
    if point.startswith("resurrect."):
        with contextlib.suppress(NotReached), _without_the_tick(c, point):
            broken(c, point, action, ROOT, *words)
            c.note["reached"] = True
    again(c, ROOT, *words)
    _require_shape(c, MID, ROOT, MID)
    follow(c, MID, ROOT)
    lost = "select count(*) from vedur.lost_event where ev_extra1 like 't.%%'"
    c.note["lost"] = int(c.rig.value(ROOT, lost, []))


@contextlib.contextmanager
def _without_the_tick(c: Cycle, point: str) -> Iterator[None]:
    """Nobody has the tick from which on the old root would read: it keeps what only it had, and
    says so. It does that once, though it is told twice."""
    if point != "resurrect.saved":
        yield
        return
    names = [QUEUE, QUEUE, ROOT + GRAVESTONE]
    c.rig.query(MID, _OTHER_TICK, [1, *names])
    try:
        yield
    finally:
        c.rig.query(MID, _OTHER_TICK, [-1, *names])


def _start_extra(c: Cycle, create: tuple[str, ...]) -> None:
    """Create one more node, let its worker run, and wait until the others have heard of it."""
    c.rig.ok(EXTRA, *create)
    c.rig.start_worker(EXTRA, plain=True)
    for node in (ROOT, LEAF):
        known = lambda node=node: c.rig.value(node, _LOCATED, [EXTRA])  # noqa: E731
        c.rig.wait(known, f"{node} to hear of it", 120)


def at_survivor(point: str, action: str) -> Run:
    """The server of the root crashes, and one more branch has applied more than the one that
    becomes root: that catches up from there first, and ends its subscription."""

    def run(c: Cycle) -> None:
        worker = c.rig.processes[c.rig.worker_name(MID)]
        with extra_node(c, "branch", LEAF) as create:
            _start_extra(c, create)
            again(c, EXTRA, "change-provider", f"--provider={ROOT}")
            with counted(c, may_lose=True):
                worker.held.set()
                try:
                    worker.kill()
                    stands = c.rig.position(MID)
                    ahead = lambda: _extra_state(c, "last_tick_id", LEAF) > stands + 3  # noqa: E731
                    c.rig.wait(ahead, f"{EXTRA} to be ahead", 120)
                    c.rig.servers[ROOT].stop("immediate")
                finally:
                    worker.held.clear()
                c.load.pause()
                _there_and_back(c, point, action, keep=False)

    return run


def reached(run: Run) -> Run:
    """A cycle whose step did not come is whole again, and does not count."""

    def both(c: Cycle) -> None:
        run(c)
        if not c.note.pop("reached", False):
            raise NotReached("the step did not come")

    return both


# -- others ----------------------------------------------------------------------------------------


def at_adoption(point: str, action: str) -> Run:
    """Another program moves the root, by the functions that nodes of Londiste's have, too; the
    worker of the new root begins a reign."""

    def run(c: Cycle) -> None:
        other = choose(c, "command") if action == "hold" else None
        worker = c.rig.processes[c.rig.worker_name(ROOT)]
        with counted(c):
            c.load.pause()
            worker.held.set()
            try:
                worker.kill()
                _promote_by_hand(c, lambda: c.rig.arm(c.rig.worker_name(MID), point, action))
            finally:
                worker.held.clear()
            came = c.rig.fired(c.rig.worker_name(MID), REACH)
            meanwhile(c, c.rig.worker_name(MID), other)
            last = "select kind from vedur.reign order by serial desc limit 1"
            c.rig.wait(lambda: c.rig.value(MID, last) == "adopted", "a reign of its own", 300)
            write_to(c, MID)
            c.load.resume()
            follow(c, MID, ROOT, LEAF)
            home(c)
        if not came:
            raise NotReached(point)

    return run


def _promote_by_hand(c: Cycle, before: Callable[[], None]) -> None:
    demote = "select * from pgq_node.demote_root(%s, %s, %s)"
    for step in (1, 2):
        c.rig.query(ROOT, demote, [QUEUE, step, MID])
    top = c.rig.last_tick()
    c.rig.wait(lambda: c.rig.position(MID) == top, "the last tick on the branch", 300)
    before()
    c.rig.query(MID, "select * from pgq_node.promote_branch(%s)", [QUEUE])
    name = c.rig.value(ROOT, _WORKER_NAME, [QUEUE])
    text = "select * from pgq_node.register_subscriber(%s, %s, %s, %s)"
    c.rig.query(MID, text, [QUEUE, ROOT, name, top])
    c.rig.query(ROOT, "select * from pgq_node.unregister_subscriber(%s, %s)", [QUEUE, MID])
    c.rig.query(ROOT, demote, [QUEUE, 3, MID])


def at_branch_moved(point: str, action: str) -> Run:
    """One more branch takes the place of the branch above it; then that takes its own back."""

    def run(c: Cycle) -> None:
        with extra_node(c, "branch") as words:
            _start_extra(c, words)
            came = True
            try:
                broken(c, point, action, MID, *_take_place(MID, EXTRA))
            except NotReached:
                came = False
            _replace(c, MID, EXTRA, lambda: provider_of(c, MID) == EXTRA)
            follow(c, ROOT, MID, LEAF)
            _replace(c, EXTRA, MID, lambda: provider_of(c, MID) == ROOT)
            _replace(c, EXTRA, MID, lambda: _extra_state(c, "provider_node", MID) == MID)
        if not came:
            raise NotReached(point)

    return run


_LOCATED = "select 1 from pgq_node.node_location where node_name = %s"


def _extra_state(c: Cycle, column: LiteralString, server: str) -> Any:
    with connect_extra(c, EXTRA, server) as db:
        row = db.execute(f"select {column} from pgq_node.local_state limit 1").fetchone()
    return row[0] if row else None


def _replace(c: Cycle, old: str, new: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DONE
    while not done():
        said = c.rig.command(MID, *_take_place(old, new))
        if time.monotonic() > deadline:
            raise checks.Failed(f"takeover {old} --node={new}: {said.code}: {said.err}")


def at_dead_branch(point: str, action: str) -> Run:
    """The server of the branch is gone; one more branch takes its place, and the leaf follows."""

    def run(c: Cycle) -> None:
        with extra_node(c, "branch", LEAF) as create:
            _start_extra(c, create)
            words = takeover(MID, EXTRA, "--dead-branch", "--all")
            ini = c.rng.choice((ROOT, EXTRA))
            came = True
            c.rig.servers[MID].stop("immediate")
            try:
                try:
                    broken(c, point, action, ini, *words, spare=MID)
                except NotReached:
                    came = False
                again(c, ini, *words)
                if provider_of(c, LEAF) != EXTRA:
                    raise checks.Failed("the leaf does not read from the new branch")
                follow(c, ROOT, LEAF)
            finally:
                start_server(c.rig, MID)
            again(c, ROOT, "tag-alive", MID)
            follow(c, ROOT, MID)
            again(c, LEAF, "change-provider", f"--provider={MID}")
        if not came:
            raise NotReached(point)

    return run


# -- the draw --------------------------------------------------------------------------------------


def _maker(work: str, what: str) -> Callable[[str, str], Run]:
    if work in ("resurrect", "reign") or what in FAILOVER:
        if what == "adopted":
            return at_adoption
        return lambda point, action: reached(at_failover(point, action))
    special = {"branch_moved": at_branch_moved, "orphan_moved": at_dead_branch}
    if what in SURVIVOR:
        return lambda point, action: reached(at_survivor(point, action))
    return special.get(what, at_takeover)


def register() -> None:
    """Put all of them into the draw of the laboratory with a branch."""
    for work in ("takeover", "reign", "resurrect"):
        for what in POINTS[work]:
            point = f"{work}.{what}"
            if point in (*UNDOING, *COMBINED):
                continue
            for action, title in TITLES.items():
                CASCADE[f"{title} at {point}"] = (1.0, _maker(work, what)(point, action))


register()
