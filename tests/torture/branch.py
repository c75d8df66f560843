"""Faults of the laboratory with a branch: root, branch, leaf.

What breaks a pair breaks here the leaf below the branch, and once more the branch itself. Besides,
nodes move between providers, get other names and are dropped, while the load goes on.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

import tests.torture.quarantine
import tests.torture.rejoin  # noqa: F401  (the same: they register faults)
from tests.torture import checks
from tests.torture.commands import Done
from tests.torture.faults import FAULTS, Cycle, NotReached, Run, of_node
from tests.torture.own_shard import own_shard
from tests.torture.rig import DBNAME, LEAF, MID, MID_TICKER, ROOT
from tests.torture.schema import NAMES, OWNER
from tests.torture.steps import MERGED, REACH, TITLES, choose, meanwhile, with_command
from vedur.demo.lab import QUEUE
from vedur.failpoint import POINTS

#: name -> (weight, function)
CASCADE: dict[str, tuple[float, Run]] = {}

EXTRA = "extra"
#: The worker looks at the settings of its node every two seconds: it may go on telling a watermark
#: of its own in the cycle after.
SYNCED_CYCLES = 3
_PROVIDER = "select provider_node from pgq_node.local_state where consumer_name = %s"
_PAUSED = "select paused from pgq_node.local_state where consumer_name = %s"
_KNOWN = "select 1 from pgq_node.subscriber_info where subscriber_node = %s"
_LOCATED = "select 1 from pgq_node.node_location where node_name = %s"
_DEAD = "select dead from pgq_node.node_location where node_name = %s"
_STANDS = "select last_tick from pgq.get_consumer_info(%s, %s)"
_MOVE = "select pgq.register_consumer_at(%s, %s, %s)"
#: Faults that are not for a branch: its disk is not small, its condition never changes, and what it
#: has lost would be a hole in its queue.
_LEAF_ONLY = re.compile(r"disk|filter\.|rejoin\.|^root|^ticker|^network|ticker\.|root\.|execute\.")


def _on_branch(run: Run) -> Run:
    def there(c: Cycle) -> None:
        c.node = MID
        run(c)

    return there


# -- what brings the branch to its own steps -----------------------------------------------------


def at_branch(what: str, action: str) -> Run:
    """A fault where the branch does what a leaf does not."""
    point = f"branch.{what}"
    bring: dict[str, Callable[[Cycle], contextlib.AbstractContextManager[None]]] = {
        "synced": _synced, "reopened": _reopened, "left_out": own_shard,
    }  # fmt: skip

    def run(c: Cycle) -> None:
        c.node = MID
        other = choose(c, "batch") if action == "hold" else None
        with bring.get(what, lambda c: contextlib.nullcontext())(c):
            c.rig.arm(c.process, point, action, c.rng.randint(0, 4) if what == "published" else 0)
            if is_paused(c, MID):
                c.rig.ok(MID, "resume")
            if not c.rig.fired(c.process, REACH):
                raise NotReached(point)
            meanwhile(c, c.process, other)

    return run


@contextlib.contextmanager
def _synced(c: Cycle) -> Iterator[None]:
    """The branch and the leaf hold each other's queues."""
    text = "select * from pgq_node.set_node_attrs(%s, %s)"
    c.rig.synced = SYNCED_CYCLES
    c.rig.query(MID, text, [QUEUE, f"sync_watermark={MID},{LEAF}"])
    try:
        yield
    finally:
        c.rig.query(MID, text, [QUEUE, None])


@contextlib.contextmanager
def _reopened(c: Cycle) -> Iterator[None]:
    """A copy of Londiste's comes while the branch has a batch of several ticks open."""
    c.rig.ok(MID, "pause")
    copy = "ghost.copy.t.acct"
    try:
        here = c.rig.position(MID)
        c.rig.wait(lambda: c.rig.last_tick() > here + 5, "ticks for a long batch", 60)
        stands = c.rig.value(ROOT, _STANDS, [QUEUE, MID])
        if stands != here:
            c.rig.query(ROOT, _MOVE, [QUEUE, MID, here])
        # at least so long that it has several ticks
        text = "select batch_id from pgq.next_batch_custom(%s, %s, null, null, '1.5 seconds')"
        c.rig.wait(lambda: c.rig.value(ROOT, text, [QUEUE, MID]), "a long batch", 60)
        c.rig.query(MID, "select pgq.register_consumer(%s, %s)", [QUEUE, copy])
        yield
    finally:
        c.rig.query(MID, "select pgq.unregister_consumer(%s, %s)", [QUEUE, copy])
        if is_paused(c, MID):
            c.rig.ok(MID, "resume")


