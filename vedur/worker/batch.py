"""One batch on a leaf, in the order that makes it exactly once:

1. check that the target stands at one end of the batch;
2. stage (the target's tables are not touched);
3. one transaction on the target: merge, system events, position;
4. finish the batch on the provider.

A crash after 3 is seen in 1 of the next run: the target stands at the end, so nothing is applied.
While 3 runs, the next range of ticks is staged by a second thread into the other slot.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from vedur.catalog import TableInfo
from vedur.catalog.attrs import same_but_policy
from vedur.catalog.execute import set_role
from vedur.catalog.tables import change_table_state
from vedur.change.aside import Aside, Policy
from vedur.change.event import EventRange
from vedur.change.table import Replica, Snapshot
from vedur.db import Database, connect
from vedur.errors import LostPosition, StaleStage, StateError
from vedur.failpoint import reach
from vedur.node import get_worker_state
from vedur.node.position import LOST, REMEDY, AppliedTick, complete_tick, keeps_ticks
from vedur.node.state import set_consumer_completed
from vedur.queue.batches import Batch, Subscription, finish_batch, get_ticks_ahead
from vedur.queue.consumer import (
    PREFETCH_EVENTS,
    expected_end,
    merge_count,
    next_limit,
    slice_count,
)
from vedur.queue.ranges import event_range, late_events
from vedur.queue.slices import Tick
from vedur.sql import query
from vedur.worker.batchlog import BatchLog
from vedur.worker.poison import Outlook, Poison
from vedur.worker.protocol import Applier, warn_missing
from vedur.worker.states import MergeState, must_wait, snapshot_is_past, takes_changes
from vedur.worker.system import Registers, SystemEvents

log = logging.getLogger(__name__)


def position_allows(prev_tick: int, tick: int, stored: int) -> bool:
    """The restart rule: True to apply, False if the target already has the batch."""
    if stored == prev_tick:
        return True
    if stored == tick:
        return False
    raise LostPosition(f"{LOST}: batch {prev_tick}..{tick}, dst has {stored}; {REMEDY}")


def replicas(tables: Sequence[TableInfo]) -> tuple[Replica, ...]:
    """The tables that take changes now."""
    return tuple(
        t.replica for t in tables if t.local and takes_changes(MergeState.parse(t.merge_state))
    )


@dataclass
class Ahead:
    """A range being staged for the batch after the current one."""

    first: Tick
    last: Tick
    wish: int  # with which the queue makes it a batch
    tables: tuple[Replica, ...]
    slot: int
    future: Future[Any]


@dataclass
class BatchRunner:
    """Runs batches one after the other; holds what lies ahead."""

    applier: Applier
    queue: str
    consumer: str
    target_connstr: str = field(repr=False)
    max_batch_events: int = 100_000
    parallel: int = 1
    connections: int = 8
    registers: Registers = field(default_factory=Registers)
    on_error: Policy = Policy.STOP
    _slot: int = 0
    _keeps: bool | None = None  # does the target keep which tick was applied?
    _ahead: Ahead | None = None
    _side: Database | None = None
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="stage-ahead")
    )

    def __post_init__(self) -> None:
        self.poison = Poison(self.queue, self.consumer, self.target_connstr, self.on_error)
        self.times = BatchLog(self.queue, self.consumer)

    def run(
        self,
        target: Database,
        provider: Database,
        batch: Batch,
        subscription: Subscription,
        tables: Sequence[TableInfo],
    ) -> dict[str, int]:
        """Apply one batch; returns numbers for the log."""
        self.times.begin()
        reach("batch.taken")
        stats: dict[str, int] = {}
        state = get_worker_state(target, self.queue)
        if state is None:
            raise StateError(f'queue "{self.queue}" has no node here any more')
        if position_allows(batch.prev_tick, batch.tick, state.completed_tick):
            stats = self._apply_safely(target, provider, batch, subscription, tables)
        else:
            log.info("batch %s..%s is already here", batch.prev_tick, batch.tick)
        reach("batch.committed")
        finish_batch(provider, batch.id)
        reach("batch.finished")
        self.times.mark("finish")
        self.times.write(target, batch, stats)
        return stats

    def _apply_safely(
        self,
        target: Database,
        provider: Database,
        batch: Batch,
        subscription: Subscription,
        tables: Sequence[TableInfo],
    ) -> dict[str, int]:
        """Apply; an error is recorded with the event that caused it, before it is raised."""
        while True:
            try:
                return self._apply(target, provider, batch, subscription, tables)
            except StaleStage:
                self.discard()
                self.applier.forget()
                raise
            except BaseException as error:
                # The operator may repair the target meanwhile: believe nothing learnt so far.
                self.discard()
                self.applier.forget()
                if not self.poison.suspects_more(error):
                    self.poison.note(batch, tables, error)
                    raise

    def _apply(
        self,
        target: Database,
        provider: Database,
        batch: Batch,
        subscription: Subscription,
        tables: Sequence[TableInfo],
    ) -> dict[str, int]:
        # As far as this batch and the next can reach.
        most = 2 * self.max_batch_events
        ticks = get_ticks_ahead(provider, self.queue, batch.prev_tick, batch.tick, most)
        inside = [t for t in ticks if t.id <= batch.tick]
        if not inside or inside[0].id != batch.prev_tick or inside[-1].id != batch.tick:
            raise StateError(f"ticks {batch.prev_tick}..{batch.tick} are not in the queue any more")
        outlook = self.poison.look(target, inside)
        wanted = outlook.mark(replicas(tables))
        prepared = self._prepared(target, provider, subscription, inside, wanted)
        reach("batch.staged")
        self.times.mark("stage")
        here = inside[-1].event_seq - inside[0].event_seq
        self._look_ahead(provider, ticks[len(inside) - 1 :], subscription, wanted, here)
        stats = self._commit(target, batch, inside[-1], prepared, tables, wanted, outlook)
        if prepared is not None:
            self.applier.done(target, self._slot)
        if self._ahead is not None:
            if stats.get("scripts"):
                self.discard()
                # what was staged meanwhile may have learnt the tables as they were before
                self.applier.forget()
            else:
                self._slot = self._ahead.slot
        return stats

    # -- staging --------------------------------------------------------------------------------

    def _prepared(
        self,
        target: Database,
        provider: Database,
        subscription: Subscription,
        ticks: list[Tick],
        wanted: tuple[Replica, ...],
    ) -> Any:
        """What is staged for these ticks: taken from ahead, completed, or made now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            staged = self._take(ahead, ticks, wanted)
            if staged is not None:
                if ahead.last.id == ticks[-1].id:
                    return staged
                rest = [t for t in ticks if t.id >= ahead.last.id]
                source = self._source(provider, subscription, rest)
                return self.applier.extend(target, staged, source, wanted)
        source = self._source(provider, subscription, ticks)
        if len(source.slices) == 1 and not self._any(provider, source):
            return None
        return self.applier.stage(target, source, wanted, self._slot)

    def _take(self, ahead: Ahead, ticks: list[Tick], wanted: tuple[Replica, ...]) -> Any:
        try:
            staged = ahead.future.result()
        except Exception as error:
            log.debug("staging ahead failed, staged again: %s", error)
            return None
        reach("ahead.taken")
        fits = ahead.first.id == ticks[0].id and ahead.last.id <= ticks[-1].id
        return staged if fits and ahead.tables == wanted else None

    def _source(
        self, provider: Database, subscription: Subscription, ticks: list[Tick]
    ) -> EventRange:
        late = late_events(provider, subscription, ticks)
        estimate = ticks[-1].event_seq - ticks[0].event_seq + late
        count = slice_count(estimate, self.parallel, self.connections)
        return event_range(provider, subscription, ticks, count, late=late)

    @staticmethod
    def _any(provider: Database, source: EventRange) -> bool:
        text = query("worker", "any_event").format(events=source.events, slice=source.slices[0])
        return bool(provider.value(text))

    def _look_ahead(
        self,
        provider: Database,
        ticks: list[Tick],
        subscription: Subscription,
        wanted: tuple[Replica, ...],
        here: int,
    ) -> None:
        """Begin to stage what comes after the current batch of `here` events, if it is worth it."""
        backlog = ticks[-1].event_seq - ticks[0].event_seq
        wish = merge_count(backlog, next_limit(here, self.max_batch_events)) or 0
        end = expected_end(ticks, wish)
        if end is None or end.event_seq - ticks[0].event_seq < PREFETCH_EVENTS:
            return
        slot = 1 - self._slot
        source = self._source(provider, subscription, [t for t in ticks if t.id <= end.id])
        if self._side is None or self._side.closed:
            self._side = connect(self.target_connstr, name="db", autocommit=True)
            self._side.without_timeouts()
        future = self._pool.submit(self.applier.stage, self._side, source, wanted, slot)
        self._ahead = Ahead(ticks[0], end, wish, wanted, slot, future)
        reach("ahead.begun")

    @property
    def wish(self) -> int | None:
        """What must be asked for so that the next batch is the one that is staged."""
        return self._ahead.wish if self._ahead is not None else None

    def discard(self) -> None:
        """Forget what is staged ahead; its rows go when the slot is emptied."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                ahead.future.result()
            except Exception as error:
                log.debug("staging ahead failed: %s", error)
        if self._side is not None:
            self._side.close()
            self._side = None

    def close(self) -> None:
        """The worker ends; a job in flight is waited for."""
        self.discard()
        self._pool.shutdown()

    # -- commit ---------------------------------------------------------------------------------

    def _commit(
        self,
        target: Database,
        batch: Batch,
        end: Tick,
        prepared: Any,
        tables: Sequence[TableInfo],
        wanted: tuple[Replica, ...],
        outlook: Outlook,
    ) -> dict[str, int]:
        stats: dict[str, int] = {"count": 0}
        with target.transaction():
            target.query(query("worker", "lock_position"), [self.queue, self.consumer])
            state = get_worker_state(target, self.queue)
            if state is None:
                raise StateError(f'queue "{self.queue}" has no node here any more')
            if state.completed_tick != batch.prev_tick:
                raise LostPosition(
                    f"Lost position: batch {batch.prev_tick}..{batch.tick}, "
                    f"dst has {state.completed_tick}: "
                    "another worker of this node was quicker, stop one of them"
                )
            quarantine = self.poison.open(target, batch, tables, outlook)
            if prepared is not None:
                self._require_same(target, batch, tables)
                stats = self._merge(target, prepared, wanted, quarantine)
            aside = self.poison.close(target, quarantine)
            if aside:
                stats["quarantined"] = aside
                reach("quarantine.put_aside")
            self._end_snapshots(target, tables, end)
            self._set_position(target, batch, end, state.provider_node)
            reach("batch.merged")
            self.times.mark("merge")
        self.times.mark("commit")
        self.poison.passed(quarantine)
        return stats

    def _set_position(self, target: Database, batch: Batch, end: Tick, provider: str) -> None:
        """Store the position, and which tick that is: its number may come a second time."""
        if self._keeps is None:
            self._keeps = keeps_ticks(target)
        if not self._keeps or batch.time is None:
            set_consumer_completed(target, self.queue, self.consumer, batch.tick)
            return
        tick = AppliedTick(end.id, batch.time, end.event_seq, end.snapshot.text, provider)
        complete_tick(target, self.queue, self.consumer, tick)

    def _require_same(self, target: Database, batch: Batch, tables: Sequence[TableInfo]) -> None:
        """Conditions and columns may not have changed since this batch looked at them.

        `change-filter` changes them under the lock of the position, while the worker stands at its
        hold; this is for the worker that looked just before, and for a hold that ran out. Nor may
        a copy have been asked to meet the worker at a tick that this batch would pass: another
        worker of the node can have done that.
        """
        now = {r.table_name: r for r in target.query(query("worker", "table_attrs"), [self.queue])}
        for table in tables:
            found = now.get(table.table_name)
            if found is None:
                continue
            if not same_but_policy(found.table_attrs, table.table_attrs):
                raise StaleStage(
                    f'table "{table.table_name}" got another condition or other columns while its '
                    "changes were staged: they are staged again"
                )
            seen, state = MergeState.parse(table.merge_state), MergeState.parse(found.merge_state)
            joined = takes_changes(state) and not (table.local and takes_changes(seen))
            if joined or must_wait(state, batch.prev_tick):
                raise StaleStage(
                    f'the copy of table "{table.table_name}" meets the worker at an earlier tick: '
                    "changes are staged again"
                )

    def _merge(
        self, target: Database, prepared: Any, wanted: tuple[Replica, ...], aside: Aside | None
    ) -> dict[str, int]:
        set_role(target, "replica")
        system = SystemEvents(target, self.queue, self.registers)
        result = self.applier.apply(target, prepared, wanted, system.handle, aside)
        warn_missing(result)
        stats = {"count": prepared.events}
        if prepared.ignored:
            stats["ignored_events"] = prepared.ignored
        if prepared.scripts:
            stats["scripts"] = len(prepared.scripts)
        return stats

    def _end_snapshots(self, target: Database, tables: Sequence[TableInfo], end: Tick) -> None:
        """Drop the filter of a finished copy once no event of it can come again."""
        for table in tables:
            if not table.ready or not table.custom_snapshot:
                continue
            if snapshot_is_past(Snapshot.parse(table.custom_snapshot), end.snapshot):
                change_table_state(target, self.queue, table, None, "ok")
