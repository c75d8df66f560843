"""Replay on Spark: stage a range of ticks in parallel, merge it in the caller's transaction.

`stage` runs Spark jobs and writes staging tables only; it may be called for the next range while
the current one is being merged, and calling it twice leaves nothing but debris. `apply` runs on
the driver's connection, inside the transaction that will also store the position.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vedur.change.event import EventRange, PassedOn
from vedur.change.quarantine import Quarantine, is_about_event
from vedur.change.snapshot import Snapshot
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.errors import DatabaseError, InternalError
from vedur.names import parse_name
from vedur.pipeline.replay.commit import Commit, Handler, Result, refusal
from vedur.pipeline.replay.fast_path.columns import LEAST_RUN
from vedur.pipeline.replay.forward import RawEvents, RawStages
from vedur.pipeline.replay.masked import MaskedTables
from vedur.pipeline.replay.staged import Staged, check, combined, fit_together
from vedur.pipeline.replay.staging_tables import (
    clear_stages,
    drop_stages,
    ensure_stages,
    load_specs,
    log_name,
    stage_name,
)
from vedur.pipeline.replay.task import FLUSH_BYTES, StageTask, as_order
from vedur.pipeline.spark.resident import Residence, forget_loss
from vedur.pipeline.spark.tasks import KeptPlans, run_tasks
from vedur.sql import query
from vedur.tables.mapping import TableMap, TableSpec
from vedur.tables.stages import stage_prefix

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A batch is staged again at most this often: for scripts, for fragments of SQL among net changes
#: or keys that differ from slice to slice, for new columns. JSON and urlenc of one key go together.
_ATTEMPTS = 4
#: Every merge passes over what earlier batches left in a staging table, at some 0.2 µs a row; to
#: empty one takes the server 2.8 ms (an unlogged table gets new files, and they are synced). When
#: so many rows were passed over, emptying would have been as cheap.
_PASSED_ROWS = 14_000
#: Why events of a table are staged as they are.
_SHARED = "several tables of the set are in one table here"
_WAITING = "events of it are in quarantine, are to be skipped, or have just been refused"
_NO_COLUMNS = "it does not exist here, or has more columns than a staging table may"
_HANDLER = "its handler needs every event"
_UNFIT = "an event does not fit the table here"
_NO_NET = "its events are fragments of SQL, or have no key that the table here enforces"
#: After that many batches a table that was last replayed row by row is tried as a whole again, and
#: one that others could not be merged with is merged with them.
_LEARN_AGAIN = 64


@dataclass(frozen=True)
class _Form:
    """In what form a range is staged: as net changes, but for events of `log_tables`, and for all
    after event `log_from`; beside that as they are, where there is a table for it."""

    log_tables: frozenset[str]
    log_from: int | None = None
    raw_stage: str | None = None


@dataclass
class SparkReplay:
    """The applier of a worker. Connect strings are kept out of its repr."""

    spark: SparkSession
    queue: str
    provider: str = field(repr=False)
    target: str = field(repr=False)
    flush_bytes: int = FLUSH_BYTES
    least_run: int = LEAST_RUN
    keep_links: bool = True
    private: bool = False  # conditions of slices hold users' data
    missing_columns: str = "warn"  # or stop: what to do about columns that the target lacks
    replace: bool = False  # rows that an insert finds are overwritten
    forward: bool = False  # on a branch: events are staged as they are, too
    residence: Residence | None = None  # where small batches are staged by a task that stays
    by_job: bool = False  # was the last range staged by an ordinary job?
    # Two threads use an applier: one stages ahead into a slot while the other merges what lies in
    # the other slot, and each works on the entries of its slot alone. What is for both: `forget`
    # replaces what was learnt, `_outdated` only grows while a slot is staged, `_busy` has the lock;
    # `log_tables`, `_whys`, `_alone`, `_warned`, `_told` are what experience taught, right or not:
    # how a batch is staged and what the log says follows from them, never what is in the tables.
    log_tables: set[str] = field(default_factory=set)  # staged event by event (`Collapser`)
    _whys: dict[str, str] = field(default_factory=dict)  # of these
    _told: set[tuple[str, str]] = field(default_factory=set)
    _specs: dict[int, dict[TableMap, TableSpec]] = field(default_factory=lambda: {0: {}, 1: {}})
    _used: dict[int, set[str]] = field(default_factory=lambda: {0: set(), 1: set()})
    _rows: Counter[str] = field(default_factory=Counter)  # left in a staging table
    _passed: Counter[str] = field(default_factory=Counter)  # read there for nothing
    _outdated: dict[int, set[str]] = field(  # staging tables to empty as soon as nobody uses them
        default_factory=lambda: {0: set(), 1: set()}
    )
    _busy: set[int] = field(default_factory=set)  # slots that are staged, or about to be
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _alone: set[str] = field(default_factory=set)  # tables that are not merged with others
    _count: int = 0
    _warned: dict[str, frozenset[str]] = field(default_factory=dict)
    _plans: dict[int, KeptPlans] = field(
        default_factory=lambda: {0: KeptPlans(), 1: KeptPlans()}, repr=False
    )
    _masked: dict[tuple[Any, ...], dict[str, TableSpec]] = field(default_factory=dict)
    _raw: RawStages = field(init=False)

    def __post_init__(self) -> None:
        self._raw = RawStages(self.queue)

    def start(self, db: Database) -> None:
        """Remove what an earlier run left on the target; needs autocommit."""
        drop_stages(db, self.queue)
        self.forget()
        forget_loss(db, self.queue)
        if self.forward:
            self._raw.renew(db)

    def rest(self) -> None:
        """End the task that stays, if there is one; the next small batches get another."""
        if self.residence is not None:
            self.residence.close()

    def forget(self) -> None:
        """Look at the target's tables again before the next batch.

        The other thread may be staging: what it is about to learn goes into the dictionary that it
        has, and is forgotten with it.
        """
        self._specs = {0: {}, 1: {}}
        self._masked = {}
        self._raw.forget()

    def specs(self, db: Database, wanted: Iterable[TableMap], slot: int) -> dict[str, TableSpec]:
        """Read the tables of a batch, and put their staging tables in place; needs autocommit.

        The other slot is left alone: its changes may be about to be merged.
        """
        tables = tuple(wanted)
        known = self._specs[slot]
        fresh = [w for w in tables if w not in known]
        if fresh:
            found = self._load(db, fresh)
            here = {w: found[w.name] for w in fresh if found[w.name].stageable}
            ensure_stages(db, self.queue, here.values(), slot)
            for spec in here.values():
                if spec.rows is not None:  # there may be rows as they were before the handler
                    for which, outdated in self._outdated.items():
                        outdated |= {stage_name(spec, which), log_name(self.queue, which)}
            known.update(here)
            return {w.name: known.get(w) or found[w.name] for w in tables}
        return {w.name: known[w] for w in tables}

    def _load(self, db: Database, wanted: Iterable[TableMap]) -> dict[str, TableSpec]:
        """Read the target's tables; one that is not there has no columns, and its events will fail.
        Its handler sees them all the same: they are staged, and may be quarantined."""
        tables = tuple(wanted)
        found = load_specs(db, self.queue, tables, lenient=True, strict=self._strict)
        for table in tables:
            if table.name not in found:
                dest = parse_name(table.dest).quoted
                snapshot = Snapshot.parse(table.snapshot) if table.snapshot else None
                found[table.name] = TableSpec(
                    table.name,
                    dest,
                    "",
                    (),
                    snapshot=snapshot,
                    home=table.dest,
                    chosen=None if table.columns is None else dict(table.columns),
                    operations=table.operations,
                    rows=table.rows,
                    calls=table.calls,
                )
        return found

    # -- stage ----------------------------------------------------------------------------------

    def stage(
        self, db: Database, events: EventRange, wanted: Iterable[TableMap], slot: int
    ) -> Staged:
        """Stage all events of a range; `db` is an autocommit connection to the target.

        A table whose changes a task cannot write is staged as it came, without looking into the
        events: what is wrong with them is found when they are applied one by one.
        """
        return self._stage(db, events, tuple(wanted), slot, None)

    def _stage(
        self,
        db: Database,
        events: EventRange,
        tables: tuple[TableMap, ...],
        slot: int,
        raw: RawEvents | None,
    ) -> Staged:
        """Stage until it can be merged; raw events that are there already are not read again."""
        with self._lock:
            self._busy.add(slot)
        self._count += 1
        if self._count % _LEARN_AGAIN == 0:
            self.log_tables.clear()
            self._alone.clear()
        # Tables that share one table here are one sequence of events.
        homes = Counter(w.dest for w in tables)
        whys = {w.name: _SHARED for w in tables if homes[w.dest] > 1}
        whys |= {w.name: _WAITING for w in tables if w.event_by_event}
        # Kept plans compare tasks: what a task was given may not change later.
        log_tables = frozenset(self.log_tables) | frozenset(whys)
        log_from = None
        looked_again = False
        for _ in range(_ATTEMPTS + len(tables)):
            specs = self.specs(db, tables, slot)
            whys |= {name: _NO_COLUMNS for name, spec in specs.items() if not spec.stageable}
            whys |= {name: _HANDLER for name, spec in specs.items() if _counts_events(spec)}
            log_tables |= frozenset(whys)
            raw_stage = self._raw.name(db, slot) if self.forward and raw is None else None
            try:
                form = _Form(log_tables, log_from, raw_stage)
                staged = self._run(events, specs, slot, form, db)
            except DatabaseError as error:
                suspect = self._suspect(error, specs, slot, log_tables)
                log.debug("%s: staged as it came, because: %s", suspect, error)
                whys[suspect] = refusal(error)
                log_tables |= {suspect}
                continue
            raw = staged.raw = staged.raw or raw
            again = check(staged)
            if again is not None:
                log.debug("staging again: %s", again.reason)
                log_tables |= again.log_tables
                log_from = log_from or again.log_from
                self.log_tables |= again.log_tables
                self._whys.update(again.whys)
                continue
            if not staged.faults and (looked_again or not self._came(db, tables, staged)):
                self._warn_missing(staged.missing_columns)
                self._tell_row_by_row(staged, whys)
                return staged
            if looked_again:
                whys |= {fault.table: _UNFIT for fault in staged.faults}
                log_tables |= frozenset(whys)
            self.forget()
            looked_again = True
        raise InternalError("BUG: a batch cannot be staged in a form that can be merged")

    def _tell_row_by_row(self, staged: Staged, whys: Mapping[str, str]) -> None:
        """Log why events of tables go one by one, unless a script of the batch is the reason."""
        for name, table in staged.tables.items():
            why = whys.get(name)
            if why is None and name in self.log_tables and (why := self._whys.get(name)):
                why += f"; so are those of the next batches, of at most {_LEARN_AGAIN}"
            if why is None and staged.log_from is None:
                why = _NO_NET
            if table.logged and why is not None:
                self._tell(name, why)

    def _tell(self, name: str, why: str) -> None:
        """Log why the events of a table are replayed row by row, once for each reason."""
        if (name, why) not in self._told:
            self._told.add((name, why))
            log.info("%s: its events are replayed row by row: %s", name, why)

    def _suspect(
        self, error: DatabaseError, specs: dict[str, TableSpec], slot: int, known: frozenset[str]
    ) -> str:
        """Return the table whose net changes a task could not write; raises the error if there is
        none."""
        text = str(error.values.get("query"))
        for name, spec in specs.items():
            if name not in known and stage_name(spec, slot) in text and is_about_event(error):
                return name
        raise error

    @property
    def _strict(self) -> bool:
        return self.missing_columns == "stop"

    def _came(self, db: Database, tables: Iterable[TableMap], staged: Staged) -> bool:
        """Has the target got a column that this batch left out as missing?"""
        lacking = staged.missing_columns
        if not lacking:
            return False
        now = load_specs(db, self.queue, [w for w in tables if w.name in lacking], lenient=True)
        came = [name for name, spec in now.items() if lacking[name] & spec.by_name.keys()]
        for name in came:
            self._warned.pop(name, None)
        return bool(came)

    def _warn_missing(self, lacking: Mapping[str, Set[str]]) -> None:
        """Name columns that exist on the provider only, once for each change of them."""
        for name, columns in lacking.items():
            new = columns - self._warned.get(name, frozenset())
            self._warned[name] = frozenset(columns)
            for column in sorted(new):
                log.warning(
                    '%s: column "%s" exists on the provider only, its values are left out; add it '
                    'here and it is followed from then on, "repair %s" brings what it missed',
                    name,
                    column,
                    name,
                )

    def extend(
        self, db: Database, staged: Staged, events: EventRange, wanted: Iterable[TableMap]
    ) -> Staged:
        """Stage a further range behind a staged one; both become one.

        All of it is staged again where the parts cannot be merged together, but for raw events.
        """
        more = self.stage(db, events, wanted, staged.slot)
        both = combined(staged, more)
        if fit_together(staged, more) and check(both) is None:
            return both
        assert both.source is not None
        return self._stage(db, both.source, tuple(wanted), staged.slot, both.raw)

    def _run(
        self,
        events: EventRange,
        specs: dict[str, TableSpec],
        slot: int,
        form: _Form,
        db: Database | None = None,
    ) -> Staged:
        """Run the tasks; with `db`, in autocommit mode, one that stays may do it."""
        passing = None
        if db is not None and form.raw_stage is not None and events.passing is not None:
            passing = self._masked_tables(db, events.passing)
        task = StageTask(
            provider=self.provider,
            target=self.target,
            queue=self.queue,
            events=events.events,
            owner=events.owner,
            slot=slot,
            tables=specs,
            log_tables=form.log_tables,
            log_from=form.log_from,
            flush_bytes=self.flush_bytes,
            least_run=self.least_run,
            keep_links=self.keep_links,
            raw_stage=form.raw_stage,
            passing=passing,
        )
        staged = Staged(self.queue, slot, log_from=form.log_from)
        for summary in self._run_tasks(db, task, events.slices):
            staged.add(summary, specs)
        if form.raw_stage is not None and staged.raw is not None:
            self._fill(form.raw_stage, slot, staged.raw.events)
        staged.source = events
        staged.specs = specs
        for name, table in staged.tables.items():
            if table.rows:
                self._fill(stage_name(specs[name], slot), slot, table.rows)
            if table.logged:
                self._fill(log_name(self.queue, slot), slot, table.logged)
        return staged

    def _masked_tables(self, db: Database, passing: PassedOn) -> MaskedTables:
        """Return by which the tasks of a branch that masks sort events: masked tables as they are
        here now, whatever their state is."""
        maps = passing.masked
        known = self._masked.get(maps)
        if known is None:
            known = self._masked[maps] = self._load(db, maps) if maps else {}
        return MaskedTables(passing.plain, known)

    def _run_tasks(
        self, db: Database | None, task: StageTask, slices: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Stage slices; returns a summary of each."""
        if self.residence is not None and db is not None and len(slices) == 1:
            answer = self.residence.ask(db, *as_order(task, slices[0]))
            if answer is not None:
                self.by_job = False
                return [answer.get()]
        self.by_job = True
        kept = None if self.private else self._plans[task.slot]
        return run_tasks(self.spark, task, slices, kept)

    def _fill(self, stage: str, slot: int, rows: int) -> None:
        self._rows[stage] += rows
        self._used[slot].add(stage)

    # -- apply ----------------------------------------------------------------------------------

    def apply(
        self,
        db: Database,
        staged: Staged,
        wanted: Iterable[TableMap],
        handle: Handler,
        quarantine: Quarantine | None = None,
    ) -> Result:
        """Merge into the tables, calling `handle` for events that are not about rows."""
        commit = Commit(
            db,
            staged,
            tuple(wanted),
            handle,
            restage=self._restage_as_log,
            load_specs=lambda tables: self._load(db, tables),
            quarantine=quarantine,
            replace=self.replace,
            alone=self._alone,
            tell=self._tell,
        )
        result = commit.run()
        self._warn_missing(result.missing_columns)
        if staged.scripts:
            self.forget()
        return result

    def _restage_as_log(self, staged: Staged, name: str) -> Staged:
        specs = {name: staged.specs[name]}
        assert staged.source is not None
        return self._run(staged.source, specs, staged.slot, _Form(frozenset(specs)))

    def done(self, db: Database, slot: int) -> None:
        """Empty the tables of a slot that was merged (or given up) when it pays; needs
        autocommit."""
        used, self._used[slot] = self._used[slot], set()
        for stage in used:
            self._passed[stage] += self._rows[stage]
        due = [stage for stage in used if self._passed[stage] >= _PASSED_ROWS]
        if clear_stages(db, due):
            for stage in due:
                del self._rows[stage], self._passed[stage]
        with self._lock:
            self._busy.discard(slot)
            for free in self._outdated.keys() - self._busy:
                self._clear_outdated(db, free)

    def _clear_outdated(self, db: Database, slot: int) -> None:
        """Empty what may hold rows as they were before a handler, in a slot that nobody uses."""
        if not self._outdated[slot]:
            return
        names = [sorted(self._outdated[slot])]
        found = [row.name for row in db.query(query("replay", "stage_definitions"), names)]
        if clear_stages(db, found):
            self._outdated[slot].difference_update(names[0])  # the other thread may have added some


