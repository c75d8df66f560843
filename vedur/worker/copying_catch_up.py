"""Steps 8 and 9 of a first copy: replay what the snapshot missed, then meet the worker.

The position is that of the copy's own consumer and moves in the transaction of the data. The
range up to the newest tick is one batch, so the copy gets near the worker in a few steps; then
the two agree on a tick through the state of the table, and the worker goes on from there.
"""

from __future__ import annotations

import logging

from vedur import db as vdb
from vedur.catalog.tables import change_table_state, hold_table
from vedur.change.aside import blamed_by
from vedur.change.event import Event, EventRange
from vedur.change.table import Snapshot
from vedur.clock import Clock
from vedur.errors import StaleStage, StateError, VedurError
from vedur.failpoint import reach
from vedur.node import state as node_state
from vedur.queue.batches import Batch, get_subscription, get_ticks, get_ticks_ahead
from vedur.queue.ranges import event_range
from vedur.queue.slices import Tick
from vedur.sql import query
from vedur.worker.copying_context import CopySetup, GivenUp, MakeApplier, TableJob
from vedur.worker.copying_steps import Step
from vedur.worker.copying_table import forget_consumer
from vedur.worker.poison import Outlook, Poison
from vedur.worker.protocol import warn_missing
from vedur.worker.states import MergeState, State, snapshot_is_past

log = logging.getLogger(__name__)

#: Events per slice of a range; fewer are not worth a second task.
_SLICE_EVENTS = 50_000
_MAX_SLICES = 4
_POLL = 0.05
#: The worker may wait for a copy that has this many events of the queue to look through.
_NEAR_EVENTS = 20_000


class Moved(Exception):
    """The table is not in the state any more that this move was for."""


