"""resurrect: a root that was replaced while it was away comes back as a branch of the new one.

What it wrote behind the tick at which the other took over is on no other node; after a restore from
a backup that is an earlier tick (`common.py`). It is kept, readable and exportable (`lost-events`),
and taken out of queue and tables; no table is copied anew.

Steps, each idempotent; what is done is read from the nodes, so that the same command goes on where
it was killed:

1. close the queue for writers and ticker, unless the worker has done that;
2. wait for transactions that may still see it open;
3. one transaction here: events behind the tick go to `vedur.lost_event`, their ticks go, the node
   becomes a branch of the new root at the tick, with its history of reigns; every table is taken
   in hand for its repair (`vedur.rejoin`);
4. one transaction on the new root: the subscription, at the tick that its gravestone kept; the tag
   "dead" goes;
5. each table is compared with the new root and repaired at a tick where the worker waits, as
   `rejoin` does it; what is written or removed is in `vedur.repair_log`.

With `keep_rows` 5 is left out: rows of lost events stay, as Londiste's resurrect leaves them. Where
nobody has the tick any more, 1 and 2 are done, the events are kept, and the node must be made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlencode

from vedur.catalog.lost_events import count_behind, keep_lost_events, keeps_lost_events
from vedur.catalog.rejoin import get_rejoin_tables
from vedur.catalog.tables import get_table_list
from vedur.db import Answer, Database, report
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.node.epoch import check_epoch, last_reign, read_reigns, replace_reigns
from vedur.node.info import get_node_info, get_subscriber_info
from vedur.node.move_lock import try_lock_move, unlock_move
from vedur.node.position import (
    complete_tick,
    get_place,
    keeps_ticks,
    lock_position,
    wake_worker,
)
from vedur.node.setup import (
    OTHER_JOB,
    register_location,
    register_subscriber,
    require_own_consumer,
    set_node_attrs,
    unregister_subscriber,
)
from vedur.node.state import change_consumer_provider
from vedur.node.takeover import ended_by, explain_unturned
from vedur.ops.combined import require_unmerged
from vedur.ops.compare_tables import make_nodes
from vedur.ops.members import SetView, read_members
from vedur.ops.rejoin.tables import (
    RejoiningNode,
    give_to_worker,
    is_keyed,
    repair_all,
    sync_published,
    take_in_hand,
)
from vedur.ops.repair import TableRepair
from vedur.ops.resurrect.common import CommonTick, find_common_tick, find_safe_tick
from vedur.ops.resurrect.plan import Successor, find_successor
from vedur.ops.session import Session, sync_tables
from vedur.ops.takeover.drain import wait_for_writers
from vedur.ops.takeover.failover import GRAVESTONE
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResurrectOptions:
    """The command line's share."""

    keep_rows: bool = False
    copy: bool = False
    dry_run: bool = False
    limit: int = 10
    timeout: float = 60.0
    max_wait: float = 120.0


@dataclass(frozen=True)
class Resurrected:
    """What was found, and what is or would be done. `lost` counts events by table or type."""

    root: str
    tick: int | None
    lost: dict[str, int]
    done: bool
    tables: tuple[TableRepair, ...] = ()
    copied: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """All lost events of this run."""
        return sum(self.lost.values())

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
        return {**asdict(self), "events": self.events}


def resurrect(
    session: Session, options: ResurrectOptions, spark: SparkSession | None = None
) -> Resurrected:
    """Bring the local node back into a set that has another root now, or say what that means."""
    _require_fit(session, options)
    view = read_members(session)
    with _one_at_a_time(session):
        found = _find(session, view)
        if found is None:
            return _go_on(session, view, options, spark, None, {})
        others = _others(session, view, found)
        common = find_common_tick(session.db, session.queue, found.tick, others)
        cut = common.tick.id if common is not None else _safe_tick(session, found, others)
        lost = count_behind(session.db, session.queue, cut)
        _require_own_consumer(session, view, found.root)
        _tell(found, cut, lost, options)
        if options.dry_run:
            return Resurrected(found.root, cut, lost, False)
        if view.members[view.local].is_root:
            _close(session, options)
        if common is None:
            _give_up(session, found, cut)
        kept = _turn(session, view, found, common, options)
        log.info("%d event(s) are kept in vedur.lost_event: see lost-events", kept)
        return _go_on(session, view, options, spark, cut, lost)


# -- looking --------------------------------------------------------------------------------------


