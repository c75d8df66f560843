"""A root and a leaf on servers of two versions, a ticker, and a worker in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.pair import QUEUE, WORKER, Pair, call
from vedur import db as vdb
from vedur import failpoint
from vedur.config import LondisteSettings
from vedur.daemon import Signals
from vedur.errors import DatabaseError
from vedur.ops.session import Session
from vedur.pipeline.copy import SparkLoader
from vedur.pipeline.replay.stage import SparkReplay
from vedur.worker.batch import BatchRunner
from vedur.worker.first_copy.context import CopySetup, Step
from vedur.worker.first_copy.control import Copying
from vedur.worker.loop import Worker

DEADLINE = 150.0

CONTENT = "select md5(coalesce(string_agg(t::text, e'\\n' order by t::text), '')) from {} t"

STRUCTURE = """
select 'index ' || pg_get_indexdef(i.indexrelid) || ' ' || i.indisclustered || i.indisreplident
    || coalesce(obj_description(i.indexrelid, 'pg_class'), '') as line
from pg_index i where i.indrelid = %(t)s::regclass
union all
select 'constraint ' || c.conname || ' ' || pg_get_constraintdef(c.oid) || ' ' || c.convalidated
    || coalesce(obj_description(c.oid, 'pg_constraint'), '')
from pg_constraint c where c.conrelid = %(t)s::regclass or c.confrelid = %(t)s::regclass
order by 1
"""


def no_hook(table: str, step: Step) -> None:
    return


class Crash(BaseException):
    """The process dies here: no handler of the code under test may catch it."""


class Lab:
    """Everything that a copy needs, driven by tests."""

    def __init__(self, root: vdb.Database, leaf: vdb.Database, spark: Any) -> None:
        self.pair = Pair.make(root, leaf)
        # A tick may come as soon as there are events; the three seconds of a new queue are a wait.
        root.execute("update pgq.queue set queue_ticker_max_lag = '0.2 s'")
        self.root, self.leaf = root, leaf
        self.spark = spark
        self.slice_bytes = 1 << 20
        self.parallel_copies = 1
        self.retry_sleep = 0.2
        self.max_connections = 8
        self.missing_columns = "warn"
        self.tick_wait = 3.0
        self.ticker_away = False
        self.provider = root.connstr
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()
        self._running: list[tuple[threading.Thread, Signals]] = []
        self.copying: Copying | None = None
        self.before: list[str] = []  # for tests that compare structures

    def _tick(self) -> None:
        db: vdb.Database | None = None
        while not self._stop.wait(0.05):
            if self.ticker_away:
                continue
            try:
                if db is None or db.closed:
                    db = vdb.connect(self.root.connstr, autocommit=True)
                db.execute("select pgq.ticker()")
            except DatabaseError:  # the server is away for a while
                db = None
        if db is not None:
            db.close()

    def reopen(self) -> None:
        """Connect again after a server was away."""
        self.root, self.leaf = (
            vdb.connect(db.connstr, autocommit=True) for db in (self.root, self.leaf)
        )

    # -- the worker -----------------------------------------------------------------------------

    def start(self, hook: Callable[[str, Step], None] = no_hook) -> None:
        """Start a worker with copies; a second call starts a second one for the same node."""
        settings = LondisteSettings(
            db=self.leaf.connstr,
            queue_name=QUEUE,
            job_name="leaf",
            exception_sleep=0.2,
            loop_delay=0.2,
        )
        setup = CopySetup(
            QUEUE,
            "leaf",
            self.leaf.connstr,
            parallel_copies=self.parallel_copies,
            retry_sleep=self.retry_sleep,
            tick_wait=self.tick_wait,
            connections=self.max_connections,
            missing_columns=self.missing_columns,
            on_step=hook,
        )
        loader = SparkLoader(self.spark, self.max_connections, self.slice_bytes)
        self.copying = Copying(setup, loader, self._applier)
        signals = Signals()
        worker = Worker(settings, self._runner, signals=signals, copies=self.copying)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self._running.append((thread, signals))

    def _applier(self, name: str, provider: str) -> SparkReplay:
        return SparkReplay(self.spark, name, provider, self.leaf.connstr)

    def _runner(self, provider: str, _state: Any) -> BatchRunner[Any]:
        applier = SparkReplay(self.spark, QUEUE, provider, self.leaf.connstr)
        return BatchRunner(applier, QUEUE, WORKER, self.leaf.connstr)

    def stop(self) -> None:
        """Stop the worker, or all of them."""
        while self._running:
            self.stop_one()

    def stop_one(self) -> None:
        """Stop the worker that was started first."""
        thread, signals = self._running.pop(0)
        signals.stop.set()
        thread.join(timeout=120)
        assert not thread.is_alive()

    @property
    def alive(self) -> bool:
        """Do all workers run?"""
        return all(thread.is_alive() for thread, _ in self._running)

    def close(self) -> None:
        self.stop()
        self._stop.set()
        self._ticker.join(timeout=60)

    # -- tables ---------------------------------------------------------------------------------

    def add(
        self,
        *names: str,
        dest: str | None = None,
        attrs: str | None = None,
        args: tuple[str, ...] = (),
    ) -> None:
        """Add tables to the set on both sides."""
        for name in names:
            call(self.root, "londiste.local_add_table", QUEUE, name)
            call(self.leaf, "londiste.global_add_table", QUEUE, name)
        self.add_leaf(*names, dest=dest, attrs=attrs, args=args)

    def add_leaf(
        self,
        *names: str,
        dest: str | None = None,
        attrs: str | None = None,
        args: tuple[str, ...] = (),
    ) -> None:
        """Add tables on the leaf, which makes them be copied."""
        with self.leaf.transaction():
            for name in names:
                call(
                    self.leaf, "londiste.local_add_table", QUEUE, name, list(args), attrs,
                    dest or name,
                )  # fmt: skip

    def session(self) -> Session:
        """A session of a command on the leaf."""
        settings = LondisteSettings(db=self.leaf.connstr, queue_name=QUEUE, job_name="leaf")
        return Session(settings)

    def copies(self) -> list[str]:
        """Tables that this process is copying now."""
        return (
            [job.name for job in self.copying.schedule.jobs()] if self.copying is not None else []
        )

    def states(self) -> dict[str, str | None]:
        """merge_state by table."""
        rows = self.leaf.query("select * from londiste.get_table_list(%s) where local", [QUEUE])
        return {r.table_name: r.merge_state for r in rows}

    def wait_ok(self, seconds: float = DEADLINE) -> None:
        """Until all tables are ok and all foreign keys are back."""
        self.wait_until(
            lambda: (
                set(self.states().values()) <= {"ok"}
                and not self.leaf.value(
                    "select count(*) from londiste.get_valid_pending_fkeys(%s)", [QUEUE]
                )
            ),
            seconds,
        )

    def wait_until(self, true: Callable[[], bool], seconds: float = DEADLINE) -> None:
        """Poll a condition with a deadline."""
        assert until(true, seconds), (
            self.states(),
            self.leaf.query("select * from vedur.copy_progress"),
        )

    def settle(self) -> None:
        """Until the leaf has applied all that the root has now."""
        self.root.execute("select pgq.force_tick(%s)", [QUEUE])
        before = self.root.value("select max(tick_id) from pgq.tick")
        self.wait_until(
            lambda: (
                self.leaf.value(
                    "select last_tick_id from pgq_node.local_state where consumer_name = %s",
                    [WORKER],
                )
                > before
            )
        )

    def write(self, *statements: str) -> None:
        """Commit statements on the root, each for itself, and make a tick that is later.

        Which side of a tick a change is on decides who replays it: a copy that has a tick behind
        its snapshot hands over, and what comes then is the worker's. May be called in any thread.
        """
        with vdb.connect(self.root.connstr, autocommit=True) as db:
            for statement in statements:
                db.execute(statement)
            written = db.value("select txid_current()")
            seen = "select bool_or(txid_visible_in_snapshot(%s, tick_snapshot)) from pgq.tick"
            # One call may not do: the ticker's own, begun before, takes what was asked for.
            while not db.value(seen, [written]):
                db.execute("select pgq.force_tick(%s)", [QUEUE])
                db.execute("select pgq.ticker()")

    def same(self, table: str, dest: str | None = None, where: str = "true") -> None:
        """Both sides hold the same rows."""
        here = self.root.value(CONTENT.format(f"(select * from {table} where {where})"))
        there = self.leaf.value(CONTENT.format(dest or table))
        assert here == there, (
            self.root.value(f"select count(*) from {table} where {where}"),
            self.leaf.value(f"select count(*) from {dest or table}"),
        )

    def structure(self, *tables: str) -> list[str]:
        """Indexes and constraints of tables on the leaf."""
        return [r.line for t in tables for r in self.leaf.query(STRUCTURE, {"t": t})]

    def debris(self) -> list[str]:
        """What a finished copy must not leave behind."""
        queries = [
            (self.root, "select co_name from pgq.subscription join pgq.consumer "
             "on co_id = sub_consumer where co_name like '%.copy.%'"),
            (self.leaf, "select consumer_name from pgq_node.local_state "
             "where consumer_name like '%.copy.%'"),
            (self.leaf, "select table_name from vedur.copy_slice"),
            (self.leaf, "select table_name from londiste.table_info "
             "where dropped_ddl is not null"),
        ]  # fmt: skip
        return [row[0] for db, text in queries for row in db.query(text)]


@pytest.fixture
def quick_lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], without_spark: None
) -> Iterator[Lab]:
    """A laboratory that needs no Spark; failpoints that a test sets end with it."""
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), None)
    yield made
    failpoint.set_hook(None)
    made.close()