def at_other_node(point: str, action: str) -> Run:
    """A fault in a first copy that reads from another node than the provider."""

    def run(c: Cycle) -> None:
        other = choose(c, "copy") if action == "hold" else None
        table = f"{OWNER}.{c.rng.choice(NAMES)}"
        if point == "copy.left":
            # a copy from the branch is under way; the operator wants it from the root, and the
            # worker dies: the next one finds a consumer on the branch
            c.rig.arm(c.process, "copy.in_copy", "hold")
            c.rig.ok(LEAF, "resync", f"--copy-node={MID}", table)
            if not c.rig.fired(c.process, REACH):
                raise NotReached("copy.in_copy")
            c.worker.held.set()
            try:
                c.worker.kill()
                c.rig.ok(LEAF, "resync", f"--copy-node={ROOT}", table)
                c.rig.arm(c.process, point, action)
            finally:
                c.worker.held.clear()
        else:
            c.rig.arm(c.process, point, action)
            c.rig.ok(LEAF, "resync", "--find-copy-node", table)
        if not c.rig.fired(c.process, REACH):
            raise NotReached(point)
        meanwhile(c, c.process, other)

    return run


def at_awaited(point: str, action: str) -> Run:
    """A fault while the leaf, which reads from the root, is compared with a branch behind it."""

    def run(c: Cycle) -> None:
        worker = c.rig.processes[c.rig.worker_name(MID)]
        table = f"{OWNER}.{c.rng.choice(NAMES)}"
        c.rig.ok(LEAF, "change-provider", f"--provider={ROOT}")
        worker.held.set()
        try:
            worker.kill()
            behind = c.rig.position(MID)
            c.rig.wait(lambda: c.rig.position(LEAF) > behind + 3, "the leaf to be ahead", 120)
            worker.held.clear()  # it is back later than the command
            _broken(c, point, action, LEAF, "compare", f"--node={MID}", table)
        finally:
            worker.held.clear()
            _move(c, MID, ROOT)

    return run


# -- moments -------------------------------------------------------------------------------------


def kill_branch_ticker(c: Cycle) -> None:
    """Ticks come from the root all the same; rotation goes on when it is back."""
    c.some_time()
    c.rig.processes[MID_TICKER].kill()


def copy_from_the_root(c: Cycle) -> None:
    """The leaf copies past its provider, while the branch crashes."""
    names = [f"{OWNER}.{t}" for t in c.rng.sample(NAMES, 2)]
    c.rig.ok(LEAF, "resync", f"--copy-node={ROOT}", *names)
    c.some_time(0.5)
    c.rig.processes[c.rig.worker_name(MID)].kill()


def long_transaction(c: Cycle) -> None:
    """The snapshots of the branch's ticks list a transaction of its server; nobody waits for it."""
    end, opened = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.suppress(psycopg.Error), c.rig.connect(MID) as db, db.transaction():
            db.execute("select pg_current_xact_id()")
            opened.set()
            end.wait(300)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        opened.wait(20)
        began = c.rig.last_tick()
        c.rig.wait(lambda: c.rig.last_tick() > began + 8, "ticks during a long transaction", 180)
        c.rig.wait(lambda: c.rig.position(LEAF) > began + 5, "batches during it", 180)
    finally:
        end.set()
        thread.join()


def both_workers(c: Cycle) -> None:
    """Branch and leaf at once."""
    c.some_time()
    for node in (MID, LEAF):
        c.rig.processes[c.rig.worker_name(node)].kill()


def both_servers(c: Cycle) -> None:
    """Root and branch crash at once; nobody may have more than the root."""
    c.some_time()
    for node in (ROOT, MID):
        c.rig.servers[node].stop("immediate")
    for node in (ROOT, MID):
        with c.rig.server_env(node):
            c.rig.servers[node].start()


# -- nodes that move -----------------------------------------------------------------------------


def _repeat(c: Cycle, ini: str, *words: str) -> None:
    """What an operator does after a command that failed: the same command again."""
    again = c.rig.command(ini, *words)
    if again.code != 0:
        raise checks.Failed(f"{' '.join(words)}, again: {again.code}: {again.err}")


def _broken(c: Cycle, point: str, action: str, ini: str, *words: str) -> Done | None:
    """A command with a fault in it; what cleans up must run although the step did not come."""
    command = lambda control: c.rig.command(ini, *words, control=control)  # noqa: E731
    return with_command(c, point, action, command)[0]


def provider_of(c: Cycle, node: str) -> str:
    """The node that another one reads from, as it says itself."""
    return str(c.rig.value(node, _PROVIDER, [node]))


