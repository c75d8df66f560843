"""takeover --dead-root and --dead-branch: go on without a node that is gone.

The survivor with the newest tick has everything that is left: the new root catches up from it, and
is promoted exactly there, with an epoch of its own. Nodes that read from the dead one then read
from the new root. A leaf that has applied more than any branch passed on cannot go on by itself:
it is named, and `rejoin` makes it equal.

A consumer `OLD.gravestone` keeps everything from that tick on in the queue of the new root, so
that `resurrect` can bring the old one back. A node that answers is not dead, whatever the command
line says: there the ordinary takeover loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vedur.catalog.passed import is_mask
from vedur.db import Database, command
from vedur.errors import ConnectError, DatabaseError, StateError, VedurError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import Match, ReignKind, add_reigns, last_reign, match_reigns, read_reigns
from vedur.node.info import get_node_info, has_schema
from vedur.node.move_lock import try_lock_move, unlock_move
from vedur.node.plan import Member, plan_move, require_member
from vedur.node.position import get_tick, lock_position, read_newest_tick, read_position
from vedur.node.setup import register_location
from vedur.node.state import change_consumer_provider
from vedur.node.takeover import (
    Failover,
    failover_steps,
    graves,
    is_beyond,
    numbered,
    plan_branch,
    plan_failover,
    plan_rest,
    require_no_moves,
    require_no_root,
)
from vedur.ops.change_provider import run_move
from vedur.ops.members import SetView, read_member, read_members
from vedur.ops.session import Session
from vedur.ops.takeover.checks import Candidate, find_reasons, require_ready
from vedur.ops.takeover.leave import end_subscriptions
from vedur.ops.takeover.options import TakeoverOptions, run_hook
from vedur.ops.takeover.sequences import raise_sequences
from vedur.ops.takeover.verify import Verdict
from vedur.queue.passed import read_passed_parts
from vedur.sql import query

log = logging.getLogger(__name__)

#: What the name of the consumer that keeps events for a dead root ends with, as upstream's.
GRAVESTONE = ".gravestone"
_PROBE_SECONDS = 3
#: Seconds for a batch that is being committed: its worker may wait for a provider that hangs, and
#: lets go of it after a minute.
_FENCE_SECONDS = 120.0
_PERIOD = 0.05


def fail_over(
    session: Session, view: SetView, old: str, new: str, options: TakeoverOptions
) -> Verdict:
    """Replace a root that is gone; says whether every node that answers reads from the new one."""
    member = require_member(view.members, new)
    dead = tuple(dict.fromkeys((*options.dead, old)))
    if member.is_root:
        if _require_begun(session, view, old, new) == ReignKind.TAKEOVER:
            _require_gone(session, view, old, options)  # else the ordinary takeover finishes it
        else:
            _tell_if_back(session, view, old, options)
        plan = _rest(session, view, old, new, dead)
    else:
        _require_gone(session, view, old, options)
        _require_tags(session, view, dead, options)
        plan = plan_failover(view.members, old, new, dead)
        _require_whole_source(session, view, plan)
        _require_fit(session, view, new, options)
    for line in numbered(failover_steps(plan)):
        log.log(logging.INFO if options.dry_run else logging.DEBUG, "%s", line)
    if options.dry_run:
        log.info("Nothing is changed: --dry-run")
        return Verdict.EQUAL
    with _one_at_a_time(session, view, new):
        if not member.is_root:
            tag_dead(session, view, dead, options.timeout)
            # until now somebody may have read on from a node that only this command cannot reach
            view = read_members(session, dead)
            plan = plan_failover(view.members, old, new, dead)
            _require_whole_source(session, view, plan)
            _catch_up(session, view, plan, options)
            _promote(session, view, plan)
        else:
            _tag_for_all(session, view, plan)
        view = read_members(session, dead)
        left = _move_orphans(session, view, plan, options, dead)
        end_subscriptions(session, view, new)
    _finish(session, view, plan, left, options)
    return Verdict.NODES_LEFT if left else Verdict.EQUAL


def replace_dead_branch(
    session: Session, view: SetView, old: str, new: str, options: TakeoverOptions
) -> None:
    """Let a node take the place of a branch that is gone: it reads from the provider of that one,
    and with --all the other nodes below it read from the new one."""
    _require_gone(session, view, old, options)
    above, moves = plan_branch(view.members, old, new, everybody=options.everybody)
    require_no_moves(view.members, [new])
    for at, (node, provider) in enumerate(moves, 1):
        log.info('%d. let "%s" read from "%s"', at, node, provider)
    if options.dry_run:
        log.info("Nothing is changed: --dry-run")
        return
    dead = tuple(dict.fromkeys((*options.dead, old)))
    tag_dead(session, view, dead, options.timeout)
    for node, provider in moves:
        run_move(session, view, plan_move(view.members, node, provider), options.timeout)
        view = read_members(session, dead)
        reach("takeover.orphan_moved")
    log.info("'%s' reads from '%s'; drop-node %s when it will not come back", new, above, old)


def _require_gone(session: Session, view: SetView, old: str, options: TakeoverOptions) -> None:
    """Raise if a node that is called dead answers, or its server does: who is turned away there is
    no proof that nobody writes."""
    location = view.locations[old].node_location
    endpoint = Endpoint.of_node(session.settings, location).with_connect_timeout(_PROBE_SECONDS)
    try:
        with endpoint.open("probe") as db:
            info = get_node_info(db, session.queue) if has_schema(db) else None
    except VedurError as error:
        why = mask(error.message)
        if not isinstance(error, ConnectError) or not (error.is_silent or error.is_shut):
            if old not in options.dead:
                raise StateError(
                    f'the server of "{old}" answers, and refuses this command ({why}): a root that '
                    "lives goes on taking writes; nothing is changed; stop its server, or if "
                    f"nobody can write there, say --dead={old}, too"
                ) from error
            log.warning("The server of '%s' answers (%s): --dead says that it is gone", old, why)
            return
        log.info("'%s' does not answer: %s", old, why)
        return
    if info is not None and info.node_name == old:
        tagged = (
            f'it is tagged as dead: run "tag-alive {old}", or for a root takeover {old} --abort, '
            "which undoes a failover that was begun; then "
            if view.locations[old].dead
            else ""
        )
        raise StateError(
            f'node "{old}" answers, so it is not dead: nothing is changed; {tagged}run the '
            "takeover without --dead-root or --dead-branch, which loses nothing, or stop its "
            "server first"
        )


def _tell_if_back(session: Session, view: SetView, old: str, options: TakeoverOptions) -> None:
    """Say that a root which was replaced answers again: what is left to do is done without it."""
    try:
        _require_gone(session, view, old, options)
    except StateError:
        log.warning("'%s' answers: run resurrect with its ini", old)


def _require_tags(
    session: Session, view: SetView, dead: tuple[str, ...], options: TakeoverOptions
) -> None:
    """Raise if a node answers that was tagged as dead before: it is back, and may have the most."""
    for name, location in view.locations.items():
        if not location.dead or name in dead:
            continue
        try:
            _require_gone(session, view, name, options)
        except StateError:
            raise StateError(
                f'node "{name}" is tagged as dead, and answers: nothing is changed; run "tag-alive '
                f'{name}" if it is back, so that it is asked how far it is, or name it with --dead'
            ) from None


def _require_begun(session: Session, view: SetView, old: str, new: str) -> str:
    """Raise unless an earlier run has promoted the node in place of the old root; returns how."""
    reigns = read_reigns(view.databases[new], session.queue)
    last = last_reign(reigns)
    before = next((r for r in reigns if last is not None and r.epoch == last.previous), None)
    # without a reign before it the set had no epochs: a takeover has subscribed the old root
    begun = last is not None and last.root == new
    if before is not None:
        begun = begun and before.root == old
    elif last is not None and last.kind != ReignKind.FAILOVER:
        begun = begun and last.kind == ReignKind.TAKEOVER and old in view.members[new].subscribers
    if last is None or not begun:
        raise StateError(f'"{new}" is root already, and did not replace "{old}"')
    if view.members[new].closed:
        raise StateError(
            f'root "{new}" is closed for a takeover: finish that, or undo it with takeover {new} '
            "--abort; then run this command again"
        )
    return last.kind


def _tag_for_all(session: Session, view: SetView, plan: Failover) -> None:
    """Tell all nodes that the old root is gone, where a takeover has ended without it: a failover
    does that when it promotes."""
    db, queue = view.databases[plan.new], session.queue
    if not db.value(query("worker", "is_tagged_dead"), [queue, plan.old]):
        register_location(db, queue, plan.old, None, True, quiet=True)


def _rest(session: Session, view: SetView, old: str, new: str, dead: tuple[str, ...]) -> Failover:
    """Plan what an earlier run has left after the promotion."""
    reigns = read_reigns(view.databases[new], session.queue)
    beyond = [
        name
        for name, db in view.databases.items()
        if is_beyond(reigns, read_reigns(db, session.queue), view.members[name].tick or 0)
    ]
    return plan_rest(view.members, old, new, dead, beyond)


def _require_whole_source(session: Session, view: SetView, plan: Failover) -> None:
    """Raise where the node that has the most passes on a part of a table only: who caught up from
    it would lose the rest in silence."""
    if plan.source is None:
        return
    at = view.members[plan.new].tick or 0
    for part in read_passed_parts(view.databases[plan.source], session.queue, at):
        what = part.condition if is_mask(part) else f"of rows where {part.condition}"
        raise StateError(
            f'"{plan.source}" has the newest tick {plan.tick}, and of table "{part.table}" it '
            f'passes on only events {what}: "{plan.new}", at tick {at}, '
            "cannot catch up from it, and nothing is promoted; to go on without what it alone has, "
            f"run the command with --dead={plan.source}, too, and create that node anew afterwards"
        )


def _require_fit(session: Session, view: SetView, new: str, options: TakeoverOptions) -> None:
    reasons = find_reasons(Candidate(session, view, view.members[new], None, options.lag))
    mine = read_reigns(view.databases[new], session.queue)
    for name, db in view.databases.items():
        theirs = read_reigns(db, session.queue)
        position = view.members[new].tick or 0
        if match_reigns(mine, theirs, position) is Match.FORKED:
            reasons.append(f'"{name}" and "{new}" follow different roots')
    for reason in reasons:
        log.warning("%s", reason)
    if reasons:
        more = f" (and {len(reasons) - 1} more, see above)" if len(reasons) > 1 else ""
        raise StateError(f'"{new}" cannot take over: {reasons[0]}{more}; nothing is changed')


@contextmanager
def _one_at_a_time(session: Session, view: SetView, new: str) -> Iterator[None]:
    """Keep other commands out on every node that answers: two survivors must not be promoted."""
    with ExitStack() as stack:
        for name, db in sorted(view.databases.items()):
            if not try_lock_move(db, session.queue):
                raise StateError(
                    f'another command moves node "{name}" just now: wait for it to end'
                )
            stack.callback(unlock_move, db, session.queue)
        _require_no_other_root(session, view, new)
        yield


def _require_no_other_root(session: Session, view: SetView, new: str) -> None:
    """Ask every node again, with all of them locked: a session that was lost meanwhile, and its
    lock with it, fails here, and somebody who was quicker is seen."""
    require_no_root(
        {name: read_member(db, session.queue, name) for name, db in view.databases.items()}, new
    )


def tag_dead(session: Session, view: SetView, names: tuple[str, ...], timeout: float) -> None:
    """Tell every node that answers which ones are gone. With the position locked: a batch that was
    being committed is there when this returns, and none is read from them any more."""
    limit = f"{int(max(timeout, _FENCE_SECONDS) * 1000)}ms"
    for name, db in view.databases.items():
        if view.members[name].is_root and view.members[name].closed:
            continue  # it reads from nobody, and could not tell anybody
        try:
            with db.transaction():
                db.value(query("takeover", "lock_timeout"), [limit])
                lock_position(db, session.queue, view.members[name].worker)
                _tag(session, view, name, names)
        except DatabaseError as error:
            if not error.is_transient:
                raise
            raise StateError(
                f'node "{name}" has been committing a batch for {limit}: nothing is promoted; run '
                "the same command again when it has ended, or stop its worker"
            ) from error
        reach("takeover.tagged")


def _tag(session: Session, view: SetView, name: str, names: tuple[str, ...]) -> None:
    db, prefix = view.databases[name], view.prefix(name)
    for gone in names:
        if db.value(query("node", "knows_location"), [session.queue, gone]):
            register_location(db, session.queue, gone, None, True, node=prefix, quiet=True)


def _catch_up(session: Session, view: SetView, plan: Failover, options: TakeoverOptions) -> None:
    """Let the new root read what is left from the survivor that has the most, and wait for it."""
    db, queue = view.databases[plan.new], session.queue
    if plan.source is not None:
        log.info("'%s' catches up from '%s' to tick %s", plan.new, plan.source, plan.tick)
        if view.members[plan.new].provider != plan.source:
            run_move(session, view, plan_move(view.members, plan.new, plan.source), options.timeout)
    worker = view.members[plan.new].worker
    deadline = session.clock.monotonic() + options.timeout
    while (read_position(db, queue, worker) or 0) < plan.tick:
        if session.clock.monotonic() >= deadline:
            raise StateError(
                f'"{plan.new}" has not come to tick {plan.tick} in {options.timeout:.0f} s, it is '
                f"at {read_position(db, queue, worker)}: see that its worker runs, then run the "
                "same command again"
            )
        session.clock.sleep(_PERIOD)
    reach("takeover.caught_up_from")


def _promote(session: Session, view: SetView, plan: Failover) -> None:
    db, queue = view.databases[plan.new], session.queue
    with db.transaction():
        lock_position(db, queue, view.members[plan.new].worker)
        if db.value(query("worker", "is_tagged_dead"), [queue, plan.old]) is False:
            raise StateError(
                f'"{plan.old}" is no longer tagged as dead: the failover was undone meanwhile '
                "(--abort, tag-alive), nothing is promoted"
            )
        require_ready(Candidate(session, view, view.members[plan.new], None, 0.0))
        tick = read_newest_tick(db, queue)
        if plan.teller is not None and plan.teller != plan.new:
            # a reign that ended before its first tick was read: some know of it, and this node does
            # not; the new one must follow it, or those would take it for a reign beside theirs
            add_reigns(db, view.databases[plan.teller], queue)
        epoch = str(db.value(query("takeover", "new_epoch")))
        raise_sequences(db, queue)
        args = (queue, epoch, ReignKind.FAILOVER.value, tick)
        command(db, "vedur.promote", *args, node=view.prefix(plan.new))
        _keep_for_the_dead(db, queue, view, plan, tick)
        for name in plan.orphans:
            # from now on rotation goes by the consumers of this queue: what they need stays
            member = view.members[name]
            if get_tick(db, queue, member.tick or 0, plan.new) is not None:
                _subscribe(db, queue, view, plan.new, member)
        register_location(db, queue, plan.old, None, True, quiet=True)  # an event for all nodes
    reach("takeover.failed_over")
    log.info("'%s' is the root behind tick %s, epoch %s", plan.new, tick, epoch)


def _subscribe(db: Database, queue: str, view: SetView, new: str, member: Member) -> None:
    """Give a survivor a place at the new root; one whose consumer is another's is named, and left:
    the root is gone, and nothing should wait for that node."""
    from vedur.ops.takeover.run import subscribe_at

    try:
        subscribe_at(db, queue, view, new, member, member.tick or 0)
    except StateError as error:
        log.warning("'%s' gets no place at the new root: %s", member.name, error.message)


def _keep_for_the_dead(
    db: Database, queue: str, view: SetView, plan: Failover, tick: int | None
) -> None:
    """Keep what the old root needs to come back, and what roots need that were lost before it: the
    root that kept that is gone, too."""
    lost = graves(read_reigns(db, queue), view.members, plan.old, plan.new)
    for name, first in {**lost, **dict(plan.graves)}.items():
        kept = db.value(query("resurrect", "has_consumer"), [queue, name + GRAVESTONE])
        if not kept and get_tick(db, queue, first, plan.new) is not None:
            db.value(query("node", "register_consumer_at"), [queue, name + GRAVESTONE, first])
    db.value(query("node", "register_consumer_at"), [queue, plan.old + GRAVESTONE, tick])


def _move_orphans(
    session: Session,
    view: SetView,
    plan: Failover,
    options: TakeoverOptions,
    dead: tuple[str, ...],
) -> dict[str, str]:
    """Let the nodes that have lost their provider read from the new root; returns those that could
    not, with the reason."""
    left: dict[str, str] = {}
    for name in plan.ahead:
        try:
            way = _lead_back(session, view, name, plan.new)
            why = (
                "it was replaced, and is no branch yet"
                if view.members[name].is_root
                else "it has applied more than the new root"
            )
            left[name] = f"{why}: run {way} there"
        except (StateError, DatabaseError) as error:
            left[name] = mask(error.message)
    for name in plan.orphans:
        try:
            run_move(session, view, plan_move(view.members, name, plan.new), options.timeout)
        except (StateError, DatabaseError) as error:
            left[name] = mask(error.message)
        view = read_members(session, dead)
        reach("takeover.orphan_led")
    return left


def _lead_back(session: Session, view: SetView, name: str, new: str) -> str:
    """Return the command that brings a node back which has more than the new root; a leaf knows
    then whom to ask."""
    member = view.members[name]
    if not member.answers:
        raise StateError("it does not answer: run the same command again when it does")
    if member.has_queue:
        return "resurrect"
    _point(session, view, name, new)
    return "rejoin --apply"


def _point(session: Session, view: SetView, name: str, new: str) -> None:
    """Let a node name the new root as its provider, without a place there."""
    db, there = view.databases[name], view.locations[new]
    with db.transaction():
        lock_position(db, session.queue, view.members[name].worker)
        if not db.value(query("node", "knows_location"), [session.queue, new]):
            register_location(db, session.queue, new, there.node_location, there.dead)
        change_consumer_provider(db, session.queue, view.members[name].worker, new, node=name)
    reach("takeover.pointed")


def _finish(
    session: Session,
    view: SetView,
    plan: Failover,
    left: dict[str, str],
    options: TakeoverOptions,
) -> None:
    for name, why in left.items():
        log.error("'%s' does not read from '%s' yet: %s", name, plan.new, why)
    here = view.locations[plan.new].node_location
    run_hook(session.settings, "after", plan.old, plan.new, here, options.timeout)
    log.info(
        "'%s' is the root; if '%s' comes back, run resurrect there, else drop-node it",
        plan.new,
        plan.old,
    )