def _require_fit(session: Session, options: ResurrectOptions) -> None:
    info = session.require_node()
    require_unmerged(info, "resurrect")
    if info.worker_paused and not options.keep_rows:
        raise StateError('the worker is paused: run "resume" first, the repair needs it')
    if not info.node_type.has_queue:
        raise StateError(
            f'node "{info.node_name}" is a leaf: "rejoin" brings it back, it has no queue'
        )
    if info.is_root and not session.db.value(query("takeover", "sees_others")):
        raise StateError(
            "the role of the ini does not see transactions of others, which this command has to "
            "wait for: grant pg_read_all_stats to it"
        )
    if not keeps_lost_events(session.db) or not keeps_ticks(session.db):
        raise StateError(
            "schema vedur of this database is of an earlier version, or the role of the ini may "
            'not write there: run "create-branch" again, it brings the SQL up to date'
        )


@contextmanager
def _one_at_a_time(session: Session) -> Iterator[None]:
    """Keep other commands that change this node out until this one ends, however it ends."""
    if not try_lock_move(session.db, session.queue):
        raise StateError("another command changes this node just now: wait for it to end")
    try:
        yield
    finally:
        unlock_move(session.db, session.queue)


def _find(session: Session, view: SetView) -> Successor | None:
    histories = {
        name: read_reigns(db, session.queue)
        for name, db in view.databases.items()
        if name != view.local
    }
    mine = read_reigns(session.db, session.queue)
    return find_successor(view.members[view.local], mine, histories, view.members)


def _others(session: Session, view: SetView, found: Successor) -> list[tuple[str, Database]]:
    """Return who may have the common tick: the root, or a branch of it that keeps the gravestone,
    where the root has moved since."""
    branches = [m.name for m in view.members.values() if m.answers and m.is_branch]
    names = [name for name in (found.root, *sorted(branches)) if name != view.local]
    return [
        (name, view.databases[name])
        for name in names
        if _follows(session, view.databases[name], found.root)
    ]


def _require_own_consumer(session: Session, view: SetView, root: str) -> None:
    """Raise where the consumer by which this node would read there is another node's."""
    new, worker = view.databases[root], session.require_node().worker_name or ""
    require_own_consumer(new, session.queue, view.local, worker, root, OTHER_JOB)


def _safe_tick(session: Session, found: Successor, others: list[tuple[str, Database]]) -> int:
    """Return the tick behind which all is kept where none is common. Raises for an empty queue."""
    tick = find_safe_tick(session.db, session.queue, found.tick, others)
    if tick is None:
        raise StateError(
            "the queue of this node has no ticks: it has nothing to keep, and nothing to read on "
            "from; drop the node and create it again, which copies its tables"
        )
    return tick


def _tell(found: Successor, cut: int, lost: dict[str, int], options: ResurrectOptions) -> None:
    log.info(
        "Node '%s' is the root now, since tick %s: this node becomes a branch of it",
        found.root,
        found.tick,
    )
    if cut != found.tick:
        log.warning(
            "This node was set back, or its queue was rotated: it is one with the others up to "
            "tick %s only. What it wrote behind that is kept, also what others may have",
            cut,
        )
    for about, count in lost.items():
        others = "reached no other node" if cut == found.tick else "are kept"
        log.warning("%s: %d event(s) %s", about, count, others)
    if options.dry_run:
        log.info("Nothing is changed: run it without --dry-run")


def _give_up(session: Session, found: Successor, cut: int) -> NoReturn:
    """Keep what only this node has, and raise: nobody has a tick from which on it would read, so
    that it must be made anew, and its queue goes with it."""
    db, queue, info = session.db, session.queue, session.require_node()
    with db.transaction():
        lock_position(db, queue, info.worker_name or "")
        kept = keep_lost_events(db, queue, cut, found.epoch)
    reach("resurrect.saved")
    what = "that only this node had" if cut == found.tick else "of its queue, all that are there,"
    raise StateError(
        f'root "{found.root}" no longer has tick {found.tick}, nor an earlier one, from which on '
        f"this node would have to read; {kept} event(s) {what} are kept now (lost-events), and "
        "stay when it is dropped: drop the node and create it again, which copies its tables"
    )


def _follows(session: Session, db: Database, root: str) -> bool:
    last = last_reign(read_reigns(db, session.queue))
    return last is not None and last.root == root


# -- the steps ------------------------------------------------------------------------------------


