"""rejoin: bring a node back whose position and that of its consumer do not fit any more.

One of the two databases was restored from a backup, or the root is a standby now that was behind.
Where the provider still has the very tick that the node has applied, the consumer is put there:
that is exact, and all. A branch passes on the same ticks again from there; nodes below it are ahead
of it then, wait, and go on by themselves. For a branch there is no other way.

Else the node goes on at a new tick, and every table is made equal to the provider's at a tick where
the worker waits for it: rows that differ are written, rows that only this node has are removed, all
of them are kept in `vedur.repair_log`. A table without a key is copied.

The order makes it safe to be killed anywhere; the same command goes on:

1. one transaction on this node: its position, the tables' states (none, so nothing takes them for
   in sync), which of them are to be repaired (`vedur.rejoin`), what is known of the set;
2. the consumer on the provider. Before that, the positions do not fit, and the next rejoin finds
   the tick of 1 there;
3. each table by itself: compare, repair, state `ok` in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vedur.catalog.rejoin import get_rejoin_tables
from vedur.catalog.tables import TableInfo
from vedur.errors import ConnectError, DatabaseError, OtherEpoch, StateError, VedurError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.epoch import (
    OTHER,
    Match,
    explain,
    explain_forgotten,
    match_reigns,
    read_reigns,
    replace_reigns,
)
from vedur.node.fresh_tick import fresh_tick
from vedur.node.info import NodeInfo, get_node_info, get_subscriber_info, has_schema
from vedur.node.moment import as_they_are
from vedur.node.position import (
    AppliedTick,
    complete_tick,
    get_applied_tick,
    get_counter,
    keeps_ticks,
    lock_position,
    set_consumer_completed,
    wake_worker,
)
from vedur.node.setup import (
    OTHER_JOB,
    register_location,
    register_subscriber,
    require_own_consumer,
    unregister_subscriber,
    untag,
)
from vedur.node.state import change_consumer_provider, watermark_of
from vedur.ops.combined import require_unmerged
from vedur.ops.compare_tables import make_nodes, pair_at_one_moment, plan_pair
from vedur.ops.rejoin.plan import Found, Plan, Way, make_plan, read_found
from vedur.ops.rejoin.tables import (
    RejoiningNode,
    forgotten_tables,
    repair_all,
    sort_out,
    sync_published,
    take_in_hand,
    use_spark,
)
from vedur.ops.repair import Repairer, RepairOptions, TableRepair
from vedur.ops.session import Session, sync_tables
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RejoinOptions:
    """The command line's share."""

    apply: bool = False
    copy: bool = False
    force: bool = False
    limit: int = 10
    max_wait: float = 120.0
    provider: str | None = None


@dataclass(frozen=True)
class Rejoined:
    """What was found, and what is or would be done."""

    way: Way
    why: str
    applied: bool
    tick: int
    tables: tuple[TableRepair, ...] = ()
    copied: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)  # tables that could not be repaired, why

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
        return asdict(self)


def rejoin(session: Session, options: RejoinOptions, spark: SparkSession | None = None) -> Rejoined:
    """Plan, or with `apply` do, what brings the local node back."""
    node = _open(session, options)
    if not session.db.value(query("rejoin", "lock"), [session.queue]):
        raise StateError("another rejoin of this node is running: wait for it to end")
    _require_reign(node)
    counter = get_counter(node.provider, node.queue, int(node.info.worker_last_tick or 0))
    if counter.behind:
        raise counter.error(node.above.node_name)
    found = read_found(node.db, node.provider, node.queue, node.info, node.above)
    if node.left is not None:
        found = _found_elsewhere(node, found, options)
    plan = make_plan(found, force=options.force)
    if node.info.is_branch:
        _require_no_hole(node, plan)
    if plan.way is not Way.NOTHING:
        _require_own_consumer(node)
    unfinished = get_rejoin_tables(node.db, node.queue)
    for line in _tell(node, plan, unfinished):
        log.info("%s", line)
    if plan.way is Way.NOTHING and not unfinished:
        return Rejoined(plan.way, plan.why, options.apply, int(node.info.worker_last_tick or 0))
    reach("rejoin.planned")
    if not options.apply:
        return _preview(node, plan, options, spark)
    if node.info.worker_paused:
        raise StateError('the worker is paused: run "resume" first, the repair needs it')
    tick = int(node.info.worker_last_tick or 0)
    forgotten: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    if plan.way is Way.MOVE:
        _stay(node, tick)
    elif plan.way is Way.REPAIR:
        tick, copied, forgotten = _begin_anew(node, options)
    if plan.way is not Way.NOTHING:
        _move_consumer(node, tick)
    if node.left is not None:
        _end_subscription(node, node.left)
    done, left = repair_all(node, options, spark)
    result = Rejoined(plan.way, plan.why, True, tick, tuple(done), copied, forgotten, left)
    _conclude(node, result)
    return result


