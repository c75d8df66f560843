"""The worker process from its start to its end.

Steps: to the background if asked, before Java exists; pidfile; signals; the loop. Where the node
applies batches (not on a root), the first round starts Spark; the first one that works tells the
starter. A step that fails before the starter was
told fails the start, except a server that cannot be reached: that is waited for.

`work` is the part of it that a process of several queues has once for each of them (`many.py`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vedur.change.quarantine import Policy
from vedur.config import LondisteSettings, load_londiste
from vedur.config.reader import for_every_command
from vedur.daemon import (
    Detached,
    PidFile,
    Signals,
    detach,
    require_pidfile,
    set_title,
    tell_systemd,
)
from vedur.db.conninfo import parse
from vedur.errors import ConfigError
from vedur.handlers.registry import load_handlers
from vedur.log import LogOptions, direct_job, setup_logging, spark_log, trim_log
from vedur.node import WorkerState
from vedur.node.endpoint import Endpoint
from vedur.ops.processes.engine import Engine
from vedur.ops.processes.page_beside import PageBeside
from vedur.ops.processes.share import Share, share_of
from vedur.worker.batch import BatchRunner
from vedur.worker.first_copy.context import CopySetup
from vedur.worker.first_copy.control import Copying
from vedur.worker.loop import Worker
from vedur.worker.own_queue import choose_own_queue
from vedur.worker.system_events import Registers

if TYPE_CHECKING:
    from vedur.pipeline.compare import SessionServer
    from vedur.pipeline.copy import Budget
    from vedur.pipeline.replay.stage import SparkReplay
    from vedur.pipeline.replay.staged import Staged
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerOptions:
    """The command line's share: -d, -v/-q, and --set for a later reload."""

    background: bool = False
    verbosity: int = 0
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """What the worker of one queue has in common with others in its process, and tells it.

    `job` is its name there, `spark_log` the file of Java's lines, `queues` how many there are;
    `budget` gives what first copies
    may hold of connections. `alive` is called when the worker
    has seen that it can work, `failed` with each error before that, `named` with its node's name,
    `check` with new settings: raises for those that do not go together with the others'.
    """

    job: str
    engine: Engine
    spark_log: str
    queues: int
    budget: Callable[[], Budget]
    alive: Callable[[], None]
    failed: Callable[[Exception], None]
    named: Callable[[str], None]
    check: Callable[[LondisteSettings], None]


#: Settings that a reload cannot change, as what they decide about is made at the start.
_FIXED = ("pidfile", "queue_name", "resident_task", "spark")
#: And those of a worker beside others: its name there, and what all have in common.
_FIXED_BESIDE = (*_FIXED, "job_name", "max_connections_per_node")


def run_worker(settings: LondisteSettings, options: WorkerOptions) -> int:
    """Run the worker of a node until it is told to stop; the exit code."""
    return WorkerProcess(settings, options).run()


