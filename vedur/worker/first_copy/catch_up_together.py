"""Steps 8 to 10 of a first copy for tables to which nothing has happened since their snapshot.

Of many tables that are copied at a time, most do not change meanwhile. For those there is nothing
to replay: one look at the queue tells which they are, one transaction moves their positions and
states, and the worker takes them over at one tick. The states are those of `catch_up.py`, one after
the other, so a crash leaves what a table of its own would leave. A table with an event, and every
one that is not as expected, is left to `catch_up.py` at once, in whatever state it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from vedur import db as vdb
from vedur.catalog import TableInfo, get_table_list
from vedur.catalog.quarantine import forget_stuck_events
from vedur.catalog.tables import change_table_states, hold_tables
from vedur.change.snapshot import Snapshot
from vedur.clock import Clock
from vedur.errors import CopyAbandoned
from vedur.failpoint import reach
from vedur.names import quote_literal
from vedur.node.position import (
    complete_consumers,
    forget_applied,
    read_newest_tick,
    read_positions,
    unregister_consumers,
    wake_worker,
)
from vedur.queue.batches import Tick, event_range, get_subscription, get_ticks
from vedur.sql import query
from vedur.tables.stages import stage_prefix
from vedur.worker.first_copy.catch_up import CatchUp
from vedur.worker.first_copy.context import CopySetup, MakeApplier, Step, TableJob, Threads
from vedur.worker.first_copy.seats import Seat, Seats
from vedur.worker.first_copy.source_check import applied_tick, look_at_source
from vedur.worker.first_copy.states import MergeState, State, snapshot_is_past

log = logging.getLogger(__name__)

_POLL = 0.05
_SLOW_POLL = 1.0
#: The worker's answer is called out; so long it may not be heard.
_WORKER_WAIT = 5.0

Jobs = dict[str, TableJob]


class CatchUpTogether:
    """Tables of one provider on their way to `ok`. `leave` gets each that has to go on alone, and
    `done` each that is in sync; one of the two is called for every table."""

    def __init__(
        self,
        jobs: Sequence[TableJob],
        seats: Seats,
        clock: Clock,
        on_move: Callable[[], None],
        leave: Callable[[TableJob], None],
        done: Callable[[TableJob], None],
    ) -> None:
        self.setup = seats.setup
        self.queue = self.setup.queue
        self.clock = clock
        self.seats = seats
        self.jobs: Jobs = {job.name: job for job in jobs}
        self.provider, self.source = jobs[0].provider, jobs[0].source.node
        self.on_move = on_move
        self._leave_one = leave
        self._done = done
        self._nudge = threading.Event()

    def run(self) -> None:
        """Take tables to `ok` until each is there or is left."""
        for job in self.jobs.values():
            job.nudge = self._nudge
        try:
            self._begin()
            tick = self._await_tick()
            if tick is not None:
                self._ask(tick)
                while self.jobs:
                    self._take_over(tick.id)
        except Exception as error:  # whatever it is, each table meets it alone and tells it
            log.debug("%d tables go on one by one: %s", len(self.jobs), error)
        self._leave(list(self.jobs))

    def _leave(self, names: Iterable[str]) -> None:
        for name in names:
            job = self.jobs.pop(name)
            job.nudge, job.asleep_in = threading.Event(), None
            self._leave_one(job)

    def _keep(self, names: Iterable[str]) -> None:
        kept = set(names)
        self._leave([name for name in self.jobs if name not in kept])

    def _tables(self, target: vdb.Database) -> dict[str, TableInfo]:
        """Read the tables as they are now; those that are cancelled, or gone, are left."""
        with target.transaction():
            now = get_table_list(target, self.queue).local.by_name
        self._keep(n for n, job in self.jobs.items() if n in now and not job.cancelled)
        return {name: now[name] for name in self.jobs}

    # -- step 8 -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Leave tables for which an earlier run has staging tables: those must be dropped."""
        with self.seats.take(self.provider, urgent=False) as seat:
            prefixes = {name: stage_prefix(self.setup.staging(name)) for name in self.jobs}
            asked = [list(set(prefixes.values()))]
            rows = seat.target.query(query("copies", "with_stages"), asked)
            there = {row.prefix for row in rows}
            self._keep(name for name, prefix in prefixes.items() if prefix not in there)
            self.setup.enter_together(seat.target, list(self.jobs.values()), Step.CATCH_UP)

    def _await_tick(self) -> Tick | None:
        """Wait for a tick behind the snapshots, asking for one; None if no table is left."""
        began, pause, asked = self.clock.monotonic(), _POLL, False
        while True:
            with self.seats.take(self.provider, urgent=False) as seat:
                tables = self._tables(seat.target)
                self._keep(n for n, table in tables.items() if _is_plain(table))
                if not self.jobs:
                    return None
                newest = self._believe_source(seat)
                if not self.jobs:
                    return None
                if newest is None:
                    newest = read_newest_tick(seat.provider, self.queue)
                here = {name: tables[name] for name in self.jobs}
                tick = self._past_tick(seat.provider, here, newest) if newest else None
                if tick is not None:
                    return tick
                if not asked:
                    seat.provider.call("pgq.force_tick", self.queue)
                    asked = True
            if self.clock.monotonic() - began > self.setup.tick_wait:
                self._leave(list(self.jobs))  # each says so by itself
                return None
            self.clock.wait(self._nudge, pause)
            self._nudge.clear()
            pause = min(pause * 1.5, _SLOW_POLL)

    def _believe_source(self, seat: Seat) -> int | None:
        """Look once in a session whether the source is still the one that the copies know; tables
        for which it is not are left, and say so. Returns its newest tick if it has looked."""
        consumers = {name: job.consumer for name, job in self.jobs.items()}
        asked = {name: c for name, c in consumers.items() if c not in seat.believed}
        if not asked:
            return None
        look = look_at_source(seat.target, seat.provider, self.queue, asked)
        self._leave(look.faults)
        seat.believed.update(asked[name] for name in look.believed)
        return look.newest

    def _past_tick(
        self, provider: vdb.Database, tables: Mapping[str, TableInfo], tick: int
    ) -> Tick | None:
        """Read a tick if it lies behind the snapshots of tables."""
        found = get_ticks(provider, self.queue, tick, tick)
        copied = {table.custom_snapshot for table in tables.values()}
        past = bool(found) and all(
            snapshot_is_past(Snapshot.parse(text), found[0].snapshot) for text in copied if text
        )
        return found[0] if past else None

    def _ask(self, tick: Tick) -> None:
        """Move the tables without events to a tick, and ask the worker to take them over there."""
        with self.seats.take(self.provider, urgent=False) as seat:
            tables = self._tables(seat.target)
            self._keep(n for n, table in tables.items() if _is_plain(table))
            self._believe_source(seat)
            at = self._positions(seat.target)
            quiet = self._untouched(seat.provider, list(self.jobs), at, tick.id)
            self._keep(quiet)
            self.setup.enter_together(seat.target, list(self.jobs.values()), Step.HAND_OVER)
            self._move(seat.target, tables, quiet, at, MergeState(State.WANNA_SYNC, tick.id), tick)
            # the worker waits for ticks: as good a call as a new one
            wake_worker(seat.provider, self.queue)
        self.on_move()

    def _positions(self, target: vdb.Database) -> dict[str, int]:
        """Read the positions of the tables that have one."""
        at = read_positions(target, self.queue, [job.consumer for job in self.jobs.values()])
        return {n: at[job.consumer] for n, job in self.jobs.items() if job.consumer in at}

    def _untouched(
        self, provider: vdb.Database, names: Sequence[str], at: Mapping[str, int], tick: int
    ) -> list[str]:
        """Read which tables have no events after their position up to a tick; none where the queue
        cannot tell. Scripts and other system events are the worker's."""
        known = [name for name in names if at.get(name, tick + 1) <= tick]
        start = min((at[name] for name in known), default=tick)
        if start == tick:
            return known
        place = get_subscription(provider, self.queue, self.jobs[known[0]].consumer)
        ends = get_ticks(provider, self.queue, start, start)
        ends += get_ticks(provider, self.queue, tick, tick)
        if place is None or [end.id for end in ends] != [start, tick]:
            return []
        listed = ", ".join(map(quote_literal, known))
        # An event without the column may name its table in its type, which is JSON then.
        mine = f"(ev_extra1 in ({listed}) or (coalesce(ev_extra1, '') = '' and ev_type ^@ '{{'))"
        source = event_range(provider, place, ends, 1, mine)
        touched: set[str] = set()
        for condition in source.slices:
            text = query("copies", "touched").format(events=source.events, slice=condition)
            touched |= {row.name for row in provider.query(text)}
        return [] if "" in touched else [name for name in known if name not in touched]

    def _move(
        self,
        target: vdb.Database,
        tables: Mapping[str, TableInfo],
        names: Sequence[str],
        at: Mapping[str, int],
        state: MergeState,
        tick: Tick,
    ) -> list[TableJob]:
        """Move positions and states in one transaction; leaves the tables of which another session
        has changed either, and returns the others."""
        ok = state.state is State.OK
        with target.transaction():
            held = hold_tables(target, self.queue, [tables[name] for name in names])
            now = self._positions(target)
            mine = [self.jobs[n] for n in names if n in held and now.get(n) == at[n]]
            applied = applied_tick(tick, self.source)
            complete_consumers(target, self.queue, [job.consumer for job in mine], applied)
            seen = [tables[job.name] for job in mine]
            moved = change_table_states(target, self.queue, seen, str(state), keep_snapshot=not ok)
            reach("copy.moved_together")
        for job, table in zip(mine, moved, strict=True):
            job.table, job.asleep_in = table, None if ok else str(state)
        self._leave(set(names) - {job.name for job in mine})
        return mine

    # -- steps 9 and 10 ---------------------------------------------------------------------------

    def _take_over(self, asked: int) -> None:
        """Bring the tables that the worker has answered to its tick; waits for an answer."""
        self._nudge.clear()
        with self.seats.take(self.provider, urgent=True) as seat:
            tables = self._tables(seat.target)
            states = {name: MergeState.parse(table.merge_state) for name, table in tables.items()}
            waiting = MergeState(State.WANNA_SYNC, asked)
            self._keep(
                name for name, state in states.items()
                if state.state is State.DO_SYNC or state == waiting
            )  # fmt: skip
            self._believe_source(seat)
            answers: dict[int, list[str]] = {}
            for name in self.jobs:
                if states[name] != waiting:
                    answers.setdefault(states[name].tick or 0, []).append(name)
            for tick, names in answers.items():  # the worker answers all at once: it is one tick
                self._hand_over(seat, tables, names, tick)
        if not answers and self.jobs and not self.clock.wait(self._nudge, _WORKER_WAIT):
            self.on_move()

    def _hand_over(
        self, seat: Seat, tables: Mapping[str, TableInfo], names: Sequence[str], tick: int
    ) -> None:
        """Set tables `ok` at the tick that the worker has named; leaves those with events up to
        there, and all if it cannot be at this tick."""
        newest = read_newest_tick(seat.provider, self.queue) or 0
        quiet: list[str] = []
        at = self._positions(seat.target)
        end = None
        if newest >= tick:
            end = self._past_tick(seat.provider, {n: tables[n] for n in names}, tick)
        if end is not None:
            quiet = self._untouched(seat.provider, names, at, tick)
        self._leave(set(names) - set(quiet))
        done: list[TableJob] = []
        if end is not None:
            done = self._move(seat.target, tables, quiet, at, MergeState(State.OK), end)
        self.on_move()
        self._finish(seat, done)

    def _finish(self, seat: Seat, jobs: Sequence[TableJob]) -> None:
        """End what the copies of tables that are `ok` needed."""
        consumers, names = [job.consumer for job in jobs], [job.name for job in jobs]
        reach("copy.ok_together")
        seat.target.execute(query("copies", "forget_loaded"), [self.queue, names])
        seat.provider.query(query("copies", "unregister_consumers"), [self.queue, consumers])
        with seat.target.transaction():
            unregister_consumers(seat.target, self.queue, consumers)
            forget_applied(seat.target, self.queue, consumers)
            forget_stuck_events(seat.target, self.queue, consumers)
        self.setup.enter_together(seat.target, jobs, Step.FOREIGN_KEYS)
        for job in jobs:
            log.info("%s: in sync", job.name)
            del self.jobs[job.name]
            self._done(job)