def is_paused(c: Cycle, node: str) -> bool:
    """Does its worker rest?"""
    return bool(c.rig.value(node, _PAUSED, [node]))


def _moved(c: Cycle, to: str, old: str) -> bool:
    """The leaf reads from one node, runs, and is not subscribed at the other."""
    here = provider_of(c, LEAF) == to
    return here and not is_paused(c, LEAF) and not c.rig.value(old, _KNOWN, [LEAF])


def _move(c: Cycle, to: str, old: str) -> None:
    if not _moved(c, to, old):
        _repeat(c, LEAF, "change-provider", f"--provider={to}")
    if not _moved(c, to, old):
        raise checks.Failed(f"change-provider, run again, has not moved the leaf to {to}")


def at_provider(point: str, action: str) -> Run:
    """A fault while the leaf moves from the branch to the root; then it moves back."""

    def run(c: Cycle) -> None:
        try:
            _broken(c, point, action, LEAF, "change-provider", f"--provider={ROOT}")
            _move(c, ROOT, MID)
        finally:
            _move(c, MID, ROOT)

    return run


@contextlib.contextmanager
def extra_node(c: Cycle, kind: str, server: str = MID) -> Iterator[tuple[str, ...]]:
    """A database for one more node below the branch, and the words that create it."""
    c.rig.query(server, f"create database {EXTRA}")
    location = c.rig.through(server).replace(f"dbname={DBNAME}", f"dbname={EXTRA}")
    more = {"loop_delay": "0.2", "exception_sleep": "0.3", "local_wm_publish_period": "2"}
    c.rig.lab.worker_ini(EXTRA, location, more)
    try:
        yield (f"create-{kind}", EXTRA, location, f"--provider={c.rig.through(MID)}")
    finally:
        worker = c.rig.processes.pop(EXTRA, None)
        if worker is not None:
            worker.stop()
        c.rig.query(server, f"drop database if exists {EXTRA} with (force)")
        if c.rig.value(ROOT, _LOCATED, [EXTRA]):
            c.rig.ok(ROOT, "drop-node", EXTRA)


def at_create(kind: str, point: str, action: str) -> Run:
    """A fault while a node is created below the branch; the same command again ends it."""

    def run(c: Cycle) -> None:
        with extra_node(c, kind) as words:
            _broken(c, point, action, EXTRA, *words)
            _repeat(c, EXTRA, *words)
            with connect_extra(c, EXTRA) as db:
                text = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
                applied = db.execute(text, [EXTRA]).fetchone()
            stands = c.rig.query(MID, _STANDS, [QUEUE, EXTRA])
            if [applied] != stands:
                raise checks.Failed(f"{EXTRA} begins at {applied}, its consumer at {stands}")

    return run


def connect_extra(c: Cycle, dbname: str, server: str = MID) -> psycopg.Connection[Any]:
    connstr = c.rig.servers[server].connstr(dbname)
    return psycopg.connect(connstr, autocommit=True, application_name="torture")


def at_drop(point: str, action: str) -> Run:
    """The leaf moves below one more branch, which is then dropped from over it."""

    def run(c: Cycle) -> None:
        with extra_node(c, "branch") as words:
            c.rig.ok(EXTRA, *words)
            c.rig.start_worker(EXTRA, plain=True)
            c.rig.wait(lambda: c.rig.value(LEAF, _LOCATED, [EXTRA]), "the leaf to hear of it", 120)
            c.rig.ok(LEAF, "change-provider", f"--provider={EXTRA}")
            began = c.rig.last_tick()
            c.rig.wait(lambda: c.rig.position(LEAF) > began, "changes through two branches", 180)
            drop = ("drop-node", EXTRA, "--reparent")
            try:
                _broken(c, point, action, ROOT, *drop)
            finally:
                if c.rig.value(ROOT, _LOCATED, [EXTRA]):
                    _repeat(c, ROOT, *drop)
                if provider_of(c, LEAF) != MID:
                    raise checks.Failed("the leaf does not read from the branch")

    return run


def at_tag(point: str, action: str) -> Run:
    """A fault while the nodes are told that the leaf is dead, though it is not."""

    def run(c: Cycle) -> None:
        try:
            _broken(c, point, action, ROOT, "tag-dead", LEAF)
            _repeat(c, ROOT, "tag-dead", LEAF)
            for node in (ROOT, MID):
                if not c.rig.value(node, _DEAD, [LEAF]):
                    raise checks.Failed(f"{node} was not told that the leaf is dead")
        finally:
            _repeat(c, ROOT, "tag-alive", LEAF)

    return run