def _close(session: Session, options: ResurrectOptions) -> None:
    """Close the queue of this node (steps 1 and 2), and wait until nobody writes to it any more."""
    db, queue = session.db, session.queue
    with db.transaction():
        row = db.one(query("resurrect", "close"), [queue])
        report(Answer(row.ret_code, row.ret_note, row), quiet=True)
    reach("resurrect.closed")
    deadline = session.clock.monotonic() + options.timeout
    wait_for_writers(db, queue, int(row.txid), session.clock, deadline)
    reach("resurrect.drained")


def _turn(
    session: Session,
    view: SetView,
    found: Successor,
    common: CommonTick,
    options: ResurrectOptions,
) -> int:
    """Do step 3: put the node at the common tick, as a branch of the node that has it, too; returns
    how many events are kept."""
    db, queue, info = session.db, session.queue, session.require_node()
    above, tick = common.node, common.tick
    new, worker = view.databases[above], info.worker_name or ""
    with db.transaction():
        lock_position(db, queue, worker)
        kept = keep_lost_events(db, queue, tick.id, found.epoch)
        _change_provider(db, queue, view, above, worker)
        _forget_takeover(db, queue)
        reach("resurrect.kept")
        replace_reigns(db, new, queue)
        sync_tables(session, db, new)
        sync_published(session, new)
        if not options.keep_rows:
            take_in_hand(db, queue, worker, _whole_tables(db, queue))
        complete_tick(db, queue, worker, tick, silent=True)
        _end_subscriptions(db, queue, view)
    reach("resurrect.turned")
    return kept


def _whole_tables(db: Database, queue: str) -> list[str]:
    """Read tables that were in sync, or on their way to be so without a copy."""
    kept = get_rejoin_tables(db, queue)
    tables = get_table_list(db, queue).local
    return [t.table_name for t in tables if t.ready or t.table_name in kept]


def _change_provider(db: Database, queue: str, view: SetView, root: str, worker: str) -> None:
    if view.members[view.local].is_root:
        row = db.one(query("resurrect", "turn"), [queue, root])
        report(Answer(row.ret_code, row.ret_note, row), quiet=True)
    else:
        change_consumer_provider(db, queue, worker, root)


def _forget_takeover(db: Database, queue: str) -> None:
    """Remove the notes of a takeover that was under way when this root was lost."""
    info = get_node_info(db, queue)
    attrs = dict(info.attrs) if info is not None else {}
    rest = {key: value for key, value in attrs.items() if not key.startswith("takeover_")}
    if rest != attrs:
        set_node_attrs(db, queue, urlencode(rest) or None, quiet=True)


def _end_subscriptions(db: Database, queue: str, view: SetView) -> None:
    """Unregister nodes that read elsewhere now, which must not hold back the queue of this one, and
    end what was kept for roots that have come back or were dropped."""
    for item in get_subscriber_info(db, queue):
        member = view.members.get(item.node_name)
        if member is not None and member.answers and member.provider != view.local:
            unregister_subscriber(db, queue, item.node_name)
        elif member is None or not member.answers:
            log.warning("Node '%s' may still read from here: it does not answer", item.node_name)
    for row in db.query(query("resurrect", "gravestones"), [queue, GRAVESTONE]):
        member = view.members.get(row.node)
        if member is None or (member.answers and not member.is_root):
            db.value(query("node", "unregister_consumer"), [queue, row.node + GRAVESTONE])
    _end_copies(db, queue, view)


def _end_copies(db: Database, queue: str, view: SetView) -> None:
    """Unregister first copies that read from here and began anew elsewhere when this root was lost:
    they must not hold back the queue either."""
    for row in db.query(query("resurrect", "copies"), [queue]):
        for name, other in view.databases.items():
            if not row.consumer.startswith(f"{view.members[name].worker}.copy."):
                continue
            place = other.one(query("copy", "consumer_node"), [queue, row.consumer])
            if place is None or place.node != view.local:
                db.value(query("node", "unregister_consumer"), [queue, row.consumer])


