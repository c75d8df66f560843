"""A part: a leaf that is merged into a combined queue, whose node in the same database is a root or
a branch (docs/design/combined.md).

    combined root     the part's worker applies batches as a leaf does, and writes their events into
                      the combined queue in the same transaction (`BatchRun.publish`)
    combined branch   rows come through the combined queue, whose worker moves the position of the
                      part. The part's own worker waits behind it: it reads no row, and carries out
                      what the part's queue says of nodes and tables up to that position

A takeover of the combined queue turns one into the other. Nothing is handed over: the position is
the tick up to which the tables have the part, in both roles.
"""

from __future__ import annotations

import logging

from vedur.catalog import get_table_list
from vedur.catalog.tables import TableSet
from vedur.change.attrs import HANDLER
from vedur.change.event import Event
from vedur.db import Database, set_replication_role
from vedur.errors import LostPosition, StaleStage, StateError
from vedur.failpoint import reach
from vedur.handlers.builtin import DEFAULT_HANDLER
from vedur.node import WorkerState, get_worker_state
from vedur.node.epoch import check_epoch, take_reigns
from vedur.node.part import (
    can_combine,
    end_waiting,
    is_closed,
    read_handled_tick,
    set_handled_tick,
)
from vedur.node.position import (
    LOST,
    REMEDY,
    Fit,
    get_applied_tick,
    get_counter,
    get_place,
    lock_position,
    lost,
    unregistered,
)
from vedur.node.state import set_consumer_error
from vedur.queue.batches import event_range, get_ticks
from vedur.sql import query
from vedur.worker.roles.leaf import LeafRole, Provider
from vedur.worker.system_events import Registers, SystemEvents

log = logging.getLogger(__name__)

_OLD_SQL = (
    "the SQL of this node is of a version that merges nothing into a combined queue: nothing is "
    'applied; run "create-leaf" again with the same arguments, it brings the SQL up to date'
)


def require_whole(tables: TableSet, combined: str) -> None:
    """Raise where a part brings only some rows or columns of a table, or what a handler makes of
    it: its events go on whole, and nodes below would get what this node does not have. Pure."""
    for table in tables.local:
        handler = table.attrs.get(HANDLER) or DEFAULT_HANDLER
        if handler != DEFAULT_HANDLER:
            raise StateError(
                f'table "{table.table_name}" has handler "{handler}" here, and all of its changes '
                f'would go on into combined queue "{combined}" as if it had none: nothing is '
                "applied; remove-table it here, and add it again without a handler"
            )
        mapping = table.mapping
        if mapping.part is not None:
            raise StateError(
                f'table "{table.table_name}" has part column "{mapping.part.name}" here, which the '
                f'changes that go on into combined queue "{combined}" do not bring: nothing is '
                "applied; remove-table it here, and add it again without --part-column"
            )
        if mapping.condition or mapping.columns is not None:
            part = "some rows" if mapping.condition else "some columns"
            raise StateError(
                f'this node has only {part} of table "{table.table_name}", and all of its changes '
                f'would go on into combined queue "{combined}": nothing is applied; '
                "remove-table it here, and add it again without a condition or a column list"
            )


class _Part(LeafRole):
    """What both roles of a part do."""

    def _require(self, target: Database) -> None:
        if not can_combine(target):
            raise StateError(_OLD_SQL)

    def _follow(self, target: Database, provider: Provider, state: WorkerState) -> bool:
        """Carry out the part's events about its set up to the position; True if there were ticks
        to go on with."""
        queue, here = self.worker.queue, state.completed_tick
        handled = read_handled_tick(target, queue)
        start = here if handled is None else handled
        self._verify(target, provider, state, start)
        ticks = get_ticks(provider.db, queue, start, here) if here > start else []
        if here > start and (not ticks or ticks[0].id != start):
            raise LostPosition(
                f'{LOST}: provider "{state.provider_node}" has no tick {start} any more, up to '
                f"which this part has carried out what its queue says of nodes and tables; {REMEDY}"
            )
        if len(ticks) < 2:
            self._place(provider, state, min(start, here))
            return False
        source = event_range(provider.db, provider.subscription, ticks, 1)
        text = query("combine", "set_events").format(events=source.events, slice=source.slices[0])
        events = [Event(*row) for row in provider.db.query(text)]
        with target.transaction():
            lock_position(target, queue, state.worker_name)
            now = get_worker_state(target, queue)
            if now is None or _role_of(now) != _role_of(state):
                raise StaleStage("the node has got another role or provider: it looks again")
            if read_handled_tick(target, queue) != handled:
                raise StaleStage("another worker of this part was quicker: stop one of them")
            check_epoch(target, provider.db, queue, start, state.provider_node)
            set_replication_role(target, "replica")
            handler = SystemEvents(target, queue, Registers.of(self.worker.settings))
            for event in events:
                handler.handle(event)
            set_handled_tick(target, queue, ticks[-1].id)
            reach("combined.handled")
        self._place(provider, state, min(ticks[-1].id, here))
        return True

    def _verify(self, target: Database, provider: Provider, state: WorkerState, start: int) -> None:
        """Raise, once in a session, where the provider is of another history."""
        if provider.verified is not None:
            return
        queue = self.worker.queue
        take_reigns(target, provider.db, queue, start)
        check_epoch(target, provider.db, queue, start, state.provider_node)
        counter = get_counter(provider.db, queue, start)
        if counter.behind:
            raise counter.error(state.provider_node)
        provider.verified = start

    def _place(self, provider: Provider, state: WorkerState, tick: int) -> None:
        """Let the consumer on the provider stand at a tick that the tables have: whatever comes
        behind it is kept there for the day on which this node takes over."""
        queue, worker = self.worker.queue, state.worker_name
        place = get_place(provider.db, queue, worker, tick)
        if place is None:
            raise unregistered(worker, state.provider_node)
        if place.last == tick and place.next is None:
            return
        if place.tick is None:
            raise lost(Fit.MISSING, tick, worker, state.provider_node, place)
        provider.db.call("pgq.register_consumer_at", queue, worker, tick)
        reach("combined.moved")