# -- looking --------------------------------------------------------------------------------------


def _open(session: Session, options: RejoinOptions) -> RejoiningNode:
    info = session.require_node()
    if info.is_root:
        raise StateError(f'node "{info.node_name}" is the root: it reads from nobody')
    require_unmerged(info, "rejoin")
    left = None
    if options.provider not in (None, info.provider_node):
        left, info = info.provider_node, _at_provider(session, info, str(options.provider))
    if not keeps_ticks(session.db):
        raise StateError(
            "schema vedur of this database is of an earlier version, or the role of the ini may "
            'not write there: run "create-leaf" again, it brings the SQL up to date'
        )
    provider = session.provider(info)
    above = get_node_info(provider, session.queue) if has_schema(provider) else None
    if above is None or above.node_name != info.provider_node:
        there = f'node "{above.node_name}"' if above else f'no node of queue "{session.queue}"'
        raise StateError(
            f'the location of provider "{info.provider_node}" leads to {there}: '
            "change-location corrects it, change-provider chooses another node"
        )
    if not above.node_type.has_queue:
        raise StateError(f'provider "{above.node_name}" is a leaf: nobody can read from it')
    nodes = make_nodes(session, info, force=True, max_wait=options.max_wait)
    return RejoiningNode(session, info, provider, above, nodes, left)


def _at_provider(session: Session, info: NodeInfo, name: str) -> NodeInfo:
    """Describe the node as if it read from another provider already."""
    if name == info.node_name:
        raise StateError("cannot subscribe to itself")
    members = {member.node_name: member for member in session.members()}
    if name not in members:
        raise StateError(f"Unknown node: {name}")
    if members[name].dead:
        raise StateError(f'node "{name}" is tagged as dead: if it is back, run "tag-alive {name}"')
    return replace(info, provider_node=name, provider_location=members[name].node_location)


def _found_elsewhere(node: RejoiningNode, found: Found, options: RejoinOptions) -> Found:
    """Complete what is found at a provider that the node does not read from yet: the tick that it
    has applied is another one's, and a place there is none of it. Raises if the tick fits: then no
    table has to be touched."""
    applied = get_applied_tick(node.db, node.queue, node.worker)
    if applied is not None and applied.id != found.here:
        applied = None
    known = applied is not None and found.tick is not None and applied.same_elsewhere(found.tick)
    if known and found.match is Match.SAME and not options.force:
        raise StateError(
            f'tick {found.here} of node "{node.above.node_name}" is the tick that this node has '
            "applied: nothing is changed; run change-provider "
            f"--provider={node.above.node_name}, which touches no table"
        )
    return replace(found, applied=applied, place=None)


def _require_reign(node: RejoiningNode) -> None:
    """Refuse a provider that was deposed: the node would follow it out of the set."""
    mine, theirs = (read_reigns(db, node.queue) for db in (node.db, node.provider))
    if forgotten := explain_forgotten(node.info.node_name or "", mine, theirs):
        raise OtherEpoch(f"{OTHER}: {forgotten}")
    position = int(node.info.worker_last_tick or 0)
    match = match_reigns(mine, theirs, position)
    # the queue of a branch holds what is lost: resurrect keeps it
    ahead = match is Match.AHEAD and node.info.is_branch
    if match is Match.BEHIND or ahead:
        raise explain(match, mine, theirs, position, node.above.node_name)


