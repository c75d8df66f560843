"""A leaf: applies batches of its provider's queue, starts first copies, reports its watermark."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from vedur.catalog import TableSet, get_table_list
from vedur.catalog.rejoin import get_rejoin_tables
from vedur.db import Database
from vedur.errors import EngineLost, RefusedError, StaleStage, StateError
from vedur.failpoint import reach
from vedur.handlers.registry import require_handlers
from vedur.node import WorkerState, get_node_info, get_worker_state
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import check_epoch, take_reigns
from vedur.node.position import (
    Counter,
    Fit,
    Place,
    get_applied_tick,
    get_counter,
    get_place,
    judge,
    keeps_ticks,
    lost,
    unregistered,
)
from vedur.node.state import hold_back_watermark, set_subscriber_watermark
from vedur.queue.batches import (
    Batch,
    Subscription,
    batch_size,
    get_backlog,
    get_subscription,
    get_ticks,
    next_batch,
    pause_before,
)
from vedur.sql import query
from vedur.tables.stages import drop_left_stages
from vedur.worker.batch import BatchRunner
from vedur.worker.context import WorkerContext
from vedur.worker.first_copy.source_check import begin_disproved_anew
from vedur.worker.roles.role import Role
from vedur.worker.stats import Stats
from vedur.worker.watch import look_for_changes

log = logging.getLogger(__name__)

#: Seconds between two looks at partitions: new ones get the trigger that guards them. What killed
#: commands have left is looked for at the same time.
_WATCH_PERIOD = 60.0

#: What pgq_node.set_subscriber_watermark answers where a watermark would go back.
_BACKWARDS = 405

#: What is staged can be overtaken by DDL or by another worker, but not again and again.
_STALE_ROUNDS = 5


class LeafRole(Role):
    """A node that follows its provider."""

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        self._provider: Provider | None = None
        self._connstr = ""
        self._runner: BatchRunner[Any] | None = None
        self._swept = False  # no other worker's staging tables are left, nor doubtful ones of ours
        self._next_watermark = 0.0
        self._next_watch = 0.0
        self._holds: bool | None = None  # does this database know of holds?
        self._stale = 0  # rounds in a row for nothing
        self._began = 0.0  # when the last batch did
        self._stats = Stats()

    def do_round(self, target: Database, state: WorkerState) -> bool:
        """Let first copies go on, then apply one batch."""
        worker, queue = self.worker, self.worker.queue
        if worker.on_alive is not None:  # a start that cannot work fails before Spark is waited for
            require_handlers(get_table_list(target, queue), passes_on=state.passes_on)
        provider = self._open_provider(state)
        if self.has_lost_spark(thorough=False):
            raise EngineLost  # also where there is nothing to do: first copies need it, too
        runner = self._open_runner(target, state)
        worker.say_alive()
        place = provider.find_place(target, queue, state)
        if place is None:
            return True  # somebody, or this look, has moved a position: look again
        self._report_watermark(target, provider.db, state)
        self._watch(target)
        # The hold first: whoever held the worker may have changed what the tables are.
        hold = self._read_hold(target, state)
        tables = get_table_list(target, queue)
        if provider.disproves_copies(target, queue, tables, state):
            return True
        require_handlers(tables, passes_on=state.passes_on)
        if worker.copies is not None and worker.copies.advance(
            target, provider.endpoint.connstr, self._to_copy(target, tables), state.completed_tick
        ):
            return True  # it has waited a little for the copy that hands over
        if hold == state.completed_tick:
            return False
        if self._let_ticks_gather(runner, place):
            return True
        began = worker.clock.monotonic()
        batch = self._next_batch(target, provider.db, state, hold, place)
        if batch is None:
            self._stats.idle(log, worker.clock.monotonic(), worker.settings.keepalive_stats)
            return False
        self._began = began
        try:
            done = runner.run(target, provider.db, batch, provider.subscription, tables, state)
        except StaleStage as stale:
            return self._stage_again(stale)
        self._stale = 0
        provider.verified = batch.tick
        self._stats.worked(log, batch, done, began, worker.clock.monotonic())
        return True

    def rest(self, target: Database, state: WorkerState) -> None:
        """Let go of the Spark task that waits for batches."""
        if self._runner is not None:
            self._runner.applier.rest()

    # -- parts of a round -----------------------------------------------------------------------

    def _report_watermark(self, target: Database, provider: Database, state: WorkerState) -> None:
        """Tell the provider, every `local_wm_publish_period`, which tick is still needed here."""
        now = self.worker.clock.monotonic()
        if now < self._next_watermark or state.local_watermark is None:
            return
        self._next_watermark = now + self.worker.settings.local_wm_publish_period
        self._send_watermark(target, provider, state, state.local_watermark)

    def _send_watermark(
        self, target: Database, provider: Database, state: WorkerState, watermark: int
    ) -> None:
        """Write the watermark of this node on the provider; a branch has nodes below to count."""
        self._report(provider, state, watermark, watermark)

    def _report(self, provider: Database, state: WorkerState, tick: int, needed: int) -> None:
        """Move this node's watermark on the provider. It goes back only for what a node needs: one
        whose position was set back by hand, or that was moved here from elsewhere."""
        queue = self.worker.queue
        try:
            set_subscriber_watermark(provider, queue, state.node_name, tick)
        except RefusedError as refused:
            if refused.code != _BACKWARDS:
                raise
            back = hold_back_watermark(provider, queue, state.node_name, needed)
            if back is not None:
                log.info('the watermark on node "%s" goes back to tick %d, which is needed',
                         state.provider_node, back)  # fmt: skip

    def _watch(self, target: Database) -> None:
        if self.worker.clock.monotonic() >= self._next_watch:
            self._next_watch = self.worker.clock.monotonic() + _WATCH_PERIOD
            look_for_changes(target, self.worker.queue)
            for name in drop_left_stages(target, self.worker.queue):
                log.info("%s is dropped: a command that was killed has left it", name)

    def _read_hold(self, target: Database, state: WorkerState) -> int | None:
        """Read the tick of the hold that a command has set (node/moment.py): batches end there at
        the latest, then the worker waits. One that is set after this look may be passed; the
        command asks again."""
        if self._holds is None:
            self._holds = bool(target.value(query("worker", "has_holds")))
        if not self._holds:
            return None
        asked = [self.worker.queue, state.worker_name, state.completed_tick]
        tick: int | None = target.value(query("worker", "get_hold"), asked)
        return tick

    def _to_copy(self, target: Database, tables: TableSet) -> TableSet:
        """Return the tables as first copies see them; those that `rejoin` mends need no copy."""
        if all(t.merge_state for t in tables.local):
            return tables
        kept = get_rejoin_tables(target, self.worker.queue)
        return TableSet(replace(t, merge_state="ok") if t.table_name in kept else t for t in tables)

    def _let_ticks_gather(self, runner: BatchRunner[Any], place: Place) -> bool:
        """Wait a moment where ticks are closer than Spark jobs should follow each other; True if it
        did, and what was read is old."""
        clock = self.worker.clock
        since = clock.monotonic() - self._began
        pause = pause_before(place.ahead, since, by_job=runner.applier.by_job)
        if pause:
            clock.wait(self.worker.signals.stop, pause)
        return pause > 0

    def _next_batch(
        self,
        target: Database,
        provider: Database,
        state: WorkerState,
        hold: int | None,
        place: Place,
    ) -> Batch | None:
        """Open a batch of the size that is due; `place` is the consumer's at the provider."""
        settings, queue, here = self.worker.settings, self.worker.queue, state.completed_tick
        reach = None
        if hold is not None:
            ticks = get_ticks(provider, queue, here, hold)
            reach = ticks[-1].event_seq - ticks[0].event_seq if ticks else 0
        elif settings.pgq_keep_lag:
            # pgq finds a tick first and looks at its age then: it must be offered one that is old.
            reach = get_backlog(provider, queue, here, settings.pgq_keep_lag)
        count, interval = batch_size(
            place.ahead,
            settings.max_batch_events,
            staged=self._runner.ahead.requested if self._runner else None,
            reach=reach,
            collect=settings.pgq_batch_collect_events,
            interval=settings.pgq_batch_collect_interval,
        )
        return next_batch(
            provider,
            queue,
            state.worker_name,
            min_lag=settings.pgq_keep_lag,
            min_count=count,
            min_interval=interval,
        )

    def _stage_again(self, stale: StaleStage) -> bool:
        """Let the next round take up the batch, which is still open; raises after some rounds."""
        self._stale += 1
        if self._stale > _STALE_ROUNDS:
            raise stale
        log.info("%s", stale.message)
        return True

    # -- connections ----------------------------------------------------------------------------

    @property
    def listener(self) -> Database | None:
        """The provider's connection that hears of ticks."""
        return self._provider.listener if self._provider is not None else None

    @property
    def provider_connstr(self) -> str:
        """How the provider was last reached."""
        return self._connstr

    def _open_provider(self, state: WorkerState) -> Provider:
        location = state.provider_location
        if not location:
            raise StateError(f'provider "{state.provider_node}" has no location on this node')
        settings, now = self.worker.settings, self._provider
        endpoint = Endpoint.of_node(settings, location)
        if now is None or now.db.closed or endpoint != now.endpoint:
            self.disconnect()
            self._connstr = endpoint.connstr
            now = self._provider = Provider.open(endpoint, self.worker.queue, state)
        return now

    def _open_runner(self, target: Database, state: WorkerState) -> BatchRunner[Any]:
        if self._runner is None:
            self._runner = self.worker.make_runner(self._connstr, state)
            if not self._swept:  # a pause leaves staging tables as they are: to make one takes 6 ms
                self._runner.applier.start(target)
                self._swept = True
        return self._runner

    def has_lost_spark(self, *, thorough: bool) -> bool:
        """Ask whether the Spark session of the runner has died."""
        return self._runner is not None and self.worker.spark_lost(thorough)

    def disconnect(self) -> None:
        """Leave the provider, and what is staged; staging tables stay."""
        if self._provider is not None:
            self._provider.close()
            self._provider = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def distrust(self) -> None:
        """Leave the provider; the next runner drops all staging tables first."""
        self.disconnect()
        self._swept = False


