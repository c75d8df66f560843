"""The loop of a worker: look at the node, do one piece of work, wait for a tick or a signal.

A root publishes the global watermark and checks sequences; a leaf applies batches and reports
its watermark. Every error is logged, shown in `status` and retried for ever: what is not
committed is still in the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.handlers import require_handlers
from vedur.catalog.rejoin import get_rejoin_tables
from vedur.catalog.sequences import root_check_seqs
from vedur.catalog.watch import watch_tables
from vedur.clock import SYSTEM, Clock
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.db import Database, connect
from vedur.db.conninfo import remote
from vedur.errors import ConnectError, DatabaseError, StaleStage, StateError, VedurError
from vedur.failpoint import reach
from vedur.node import NodeType, WorkerState, get_worker_state
from vedur.node.position import (
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
from vedur.node.state import (
    set_consumer_error,
    set_consumer_uptodate,
    set_global_watermark,
    set_subscriber_watermark,
)
from vedur.queue.batches import (
    Subscription,
    get_backlog,
    get_subscription,
    get_ticks,
    next_batch,
)
from vedur.queue.consumer import batch_size
from vedur.sql import query
from vedur.worker.batch import BatchRunner
from vedur.worker.protocol import CopyControl
from vedur.worker.recovery import EngineLost, Recovery
from vedur.worker.stats import Stats

log = logging.getLogger(__name__)

#: A root has little to do: it looks every tenth loop_delay, as upstream.
_ROOT_PACE = 10

#: A paused worker looks that often, so that `resume` is answered at once: with loop_delay alone,
#: half a second of catching up with a backlog was the wait for this. A look takes about 1 ms.
_PAUSED_DELAY = 0.1

#: Seconds between two looks of a leaf at its partitions: new ones get the trigger that guards them.
_WATCH_PERIOD = 60.0

#: A merge joins what a batch staged with the table: in memory, not through files.
_MERGE_MEMORY = "64MB"

#: What is staged can be overtaken by DDL or by another worker, but not again and again.
_STALE_ROUNDS = 5

#: Applied without being published, changes would be lost to every node below.
_NO_BRANCH = (
    "this node is a branch, and Vedur does not publish events on branches yet: nothing is applied. "
    "Keep Londiste's own worker on it, or drop-node it and create a leaf that reads from the root"
)

MakeRunner = Callable[[str, WorkerState], BatchRunner]
MakeCopies = Callable[[], CopyControl]


@dataclass
class Worker:
    """One node's worker. `make_runner(provider_connstr, state)` is called when a leaf starts.

    `engine_lost` tells whether the runner's Spark has died; True for a thorough look.
    """

    settings: LondisteSettings
    make_runner: MakeRunner
    signals: Signals = field(default_factory=Signals)
    clock: Clock = SYSTEM
    copies: CopyControl | None = None
    reload: Callable[[], LondisteSettings] | None = None
    engine_lost: Callable[[bool], bool] = lambda thorough: False
    on_alive: Callable[[], None] | None = None
    on_node: Callable[[str], None] | None = None
    _target: Database | None = None
    _provider: Database | None = None
    _listener: Database | None = None
    _provider_connstr: str = ""
    _runner: BatchRunner | None = None
    _swept: bool = False  # no other worker's staging tables are left, nor doubtful ones of ours
    _subscription: Subscription | None = None
    _next_global_wm: float = 0.0
    _next_local_wm: float = 0.0
    _next_watch: float = 0.0
    _opened: float = 0.0
    _holds: bool | None = None
    _stale: int = 0
    _verified: int | None = None  # the position that the provider of this session agrees with
    _paused: bool = False
    _stats: Stats = field(default_factory=Stats)
    _recovery: Recovery = field(init=False)

    def __post_init__(self) -> None:
        self._recovery = Recovery(self.signals)

    @property
    def queue(self) -> str:
        """The set that is replicated."""
        return self.settings.queue_name

    def run(self) -> None:
        """Work until told to stop."""
        try:
            while not self.signals.stop.is_set():
                self._reload_if_asked()
                if not self._work_safely():
                    if self.settings.loop_delay == 0:
                        break
                    self._wait()
        finally:
            self._close()

    # -- one round ------------------------------------------------------------------------------

    def work(self) -> bool:
        """One round; True if the next should follow at once."""
        self._renew_connections()
        target = self._open_target()
        state = get_worker_state(target, self.queue)
        if state is None:
            raise StateError(f'queue "{self.queue}" has no node here: run create-leaf first')
        if self.on_node is not None:
            self.on_node(state.node_name)
        self._paused = state.paused
        if state.paused:
            self._accept(target, state)
            self._alive()
            return False
        if not state.uptodate:
            self._forget_provider()
            self._accept(target, state)
        if state.node_type is NodeType.ROOT:
            return self._work_root(target, state)
        if state.node_type is NodeType.BRANCH:
            raise StateError(_NO_BRANCH)
        return self._work_leaf(target, state)

    def _work_root(self, target: Database, state: WorkerState) -> bool:
        now = self.clock.monotonic()
        if now >= self._next_global_wm:
            set_global_watermark(target, self.queue, None)
            reach("root.watermark")
            self._next_global_wm = now + self.settings.global_wm_publish_period
        root_check_seqs(target, self.queue)
        reach("root.sequences")
        self._watch(target)
        if state.cur_error is not None:  # a root completes no batch, which would clear it
            set_consumer_error(target, self.queue, state.worker_name, None)
        self._alive()
        self._stats.standby(log, self.clock.monotonic(), self.settings.keepalive_stats)
        return False

    def _work_leaf(self, target: Database, state: WorkerState) -> bool:
        if self.on_alive is not None:  # a start that cannot work fails before Spark is waited for
            require_handlers(get_table_list(target, self.queue))
        provider = self._open_provider(state)
        if self._runner is not None and self.engine_lost(False):
            raise EngineLost  # also where there is nothing to do: first copies need it, too
        runner = self._open_runner(target, state)
        self._alive()
        place = self._find_place(target, provider, state)
        if place is None:
            return True  # somebody, or this look, has moved a position: look again
        self._report_watermark(provider, state)
        if self.clock.monotonic() >= self._next_watch:
            self._next_watch = self.clock.monotonic() + _WATCH_PERIOD
            self._watch(target)
        # The hold first: whoever held the worker may have changed what the tables are.
        hold = self._hold(target, state)
        tables = get_table_list(target, self.queue)
        require_handlers(tables)
        if self.copies is not None and self.copies.advance(
            target, self._provider_connstr, self._to_copy(target, tables), state.completed_tick
        ):
            return True  # it has waited a little for the copy that it meets
        settings = self.settings
        if hold == state.completed_tick:
            return False
        began = self.clock.monotonic()
        count, interval = self._batch_size(provider, state, hold, place.ahead)
        batch = next_batch(
            provider,
            self.queue,
            state.worker_name,
            min_lag=settings.pgq_keep_lag,
            min_count=count,
            min_interval=interval,
        )
        if batch is None:
            self._stats.idle(log, self.clock.monotonic(), settings.keepalive_stats)
            return False
        assert self._subscription is not None
        try:
            done = runner.run(target, provider, batch, self._subscription, tables)
        except StaleStage as stale:
            return self._stage_again(stale)
        self._stale = 0
        self._verified = batch.tick
        self._stats.worked(log, done, began, self.clock.monotonic())
        return True

    def _find_place(self, target: Database, provider: Database, state: WorkerState) -> Place | None:
        """The consumer's place at the provider; raises LostPosition where it does not fit this
        node's position, None where one of them has just been moved.

        The number of the tick is believed once in a session with the provider: whoever restores a
        database or makes a standby the root ends all sessions.
        """
        here, worker = state.completed_tick, state.worker_name
        place = get_place(provider, self.queue, worker, here)
        if place is None:
            raise unregistered(worker, state.provider_node)
        applied = None
        doubtful = here != self._verified or here not in (place.last, place.next)
        if doubtful and keeps_ticks(target):
            applied = get_applied_tick(target, self.queue, worker, state.provider_node)
        if self._verified is None:
            counter = get_counter(provider, self.queue, here)
            if counter.behind:
                raise counter.error(state.provider_node)
        fit = judge(here, applied, place)
        if fit in (Fit.SAME, Fit.COMMITTED):
            self._verified = here
            return place
        if fit is Fit.UNKNOWN:
            return place  # a batch that ends there is passed over, any other one is refused
        now = get_worker_state(target, self.queue)
        if now is None or now.completed_tick != here:
            return None  # another worker of this node went on between the two looks
        if fit is Fit.AHEAD:
            log.info(
                'consumer "%s" goes on at tick %s on provider "%s", which this node has applied; '
                "it stood at tick %s",
                worker,
                here,
                state.provider_node,
                place.last,
            )
            provider.call("pgq.register_consumer_at", self.queue, worker, here)
            reach("position.moved")
            return None
        raise lost(fit, here, worker, state.provider_node, place)

    def _to_copy(self, target: Database, tables: list[TableInfo]) -> list[TableInfo]:
        """The tables as first copies see them: those that `rejoin` has in hand need none."""
        if not any(t.local and not t.merge_state for t in tables):
            return tables
        kept = get_rejoin_tables(target, self.queue)
        return [replace(t, merge_state="ok") if t.table_name in kept else t for t in tables]

    def _stage_again(self, stale: StaleStage) -> bool:
        """The batch is still open: the next round takes it up. Not for ever without a pause."""
        self._stale += 1
        if self._stale > _STALE_ROUNDS:
            raise stale
        log.info("%s", stale.message)
        return True

    def _hold(self, target: Database, state: WorkerState) -> int | None:
        """The tick at which a compare wants to meet this node: batches end there at the latest,
        and there is a wait. One that appears after this look may be passed; compare asks again."""
        if self._holds is None:
            self._holds = bool(target.value(query("worker", "has_holds")))
        if not self._holds:
            return None
        asked = [self.queue, state.worker_name, state.completed_tick]
        tick: int | None = target.value(query("worker", "get_hold"), asked)
        return tick

    def _batch_size(
        self, provider: Database, state: WorkerState, hold: int | None, backlog: int
    ) -> tuple[int | None, str | None]:
        """How large a batch to ask for, by events and by time; `backlog` is what the consumer has
        ahead of it."""
        settings, here = self.settings, state.completed_tick
        reach = None
        if hold is not None:
            ticks = get_ticks(provider, self.queue, here, hold)
            reach = ticks[-1].event_seq - ticks[0].event_seq if ticks else 0
        elif settings.pgq_keep_lag:
            # pgq finds a tick first and looks at its age then: it must be offered one that is old.
            reach = get_backlog(provider, self.queue, here, settings.pgq_keep_lag)
        return batch_size(
            backlog,
            settings.max_batch_events,
            staged=self._runner.wish if self._runner else None,
            reach=reach,
            collect=settings.pgq_batch_collect_events,
            interval=settings.pgq_batch_collect_interval,
        )

    def _watch(self, target: Database) -> None:
        """Look for tables that were changed by hand; replication goes on if that fails."""
        try:
            if watch_tables(target, self.queue):
                log.warning("tables were changed by hand, see status or doctor")
        except ConnectError:
            raise
        except DatabaseError as error:
            log.warning("cannot look for changes of tables: %s", error)

    def _report_watermark(self, provider: Database, state: WorkerState) -> None:
        now = self.clock.monotonic()
        if now < self._next_local_wm or state.local_watermark is None:
            return
        set_subscriber_watermark(provider, self.queue, state.node_name, state.local_watermark)
        self._next_local_wm = now + self.settings.local_wm_publish_period

    def _accept(self, target: Database, state: WorkerState) -> None:
        """Tell the operator's command that the new settings are seen."""
        if not state.uptodate:
            set_consumer_uptodate(target, self.queue, state.worker_name, True)

    # -- waiting --------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Until a tick, a signal, or loop_delay."""
        delay = max(self.settings.loop_delay, 0.05)
        if self._paused:
            delay = min(delay, _PAUSED_DELAY)  # ticks are listened to even so, or they pile up
        if self._listener is None:
            pace = _ROOT_PACE if self._provider is None and not self._paused else 1
            self.signals.wait(delay * pace)
            return
        deadline = self.clock.monotonic() + delay
        try:
            while not self.signals.stop.is_set():
                left = deadline - self.clock.monotonic()
                if left <= 0 or self.signals.wake.is_set():
                    self.signals.wake.clear()
                    return
                for said in self._listener.notifications(min(left, 0.5)):
                    if said.payload.rpartition(":")[0] == self.queue:
                        return
        except DatabaseError as error:
            log.debug("listening for ticks failed: %s", error)
            self._forget_provider()

    # -- errors ---------------------------------------------------------------------------------

    def _work_safely(self) -> bool:
        try:
            again = self.work()
        except Exception as error:
            self._recover(error)
            return True
        self._recovery.reset()
        return again

    def _recover(self, error: Exception) -> None:
        """Report, let go of everything, wait."""
        # what Spark's client says about a Java that has gone tells nobody anything
        if not isinstance(error, VedurError) and self._runner and self.engine_lost(True):
            error = EngineLost()
        self._recovery.report(self.settings, error)
        self._close_connections()
        self._swept = False
        if self.on_alive is not None and not isinstance(error, ConnectError):
            raise error  # a start that cannot work should fail in front of its starter
        self._alive()
        self._recovery.pause(self.settings, error, self._provider_connstr)

    # -- connections ----------------------------------------------------------------------------

    def _open_target(self) -> Database:
        if self._target is not None and self._target.closed:
            # what was staged on it may be gone: a crash empties staging tables
            self._close_connections()
        if self._target is None:
            self._target = connect(self.settings.db, name="db", autocommit=True)
            self._target.without_timeouts().with_memory("work_mem", _MERGE_MEMORY)
            self._opened = self.clock.monotonic()
        return self._target

    def _open_provider(self, state: WorkerState) -> Database:
        location = state.provider_location
        if not location:
            raise StateError(f'provider "{state.provider_node}" has no location on this node')
        connstr = remote(location, self.settings.remote_extra_connstr, self.settings.remote_hosts)
        if self._provider is None or self._provider.closed or connstr != self._provider_connstr:
            self._forget_provider()
            self._provider_connstr = connstr
            self._provider = connect(connstr, name="provider_db", autocommit=True)
            self._provider.without_timeouts()
            self._subscription = get_subscription(self._provider, self.queue, state.worker_name)
            if self._subscription is None:
                raise unregistered(state.worker_name, state.provider_node)
            self._listener = connect(connstr, name="provider_db", autocommit=True)
            self._listener.without_timeouts().execute(query("worker", "listen"))
        return self._provider

    def _open_runner(self, target: Database, state: WorkerState) -> BatchRunner:
        if self._runner is None:
            self._runner = self.make_runner(self._provider_connstr, state)
            if not self._swept:  # a pause leaves staging tables as they are: to make one takes 6 ms
                self._runner.applier.start(target)
                self._swept = True
        return self._runner

    def _forget_provider(self) -> None:
        for db in (self._provider, self._listener):
            if db is not None:
                db.close()
        self._provider = self._listener = None
        self._verified = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _renew_connections(self) -> None:
        age = self.clock.monotonic() - self._opened
        if self._target is not None and age > self.settings.connection_lifetime:
            self._close_connections()

    def _close_connections(self) -> None:
        self._forget_provider()
        if self._target is not None:
            self._target.close()
        self._target = None

    def _close(self) -> None:
        if self.copies is not None:
            self.copies.stop()
        self._close_connections()

    # -- the process ----------------------------------------------------------------------------

    def _alive(self) -> None:
        said, self.on_alive = self.on_alive, None
        if said is not None:
            said()

    def _reload_if_asked(self) -> None:
        if not self.signals.take_reload() or self.reload is None:
            return
        try:
            self.settings = self.reload()
            log.info("Config reloaded")
            self._close_connections()
            self._swept = False
        except VedurError as error:
            log.error("%s; going on with the old settings", error.message)