def _require_no_hole(node: RejoiningNode, plan: Plan) -> None:
    """Raise where a branch would not go on at the tick that it has applied: at any other one its
    queue would have a hole, and every node below it would miss the events in between."""
    if plan.way is Way.REPAIR:
        name = node.info.node_name
        raise StateError(
            f'node "{name}" is a branch, and its queue would have a hole: {plan.why}; nothing is '
            f'changed: run "drop-node {name} --reparent" on another node, which lets the nodes '
            f'below it read from its provider, then "create-branch" and add its tables again'
        )


def _require_own_consumer(node: RejoiningNode) -> None:
    """Refuse to take the consumer of another node that has the same job name."""
    name, above = node.info.node_name, node.above.node_name
    require_own_consumer(node.provider, node.queue, name, node.worker, above, OTHER_JOB)


def _tell(node: RejoiningNode, plan: Plan, unfinished: frozenset[str]) -> Iterator[str]:
    if plan.way is Way.NOTHING and not unfinished:
        yield f"Nothing to do: {plan.why}"
    elif plan.way is Way.NOTHING:
        yield f"A rejoin was begun, {len(unfinished)} table(s) are left to repair"
    elif plan.way is Way.MOVE:
        yield f"The consumer goes to this node's tick, no table is touched: {plan.why}"
    else:
        yield f"Tables are compared and repaired at a new tick: {plan.why}"


def _preview(
    node: RejoiningNode, plan: Plan, options: RejoinOptions, spark: SparkSession | None
) -> Rejoined:
    """Say what would be done, with numbers of rows as they are now."""
    tick = int(node.info.worker_last_tick or 0)
    done: list[TableRepair] = []
    copied: list[str] = []
    forgotten: list[str] = []
    left: dict[str, str] = {}
    if plan.way is not Way.MOVE:
        repair, copied = sort_out(node, options)
        if plan.way is Way.NOTHING:  # only what is left of a rejoin that was begun
            begun = get_rejoin_tables(node.db, node.queue)
            repair, copied = [t for t in repair if t.table_name in begun], []
        else:
            forgotten = forgotten_tables(node)
        with use_spark(node, spark, bool(repair)) as engine:
            for table in repair:
                try:
                    done.append(_preview_table(node, table, options, engine))
                except ConnectError:
                    raise
                except VedurError as error:
                    left[table.table_name] = error.message
    for name in forgotten:
        log.info("%s: the provider's set does not have it: it leaves the set here, rows stay", name)
    for name in copied:
        log.info("%s: is copied anew", name)
    for name, why in left.items():
        log.warning("%s: cannot be repaired: %s", name, why)
    for item in done:
        log.info(
            "%s: %d row(s) are inserted, %d updated, %d removed that only this node has",
            item.dest_table,
            item.inserts,
            item.updates,
            item.deletes,
        )
    kept = "; rows that are changed or removed are kept in vedur.repair_log" if done else ""
    log.info("Nothing is changed yet: run it with --apply%s", kept)
    return Rejoined(
        plan.way, plan.why, False, tick, tuple(done), tuple(copied), tuple(forgotten), left
    )


def _preview_table(
    node: RejoiningNode, table: TableInfo, options: RejoinOptions, spark: SparkSession
) -> TableRepair:
    from vedur.pipeline.repair import RepairTable, open_stage

    pair = plan_pair(node.session, node.nodes, table)
    with node.nodes.target.open("repair") as db:
        chosen = RepairOptions(limit=options.limit)
        repairer = Repairer(node.session, spark, node.nodes, table, pair, db, chosen)
        columns = RepairTable.read(db, pair).target_columns
        with open_stage(db, pair, columns) as stage:
            return pair_at_one_moment(
                node.nodes,
                pair,
                lambda at, moment: repairer.planned(moment, *repairer.look(at, stage)),
                as_they_are,
            )