def _is_plain(table: TableInfo) -> bool:
    """Does a table catch up with nobody to wait for? Pure."""
    state = MergeState.parse(table.merge_state).state
    return state is State.CATCHING_UP and table.copy_role is None and table.dropped_ddl is None


class CatchUps:
    """All tables of a node that catch up, each in a thread that takes it to `ok`.

    `on_move` is called whenever one of them has got further, `ended` with each table: without an
    error where it is in sync, with `CopyAbandoned` where it is to be taken up by its state.
    """

    def __init__(
        self,
        setup: CopySetup,
        make_applier: MakeApplier,
        clock: Clock,
        threads: Threads,
        on_move: Callable[[], None],
        ended: Callable[[TableJob, Exception | None], None],
    ) -> None:
        self.make_applier = make_applier
        self.clock = clock
        self.seats = Seats(setup)
        self._threads = threads
        self._on_move = on_move
        self._ended = ended
        self._stopping = threading.Event()

    def reconfigure(self, setup: CopySetup, make_applier: MakeApplier) -> None:
        """Take new settings for what starts from now on."""
        # Tables on their way keep theirs and leave them with their last move.
        self.seats.close_idle()
        self.seats, self.make_applier = Seats(setup), make_applier

    def start(self, jobs: Sequence[TableJob]) -> None:
        """Start tables of one provider that are loaded, all that can together."""
        if len(jobs) > 1:
            self._threads.start(lambda: self._run_together(jobs), "vedur-catch-up")
        elif jobs:
            self._start_alone(jobs[0])

    def stop(self) -> None:
        """Have no table go on alone that was together with others: the next run takes it up."""
        self._stopping.set()

    def close_idle(self) -> None:
        """Close connections that no table uses."""
        self.seats.close_idle()

    def _run_together(self, jobs: Sequence[TableJob]) -> None:
        for job in jobs:
            job.started = True
        CatchUpTogether(
            jobs, self.seats, self.clock, self._on_move,
            leave=self._go_on_alone, done=lambda job: self._ended(job, None),
        ).run()  # fmt: skip

    def _go_on_alone(self, job: TableJob) -> None:
        if self._stopping.is_set():
            self._ended(job, CopyAbandoned())
        else:
            self._start_alone(job)

    def _start_alone(self, job: TableJob) -> None:
        self._threads.start(lambda: self._run_alone(job), f"vedur-catch-up {job.name}")

    def _run_alone(self, job: TableJob) -> None:
        job.started = True
        job.on_move = self._on_move
        seats = self.seats
        try:
            CatchUp(seats.setup, self.make_applier, job, self.clock, seats).run()
        except Exception as error:
            self._ended(job, error)
        else:
            self._ended(job, None)
        self._on_move()