def _role_of(state: WorkerState) -> tuple[object, ...]:
    return state.node_type, state.provider_node, state.combined_queue, state.combined_type


class PartRole(_Part):
    """A part of a combined queue whose root is here."""

    def do_round(self, target: Database, state: WorkerState) -> bool:
        """Do a leaf's round; a part that has waited catches up with the events of its set first."""
        self._require(target)
        assert state.combined_queue is not None
        if is_closed(target, state.combined_queue):
            self.worker.say_alive()  # a takeover has closed the queue: soon this part waits behind
            return False
        require_whole(get_table_list(target, self.worker.queue), state.combined_queue)
        if read_handled_tick(target, self.worker.queue) is None:
            return super().do_round(target, state)
        return self._join(target, state)

    def _join(self, target: Database, state: WorkerState) -> bool:
        """Go on where the combined queue has left this part."""
        provider, queue, here = self._open_provider(state), self.worker.queue, state.completed_tick
        self.worker.say_alive()
        try:
            if self._follow(target, provider, state):
                return True
        except StaleStage as stale:
            return self._stage_again(stale)
        self._stale = 0
        handled = read_handled_tick(target, queue)
        if handled is not None and handled < here:
            return False  # the provider has yet to get the tick
        self._require_known(target, provider, state)
        self._place(provider, state, here)
        with target.transaction():
            lock_position(target, queue, state.worker_name)
            now = get_worker_state(target, queue)
            if now is None or _role_of(now) != _role_of(state) or now.completed_tick != here:
                return True
            end_waiting(target, queue)
            reach("combined.joined")
        provider.verified = None
        log.info(
            'this node is the root of combined queue "%s" now: part "%s" goes on at tick %s',
            state.combined_queue,
            queue,
            here,
        )
        return True

    def _require_known(self, target: Database, provider: Provider, state: WorkerState) -> None:
        """Raise unless the tick that the combined queue has told of is the provider's."""
        queue, here = self.worker.queue, state.completed_tick
        applied = get_applied_tick(target, queue, state.worker_name)
        place = get_place(provider.db, queue, state.worker_name, here)
        if place is None:
            raise unregistered(state.worker_name, state.provider_node)
        if place.tick is None:
            raise lost(Fit.MISSING, here, state.worker_name, state.provider_node, place)
        if applied is not None and applied.id == here and not applied.same_elsewhere(place.tick):
            raise lost(Fit.OTHER, here, state.worker_name, state.provider_node, place)


class WaitingPartRole(_Part):
    """A part of a combined queue that is a branch here: it waits behind."""

    def do_round(self, target: Database, state: WorkerState) -> bool:
        """Carry out the part's events about its set, as far as the combined queue has come."""
        self._require(target)
        provider = self._open_provider(state)
        self.worker.say_alive()
        try:
            more = self._follow(target, provider, state)
        except StaleStage as stale:
            return self._stage_again(stale)
        self._stale = 0
        if state.cur_error is not None:  # it completes no batch, which would clear it
            set_consumer_error(target, self.worker.queue, state.worker_name, None)
        self._report_watermark(target, provider.db, state)
        self._watch(target)
        if not more:
            now, period = self.worker.clock.monotonic(), self.worker.settings.keepalive_stats
            self._stats.idle(log, now, period)
        return more

    def _send_watermark(
        self, target: Database, provider: Database, state: WorkerState, watermark: int
    ) -> None:
        """Report the tick that both the rows and the events of the set have reached. That of a new
        part goes back when the combined queue first tells of it: it began at a tick of then."""
        handled = read_handled_tick(target, self.worker.queue)
        tick = watermark if handled is None else min(watermark, handled)
        self._report(provider, state, tick, tick)