class CatchUp:
    """One table from `catching-up` to `ok`; begins from any state in between."""

    def __init__(
        self, setup: CopySetup, make_applier: MakeApplier, job: TableJob, clock: Clock
    ) -> None:
        self.setup = setup
        self.job = job
        self.clock = clock
        self.applier = make_applier(setup.staging(job.name), job.provider)
        self.poison = Poison(setup.queue, job.consumer, setup.target, setup.on_error, only=job.name)
        self._meeting_shown = False
        self._replayed = False
        self._stale = False

    def run(self) -> None:
        """Until the table is ok. Raises GivenUp where it is no longer wanted."""
        with (
            self.setup.connect() as target,
            self.setup.connect() as stage,
            vdb.connect(
                self.job.provider,
                name="provider_db",
                autocommit=True,
                application_name="vedur copy",
            ) as provider,
        ):
            provider.without_timeouts()
            self.setup.enter(target, self.job, Step.CATCH_UP)
            self.applier.start(stage)
            try:
                self._first_tick(target, provider)
                while not self._moved_to_ok(target, stage, provider):
                    pass
            except GivenUp:
                if not self.job.cancelled or self._removed(target):
                    forget_consumer(self.setup, self.job.provider, self.job.consumer)
                raise
            finally:
                if not stage.closed:
                    self.applier.start(stage)
            reach("copy.ok")
            forget_consumer(self.setup, self.job.provider, self.job.consumer)
            self.setup.enter(target, self.job, Step.FOREIGN_KEYS)
            log.info("%s: in sync", self.job.name)

    def _removed(self, target: vdb.Database) -> bool:
        try:
            self.setup.table(target, self.job.name)
        except GivenUp:
            return True
        return False

    # -- positions ------------------------------------------------------------------------------

    def _position(self, target: vdb.Database) -> int:
        tick = target.value(query("copy", "copy_position"), [self.setup.queue, self.job.consumer])
        if tick is None:
            self._set_state(target, None, None)
            raise StateError(
                f'{self.job.name}: consumer "{self.job.consumer}" is gone, the copy starts again'
            )
        return int(tick)

    def _newest(self, provider: vdb.Database) -> int:
        return int(provider.value(query("copy", "last_tick"), [self.setup.queue]))

    def _first_tick(self, target: vdb.Database, provider: vdb.Database) -> None:
        """Wait for a tick behind the snapshot, asking for one; go on without after a while."""
        table = self.setup.table(target, self.job.name)
        if table.custom_snapshot is None:
            return
        deadline = self.clock.monotonic() + self.setup.tick_wait
        copied = Snapshot.parse(table.custom_snapshot)
        before = self._newest(provider)
        provider.call("pgq.force_tick", self.setup.queue)
        while self.clock.monotonic() < deadline and not self.job.cancelled:
            newest = self._newest(provider)
            if newest > before and self._is_past(provider, copied, newest):
                return
            self.clock.sleep(_POLL)

    def _is_past(self, provider: vdb.Database, copied: Snapshot, tick: int) -> bool:
        found = get_ticks(provider, self.setup.queue, tick, tick)
        return bool(found) and snapshot_is_past(copied, found[0].snapshot)

    # -- one move -------------------------------------------------------------------------------

    def _moved_to_ok(
        self, target: vdb.Database, stage: vdb.Database, provider: vdb.Database
    ) -> bool:
        try:
            return self._move(target, stage, provider)
        except Moved:
            self._replayed = False
            return False
        except StaleStage as stale:
            self.applier.forget()
            if self._stale:
                raise  # not for ever without a pause
            self._stale = True
            log.info("%s: %s", self.job.name, stale.message)
            return False

    def _move(self, target: vdb.Database, stage: vdb.Database, provider: vdb.Database) -> bool:
        """Do what the state asks for; True when the table is ok."""
        if self.job.cancelled:
            raise GivenUp
        self.job.nudge.clear()
        table = self.setup.table(target, self.job.name)
        self.job.table = table
        state = MergeState.parse(table.merge_state)
        if state.state in (State.NONE, State.IN_COPY):
            raise GivenUp  # resync, or added anew: another copy begins
        if state.state is State.OK:
            return True
        at = self._position(target)
        if state.state is State.CATCHING_UP:
            self._come_near(target, stage, provider, at)
        elif state.state is State.WANNA_SYNC:
            if state.tick != at:  # a crash between two commits
                self._set_state(target, table.custom_snapshot, State.CATCHING_UP.value)
            elif not self.clock.wait(self.job.nudge, 1.0):
                self.job.on_move()
        elif state.state is State.DO_SYNC and state.tick is not None:
            return self._meet(target, stage, provider, at, state.tick)
        return False

    def _come_near(
        self, target: vdb.Database, stage: vdb.Database, provider: vdb.Database, at: int
    ) -> None:
        newest = self._newest(provider)
        if at < newest and not self._near(target, provider, at):
            self._replay(target, stage, provider, at, newest)
            self._replayed = True
            return
        if not self._meeting_shown:
            self.setup.enter(target, self.job, Step.HAND_OVER)
            self._meeting_shown = True
        asked = str(MergeState(State.WANNA_SYNC, at))
        if not self._set_state(target, self.job.table.custom_snapshot, asked):
            return
        # the worker waits for ticks: as good a call as a new one
        provider.execute(query("copy", "call_worker"), [f"{self.setup.queue}:{at}"])
        self.job.on_move()

    def _near(self, target: vdb.Database, provider: vdb.Database, at: int) -> bool:
        """Is what the worker has ahead of the copy little enough to let it wait for that?

        Without this a copy would run after the newest tick for as long as changes come faster
        than it can replay them one tick at a time.
        """
        if not self._replayed:
            return False
        worker = int(target.value(query("copy", "worker_position"), [self.setup.queue]) or 0)
        if worker <= at:
            return True
        queue = self.setup.queue
        ends = get_ticks(provider, queue, at, at) + get_ticks(provider, queue, worker, worker)
        return bool(ends) and ends[-1].event_seq - ends[0].event_seq <= _NEAR_EVENTS

    def _meet(
        self,
        target: vdb.Database,
        stage: vdb.Database,
        provider: vdb.Database,
        at: int,
        tick: int,
    ) -> bool:
        if at > tick:
            raise StateError(f"{self.job.name}: copy_sync: cur_tick={at} sync_tick={tick}")
        while at < tick:
            at = self._replay(target, stage, provider, at, tick)
        copied = self.job.table.custom_snapshot
        past = copied is not None and self._is_past(provider, Snapshot.parse(copied), tick)
        if not self._set_state(target, None if past else copied, State.OK.value):
            self._replayed = False  # the worker went on without: come near by oneself first
            return False
        self.job.on_move()
        return True

    def _set_state(self, target: vdb.Database, snapshot: str | None, state: str | None) -> bool:
        """False where the state is not what it was: the next move looks at it again."""
        moved = change_table_state(target, self.setup.queue, self.job.table, snapshot, state)
        if moved is None:
            return False
        self.job.table = moved
        return True

    # -- replay ---------------------------------------------------------------------------------

    def _replay(
        self, target: vdb.Database, stage: vdb.Database, provider: vdb.Database, at: int, goal: int
    ) -> int:
        """Apply the table's events after tick `at`, up to `goal` or as far as one batch goes."""
        queue, consumer, job = self.setup.queue, self.job.consumer, self.job
        place = get_subscription(provider, queue, consumer)
        # Of a long backlog only as many as one batch can take.
        ahead = get_ticks_ahead(provider, queue, at, at, self.setup.max_batch_events)
        ticks = [t for t in ahead if t.id <= goal]
        if place is None or not ticks or ticks[0].id != at or len(ticks) < 2:
            self._set_state(target, None, None)
            raise StateError(
                f"{job.name}: the queue no longer has tick {at}, the copy starts again"
            )
        ticks = self._one_batch(ticks)
        first, last = ticks[0], ticks[-1]
        most = min(_MAX_SLICES, self.setup.connections)
        count = min(most, (last.event_seq - first.event_seq) // _SLICE_EVENTS + 1)
        # An event without the column may name its table in its type, which is JSON then.
        mine = (
            f"(ev_extra1 = {_literal(job.name)}"
            " or (coalesce(ev_extra1, '') = '' and ev_type ^@ '{'))"
        )
        source = event_range(provider, place, ticks, count, mine)
        if any(provider.value(_any_event(source.events, s)) for s in source.slices):
            self._apply_safely(target, stage, source, ticks)
        else:  # nothing happened to the table: not worth a job
            with target.transaction():
                self._require_place(target, at)
                node_state.set_consumer_completed(target, queue, consumer, last.id)
        self._stale = False
        reach("copy.replayed")
        provider.call("pgq.register_consumer_at", queue, consumer, last.id)
        log.debug("%s: caught up to tick %d", job.name, last.id)
        return last.id

    def _apply_safely(
        self, target: vdb.Database, stage: vdb.Database, source: EventRange, ticks: list[Tick]
    ) -> None:
        """Apply; an event that stops the copy is recorded, as one that stops the worker is."""
        batch = Batch(0, ticks[0].id, ticks[-1].id, ticks[0].event_seq, ticks[-1].event_seq)
        while True:
            try:
                self._apply(target, stage, source, batch, self.poison.look(target, ticks))
                return
            except VedurError as error:
                self.applier.forget()
                if self.poison.suspects_more(error):
                    continue
                if blamed_by(error) is not None:
                    self.poison.note(batch, [self.job.table], error)
                raise

    def _apply(
        self,
        target: vdb.Database,
        stage: vdb.Database,
        source: EventRange,
        batch: Batch,
        outlook: Outlook,
    ) -> None:
        queue, consumer, table = self.setup.queue, self.job.consumer, self.job.table
        tables = outlook.mark([table.replica])
        staged = self.applier.stage(stage, source, tables, 0)
        with target.transaction():
            self._require_place(target, batch.prev_tick)
            target.execute(query("copy", "replica_role"))
            quarantine = self.poison.open(target, batch, [table], outlook)
            warn_missing(self.applier.apply(target, staged, tables, _ignore, quarantine))
            self.poison.close(target, quarantine)
            node_state.set_consumer_completed(target, queue, consumer, batch.tick)
            reach("copy.merged")
        self.poison.passed(quarantine)
        self.applier.done(stage, 0)

    def _require_place(self, target: vdb.Database, at: int) -> None:
        """State and position are what this replay began with, and stay so until the commit.

        Another worker of the node may have come in between; the lock of the table is for both.
        """
        queue, consumer = self.setup.queue, self.job.consumer
        if not hold_table(target, queue, self.job.table):
            raise Moved
        if target.value(query("copy", "copy_position"), [queue, consumer]) != at:
            raise Moved

    def _one_batch(self, ticks: list[Tick]) -> list[Tick]:
        limit = ticks[0].event_seq + self.setup.max_batch_events
        kept = [t for t in ticks if t.event_seq <= limit]
        return kept if len(kept) > 1 else ticks[:2]


def _ignore(event: Event) -> None:
    """What is not about this table is the worker's business."""


def _any_event(events: str, condition: str) -> str:
    return query("worker", "any_event").format(events=events, slice=condition)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
