"""One batch of a node, in the order that makes it exactly once:

    take        does the node stand at the beginning of the batch, or at its end?
    plan        read its ticks, what is in quarantine, which tables take changes
    stage       changes into staging tables; no table of the node is touched
    lock        begin the transaction; the position, and that what was planned still holds
    merge       changes into the tables; system events and scripts run at their places
    publish     on a branch: events and ticks into the node's own queue; of a part: events into
                the combined queue (`own_queue.py`)
    position    the node has the batch's last tick
    commit      all of it becomes visible at once
    finish      the provider may forget the batch

`plan` to `commit` are `apply_range`, which first copies and the replay of quarantined events use,
too. A crash after the commit is seen by `take` of the next run: the node stands at the end, so
nothing is applied again. While a batch is merged, the next range of ticks is staged by a second
thread into the other slot (`StageAhead`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

from vedur.catalog import TableInfo
from vedur.catalog.passed import (
    explain,
    is_mask,
    own_masks,
    own_rules,
    require_masked,
    require_served,
)
from vedur.catalog.tables import change_table_state, is_in_sync
from vedur.change.attrs import MASKED, decode_attrs, same_but_policy
from vedur.change.event import Event, EventRange, PassedOn
from vedur.change.quarantine import Policy, Quarantine
from vedur.change.snapshot import Snapshot
from vedur.db import Database, Row
from vedur.errors import InternalError, LostPosition, StaleStage, StateError
from vedur.failpoint import reach
from vedur.node import WorkerState, get_worker_state
from vedur.node.epoch import check_epoch
from vedur.node.position import (
    LOST,
    REMEDY,
    AppliedTick,
    complete_tick,
    keeps_ticks,
    lock_position,
    set_consumer_completed,
)
from vedur.queue.batches import (
    Batch,
    Subscription,
    Tick,
    event_range,
    finish_batch,
    get_ticks_ahead,
    late_events,
    slice_count,
)
from vedur.queue.passed import PassedPart, read_passed_parts
from vedur.queue.publish import EndTick, Passed, TickRow, read_tick_rows
from vedur.sql import query
from vedur.tables.mapping import TableMap
from vedur.worker.apply_range import AppliedRange, Applier, S, StageAhead, apply_range
from vedur.worker.branch_queue import BranchQueue
from vedur.worker.first_copy.states import MergeState, must_wait, snapshot_is_past
from vedur.worker.own_queue import OwnQueue
from vedur.worker.quarantine import BatchQuarantine, ConsumerQuarantine, Outlook
from vedur.worker.stats import BatchLog
from vedur.worker.system_events import Registers, SystemEvents

log = logging.getLogger(__name__)


def position_allows(prev_tick: int, tick: int, stored: int) -> bool:
    """Does the restart rule let the batch be applied? False if the target already has it; raises
    where the position fits neither."""
    if stored == prev_tick:
        return True
    if stored == tick:
        return False
    raise LostPosition(f"{LOST}: batch {prev_tick}..{tick}, dst has {stored}; {REMEDY}")


def replicas(tables: Sequence[TableInfo]) -> tuple[TableMap, ...]:
    """Return the tables that take changes now."""
    here = (t.mapping for t in tables if t.ready)
    return tuple(table for table in here if table.applies)


@dataclass
class BatchRunner(Generic[S]):
    """What outlives a batch: settings, the applier, what is staged ahead, what was learnt."""

    applier: Applier[S]
    queue: str
    consumer: str
    target_connstr: str = field(repr=False)
    max_batch_events: int = 100_000
    parallel: int = 1
    connections: int = 8
    registers: Registers = field(default_factory=Registers)
    on_error: Policy = Policy.STOP
    own_queue: OwnQueue | None = None  # where batches are passed on to
    _keeps: bool | None = None  # does the target keep which tick was applied?

    def __post_init__(self) -> None:
        self.ahead = StageAhead(self.applier, self.target_connstr)
        self.quarantine = ConsumerQuarantine(
            self.queue, self.consumer, self.target_connstr, self.on_error
        )
        self.times = BatchLog(self.queue, self.consumer)

    def run(
        self,
        target: Database,
        provider: Database,
        batch: Batch,
        subscription: Subscription,
        tables: Sequence[TableInfo],
        node: WorkerState,
    ) -> dict[str, int]:
        """Apply one batch and finish it; returns numbers for the log."""
        return BatchRun(self, target, provider, batch, subscription, tables, node).run()

    def keeps_ticks(self, target: Database) -> bool:
        """Read, once, whether the target keeps which tick was applied."""
        if self._keeps is None:
            self._keeps = keeps_ticks(target)
        return self._keeps

    def close(self) -> None:
        """Wait for what is being staged, and end."""
        self.ahead.close()
        self.applier.rest()


@dataclass
class BatchRun(AppliedRange[S]):
    """One batch: the events after tick `batch.prev_tick` up to tick `batch.tick`."""

    runner: BatchRunner[S]
    db: Database
    provider: Database
    batch: Batch
    subscription: Subscription
    known: Sequence[TableInfo]  # the tables of the set, as the round saw them
    node: WorkerState  # the node, as the round saw it: `provider` is the one that it names
    stats: dict[str, int] = field(default_factory=dict)
    tables: tuple[TableMap, ...] = ()  # those that take changes
    _ticks: list[Tick] = field(default_factory=list)  # of the batch, both ends included
    _later: list[Tick] = field(default_factory=list)  # its last tick and those behind it
    _tick_rows: list[TickRow] = field(default_factory=list)  # of the batch, for a branch
    _above: list[PassedPart] = field(default_factory=list)  # what the provider has not all of
    _masks: list[PassedPart] = field(default_factory=list)  # what this branch masks
    _passing: PassedOn | None = None  # which events do not go on just as they are
    _outlook: Outlook = field(default_factory=Outlook)
    _quarantine: BatchQuarantine | None = None
    _state: WorkerState | None = None  # the node, once its position is locked
    _merges: bool = False  # there are events for the tables

    def __post_init__(self) -> None:
        self.applier = self.runner.applier
        self.queue = self.runner.queue
        self.times = self.runner.times

    def run(self) -> dict[str, int]:
        """Apply the batch unless it is already here, then finish it; returns numbers."""
        if self.take():
            apply_range(self)
        self.finish()
        return self.stats

    def take(self) -> bool:
        """Read where the node stands: True at the beginning of the batch, False at its end."""
        self.times.begin()
        reach("batch.taken")
        batch = self.batch
        if self.node.completed_tick == batch.prev_tick:
            return True  # as the round has just read it; `lock` reads it again
        state = self._read_state()
        if position_allows(batch.prev_tick, batch.tick, state.completed_tick):
            return True
        log.info("batch %s..%s is already here", self.batch.prev_tick, self.batch.tick)
        return False

    @property
    def origin(self) -> str:
        """Where its events are from, for the log."""
        return self.batch.origin

    def plan(self) -> None:
        """Read the ticks of the batch and those behind it, and what is in quarantine."""
        # As far as this batch and the next can reach.
        batch, most = self.batch, 2 * self.runner.max_batch_events
        ticks = get_ticks_ahead(self.provider, self.queue, batch.prev_tick, batch.tick, most)
        inside = [t for t in ticks if t.id <= batch.tick]
        if not inside or inside[0].id != batch.prev_tick or inside[-1].id != batch.tick:
            raise StateError(f"ticks {batch.prev_tick}..{batch.tick} are not in the queue any more")
        self._ticks, self._later = inside, ticks[len(inside) - 1 :]
        if self.runner.own_queue is not None and self.runner.own_queue.has_ticks:
            self._tick_rows = read_tick_rows(self.provider, self.queue, batch.prev_tick, batch.tick)
        self._require_all_events()
        self._plan_passing()
        self._outlook = self.runner.quarantine.read_outlook(self.db, inside)
        self.tables = self._outlook.mark(replicas(self.known))
        self.stats = {"count": 0}

    def _require_all_events(self) -> None:
        """Raise where the provider has left events out that a table here needs. What it says is of
        now, when the whole batch is there: what it says of earlier events does not become less."""
        start, provider = self.batch.prev_tick, self.node.provider_node
        self._above = read_passed_parts(self.provider, self.queue, start)
        ready = [t for t in self.known if t.ready]
        require_served(ready, self._above, provider)
        require_masked(ready, self._above, provider, self.batch.tick)
        if self._above and self.runner.own_queue is not None and self.runner.own_queue.needs_all:
            raise explain(self._above[0], provider, "the combined queue needs all")

    def _plan_passing(self) -> None:
        """Find out which events a branch does not pass on just as they are: of all tables that it
        masks, whatever their state, and of those that it does not have."""
        branch = self.runner.own_queue
        if not isinstance(branch, BranchQueue):
            return
        masked = own_masks(self.known)
        if masked and not branch.stops_at_unknown:
            raise StateError(
                f'this branch masks table "{masked[0].table_name}" for nodes below, so its ini '
                "must say unknown_tables = stop: events of a table that it does not have would go "
                "on as they are; nothing is applied"
            )
        self._masks = [PassedPart(t.table_name, t.mask or "") for t in masked]
        self._passing = None
        if branch.stops_at_unknown:
            names = {t.table_name for t in self.known if t.local}
            plain = frozenset(names - {t.table_name for t in masked})
            self._passing = PassedOn(plain, tuple(t.mapping for t in masked))
            self._masks += self._old_masks(names)

    def _old_masks(self, names: Collection[str]) -> list[PassedPart]:
        """Read which tables were passed on masked and are not registered any more: no event of
        them goes on, so what nodes below were told of them still holds. Raises where events of one
        would go on as they are now, although nobody has added it anew."""
        known = {(part.table, part.condition) for part in (*self._above, *self._masks)}
        own = read_passed_parts(self.db, self.queue, self.batch.prev_tick)
        old = [part for part in own if is_mask(part) and part.until is None]
        old = [part for part in old if (part.table, part.condition) not in known]
        for part in old:
            if part.table in names:
                raise StateError(
                    f'table "{part.table}" was passed on {part.condition}, and would be no more: '
                    "its handler is gone, or another; nothing is applied: give it back, or "
                    "remove-table it here, and add-table it when no event of it is in the queue of "
                    "this branch any more"
                )
        return old

    def stage(self) -> S | None:
        """Take what is staged ahead, completed where it is short, or stage now; then look ahead."""
        ahead, ticks = self.runner.ahead, self._ticks
        staged, last = ahead.take(ticks, self.tables, self._passing)
        if staged is not None and last is not None:
            if last.id != ticks[-1].id:
                rest = self._cut([t for t in ticks if t.id >= last.id])
                staged = self.applier.extend(self.db, staged, rest, self.tables)
        else:
            source = self._cut(ticks)
            if len(source.slices) > 1 or self._any_event(source):
                staged = self.applier.stage(self.db, source, self.tables, ahead.slot)
        reach("batch.staged")
        self.times.mark("stage")
        if self.runner.own_queue is not None and self.runner.own_queue.tick_by_tick:
            return staged  # the next batch is too small to be worth it
        here = ticks[-1].event_seq - ticks[0].event_seq
        ahead.begin(self._later, self.tables, here, self.runner.max_batch_events, self._cut)
        return staged

    def _cut(self, ticks: Sequence[Tick]) -> EventRange:
        """Cut a range of ticks into as many slices as are worth a task."""
        late = late_events(self.provider, self.subscription, ticks)
        estimate = ticks[-1].event_seq - ticks[0].event_seq + late
        count = slice_count(estimate, self.runner.parallel, self.runner.connections)
        source = event_range(self.provider, self.subscription, ticks, count, late=late)
        return replace(source, passing=self._passing)

    def _any_event(self, source: EventRange) -> bool:
        text = query("worker", "any_event").format(events=source.events, slice=source.slices[0])
        return bool(self.provider.value(text))

    # -- in the transaction ---------------------------------------------------------------------

    def lock(self, staged: S | None) -> S | None:
        """Lock the position; no other worker of this node may have been quicker."""
        batch = self.batch
        lock_position(self.db, self.queue, self.runner.consumer)
        self._state = self._read_state()
        if self._state.completed_tick != batch.prev_tick:
            raise LostPosition(
                f"Lost position: batch {batch.prev_tick}..{batch.tick}, "
                f"dst has {self._state.completed_tick}: "
                "another worker of this node was quicker, stop one of them"
            )
        self._require_same_node(self._state)
        provider = self._state.provider_node
        check_epoch(self.db, self.provider, self.queue, batch.prev_tick, provider)
        # Without any event of the queue there is nothing that a table could miss or get twice: a
        # copy that is to meet the worker at an earlier tick has as little to do for the rest.
        self._merges = staged is not None
        if self._merges:
            self._require_same_tables()
        return staged

    def _read_state(self) -> WorkerState:
        state = get_worker_state(self.db, self.queue)
        if state is None:
            raise StateError(f'queue "{self.queue}" has no node here any more')
        return state

    def _require_same_node(self, now: WorkerState) -> None:
        """Raise where the node has got another provider or role since the round began: a tick of
        the old provider would be noted as one of the new, and a leaf passes nothing on."""
        if now.provider_node != self.node.provider_node:
            raise StaleStage(
                f'the node reads from "{now.provider_node}" now and no longer from '
                f'"{self.node.provider_node}": the batch is read there'
            )
        if now.node_type is not self.node.node_type:
            raise StaleStage(
                f"the node is a {now.node_type.value} now and no {self.node.node_type.value} any "
                "more: the batch is staged again"
            )
        was = (self.node.combined_queue, self.node.combined_type)
        if (now.combined_queue, now.combined_type) != was:
            raise StaleStage(
                f'the node is merged into queue "{now.combined_queue}" ({now.combined_type}) now '
                f'and no longer into "{was[0]}" ({was[1]}): the batch is staged again'
            )
        # A root that is called dead may still answer this node. What is read from it now would be
        # of a history that ends with the takeover by another one.
        if self.db.value(query("worker", "is_tagged_dead"), [self.queue, now.provider_node]):
            raise StateError(
                f'provider "{now.provider_node}" is tagged as dead: nothing is read from it; '
                "change-provider chooses another node, tag-alive takes the tag away"
            )

    def _require_same_tables(self) -> None:
        """Raise where conditions or columns have changed since this batch looked at them; reads the
        tables.

        `change-filter` changes them under the lock of the position, while the worker stands at its
        hold; this is for the worker that looked just before, and for a hold that ran out. Nor may
        a copy have been asked to meet the worker at a tick that this batch would pass: another
        worker of the node can have done that. Nor may a table be on its way to be copied anew, or
        gone.
        """
        rows = self.db.query(query("worker", "table_attrs"), [self.queue])
        now = {r.table_name: r for r in rows}
        self._require_same_masks(now)
        for table in self.known:
            found = now.get(table.table_name)
            if table.ready and (found is None or not is_in_sync(found.merge_state)):
                raise _left(table)
            if found is None:
                continue
            if not same_but_policy(found.table_attrs, table.table_attrs):
                raise StaleStage(
                    f'table "{table.table_name}" got another condition or other columns while its '
                    "changes were staged: they are staged again"
                )
            joined = is_in_sync(found.merge_state) and not table.ready
            if joined or must_wait(MergeState.parse(found.merge_state), self.batch.prev_tick):
                raise StaleStage(
                    f'the copy of table "{table.table_name}" meets the worker at an earlier tick: '
                    "changes are staged again"
                )

    def _require_same_masks(self, now: Mapping[str, Row]) -> None:
        """Raise where a table came meanwhile whose events are to go on masked, or went on so."""
        known = {t.table_name for t in self.known if t.local}
        old = {part.table for part in self._masks}
        for name, row in now.items():
            if name not in known and (name in old or decode_attrs(row.table_attrs).get(MASKED)):
                raise StaleStage(f'table "{name}" was added meanwhile: its events are staged again')

    def _require_nothing_left(self) -> None:
        """Raise where a table began to be copied anew before this batch had locked it: the events
        would be among rows of a later time.

        Asked behind the merge, when no copy can empty a table of the batch any more. What is gone
        now, an event of the batch itself may have removed; and the copy of a table with a snapshot,
        a script of the batch may have set back.
        """
        rows = self.db.query(query("worker", "table_attrs"), [self.queue])
        away = {r.table_name for r in rows if not is_in_sync(r.merge_state)}
        for table in self.known:
            if table.ready and table.table_name in away and not table.custom_snapshot:
                raise _left(table)

    def open_quarantine(self) -> Quarantine | None:
        """Open the quarantine of the batch; None where the node cannot have one."""
        quarantine = self.runner.quarantine
        self._quarantine = quarantine.open_batch(self.db, self.batch, self.known, self._outlook)
        return self._quarantine

    def handle(self, event: Event) -> None:
        """Do what a system event or a script says, on this node."""
        own = self.runner.own_queue
        branch = own if isinstance(own, BranchQueue) else None
        combined = self.node.combined_queue if own is not None and branch is None else None
        registers = self.runner.registers
        SystemEvents(self.db, self.queue, registers, branch, combined).handle(event)

    def close_quarantine(self) -> None:
        """Write what the quarantine has gathered, once it is sure that the batch is good."""
        if self._merges:
            self._require_nothing_left()
        count = self.runner.quarantine.close_batch(self.db, self._quarantine)
        if count:
            self.stats["quarantined"] = count
            reach("quarantine.written")

    def publish(self, staged: S | None) -> None:
        """Pass the batch on, where others read from this node."""
        own_queue, state = self.runner.own_queue, self._state
        if own_queue is None or state is None:
            return
        raw = staged.raw if staged is not None else None
        if staged is not None and raw is None:
            raise InternalError("BUG: a batch that is passed on was staged without its raw events")
        last, time = self._ticks[-1], self.batch.time
        end = EndTick(last.id, time, last.event_seq, last.snapshot.text, state.provider_node)
        slices, events = (raw.slices, raw.events) if raw is not None else ((), 0)
        slot, ticks = self.runner.ahead.slot, self._tick_rows
        rules = own_rules(self.known) if own_queue.has_ticks else []
        watermark = state.global_watermark
        above, masks = self._above, self._masks
        batch = Passed(slot, slices, events, ticks, end, watermark, rules, above, masks)
        own_queue.publish(self.db, batch)

    def set_position(self) -> None:
        """Write the position, and which tick that is: its number may come a second time."""
        end, runner = self._ticks[-1], self.runner
        self._end_snapshots(end)
        assert self._state is not None
        provider, time = self._state.provider_node, self.batch.time
        if time is None or not runner.keeps_ticks(self.db):
            set_consumer_completed(self.db, self.queue, runner.consumer, self.batch.tick)
        else:
            tick = AppliedTick(end.id, time, end.event_seq, end.snapshot.text, provider)
            complete_tick(self.db, self.queue, runner.consumer, tick)
        reach("batch.merged")
        self.times.mark("merge")

    def _end_snapshots(self, end: Tick) -> None:
        """Drop the filter of a finished copy once no event of it can come again."""
        for table in self.known:
            if not table.ready or not table.custom_snapshot:
                continue
            if snapshot_is_past(Snapshot.parse(table.custom_snapshot), end.snapshot):
                change_table_state(self.db, self.queue, table, None, "ok")

    # -- after it -------------------------------------------------------------------------------

    def committed(self, staged: S | None) -> None:
        """Free the slot, and go on with the one that is staged ahead."""
        self.times.mark("commit")
        runner, ahead = self.runner, self.runner.ahead
        runner.quarantine.batch_committed(self._quarantine)
        if staged is not None:
            self._count(staged)
            self.applier.done(self.db, ahead.slot)
        if self.stats.get("scripts"):
            # what was staged meanwhile may have learnt the tables as they were before
            self.discard()
        else:
            ahead.advance()

    def _count(self, staged: S) -> None:
        self.stats["count"] = staged.events
        if staged.ignored:
            self.stats["ignored_events"] = staged.ignored
        if staged.scripts:
            self.stats["scripts"] = len(staged.scripts)

    def finish(self) -> None:
        """Let the provider forget the batch, and record what it cost."""
        reach("batch.committed")
        finish_batch(self.provider, self.batch.id)
        reach("batch.finished")
        self.times.mark("finish")
        self.times.write(self.db, self.batch, self.stats)

    def failed(self, error: BaseException) -> bool:
        """Record the error and the event that caused it; True to try its table event by event."""
        quarantine = self.runner.quarantine
        if isinstance(error, StaleStage):
            return False
        if quarantine.suspect_table(error):
            return True
        quarantine.record_failure(self.batch, self.known, error)
        return False

    def discard(self) -> None:
        """Forget what is staged ahead, and what was learnt about the target's tables."""
        self.runner.ahead.discard()
        super().discard()


def _left(table: TableInfo) -> StaleStage:
    return StaleStage(
        f'table "{table.table_name}" is being copied anew, or was removed, while its changes were '
        "staged: changes are staged again"
    )