@dataclass
class WorkerProcess:
    """One run of a worker."""

    settings: LondisteSettings
    options: WorkerOptions
    beside: Beside | None = None
    _signals: Signals = field(default_factory=Signals)
    _detached: Detached | None = None
    _engine: Engine = field(init=False)
    _spark: SparkSession | None = None
    _shared: SessionServer | None = None
    _budget: Budget | None = None
    _worker: Worker | None = None
    _page: PageBeside = field(default_factory=PageBeside)
    _node: str = ""

    def __post_init__(self) -> None:
        self._engine = self.beside.engine if self.beside else Engine(self._start_spark)

    def run(self) -> int:
        """See `run_worker`."""
        settings = self.settings
        if self.options.background:
            require_pidfile(settings.pidfile)
            self._detached = detach()
            self._log_as(settings)
        try:
            return self._serve()
        except Exception as error:
            if self._detached is None:
                raise
            return self._detached.broken(error)

    def _serve(self) -> int:
        settings = self.settings
        set_title("vedur:", "worker", f"({settings.queue_name})")
        pidfile = PidFile(settings.pidfile) if settings.pidfile else None
        if pidfile:
            pidfile.acquire()
        try:
            self._signals.on_exit = pidfile.release if pidfile else None
            self._signals.install()
            self.work()
        finally:
            self._engine.stop()
            if pidfile:
                pidfile.release()
        return 0

    def work(self) -> None:
        """Run the worker until it is told to stop."""
        try:
            self._page.follow(self.settings)
            self._worker = Worker(
                self.settings,
                make_runner=self._make_runner,
                signals=self._signals,
                reload=self._reload,
                spark_lost=self._spark_lost,
                spark_log=self.beside.spark_log if self.beside else None,
                on_alive=self._alive,
                on_failed=self.beside.failed if self.beside else None,
                on_node=self._name,
            )
            self._worker.run()
        finally:
            self._page.stop()
            self._leave_session()

    def _name(self, node: str) -> None:
        if node == self._node:
            return
        self._node = node
        if self.beside:
            self.beside.named(node)
        else:
            set_title("vedur:", "worker", node, f"({self.settings.queue_name})")

    def _alive(self) -> None:
        if self.beside:
            self.beside.alive()
            return
        if self._detached is not None:
            self._detached.ready()
        tell_systemd()

    # -- Spark, where batches are applied: on a leaf and a branch -------------------------------

    def _make_runner(self, provider: str, state: WorkerState) -> BatchRunner[Staged]:
        """Make what applies the node's batches, and passes them on where it is a branch or a part;
        starts Spark. The roles of `worker/roles` call this."""
        from vedur.pipeline.replay.stage import ReplayUse, make_replay
        from vedur.pipeline.spark.tasks import has_slot_kept, parallelism

        spark = self._take_session()
        settings = self._worker.settings if self._worker else self.settings
        share = share_of(parallelism(spark), self.beside.queues if self.beside else 1)
        parallel = share.replay
        self._allow_copies(spark, share)
        own_queue = choose_own_queue(settings.queue_name, state, settings)
        return BatchRunner(
            make_replay(
                spark,
                settings,
                settings.queue_name,
                provider,
                ReplayUse(
                    parallel=parallel,
                    forward=own_queue is not None,
                    resident=has_slot_kept(spark),
                ),
            ),
            settings.queue_name,
            state.worker_name,
            settings.db,
            max_batch_events=settings.max_batch_events,
            parallel=parallel,
            connections=settings.max_connections_per_node,
            on_error=Policy(settings.on_error),
            own_queue=own_queue,
            registers=Registers.of(settings),
        )

    def _allow_copies(self, spark: SparkSession, share: Share) -> None:
        """Let first copies use the session; called again after a reload of the settings."""
        from vedur.pipeline.copy import Budget, SparkLoader
        from vedur.pipeline.replay.stage import ReplayUse, make_replay

        worker = self._worker
        if worker is None:
            return
        settings = worker.settings
        most = settings.max_connections_per_node
        if self.beside:
            most = min(most, share.copies)
        if self._budget is None:
            self._budget = Budget(1, self.beside.budget() if self.beside else None)
        self._budget.total = most
        setup = CopySetup(
            settings.queue_name,
            settings.job_name,
            settings.db,
            parallel_copies=settings.parallel_copies,
            retry_sleep=settings.exception_sleep,
            lock_timeout=settings.lock_timeout,
            max_batch_events=settings.max_batch_events,
            connections=most,
            missing_columns=settings.missing_columns,
            on_error=Policy(settings.on_error),
            slots=self._budget if self.beside else None,
            worker_slots=Budget(share.replay) if self.beside else None,
            reach_node=lambda location: Endpoint.of_node(settings, location).connstr,
        )
        loader = SparkLoader(spark, most, budget=self._budget)

        def make_applier(area: str, provider: str) -> SparkReplay:
            return make_replay(spark, settings, area, provider, ReplayUse(share.replay))

        if worker.copies is not None:
            worker.copies.reconfigure(setup, loader, make_applier)
        else:
            worker.copies = Copying(setup, loader, make_applier)

    def _spark_lost(self, thorough: bool) -> bool:
        settings = self.settings
        path = self.beside.spark_log if self.beside else spark_log(settings.logfile)
        trim_log(path, settings.log_size, settings.log_count)
        return self._spark is not None and self._engine.has_lost(self._spark, thorough=thorough)

    def _take_session(self) -> SparkSession:
        spark = self._engine.get()
        if spark is not self._spark:
            self._leave_session()
            self._spark = spark
            self._share(spark)
        return spark

    def _start_spark(self) -> SparkSession:
        """Start the session of this process; called by its engine."""
        from vedur.pipeline.spark.session import start_session

        spark = start_session(
            f"vedur {self._node}",
            self.settings.spark,
            spark_log(self.settings.logfile),
            most_tasks=self.settings.max_connections_per_node,
            resident=self.settings.resident_task == "auto",
            echo=self.options.verbosity > 0 and self._detached is None,
        )
        # Spark takes SIGINT for itself when it starts.
        self._signals.install()
        return spark

    def _share(self, spark: SparkSession) -> None:
        """Let comparisons of this node use the session; without it they start their own."""
        from vedur.pipeline.compare import SessionServer, socket_path
        from vedur.pipeline.spark.spark_pool import is_remote

        path = socket_path(self.settings.pidfile)
        if not path or is_remote(spark):
            return
        try:
            self._shared = SessionServer(
                spark, path, lambda: self.settings.max_connections_per_node
            )
        except OSError as error:
            log.warning("compare cannot use this session: %s: %s", path, error.strerror)

    def _leave_session(self) -> None:
        """Let go of the session, which others may go on with."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.stop()
        self._spark = None

    # -- settings -------------------------------------------------------------------------------

    def _reload(self) -> LondisteSettings:
        """Read the ini as it is now; what cannot be used raises, and all stays as it was."""
        old = self.settings
        fresh = load_londiste(old.config_file, dict(self.options.overrides))
        parse(fresh.db)
        parse(fresh.remote_extra_connstr)
        fixed = _FIXED_BESIDE if self.beside else _FIXED
        kept = replace(fresh, **{key: getattr(old, key) for key in fixed})
        if self.beside:
            self.beside.check(kept)
        load_handlers(fresh)
        try:
            self._log_as(fresh)
        except OSError as error:
            raise ConfigError(
                f'cannot write log file "{fresh.logfile}": {error.strerror}'
            ) from error
        for warning in for_every_command(fresh.warnings):
            log.warning("%s", warning)
        for key in fixed:
            if getattr(fresh, key) != getattr(old, key):
                shown = "[spark]" if key == "spark" else f'"{key}"'
                log.warning("%s has changed: it takes effect when the worker is started again",
                            shown)  # fmt: skip
        self.settings = kept
        self._page.follow(self.settings)
        return self.settings

    def _log_as(self, settings: LondisteSettings) -> None:
        if self.beside:
            direct_job(self.beside.job, job_log_options(settings, self.options.verbosity))
            return
        setup_logging(
            LogOptions(
                logfile=settings.logfile,
                verbosity=self.options.verbosity,
                log_format=settings.log_format,
                log_size=settings.log_size,
                log_count=settings.log_count,
                console=self._detached is None and sys.stderr is not None,
                use_skylog=settings.use_skylog,
                skylog_locations=settings.skylog_locations,
            )
        )


def job_log_options(settings: LondisteSettings, verbosity: int) -> LogOptions:
    """Return where the lines of one worker among others go; the console is common to all."""
    return LogOptions(
        logfile=settings.logfile,
        verbosity=verbosity,
        log_format=settings.log_format,
        log_size=settings.log_size,
        log_count=settings.log_count,
        console=False,
    )