# -- positions ------------------------------------------------------------------------------------


def _stay(node: RejoiningNode, tick: int) -> None:
    """Write that this node is done at the position it has, which is right; only what it complains
    about is past."""
    with node.db.transaction():
        lock_position(node.db, node.queue, node.worker)
        info = get_node_info(node.db, node.queue)
        if info is None or info.worker_last_tick != tick:
            raise StateError("the worker went on meanwhile: run rejoin again")
        set_consumer_completed(node.db, node.queue, node.worker, tick)


def _begin_anew(
    node: RejoiningNode, options: RejoinOptions
) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Put this node at a new tick of its provider; the tick, tables to copy, tables that left."""
    db, queue = node.db, node.queue
    forgotten = forgotten_tables(node)
    tick: AppliedTick = fresh_tick(node.provider, queue, node.above, node.session.clock)
    with db.transaction():
        lock_position(db, queue, node.worker)
        sync_tables(node.session, db, node.provider)
        sync_published(node.session, node.provider)
        repair, copied = sort_out(node, options)
        names = [table.table_name for table in repair]
        take_in_hand(db, queue, node.worker, names, copied)
        replace_reigns(db, node.provider, queue)
        if node.left is not None:
            change_consumer_provider(db, queue, node.worker, node.above.node_name)
        complete_tick(db, queue, node.worker, tick)
    reach("rejoin.placed")
    for name in forgotten:
        log.warning("%s: is not in the provider's set any more: it left the set here", name)
    for name in copied:
        log.info("%s: is copied anew by the worker", name)
    log.info("This node goes on at tick %s", tick.id)
    return tick.id, tuple(copied), tuple(forgotten)


def _move_consumer(node: RejoiningNode, tick: int) -> None:
    """Write the provider's share: the consumer, what keeps events for this node, and the node
    itself if the provider does not know it."""
    queue, name, provider = node.queue, node.info.node_name, node.provider
    known = [item.node_name for item in get_subscriber_info(provider, queue)]
    with provider.transaction():
        _require_own_consumer(node)
        if name in known:
            for consumer in (node.worker, watermark_of(name)):
                provider.call("pgq.register_consumer_at", queue, consumer, tick)
        else:
            here = {member.node_name: member for member in node.session.members()}[name]
            register_location(provider, queue, name, here.node_location, here.dead)
            register_subscriber(provider, queue, name, node.worker, tick)
        tagged = untag(provider, queue, name)
    if tagged and not node.above.is_root:
        root, _ = node.session.root(node.info.provider_location or "")
        untag(root, queue, name)  # which tells everybody
    reach("rejoin.moved")
    log.info('Consumer "%s" on "%s" stands at tick %s', node.worker, node.above.node_name, tick)
    wake_worker(provider, queue)


def _end_subscription(node: RejoiningNode, name: str) -> None:
    """End the subscription at the provider that the node has left; one that does not answer is
    named."""
    try:
        old = node.session.node(name)
        if node.info.node_name in [i.node_name for i in get_subscriber_info(old, node.queue)]:
            unregister_subscriber(old, node.queue, node.info.node_name, node=name)
    except (DatabaseError, StateError) as error:
        log.warning(
            "Node '%s' may keep a subscription of '%s', which holds back its queue (%s): run "
            "change-provider --provider=%s when it answers, or drop-node it",
            name,
            node.info.node_name,
            mask(error.message),
            node.above.node_name,
        )


def _conclude(node: RejoiningNode, result: Rejoined) -> None:
    removed = sum(item.deletes for item in result.tables)
    if removed:
        log.warning(
            "%d row(s) that only this node had were removed: see vedur.repair_log, action delete",
            removed,
        )
    for name, why in result.left.items():
        log.error("%s: cannot be repaired: %s", name, why)
    if result.left:
        raise StateError(
            f"{len(result.left)} table(s) are not in sync: mend what is said above and run rejoin "
            '--apply again, or "resync" them, which copies them anew'
        )
    log.info("Done")


__all__ = ["RejoinOptions", "Rejoined", "rejoin"]