def at_rename(point: str, action: str) -> Run:
    """A fault while the branch gets another name; then it gets its own back."""

    def run(c: Cycle) -> None:
        other = f"{MID}2"
        try:
            _broken(c, point, action, ROOT, "rename-node", MID, other)
        finally:
            _rename(c, MID, other)
            _rename(c, other, MID)

    return run


def _rename(c: Cycle, old: str, new: str) -> None:
    """Rename, or finish it; a name that was just given up has to be forgotten everywhere before."""
    deadline = time.monotonic() + 120
    while any(c.rig.value(node, _LOCATED, [old]) for node in c.rig.nodes):
        again = c.rig.command(ROOT, "rename-node", old, new)
        if again.code != 0 and (
            "not every node has read yet" not in again.err or time.monotonic() > deadline
        ):
            raise checks.Failed(f"rename-node {old} {new}: {again.code}: {again.err}")
    for node in c.rig.nodes:
        if c.rig.value(node, _LOCATED, [old]) or not c.rig.value(node, _LOCATED, [new]):
            raise checks.Failed(f"{node} still knows {old}, or does not know {new}")


def at_tick(point: str, action: str) -> Run:
    """A fault in worker --rewind: the branch has forgotten what the leaf has applied."""

    def run(c: Cycle) -> None:
        c.worker.held.set()
        try:
            c.worker.kill()
            here = c.rig.position()
            older = c.rig.value(MID, "select min(tick_id) from pgq.tick where tick_id < %s", [here])
            if older is None:
                raise NotReached("no older tick")
            c.rig.query(MID, _MOVE, [QUEUE, LEAF, older])
            _broken(c, point, action, LEAF, "worker", "--rewind")
            _repeat(c, LEAF, "worker", "--rewind")
            if c.rig.position() != here or c.rig.value(MID, _STANDS, [QUEUE, LEAF]) != here:
                raise checks.Failed(f"worker --rewind has not gone to tick {here}")
        finally:
            c.worker.held.clear()

    return run


def at_watermark(what: str, action: str) -> Run:
    """A fault in the ticker of the branch's server."""
    point = f"ticker.{what}"

    def run(c: Cycle) -> None:
        other = choose(c, "ticker") if action == "hold" else None
        c.rig.arm(MID_TICKER, point, action, c.rng.randint(0, 3))
        if not c.rig.fired(MID_TICKER, REACH):
            raise NotReached(point)
        meanwhile(c, MID_TICKER, other)

    return run


# -- the draw ------------------------------------------------------------------------------------


def _title(name: str) -> str:
    return name.replace("leaf", "branch") if "leaf" in name else f"{name} on the branch"


def register() -> None:
    """Put all of them into the draw of this laboratory."""
    moved = ("create", "provider")
    other_nodes = ("copy.found", "copy.left")
    # a tick of the root is what only the branch is compared at
    not_below = ("moment.begun", "moment.exported", "moment.held")
    for name, (weight, run) in FAULTS.items():
        step = name.partition(" at ")[2]
        if step.startswith(moved) or step in other_nodes or step in MERGED:
            continue
        if step not in not_below:
            CASCADE[name] = (weight / 2, run)
        if not _LEAF_ONLY.search(step or name) and "server" not in name:
            CASCADE[_title(name)] = (weight, _on_branch(run))
    CASCADE.update(of_node(MID, "branch"))
    CASCADE.update({
        "ticker of the branch: kill -9": (3, kill_branch_ticker),
        "leaf copies from the root, branch's worker: kill -9": (3, copy_from_the_root),
        "branch: transaction open across ticks": (4, long_transaction),
        "workers of branch and leaf: kill -9": (3, both_workers),
        "servers of root and branch: immediate stop": (3, both_servers),
    })  # fmt: skip
    for action, title in TITLES.items():
        for what in POINTS["branch"]:
            CASCADE[f"{title} at branch.{what}"] = (4, at_branch(what, action))
        CASCADE[f"{title} at moment.awaited"] = (1, at_awaited("moment.awaited", action))
        for point in other_nodes:
            CASCADE[f"{title} at {point}"] = (2, at_other_node(point, action))
        for kind in ("branch", "leaf"):
            for what in POINTS["create"]:
                name = f"{title} at create.{what} of a {kind}"
                CASCADE[name] = (1.5, at_create(kind, f"create.{what}", action))
        for work, maker in (
            ("provider", at_provider), ("drop", at_drop), ("tag", at_tag), ("rename", at_rename),
            ("tick", at_tick),
        ):  # fmt: skip
            for what in POINTS[work]:
                CASCADE[f"{title} at {work}.{what}"] = (2, maker(f"{work}.{what}", action))
        CASCADE[f"{title} at ticker.operated of the branch"] = (2, at_watermark("operated", action))


register()