def _subscribe(session: Session, view: SetView, root: str) -> int:
    """Do step 4: register this node as a branch at the new root, and take its gravestone away from
    every node: the root may have moved since it was lost."""
    queue, new = session.queue, view.databases[root]
    info, mine = session.require_node(), view.locations[view.local]
    grave = view.local + GRAVESTONE
    tick = int(info.worker_last_tick or 0)
    with new.transaction():
        _require_own_consumer(session, view, root)
        known = [item.node_name for item in get_subscriber_info(new, queue)]
        if view.local not in known:
            register_location(new, queue, mine.node_name, mine.node_location, False, quiet=True)
            register_subscriber(new, queue, view.local, info.worker_name or "", tick, node=root)
        else:
            if new.value(query("worker", "is_tagged_dead"), [queue, view.local]):
                register_location(new, queue, mine.node_name, mine.node_location, False, quiet=True)
            place = get_place(new, queue, info.worker_name or "", tick)
            if place is not None and place.last > tick:  # of the history that is lost
                for consumer in (info.worker_name, f".{view.local}.watermark"):
                    new.value(query("node", "register_consumer_at"), [queue, consumer, tick])
    # after that: the place here keeps now what the gravestone has kept
    for name in _keepers(session, view, grave):
        view.databases[name].value(query("node", "unregister_consumer"), [queue, grave])
    reach("resurrect.subscribed")
    wake_worker(new, queue)
    return tick


def _go_on(
    session: Session,
    view: SetView,
    options: ResurrectOptions,
    spark: SparkSession | None,
    tick: int | None,
    lost: dict[str, int],
) -> Resurrected:
    """Do steps 4 and 5, as far as they are not done."""
    info = session.require_node()
    if info.is_root:
        others = [m.name for m in view.members.values() if m.is_root and m.name != view.local]
        for name in others:
            if (by := ended_by(view.members[name], view.members[view.local])) is not None:
                way = explain_unturned(view.members[name], by)
                raise StateError(f"this node is the root: there is nothing to bring back; {way}")
        if others:
            raise StateError(
                f'"{others[0]}" is root, too, and keeps no epochs: nothing tells at which tick it '
                "took over; drop this node and create it again"
            )
        raise StateError(
            f'no node has taken over from "{info.node_name}": there is nothing to bring back'
        )
    root = info.provider_node or ""
    if root not in view.databases:
        raise StateError(f'provider "{root}" does not answer ({view.members[root].failure})')
    tables = get_rejoin_tables(session.db, session.queue)
    unfinished = not _is_subscribed(session, view, root) or bool(tables)
    if tick is None and (options.dry_run or not unfinished):
        if unfinished:
            log.info("A resurrect was begun: run it without --dry-run")
        else:
            log.info("Nothing to do: node '%s' reads from '%s'", view.local, root)
        return Resurrected(root, None, lost, not options.dry_run)
    above = view.databases[root]
    check_epoch(session.db, above, session.queue, int(info.worker_last_tick or 0), root)
    _subscribe(session, view, root)
    done, copied, left = _repair(session, options, spark)
    reach("resurrect.finished")
    result = Resurrected(root, tick, lost, True, tuple(done), tuple(copied), left)
    _conclude(result)
    return result


def _is_subscribed(session: Session, view: SetView, root: str) -> bool:
    known = [item.node_name for item in get_subscriber_info(view.databases[root], session.queue)]
    return view.local in known and not _keepers(session, view, view.local + GRAVESTONE)


def _keepers(session: Session, view: SetView, grave: str) -> list[str]:
    """Ask all nodes which of them keep events for a gravestone."""
    return [
        name
        for name, db in view.databases.items()
        if db.value(query("resurrect", "has_consumer"), [session.queue, grave])
    ]


def _repair(
    session: Session, options: ResurrectOptions, spark: SparkSession | None
) -> tuple[list[TableRepair], list[str], dict[str, str]]:
    """Do step 5: make every table that is in hand equal; tables without a key are copied."""
    if not get_rejoin_tables(session.db, session.queue):
        return [], [], {}
    info = session.require_node()
    provider = session.provider(info)
    above = get_node_info(provider, session.queue)
    if above is None:
        raise StateError(f'provider "{info.provider_node}" is not initialized')
    nodes = make_nodes(session, info, force=True, max_wait=options.max_wait)
    node = RejoiningNode(session, info, provider, above, nodes)
    in_hand = get_rejoin_tables(node.db, node.queue)
    copied = []
    for table in get_table_list(node.db, node.queue):
        if table.table_name in in_hand and not is_keyed(node, table):
            give_to_worker(node, table)
            copied.append(table.table_name)
    done, left = repair_all(node, options, spark)
    return done, copied, left


def _conclude(result: Resurrected) -> None:
    for name, why in result.left.items():
        log.error("%s: cannot be repaired: %s", name, why)
    if result.left:
        raise StateError(
            f"{len(result.left)} table(s) are not in sync: mend what is said above and run "
            'resurrect again, or "resync" them, which copies them anew'
        )
    log.info("Done")


__all__ = ["ResurrectOptions", "Resurrected", "resurrect"]