def _counts_events(spec: TableSpec) -> bool:
    """Does every version of a row count, or every event? Then there is no net change."""
    if spec.calls is not None:
        return True
    return spec.partitions is not None and spec.partitions.row_mode == "keep_all"


@dataclass(frozen=True)
class ReplayUse:
    """What an applier is for.

    `parallel` is how many tasks the session runs at once; `private`: conditions of slices hold
    users' data; `replace`: rows that an insert finds are overwritten; `forward`: events are staged
    as they are, too, for a node that passes them on; `resident`: small batches may be staged by a
    task that stays.
    """

    parallel: int = 1
    private: bool = False
    replace: bool = False
    forward: bool = False
    resident: bool = False


def make_replay(
    spark: SparkSession,
    settings: LondisteSettings,
    area: str,
    provider: str,
    use: ReplayUse,
) -> SparkReplay:
    """Make the applier of a node's settings; the one place where the product makes any.

    `area` names its staging tables: two appliers with tables of their own need two names.
    """
    residence = None
    if use.resident:
        residence = Residence(spark, settings.db, area, stage_prefix(area))
    return SparkReplay(
        spark,
        area,
        provider,
        settings.db,
        # Processes that wait for work may not hold more connections than the cap allows.
        keep_links=use.parallel <= settings.max_connections_per_node,
        private=use.private,
        missing_columns=settings.missing_columns,
        replace=use.replace,
        forward=use.forward,
        residence=residence,
    )