# -- the provider of a node as its worker holds it ------------------------------------------------


@dataclass
class Provider:
    """One session with a provider: `db` for questions, `listener` hears of ticks."""

    endpoint: Endpoint
    db: Database
    listener: Database
    subscription: Subscription
    is_branch: bool = False
    verified: int | None = None  # the position that this provider agrees with
    counter: Counter | None = None  # as the session found it, until first copies were judged by it

    @classmethod
    def open(cls, endpoint: Endpoint, queue: str, state: WorkerState) -> Provider:
        """Connect, and read the consumer's place in the queue; raises where it has none."""
        db = endpoint.open("provider_db")
        try:
            db.without_timeouts()
            subscription = get_subscription(db, queue, state.worker_name)
            if subscription is None:
                raise unregistered(state.worker_name, state.provider_node)
            info = get_node_info(db, queue)
            listener = endpoint.open("provider_db")
            listener.without_timeouts().execute(query("worker", "listen"))
        except BaseException:
            db.close()
            raise
        is_branch = info is not None and info.is_branch
        return cls(endpoint, db, listener, subscription, is_branch)

    def close(self) -> None:
        """Close both connections."""
        self.db.close()
        self.listener.close()

    def find_place(self, target: Database, queue: str, state: WorkerState) -> Place | None:
        """Read the consumer's place; raises LostPosition where it does not fit this node's
        position, None where one of them has just been moved.

        The number of the tick is believed once in a session with the provider: whoever restores a
        database or makes a standby the root ends all sessions.
        """
        here, worker = state.completed_tick, state.worker_name
        place = get_place(self.db, queue, worker, here)
        if place is None:
            raise unregistered(worker, state.provider_node)
        applied = None
        doubtful = here != self.verified or here not in (place.last, place.next)
        if doubtful and keeps_ticks(target):
            applied = get_applied_tick(target, queue, worker, state.provider_node)
        if self.verified is None:
            if take_reigns(target, self.db, queue, here):
                log.info('node "%s" has the epoch of its provider from now on', state.node_name)
            check_epoch(target, self.db, queue, here, state.provider_node)
            counter = get_counter(self.db, queue, here)
            if counter.behind:
                raise counter.error(state.provider_node)
            self.counter = counter
        fit = judge(here, applied, place, of_branch=self.is_branch)
        if fit in (Fit.SAME, Fit.COMMITTED):
            self.verified = here
            return place
        if fit is Fit.UNKNOWN:
            return place  # a batch that ends there is passed over, any other one is refused
        now = get_worker_state(target, queue)
        if now is None or now.completed_tick != here:
            return None  # another worker of this node went on between the two looks
        if fit is Fit.AHEAD:
            self._move_consumer(queue, state, place)
            return None
        raise lost(fit, here, worker, state.provider_node, place, of_branch=self.is_branch)

    def disproves_copies(
        self, target: Database, queue: str, tables: TableSet, state: WorkerState
    ) -> bool:
        """Have tables copied anew whose copies are done by a snapshot that this provider cannot
        have given; asked once in a session. Returns whether there were any."""
        if self.counter is None:
            return False
        there, now = state.provider_node, self.counter.now
        found = begin_disproved_anew(target, queue, tables.local, there, now)
        self.counter = None
        return found

    def _move_consumer(self, queue: str, state: WorkerState, place: Place) -> None:
        here, worker = state.completed_tick, state.worker_name
        log.info(
            'consumer "%s" goes on at tick %s on provider "%s", which this node has applied; '
            "it stood at tick %s",
            worker,
            here,
            state.provider_node,
            place.last,
        )
        self.db.call("pgq.register_consumer_at", queue, worker, here)
        reach("position.moved")
