"""Steps 8 and 9 of a first copy: replay what the snapshot missed, then hand over to the worker.

The position is that of the copy's own consumer and moves in the transaction of the data. The
range up to the newest tick is one batch, so the copy gets near the worker in a few steps; then
the two agree on a tick through the state of the table, and the worker goes on from there.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from vedur import db as vdb
from vedur.catalog.passed import require_masked, require_served
from vedur.catalog.tables import change_table_state, hold_table
from vedur.change.event import Event, EventRange
from vedur.change.quarantine import Quarantine, failed_event_of
from vedur.change.snapshot import Snapshot
from vedur.clock import Clock
from vedur.errors import CopyAbandoned, CopyStateChanged, StaleStage, StateError, VedurError
from vedur.failpoint import reach
from vedur.names import quote_literal
from vedur.node.info import get_node_info
from vedur.node.position import (
    complete_tick,
    read_position,
    read_worker_position,
    require_newest_tick,
    wake_worker,
)
from vedur.queue.batches import (
    Batch,
    Tick,
    event_range,
    get_subscription,
    get_ticks,
    get_ticks_ahead,
)
from vedur.queue.passed import read_passed_parts
from vedur.sql import query
from vedur.tables.mapping import TableMap
from vedur.worker.apply_range import AppliedRange, apply_range
from vedur.worker.first_copy.context import CopySetup, MakeApplier, Step, TableJob
from vedur.worker.first_copy.parts import WAIT_REPLAY, restore_structure
from vedur.worker.first_copy.places import forget_consumer, forget_consumer_with
from vedur.worker.first_copy.seats import Seat, Seats
from vedur.worker.first_copy.source_check import (
    applied_tick,
    look_at_source,
    never_again,
)
from vedur.worker.first_copy.states import MergeState, State, snapshot_is_past
from vedur.worker.quarantine import BatchQuarantine, ConsumerQuarantine, Outlook

log = logging.getLogger(__name__)

#: Events per slice of a range; fewer are not worth a second task.
_SLICE_EVENTS = 50_000
_MAX_SLICES = 4
_POLL = 0.05
_SLOW_POLL = 1.0
#: Other parts of a merged table are loaded by other workers, which do not call.
_PARTS_POLL = 0.5
#: The worker's answer is called out; so long it may not be heard.
_WORKER_WAIT = 5.0
#: The worker may wait for a copy that has this many events of the queue to look through.
_NEAR_EVENTS = 20_000


class CatchUp:
    """One table from `catching-up` to `ok`; begins from any state in between.

    Every move has a seat (`seats.py`); a table that waits has none.
    """

    def __init__(
        self, setup: CopySetup, make_applier: MakeApplier, job: TableJob, clock: Clock, seats: Seats
    ) -> None:
        self.setup = setup
        self.job = job
        self.clock = clock
        self.seats = seats
        self.applier = make_applier(setup.staging(job.name), job.provider)
        self.quarantine = ConsumerQuarantine(
            setup.queue, job.consumer, setup.target, setup.on_error, only=job.name
        )
        self._hand_over_shown = False
        self._replayed = False
        self._stale = False
        self.staged = False
        self._past = 0  # the hand-over is not asked for before this tick
        self._parts_awaited = False  # other parts of a merged table are not loaded yet
        self._said_parts = False
        self._leads = False  # they are, and it is this one that builds the indexes
        self._lacking = False  # the node does not have the tick yet that was agreed on

    def run(self) -> None:
        """Catch up until the table is ok. Raises CopyAbandoned where it is no longer wanted."""
        try:
            with self._seat() as seat:
                self.setup.enter(seat.target, self.job, Step.CATCH_UP)
                self.applier.start(seat.stage)
            self._first_tick()
            while not self._moved_to_ok():
                pass
        except CopyAbandoned:
            if not self.job.cancelled or self._removed():
                forget_consumer(self.setup, self.job.provider, self.job.consumer)
            raise
        finally:
            if self.staged:
                self._leave_no_stage()

    def _seat(self) -> AbstractContextManager[Seat]:
        state = MergeState.parse(self.job.table.merge_state).state
        urgent = state in (State.DO_SYNC, State.WANNA_SYNC)
        return self.seats.take(self.job.provider, urgent)

    def _leave_no_stage(self) -> None:
        try:
            with self._seat() as seat:
                self.applier.start(seat.stage)
        except VedurError as error:  # the next run of this table removes it
            log.debug("%s: staging tables stay: %s", self.job.name, error)

    def _removed(self) -> bool:
        try:
            with self._seat() as seat:
                self.setup.table(seat.target, self.job.name)
        except CopyAbandoned:
            return True
        return False

    # -- positions ------------------------------------------------------------------------------

    def _position(self, target: vdb.Database) -> int:
        tick = read_position(target, self.setup.queue, self.job.consumer)
        if tick is None:
            self._begin_anew(target, f'consumer "{self.job.consumer}" is gone')
        return tick

    def _begin_anew(self, target: vdb.Database, why: str) -> NoReturn:
        """Take the copy back to the beginning, where it has lost its place on the source; one that
        cannot be loaded twice stays where it is. Raises either way, to say so."""
        if self.job.keeps_rows:
            raise never_again(self.job.name, why)
        self._set_state(target, None, None)
        raise StateError(f"{self.job.name}: {why}, the copy starts again")

    def _believe_source(self, seat: Seat) -> int | None:
        """Look once in a session whether the source is still the one that the copy knows, and begin
        anew where it is not. Returns its newest tick if it has looked."""
        name, consumer = self.job.name, self.job.consumer
        if consumer in seat.believed:
            return None
        look = look_at_source(seat.target, seat.provider, self.setup.queue, {name: consumer})
        fault = look.faults.get(name)
        if fault is not None:
            self._begin_anew(seat.target, f"{self.job.source} was set back ({fault})")
        if name in look.believed:
            seat.believed.add(consumer)
        return look.newest

    def _newest(self, provider: vdb.Database) -> int:
        return require_newest_tick(provider, self.setup.queue)

    def _first_tick(self) -> None:
        """Wait for a tick behind the snapshot, asking for one.

        There is no limit. A table that became ok at an older tick would show changes that other
        tables do not have yet.
        """
        began, pause, asked = self.clock.monotonic(), _POLL, False
        while True:
            if self.job.cancelled:
                raise CopyAbandoned
            with self._seat() as seat:
                if self._find_past(seat):
                    self.seats.ticker_awaited = False
                    return
                if not asked:
                    seat.provider.call("pgq.force_tick", self.setup.queue)
                    asked = True
            if self.clock.monotonic() - began > self.setup.tick_wait:
                self._say_ticker_awaited()
            self.clock.wait(self.job.nudge, pause)
            self.job.nudge.clear()
            pause = min(pause * 1.5, _SLOW_POLL)

    def _find_past(self, seat: Seat) -> bool:
        target, provider = seat.target, seat.provider
        table = self.setup.table(target, self.job.name)
        if table.custom_snapshot is None:
            return True
        self.job.table = table
        newest = self._believe_source(seat)
        if newest is None:
            newest = self._newest(provider)
        if not self._is_past(provider, Snapshot.parse(table.custom_snapshot), newest):
            if MergeState.parse(table.merge_state).state in (State.WANNA_SYNC, State.DO_SYNC):
                # agreed on by an earlier version: the worker must not wait
                self._set_state(target, table.custom_snapshot, State.CATCHING_UP.value)
            return False
        self._past = newest
        return True

    def _say_ticker_awaited(self) -> None:
        if not self.seats.ticker_awaited:
            self.seats.ticker_awaited = True
            log.warning(
                '%s: its copy waits for a tick that is later than its rows: is the ticker of queue '
                '"%s" running on %s?', self.job.name, self.setup.queue, self.job.source,
            )  # fmt: skip

    def _is_past(self, provider: vdb.Database, copied: Snapshot, tick: int) -> bool:
        found = get_ticks(provider, self.setup.queue, tick, tick)
        return bool(found) and snapshot_is_past(copied, found[0].snapshot)

    # -- one move -------------------------------------------------------------------------------

    def _moved_to_ok(self) -> bool:
        with self._seat() as seat:
            done = self._try_move(seat)
            if done:
                self._finish(seat)
        if self._parts_awaited:
            self._parts_awaited = False
            self.clock.wait(self.job.nudge, _PARTS_POLL)
        if self._leads:
            self._leads = False
            with self.setup.connect() as target:
                restore_structure(self.setup, target, self.job)
        if self._lacking:
            self._lacking = False
            self.clock.wait(self.job.nudge, _POLL)
        if self.job.asleep_in is not None:
            if not self.clock.wait(self.job.nudge, _WORKER_WAIT):
                self.job.on_move()
            self.job.asleep_in = None
        return done

    def _finish(self, seat: Seat) -> None:
        reach("copy.ok")
        seat.target.execute(query("copy", "forget_loaded"), [self.setup.queue, self.job.name])
        forget_consumer_with(self.setup, seat.provider, seat.target, self.job.consumer)
        self.setup.enter(seat.target, self.job, Step.FOREIGN_KEYS)
        log.info("%s: in sync", self.job.name)

    def _try_move(self, seat: Seat) -> bool:
        try:
            return self._move(seat)
        except CopyStateChanged:
            self._replayed = False
            return False
        except StaleStage as stale:
            self.applier.forget()
            if self._stale:
                raise  # not for ever without a pause
            self._stale = True
            log.info("%s: %s", self.job.name, stale.message)
            return False

    def _move(self, seat: Seat) -> bool:
        """Do what the state asks for; True when the table is ok."""
        target, stage, provider = seat.target, seat.stage, seat.provider
        if self.job.cancelled:
            raise CopyAbandoned
        self.job.nudge.clear()
        table = self.setup.table(target, self.job.name)
        self.job.table = table
        state = MergeState.parse(table.merge_state)
        if state.state in (State.NONE, State.IN_COPY):
            raise CopyAbandoned  # resync, or added anew: another copy begins
        if state.state is State.OK:
            return True
        at = self._position(target)
        self._believe_source(seat)
        if state.state is State.CATCHING_UP and table.copy_role == WAIT_REPLAY:
            self._await_parts(target)
        elif state.state is State.CATCHING_UP and table.dropped_ddl is not None:
            self._leads = True
        elif state.state is State.CATCHING_UP:
            self._ask_hand_over(target, stage, provider, at)
        elif state.state is State.WANNA_SYNC:
            if state.tick == at and at >= self._past:
                self.job.asleep_in = table.merge_state
            else:  # a crash between two commits
                self._set_state(target, table.custom_snapshot, State.CATCHING_UP.value)
        elif state.state is State.DO_SYNC and state.tick is not None:
            return self._hand_over(target, stage, provider, at, state.tick)
        return False

    def _ask_hand_over(
        self, target: vdb.Database, stage: vdb.Database, provider: vdb.Database, at: int
    ) -> None:
        """Replay up to the newest tick; where that is near enough, ask the worker to take over."""
        newest = self._newest(provider)
        if at == newest < self._past:
            self._lacking = True
            return
        if at < self._past or (at < newest and not self._near(target, provider, at)):
            self._replay(target, stage, provider, at, newest)
            self._replayed = True
            return
        if not self._hand_over_shown:
            self.setup.enter(target, self.job, Step.HAND_OVER)
            self._hand_over_shown = True
        asked = str(MergeState(State.WANNA_SYNC, at))
        if not self._set_state(target, self.job.table.custom_snapshot, asked):
            return
        # the worker waits for ticks: as good a call as a new one
        wake_worker(provider, self.setup.queue)
        self.job.on_move()

    def _await_parts(self, target: vdb.Database) -> None:
        """Show that changes wait until the last part of the table is loaded and its indexes are
        there."""
        self._parts_awaited = True
        if not self._said_parts:
            self._said_parts = True
            log.info("%s: loaded, waits for the other parts of %s", self.job.name, self.job.dest)
            self.setup.wait(target, self.job.table, f"wait for the other parts of {self.job.dest}")

    def _near(self, target: vdb.Database, provider: vdb.Database, at: int) -> bool:
        """Is what the worker has ahead of the copy little enough to let it wait for that?

        Without this a copy would run after the newest tick for as long as changes come faster
        than it can replay them one tick at a time.
        """
        if not self._replayed:
            return False
        worker = read_worker_position(target, self.setup.queue) or 0
        if worker <= at:
            return True
        queue = self.setup.queue
        # another node than the provider may be behind the worker
        end = min(worker, self._newest(provider))
        ends = get_ticks(provider, queue, at, at) + get_ticks(provider, queue, end, end)
        return bool(ends) and ends[-1].event_seq - ends[0].event_seq <= _NEAR_EVENTS

    def _hand_over(
        self,
        target: vdb.Database,
        stage: vdb.Database,
        provider: vdb.Database,
        at: int,
        tick: int,
    ) -> bool:
        """Replay up to the agreed tick and set the table ok; False if it cannot be at this one."""
        if at > tick:
            raise StateError(f"{self.job.name}: copy_sync: cur_tick={at} sync_tick={tick}")
        if self._newest(provider) < tick:
            # Another node than the provider, which is behind the worker: the worker waits for a
            # while; if it goes on without, it is not asked again before the node has passed here.
            self._past, self._lacking = max(self._past, tick), True
            return False
        while at < tick:
            at = self._replay(target, stage, provider, at, tick, worker_waits=True)
        copied = self.job.table.custom_snapshot
        if copied is not None and not self._is_past(provider, Snapshot.parse(copied), tick):
            # Agreed on by an earlier version, or the queue has lost the tick: not at this one.
            self._set_state(target, copied, State.CATCHING_UP.value)
            self._replayed = False
            self.job.on_move()
            return False
        if not self._set_state(target, None, State.OK.value):
            self._replayed = False  # the worker went on without it: catch up alone first
            return False
        self.job.on_move()
        return True

    def _set_state(self, target: vdb.Database, snapshot: str | None, state: str | None) -> bool:
        """Write the state; returns False where it is not what it was: the next move looks at it
        again."""
        moved = change_table_state(target, self.setup.queue, self.job.table, snapshot, state)
        if moved is None:
            return False
        self.job.table = moved
        return True

    # -- replay ---------------------------------------------------------------------------------

    def _replay(
        self,
        target: vdb.Database,
        stage: vdb.Database,
        provider: vdb.Database,
        at: int,
        goal: int,
        *,
        worker_waits: bool = False,
    ) -> int:
        """Apply the table's events after tick `at`, up to `goal` or as far as one batch goes. While
        the worker waits for it, it has the places of the worker's tasks."""
        queue, consumer, job = self.setup.queue, self.job.consumer, self.job
        place = get_subscription(provider, queue, consumer)
        # Of a long backlog only as many as one batch can take.
        ahead = get_ticks_ahead(provider, queue, at, at, self.setup.max_batch_events)
        ticks = [t for t in ahead if t.id <= goal]
        if place is None or not ticks or ticks[0].id != at or len(ticks) < 2:
            self._begin_anew(target, f"the queue no longer has tick {at}")
        ticks = self._one_batch(ticks)
        first, last = ticks[0], ticks[-1]
        most = min(_MAX_SLICES, self.setup.connections)
        count = min(most, (last.event_seq - first.event_seq) // _SLICE_EVENTS + 1)
        # An event without the column may name its table in its type, which is JSON then.
        mine = (
            f"(ev_extra1 = {quote_literal(job.name)}"
            " or (coalesce(ev_extra1, '') = '' and ev_type ^@ '{'))"
        )
        given_up = lambda: job.cancelled  # noqa: E731
        with self.setup.places(count, given_up, worker_waits=worker_waits) as count:
            source = event_range(provider, place, ticks, count, mine)
            apply_range(CatchUpRange(self, target, stage, provider, source, ticks))
        self._stale = False
        reach("copy.replayed")
        provider.call("pgq.register_consumer_at", queue, consumer, last.id)
        log.debug("%s: caught up to tick %d", job.name, last.id)
        return last.id

    def _one_batch(self, ticks: list[Tick]) -> list[Tick]:
        limit = ticks[0].event_seq + self.setup.max_batch_events
        kept = [t for t in ticks if t.event_seq <= limit]
        return kept if len(kept) > 1 else ticks[:2]


@dataclass
class CatchUpRange(AppliedRange[Any]):
    """The events of one table in a range of ticks, on their way into the table."""

    copy: CatchUp
    db: vdb.Database
    side: vdb.Database = field(repr=False)  # stages
    provider: vdb.Database
    source: EventRange
    ticks: list[Tick]
    tables: tuple[TableMap, ...] = ()
    _outlook: Outlook = field(default_factory=Outlook)
    _quarantine: BatchQuarantine | None = None
    _empty: bool = False

    def __post_init__(self) -> None:
        self.applier = self.copy.applier
        self.table = self.copy.job.table
        self.queue, self.consumer = self.copy.setup.queue, self.copy.job.consumer
        first, last = self.ticks[0], self.ticks[-1]
        self.batch = Batch(0, first.id, last.id, last.event_seq)

    @property
    def origin(self) -> str:
        """Where its events are from, for the log."""
        return self.batch.origin

    def plan(self) -> None:
        """Read whether anything happened to the table; where not, it is not worth a job. Raises
        where the node that it is copied from has left events out that are needed here."""
        source = self.source
        parts = read_passed_parts(self.provider, self.queue, self.batch.prev_tick)
        if parts or self.table.mask:
            there = get_node_info(self.provider, self.queue)
            name = there.node_name if there is not None else ""
            require_served([self.table], parts, name)
            require_masked([self.table], parts, name, self.batch.tick)
        found = (self.provider.value(_any_event(source.events, s)) for s in source.slices)
        self._empty = not any(found)
        if not self._empty:
            self._outlook = self.copy.quarantine.read_outlook(self.db, self.ticks)
            self.tables = self._outlook.mark([self.table.mapping])

    def stage(self) -> Any:
        """Stage the table's events, on a connection of their own."""
        if self._empty:
            return None
        self.copy.staged = True
        return self.applier.stage(self.side, self.source, self.tables, 0)

    def lock(self, staged: Any) -> Any:
        """Lock the state, and raise unless it and the position are what this replay began with:
        they stay so until the commit.

        Another worker of the node may have come in between; the lock of the table is for both.
        """
        if not hold_table(self.db, self.queue, self.table):
            raise CopyStateChanged
        at = read_position(self.db, self.queue, self.consumer)
        if at != self.batch.prev_tick:
            raise CopyStateChanged
        return staged

    def open_quarantine(self) -> Quarantine | None:
        """Open the quarantine of the table."""
        if not self._empty:
            quarantine = self.copy.quarantine
            self._quarantine = quarantine.open_batch(
                self.db, self.batch, [self.table], self._outlook
            )
        return self._quarantine

    def handle(self, event: Event) -> None:
        """Do nothing: what is not about this table is the worker's business."""

    def close_quarantine(self) -> None:
        """Write what the quarantine has gathered."""
        if not self._empty:
            self.copy.quarantine.close_batch(self.db, self._quarantine)

    def set_position(self) -> None:
        """Move the position of the copy's own consumer, and write down which tick that is."""
        tick = applied_tick(self.ticks[-1], self.copy.job.source.node)
        complete_tick(self.db, self.queue, self.consumer, tick)
        reach("copy.merged")

    def committed(self, staged: Any) -> None:
        """Free the staging tables."""
        if not self._empty:
            self.copy.quarantine.batch_committed(self._quarantine)
            self.applier.done(self.side, 0)

    def failed(self, error: BaseException) -> bool:
        """Record the event that stops the copy, as one that stops the worker is."""
        quarantine = self.copy.quarantine
        if quarantine.suspect_table(error):
            return True
        if failed_event_of(error) is not None:
            quarantine.record_failure(self.batch, [self.table], error)
        return False


def _any_event(events: str, condition: str) -> str:
    return query("worker", "any_event").format(events=events, slice=condition)
