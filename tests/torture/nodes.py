"""Faults while a leaf is created, and while the leaf gets another provider.

The new leaf has a database of its own on the leaf's server. The other provider is a branch as
Londiste's own worker makes one, with the tick at which the leaf stands and nothing behind it: the
root's ticker rests until the leaf reads from the root again. Both are gone after the cycle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from tests.torture import checks
from tests.torture.faults import FAULTS, Cycle, Run
from tests.torture.rig import DBNAME, LEAF, MID, ROOT
from tests.torture.steps import TITLES, with_command
from vedur import db as vdb
from vedur.db.install import install
from vedur.demo.lab import QUEUE
from vedur.failpoint import POINTS

EXTRA = "extra"
_STANDS = "select last_tick from pgq.get_consumer_info(%s, %s)"
_APPLIED = "select last_tick_id from pgq_node.local_state where consumer_name = %s"
_PROVIDER = "select provider_node from pgq_node.local_state where consumer_name = %s"
_REGISTER = "select * from pgq_node.register_location(%s, %s, %s, false)"
_KNOWN = "select 1 from pgq_node.subscriber_info where subscriber_node = %s"
_TICKING = "update pgq.queue set queue_ticker_paused = %s"


@contextlib.contextmanager
def _node(c: Cycle, name: str, server: str) -> Iterator[str]:
    """A database for a node, and its connect string; database and node are gone afterwards."""
    c.rig.query(server, f"create database {name}")
    try:
        yield c.rig.through(server).replace(f"dbname={DBNAME}", f"dbname={name}")
    finally:
        c.rig.query(server, f"drop database {name} with (force)")
        if c.rig.value(ROOT, "select 1 from pgq_node.node_location where node_name = %s", [name]):
            c.rig.ok(ROOT, "drop-node", name)


def at_create(point: str, action: str) -> Run:
    """A fault in create-leaf; the same command again brings it to its end."""

    def run(c: Cycle) -> None:
        with _node(c, EXTRA, LEAF) as location:
            c.rig.lab.worker_ini(EXTRA, location)
            words = ("create-leaf", EXTRA, location, f"--provider={c.rig.through(ROOT)}")
            with_command(
                c, point, action, lambda control: c.rig.command(EXTRA, *words, control=control)
            )
            c.rig.ok(EXTRA, *words)
            with _connect(c, LEAF, EXTRA) as db:
                applied = db.execute(_APPLIED, [EXTRA]).fetchone()
            stands = c.rig.query(ROOT, _STANDS, [QUEUE, EXTRA])
            if [applied] != stands:
                raise checks.Failed(f"{EXTRA} begins at {applied}, its consumer at {stands}")

    return run


def _connect(c: Cycle, server: str, dbname: str) -> psycopg.Connection[Any]:
    connstr = c.rig.servers[server].connstr(dbname)
    return psycopg.connect(connstr, autocommit=True, application_name="torture")


def _make_branch(c: Cycle, location: str, tick: int) -> None:
    """A branch whose newest tick is the one that the leaf has applied."""
    with vdb.connect(c.rig.servers[ROOT].connstr(MID), autocommit=True) as db:
        install(db)
        db.execute("drop schema vedur cascade")  # by that ours are known
        for name, where in ((ROOT, c.rig.through(ROOT)), (MID, location)):
            db.execute(_REGISTER, [QUEUE, name, where])
        for node in (ROOT, LEAF):
            c.rig.query(node, _REGISTER, [QUEUE, MID, location])
        db.execute(
            "select * from pgq_node.create_node(%s, 'branch', %s, %s, %s, %s, null)",
            [QUEUE, MID, MID, ROOT, tick],
        )
    c.rig.query(
        ROOT, "select * from pgq_node.register_subscriber(%s, %s, %s, %s)", [QUEUE, MID, MID, tick]
    )


@contextlib.contextmanager
def _no_ticks(c: Cycle) -> Iterator[int]:
    """The leaf has applied everything, and nothing comes meanwhile; its tick."""
    c.load.pause()
    c.rig.query(ROOT, _TICKING, [True])
    try:
        c.rig.wait(lambda: c.rig.position() == c.rig.last_tick(), "the leaf at the last tick", 300)
        yield c.rig.position()
    finally:
        c.rig.query(ROOT, _TICKING, [False])


def at_provider(point: str, action: str) -> Run:
    """A fault in change-provider: the leaf reads from one of the two, at its tick, and goes on."""

    def run(c: Cycle) -> None:
        with _no_ticks(c) as tick, _node(c, MID, ROOT) as location:
            _make_branch(c, location, tick)
            words = ("change-provider", f"--provider={MID}")
            try:
                with_command(
                    c, point, action, lambda control: c.rig.command(LEAF, *words, control=control)
                )
            finally:
                _back(c, tick)

    return run


def _back(c: Cycle, tick: int) -> None:
    """What an operator does after it: the same command again, then the way back."""
    if c.rig.position() != tick:
        raise checks.Failed(f"the leaf stood at {tick}, and now at {c.rig.position()}")
    c.note["paused"] = _paused(c)
    moved = c.rig.value(LEAF, _PROVIDER, [LEAF]) == MID
    if not moved or _paused(c) or c.rig.value(ROOT, _KNOWN, [LEAF]):
        c.rig.ok(LEAF, "change-provider", f"--provider={MID}")
    if _paused(c):
        raise checks.Failed("the leaf is paused after change-provider was run again")
    if c.rig.value(ROOT, _KNOWN, [LEAF]):
        raise checks.Failed("the root keeps a subscription for the leaf, which has left it")
    c.rig.ok(LEAF, "change-provider", f"--provider={ROOT}")


def _paused(c: Cycle) -> bool:
    text = "select paused from pgq_node.local_state where consumer_name = %s"
    return bool(c.rig.value(LEAF, text, [LEAF]))


def register() -> None:
    """Put these into the draw."""
    makers = {"create": (at_create, 0.3), "provider": (at_provider, 0.3)}
    for work, (maker, weight) in makers.items():
        for what in POINTS[work]:
            for action, title in TITLES.items():
                point = f"{work}.{what}"
                FAULTS[f"{title} at {point}"] = (weight, maker(point, action))


register()
