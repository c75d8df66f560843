"""change-provider: read from another node from now on, without copying anything again.

Tick ids are the same on all nodes of a set, so the position carries over. The new provider gets
the subscription before the old one loses it: no event can vanish in between.

Everything is looked at first (`vedur/node/plan.py`); then come steps that can be repeated:

    pause        the consumer, so that its position stands still; that this was done for a move, and
                 where to, is noted in the attributes of the node in the same transaction
    subscribe    at the position, on the new provider
    switch       the node itself, with the position locked; where the old provider does not answer,
                 first copies begin anew in the same transaction
    untag        the node, where it was tagged as dead: it is back
    resume       the consumer, and the note goes in the same transaction
    hold         what the node needs, on the nodes above the new provider
    unsubscribe  on the old provider

An error or an interrupt resumes the consumer. After a kill the note is left, and `status` shows it.
A worker that runs gives the move up then (`vedur/node/killed_move.py`), as `resume` does, and goes
on at the provider that it has. The same command again finishes what was begun; another provider may
be named instead, as the first one may be gone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import DatabaseError, StateError, VedurError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.epoch import read_reigns
from vedur.node.history import KnownTick, explain_deposed, explain_other, will_learn
from vedur.node.info import get_node_info, get_subscriber_info, synced_nodes
from vedur.node.move_lock import (
    patiently,
    release_place,
    try_hold_place,
    try_lock_move,
    unlock_move,
)
from vedur.node.plan import (
    MOVE_CONSUMER,
    MOVE_PROVIDER,
    MOVE_RESUME,
    Member,
    Move,
    explain_ahead,
    plan_consumer_move,
    plan_move,
    require_member,
    require_no_copies,
    tick_is_missing,
)
from vedur.node.position import (
    AppliedTick,
    complete_tick,
    get_applied_tick,
    get_tick,
    keeps_ticks,
    lock_position,
    read_position,
)
from vedur.node.setup import (
    register_location,
    register_subscriber,
    require_own_consumer,
    set_move_note,
    unregister_subscriber,
    untag,
)
from vedur.node.state import (
    change_consumer_provider,
    hold_back_watermark,
    set_consumer_paused,
)
from vedur.ops.create_node import require_serving
from vedur.ops.members import SetView, find_consumer, read_copies, read_member, read_members
from vedur.ops.passed import require_provider_serves
from vedur.ops.pause import NoAnswer, wait_accepted
from vedur.ops.session import Session
from vedur.sql import query
from vedur.worker.first_copy.anew import begin_all_anew
from vedur.worker.first_copy.places import read_consumer_node

log = logging.getLogger(__name__)

#: Seconds that a provider which is behind, and a worker that is to stand still, are waited for,
#: unless told otherwise.
MAX_WAIT = 60.0
_PERIOD = 0.2
_SAY_EVERY = 5.0


class MovedMeanwhile(StateError):
    """A node is not as it was when its move was planned."""


def change_provider(
    session: Session,
    provider: str,
    *,
    node: str | None = None,
    consumer: str | None = None,
    dead: Collection[str] = (),
    max_wait: float = MAX_WAIT,
) -> None:
    """Move a consumer (default: the worker of the local node) to another provider, by node name."""
    view = read_members(session, dead)
    name = node or view.local
    if consumer is not None and consumer != require_member(view.members, name).worker:
        name, info = find_consumer(session, view, consumer, node)
        if consumer != view.members[name].worker:
            move = plan_consumer_move(
                view.members, name, consumer, info.provider_node, info.last_tick_id, provider
            )
            run_move(session, view, move, max_wait)
            return
    try:
        run_move(session, view, plan_move(view.members, name, provider), max_wait)
    except MovedMeanwhile:
        # its worker has given up a move that was killed, after this one was planned
        view = read_members(session, dead)
        run_move(session, view, plan_move(view.members, name, provider), max_wait)


def run_move(session: Session, view: SetView, move: Move, max_wait: float = MAX_WAIT) -> None:
    """Do what is left of a move; raises, with the consumer running as before, where it cannot."""
    mine = require_member(view.members, move.node)
    db = view.databases[move.node]
    mover = _Mover(session, view, move, db, worker=move.consumer == mine.worker)
    with ExitStack() as stack:
        stack.enter_context(_one_at_a_time(db, session.queue, move.node, session.clock))
        _require_unmoved(db, session.queue, mine)
        if move.switch:
            if mover.is_worker and mine.has_queue:
                _hold_path(stack, session.queue, view, move, session.clock)
            mover.switch(max_wait)
        mover.untag()
        mover.resume(max_wait)
        mover.unsubscribe()
    log.info(
        "Consumer '%s' on node '%s' reads from '%s', after tick %s",
        move.consumer,
        move.node,
        move.provider,
        mover.tick,
    )


@contextmanager
def _one_at_a_time(db: Database, queue: str, node: str, clock: Clock) -> Iterator[None]:
    """Keep other moves of the same node out until this one ends, however it ends."""
    if not patiently(try_lock_move, db, queue, clock):
        raise StateError(f'another command moves node "{node}" just now: wait for it to end')
    try:
        yield
    finally:
        unlock_move(db, queue)


def _require_unmoved(db: Database, queue: str, mine: Member) -> None:
    """Raise if another move of the node has ended since the plan was made."""
    info = get_node_info(db, queue)
    notes = [
        [attrs.get(key) for key in (MOVE_CONSUMER, MOVE_PROVIDER, MOVE_RESUME)]
        for attrs in (mine.attrs, info.attrs if info else {})
    ]
    reads_from = None if info is None or info.is_root else info.provider_node
    if reads_from != mine.provider or notes[0] != notes[1]:
        raise MovedMeanwhile(f'node "{mine.name}" was moved meanwhile: run the command again')


def _hold_path(stack: ExitStack, queue: str, view: SetView, move: Move, clock: Clock) -> None:
    """Keep the nodes from the new provider up to the root where they are until the move ends: two
    moves that are planned at the same time must not make a ring. Raises where the moved node is one
    of them by now. Moves to the same provider do not keep each other out."""
    path = [move.node]
    name: str | None = move.provider
    while name is not None and name in view.databases:
        db = view.databases[name]
        path.append(name)
        if not patiently(try_hold_place, db, queue, clock):
            raise StateError(f'another command moves node "{name}" just now: wait for it to end')
        stack.callback(release_place, db, queue)
        info = get_node_info(db, queue)
        name = None if info is None or info.is_root else info.provider_node
        if name in path:
            raise StateError(
                f'node "{move.provider}" is below "{move.node}" now: nothing is changed'
            )


class _Mover:
    """One move under way."""

    def __init__(
        self, session: Session, view: SetView, move: Move, db: Database, *, worker: bool
    ) -> None:
        self.session, self.view, self.move, self.db = session, view, move, db
        self.is_worker = worker
        self.queue, self.clock = session.queue, session.clock
        self.tick = move.tick
        self.new = view.databases[move.provider]
        self._to_resume = move.resume
        self._switched = not move.switch
        self._prefix = view.prefix(move.node)

    # -- the switch -----------------------------------------------------------------------------

    def switch(self, max_wait: float) -> None:
        """Pause, subscribe and switch; on any error the consumer goes on at its old provider."""
        above = get_node_info(self.new, self.queue)
        if above is None:
            raise StateError(f'node "{self.move.provider}" is not initialized')
        require_serving(self.new, above)
        mine = get_node_info(self.db, self.queue)
        if self.is_worker and mine is not None:
            require_provider_serves(
                self.db, mine, self.new, self.queue, self.tick, self.move.provider
            )
        self._require_own_consumer()
        self._find_tick()  # of another reign: the tick that would be waited for is another one
        self._wait_for_tick(self.tick, max_wait)
        self._find_tick()
        self._wait_for_snapshots(max_wait)
        subscribed = False
        try:
            self._pause(max_wait)
            reach("provider.paused")
            self.tick = self._position()
            self._wait_for_tick(self.tick, max_wait)
            subscribed = self._subscribe()
            reach("provider.subscribed")
            self._switch()
            self._switched = True
            reach("provider.changed")
        except BaseException:  # an interrupt, too: the consumer must not stay paused for it
            self._undo(subscribed)
            raise

    def _position(self) -> int:
        tick = read_position(self.db, self.queue, self.move.consumer)
        if tick is None:
            raise StateError(f'consumer "{self.move.consumer}" keeps no position on its node')
        return tick

    def _wait_for_tick(self, tick: int, max_wait: float) -> None:
        """Wait until the new provider has a tick; raises for one that it will never have."""
        deadline = self.clock.monotonic() + max_wait
        said = 0.0
        while True:
            # in this order: a tick that comes in between is seen, and is not taken for a hole
            new = read_member(self.new, self.queue, self.move.provider)
            has_it = get_tick(self.new, self.queue, tick, self.move.provider) is not None
            deposed = self._is_deposed(new)
            if has_it and not deposed:
                return
            if missing := "" if has_it else tick_is_missing(new, tick):
                raise StateError(missing)
            now = self.clock.monotonic()
            if deposed and (now >= deadline or not self._will_learn(new)):
                raise StateError(
                    f'node "{new.name}" {deposed}: nothing is changed; choose another node, or run '
                    "it again when it has read of that"
                )
            behind = deposed or (new.last_tick is not None and new.last_tick < tick)
            if not behind or now >= deadline:
                raise StateError(
                    f'node "{new.name}" does not have tick {tick}, which the node has applied (it '
                    f"has ticks {new.first_tick} to {new.last_tick}): nothing is changed; wait "
                    "until it has come that far"
                )
            if now >= said:
                log.info("Waiting until '%s' has tick %s: it is at tick %s", new.name, tick,
                         new.last_tick)  # fmt: skip
                said = now + _SAY_EVERY
            self.clock.sleep(_PERIOD)

    def _wait_for_snapshots(self, max_wait: float) -> None:
        """Wait until no table needs the transaction numbers of the old provider any more: at the
        new one, its changes would count as rows of the copy. The next tick ends that."""
        if not self.is_worker or self.move.anew:
            return
        deadline, said = self.clock.monotonic() + max_wait, False
        while ahead := read_copies(self.db, self.queue)[1]:
            why = explain_ahead(replace(self.view.members[self.move.node], ahead=ahead))
            if self.clock.monotonic() >= deadline:
                raise StateError(
                    f"{why}: nothing is changed; see that its worker runs and gets ticks, and run "
                    "the same command again"
                )
            if not said:
                log.info("Waiting for the next tick: %s", why)
                said = True
            self.clock.sleep(_PERIOD)

    def _is_deposed(self, new: Member) -> str:
        mine, theirs = (read_reigns(db, self.queue) for db in (self.db, self.new))
        return explain_deposed(mine, theirs, self.tick)

    def _will_learn(self, new: Member) -> bool:
        return will_learn(read_reigns(self.db, self.queue), new.last_tick)

    def _find_tick(self) -> AppliedTick | None:
        """Read the new provider's tick of the position; raises where it is not the one that the
        node has applied. Numbers alone do not tell: see `vedur/node/history.py`."""
        move = self.move
        mine, theirs = (read_reigns(db, self.queue) for db in (self.db, self.new))
        found = get_tick(self.new, self.queue, self.tick, move.provider)
        applied = None
        if self.is_worker and keeps_ticks(self.db):
            applied = get_applied_tick(self.db, self.queue, move.consumer)
        other = explain_other(mine, theirs, self.tick, self._known(applied), self._known(found))
        if other:
            raise StateError(
                f'tick {self.tick} of node "{move.provider}" is not the tick {self.tick} that node '
                f'"{move.node}" has applied: {other}; nothing is changed: {self._way_out()}'
            )
        return found

    def _known(self, tick: AppliedTick | None) -> KnownTick | None:
        """Add whose tick it is; a node of which nothing is known may be a branch."""
        if tick is None:
            return None
        member = self.view.members.get(tick.provider)
        return KnownTick(tick, of_branch=member is None or not member.is_root)

    def _way_out(self) -> str:
        if self.view.members[self.move.node].is_branch:
            return (
                'run "resurrect" on it after a failover; else let the nodes below it read from '
                "others (rejoin --provider), drop-node it and create it again"
            )
        return (
            f'run "rejoin --provider={self.move.provider}" on it, it says what it would do to make '
            "the tables equal"
        )

    def _pause(self, max_wait: float) -> None:
        """Pause the consumer unless it is; note that, and what for, in the same transaction.

        Raises where it does not answer: it may be in the middle of a batch, or not run at all.
        """
        move = self.move
        with self.db.transaction():
            paused = self.db.value(query("node", "consumer_paused"), [self.queue, move.consumer])
            self._to_resume = move.resume or not paused
            set_move_note(self.db, self.queue, {
                MOVE_CONSUMER: move.consumer,
                MOVE_PROVIDER: move.provider,
                MOVE_RESUME: "1" if self._to_resume else "0",
            })  # fmt: skip
            if not paused:
                set_consumer_paused(self.db, self.queue, move.consumer, True, node=self._prefix)
        try:
            wait_accepted(
                self.session, self.db, move.node, move.consumer, paused=True, max_wait=max_wait
            )
        except NoAnswer as error:
            raise StateError(
                f"{error.message}: nothing is changed, and it is not paused; if it does not run, "
                "start it, then run the same command again"
            ) from error

    def _subscribe(self) -> bool:
        """Subscribe at the position; a subscription that an earlier run has left is replaced."""
        move, mine = self.move, self.view.locations[self.move.node]
        with self.new.transaction():
            self._require_own_consumer()
            if not self.is_worker:
                self.new.value(
                    query("node", "register_consumer_at"), [self.queue, move.consumer, self.tick]
                )
                return True
            known = [item.node_name for item in get_subscriber_info(self.new, self.queue)]
            if move.node in known:
                unregister_subscriber(self.new, self.queue, move.node, node=move.provider)
            if not self._knows(self.new, mine.node_name):
                register_location(
                    self.new, self.queue, mine.node_name, mine.node_location, mine.dead
                )
            register_subscriber(
                self.new, self.queue, move.node, move.consumer, self.tick, node=move.provider
            )
        return True

    def _require_own_consumer(self) -> None:
        """Raise where the consumer of that name on the new provider is another node's."""
        move = self.move
        way_out = (
            "choose another provider, or drop-node one of the two and create it again with another "
            "job_name"
        )
        if self.is_worker:
            require_own_consumer(
                self.new, self.queue, move.node, move.consumer, move.provider, way_out
            )
            return
        for item in get_subscriber_info(self.new, self.queue):
            if item.worker_name == move.consumer:
                raise StateError(
                    f'consumer "{move.consumer}" on node "{move.provider}" is that of node '
                    f'"{item.node_name}": nothing is changed; choose another provider'
                )

    def _knows(self, db: Database, name: str) -> bool:
        return bool(db.value(query("node", "knows_location"), [self.queue, name]))

    def _switch(self) -> None:
        """Let the node read from the new provider, if its position is still the one subscribed."""
        move, there = self.move, self.view.locations[self.move.provider]
        with self.db.transaction():
            tick = lock_position(self.db, self.queue, move.consumer)
            if tick != self.tick:
                raise StateError(
                    f'consumer "{move.consumer}" went on to tick {tick} although it is paused: '
                    "nothing is changed; is a second worker running?"
                )
            if self.is_worker:
                self._settle_copies()
            if not self._knows(self.db, there.node_name):
                register_location(
                    self.db, self.queue, there.node_name, there.node_location, there.dead
                )
            change_consumer_provider(
                self.db, self.queue, move.consumer, move.provider, node=self._prefix
            )
            if self.is_worker and keeps_ticks(self.db):
                found = self._find_tick()
                if found is not None:
                    complete_tick(self.db, self.queue, move.consumer, found, silent=True)

    def _settle_copies(self) -> None:
        """Raise where a table still needs the old provider; where that does not answer, its copy
        begins anew. The plan may be older than a copy, and nothing else begins or ends one now."""
        copies, ahead = read_copies(self.db, self.queue)
        if self.move.anew:
            members = self.view.members
            gone = {name for name, each in members.items() if each.dead}
            gone.add(members[self.move.node].provider or "")
            tables = begin_all_anew(self.db, self.queue, gone)
            if tables:
                log.warning(
                    "'%s' copies from '%s', from the beginning: %s",
                    self.move.node,
                    self.move.provider,
                    ", ".join(tables),
                )
                reach("takeover.recopied")
            return
        require_no_copies(self.move.node, copies)
        if ahead:
            why = explain_ahead(replace(self.view.members[self.move.node], ahead=ahead))
            raise StateError(f"{why}: nothing is changed; run the same command again")

    def _undo(self, subscribed: bool) -> None:
        """Let the consumer go on, at its old provider unless the switch was done; nothing waits
        for its answer."""
        try:
            with self.db.transaction():
                set_move_note(self.db, self.queue, None)
                if self._to_resume:
                    set_consumer_paused(self.db, self.queue, self.move.consumer, False)
        except VedurError as error:
            log.error(
                "Consumer '%s' of '%s' stays paused (%s): run the same command again, or resume",
                self.move.consumer,
                self.move.node,
                error.message,
            )
            return
        if subscribed and not self._switched:
            self._end_subscription(self.move.provider, self.new)

    # -- afterwards -----------------------------------------------------------------------------

    def untag(self) -> None:
        """Tell all nodes that this one is alive, where it was tagged as dead: nobody would ask it
        before the next failover, and it may have the most."""
        if not self.is_worker:
            return
        for name, db in self.view.databases.items():
            try:
                if untag(db, self.queue, self.move.node, node=self.view.prefix(name)):
                    log.info("'%s' knows that '%s' is alive", name, self.move.node)
            except DatabaseError as error:
                log.warning(
                    "Node '%s' failure: %s: run tag-alive %s", name, mask(error.message),
                    self.move.node,
                )  # fmt: skip
        reach("provider.untagged")

    def resume(self, max_wait: float = MAX_WAIT) -> None:
        """Let the consumer go on unless an operator has paused it, and remove the note. One that
        does not answer is named: it goes on at the new provider when it runs."""
        move = self.move
        with self.db.transaction():
            set_move_note(self.db, self.queue, None)
            if self._to_resume:
                set_consumer_paused(self.db, self.queue, move.consumer, False, node=self._prefix)
        reach("provider.resumed")
        if not self._to_resume:
            return
        try:
            wait_accepted(
                self.session, self.db, move.node, move.consumer, paused=False, max_wait=max_wait
            )
        except NoAnswer as error:
            log.warning("%s: it goes on at '%s' when it runs", error.message, self.move.provider)

    def unsubscribe(self) -> None:
        """End the subscriptions that are left on other nodes; one that does not answer is named."""
        if self.is_worker:
            self._hold_events()
        reach("provider.held")
        old = list(self.move.old)
        member = self.view.members[self.move.node]
        before = member.provider
        if self.move.switch and self.is_worker and before and before not in old:
            old.append(before)
        for name in old:
            db = self.view.databases.get(name)
            if db is None:
                log.warning(
                    "Node '%s' may keep a subscription of '%s', which holds back its queue: run "
                    "the same command again when it answers, or drop-node it",
                    name,
                    self.move.node,
                )
                continue
            self._end_subscription(name, db)
            if self.is_worker and not self.move.switch:
                self._end_left_copies(name, db)
        if self.is_worker and self.move.provider in member.subscribers:
            # it was below this node once; the plan has seen that it no longer is
            unregister_subscriber(self.db, self.queue, self.move.provider, node=self._prefix)
        reach("provider.unsubscribed")

    def _hold_events(self) -> None:
        """Let the nodes above the new provider keep what the node needs: the old provider does so
        no longer when its subscription ends, and the new one may have reported a later tick for
        all that is below it. Then the node can move on if the new provider dies.

        A branch reports again and again, and lower from now on; the root hears of it that way where
        a node on the path does not answer.
        """
        info = get_node_info(self.db, self.queue)
        if info is None:
            return
        tick = self.tick
        if info.is_branch and not synced_nodes(info.attrs):
            tick = min(tick, tick if info.local_watermark is None else info.local_watermark)
        seen = {self.move.node}
        name: str | None = self.move.provider
        while name is not None and name not in seen and name in self.view.databases:
            seen.add(name)
            try:
                name = self._hold_above(name, tick)
            except DatabaseError as error:
                log.warning("Node '%s' failure: %s", name, mask(error.message))
                return

    def _hold_above(self, name: str, tick: int) -> str | None:
        """Let the provider of a node keep events from a tick on for it; returns the provider, None
        at the end of the path: the root, or a branch that reports for itself alone."""
        info = get_node_info(self.view.databases[name], self.queue)
        if info is None or info.is_root or synced_nodes(info.attrs):
            return None
        above = info.provider_node or ""
        db = self.view.databases.get(above)
        if db is None:
            return None
        back = hold_back_watermark(db, self.queue, name, tick)
        if back is not None:
            log.debug("'%s' keeps events from tick %s on", above, back)
        return above

    def _end_subscription(self, name: str, db: Database) -> None:
        try:
            if self.is_worker:
                unregister_subscriber(db, self.queue, self.move.node, node=name)
            else:
                db.value(query("node", "unregister_consumer"), [self.queue, self.move.consumer])
        except DatabaseError as error:
            log.warning("Node '%s' failure: %s", name, mask(error.message))

    def _end_left_copies(self, name: str, db: Database) -> None:
        """End consumers of first copies that began anew elsewhere while an old provider was away:
        they would hold back its queue for ever."""
        try:
            for row in db.query(query("resurrect", "copies"), [self.queue]):
                if not row.consumer.startswith(f"{self.move.consumer}.copy."):
                    continue
                place = read_consumer_node(self.db, self.queue, row.consumer)
                if place is None or place.node != name:
                    db.value(query("node", "unregister_consumer"), [self.queue, row.consumer])
        except DatabaseError as error:
            log.warning("Node '%s' failure: %s", name, mask(error.message))
