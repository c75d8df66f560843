"""The workers of several queues in one process: one Java, one budget, a thread for each queue.

Everything that can be wrong with the ini files is found before anything is started, and refuses the
start. From then on each worker lives as if it were alone (`worker.py`): what goes wrong is in its
own log and in `status` of its own queue, and it tries again while the others go on. Signals to the
process are for all of them; `-r`, `-s` and `-k` with the ini of one reach that one through
`vedur/control.py`. The process ends with its last worker.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from vedur.clock import SYSTEM, Clock
from vedur.config import LondisteSettings
from vedur.control import Control, control_path
from vedur.daemon import Detached, PidFile, Signals, detach, set_title, tell_systemd
from vedur.db.of_job import cancel_statements, forget_connections
from vedur.errors import (
    AlreadyRunning,
    ConfigError,
    ConnectError,
    StateError,
    UsageError,
    VedurError,
    first_line,
)
from vedur.failpoint import reach
from vedur.handlers.registry import forget_handlers, load_handlers
from vedur.log import direct_job, setup_job_logging, spark_log
from vedur.ops.processes.engine import Engine
from vedur.ops.processes.together import require_together
from vedur.ops.processes.worker import Beside, WorkerOptions, WorkerProcess, job_log_options
from vedur.threads import Thread, threads_of, working_for

if TYPE_CHECKING:
    from vedur.pipeline.copy import Budget
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)

#: Seconds between two looks at sockets that may have been removed; all else wakes the main thread.
_LOOK = 1.0
#: Seconds between two rounds of cancelling what a worker does that is to end at once.
_CUT = 0.3
#: Seconds that threads of a worker that has ended may take to notice it.
_LEFTOVER = 60.0


def run_workers(several: Sequence[LondisteSettings], options: WorkerOptions) -> int:
    """Run the workers of several nodes in this process until all have ended; the exit code."""
    return ManyWorkers(several, options).run()


@dataclass
class QueueJob:
    """One worker among others."""

    name: str
    process: WorkerProcess
    signals: Signals
    pidfile: PidFile | None = None
    control: Control | None = None
    thread: Thread | None = None
    node: str = ""
    alive: bool = False  # it has worked
    failure: Exception | None = None  # why it has not, yet
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def settings(self) -> LondisteSettings:
        """Its settings as they are now."""
        return self.process.settings

    @property
    def title(self) -> str:
        """What `ps` shows of it."""
        return f"{self.node or self.name} ({self.settings.queue_name})"


class ManyWorkers:
    """One run of such a process."""

    def __init__(
        self,
        several: Sequence[LondisteSettings],
        options: WorkerOptions,
        clock: Clock = SYSTEM,
    ) -> None:
        require_together(several)
        self._first = several[0]
        self._options = options
        self._clock = clock
        self._signals = Signals()
        self._detached: Detached | None = None
        self._told = False
        self._refused = False
        self._changing = threading.Lock()  # of the budget, and of who is to be killed
        self._spark_log = next((spark_log(s.logfile) for s in several if s.logfile), "")
        self._engine = Engine(self._start_spark)
        self._budget: Budget | None = None
        self.jobs = [self._make_job(settings, len(several)) for settings in several]

    def _make_job(self, settings: LondisteSettings, queues: int) -> QueueJob:
        name = settings.job_name
        beside = Beside(
            name,
            self._engine,
            self._spark_log,
            queues,
            budget=self._take_budget,
            alive=lambda: self._note_alive(job),
            failed=lambda error: self._note_failure(job, error),
            named=lambda node: self._note_node(job, node),
            check=lambda fresh: self._check(job, fresh),
        )
        signals = Signals()
        job = QueueJob(name, WorkerProcess(settings, self._options, beside, signals), signals)
        if settings.pidfile:
            control_path(settings.pidfile)  # raises for one that is too long
            job.pidfile = PidFile(settings.pidfile)
        return job

    # -- start and end --------------------------------------------------------------------------

    def run(self) -> int:
        """See `run_workers`."""
        for job in self.jobs:
            if self._options.background and job.pidfile is None:
                raise UsageError(f'Daemon needs pidfile, "{job.settings.config_file}" has none')
            with working_for(job.name):
                load_handlers(job.settings)
        if self._options.background:
            # Nothing heavy runs yet: no thread, no connection.
            self._detached = detach()
        try:
            return self._serve()
        except Exception as error:
            if self._detached is None:
                raise
            return self._detached.broken(error)

    def _serve(self) -> int:
        self._open_logs()
        try:
            self._claim()
            self._signals.on_exit = self._let_go
            self._install_signals()
            self._show_title()
            self._start()
            self._wait()
        finally:
            self._engine.stop()
            self._let_go()
        if self._refused:
            raise self._refusal()
        return 0

    def _install_signals(self) -> None:
        self._signals.install()

    def _open_logs(self) -> None:
        console = self._detached is None and sys.stderr is not None
        forms = {job.settings.log_format for job in self.jobs}
        setup_job_logging(
            self._options.verbosity,
            console=console,
            log_format=forms.pop() if len(forms) == 1 else "text",
        )
        for job in self.jobs:
            try:
                direct_job(job.name, job_log_options(job.settings, self._options.verbosity))
            except OSError as error:
                raise ConfigError(
                    f'cannot write log file "{job.settings.logfile}": {error.strerror}'
                ) from error

    def _claim(self) -> None:
        """Take the pidfiles and sockets of all, or of none."""
        try:
            for job in self.jobs:
                if job.pidfile is not None:
                    _acquire(job.pidfile, partial(self._listen, job, job.pidfile.path))
        except BaseException:
            self._let_go()
            raise
        reach("queues.claimed")

    def _listen(self, job: QueueJob, pidfile: str) -> None:
        """Open its socket: whoever sees its pidfile finds the socket beside it, from the first
        moment to the last. A signal to the pidfile's process would be for all queues."""
        if job.control is None:
            job.control = Control(pidfile, self._obey(job))

    def _let_go(self) -> None:
        for job in self.jobs:
            self._release(job)

    @staticmethod
    def _release(job: QueueJob) -> None:
        if job.pidfile is not None:
            job.pidfile.release()
        if job.control is not None:
            job.control.close()

    def _start(self) -> None:
        for job in self.jobs:
            with working_for(job.name):
                log.info("worker of queue %s, one of %d in this process",
                         job.settings.queue_name, len(self.jobs))  # fmt: skip
                for warning in job.settings.warnings:
                    log.warning("%s", warning)
                job.thread = Thread(
                    target=self._run_job, args=(job,), name=f"worker {job.name}", daemon=True
                )
            job.thread.start()
        reach("queues.begun")

    def _wait(self) -> None:
        """Pass on signals until the last worker has ended."""
        while not all(job.ended.is_set() for job in self.jobs):
            self._signals.wait(_LOOK)
            if self._signals.stop.is_set():
                for job in self.jobs:
                    job.signals.ask_stop()
            if self._signals.take_reload():
                for job in self.jobs:
                    job.signals.ask_reload()
            for job in self.jobs:
                if job.control is not None and not job.ended.is_set():
                    job.control.keep()
            self._tell_starter()

    # -- one worker -----------------------------------------------------------------------------

    def _run_job(self, job: QueueJob) -> None:
        """Run the worker of one queue in its thread, again if it breaks, until it is to stop."""
        try:
            while not self._work(job) and not job.signals.stop.is_set():
                self._await_threads(job)  # what it had begun must not meet what it begins anew
                job.signals.wait(job.settings.exception_sleep)
            self._await_threads(job)
            reach("queues.left")
        except Exception as error:
            log.critical("BUG: %r; queue %s is given up", error, job.settings.queue_name,
                         exc_info=True)  # fmt: skip
        finally:
            self._release(job)
            log.info("worker of queue %s has ended", job.settings.queue_name)
            forget_connections(job.name)
            forget_handlers(job.name)
            direct_job(job.name, None)
            job.ended.set()
            self._show_title()
            self._signals.wake.set()

    def _work(self, job: QueueJob) -> bool:
        """Let it work; True if it has ended in order."""
        try:
            job.process.work()
        except Exception as error:
            if job.signals.at_once:
                log.debug("given up: %s", error)
                return True
            message = error.message if isinstance(error, VedurError) else first_line(error)
            log.critical("worker of queue %s broke: %s; it begins again",
                         job.settings.queue_name, message, exc_info=True)  # fmt: skip
            self._note_failure(job, error)
            return False
        return True

    def _await_threads(self, job: QueueJob) -> None:
        """Wait for what the worker has started: its pidfile says that nobody works for it."""
        deadline = self._clock.monotonic() + _LEFTOVER
        while left := threads_of(job.name):
            left[0].join(timeout=_CUT)
            if job.signals.at_once or self._clock.monotonic() > deadline:
                self._cut(job)

    def _cut(self, job: QueueJob) -> None:
        self._engine.interrupt(job.name)
        cancel_statements(job.name)

    # -- requests -------------------------------------------------------------------------------

    def _obey(self, job: QueueJob) -> Callable[[str], None]:
        """Return what does as a word says that came for one worker."""

        def obey(word: str) -> None:
            with working_for(job.name):
                if word == "reload":
                    job.signals.ask_reload()
                elif word == "stop":
                    log.info("asked to stop queue %s", job.settings.queue_name)
                    job.signals.ask_stop()
                elif word == "kill":
                    log.info("asked to stop queue %s at once", job.settings.queue_name)
                    self._kill(job)

        return obey

    def _kill(self, job: QueueJob) -> None:
        """End a worker without waiting for its batch, and the process with the last of them."""
        with self._changing:
            job.signals.ask_stop(at_once=True)
            last = all(j.signals.at_once or j.ended.is_set() for j in self.jobs)
        if last:
            self._signals.leave()
        with working_for(""):  # it is to outlive the threads of the job
            Thread(target=self._cut_down, args=(job,), name="vedur-kill", daemon=True).start()

    def _cut_down(self, job: QueueJob) -> None:
        while not job.ended.is_set():
            self._cut(job)
            job.ended.wait(_CUT)

    def _check(self, job: QueueJob, fresh: LondisteSettings) -> None:
        """Check the new settings of one worker against those of the others."""
        others = [j.settings for j in self.jobs if j is not job and not j.ended.is_set()]
        require_together([fresh, *others])

    # -- what the starter is told ---------------------------------------------------------------

    def _note_alive(self, job: QueueJob) -> None:
        job.alive = True
        self._signals.wake.set()

    def _note_failure(self, job: QueueJob, error: Exception) -> None:
        if job.failure is None:
            job.failure = error
            self._signals.wake.set()

    def _tell_starter(self) -> None:
        """Tell it once, when every worker has worked, failed or ended.

        The start has worked if one worker has, or may as soon as its server is there.
        """
        if self._told or not all(j.alive or j.failure or j.ended.is_set() for j in self.jobs):
            return
        self._told = True
        failed = [job for job in self.jobs if not job.alive and job.failure is not None]
        if len(failed) == len(self.jobs) and not any(
            isinstance(job.failure, ConnectError) for job in failed
        ):
            self._refused = True
            for job in self.jobs:
                job.signals.ask_stop()
            return
        if self._detached is not None:
            self._detached.ready("\n".join(map(_complaint, failed)))
        tell_systemd()

    def _refusal(self) -> VedurError:
        first = self.jobs[0].failure
        kind = type(first) if isinstance(first, (StateError, ConfigError)) else StateError
        told = "; ".join(_complaint(job, again=False) for job in self.jobs)
        return kind(f"no queue can be served: {told}")

    def _note_node(self, job: QueueJob, node: str) -> None:
        job.node = node
        self._show_title()

    def _show_title(self) -> None:
        shown = ", ".join(job.title for job in self.jobs if not job.ended.is_set())
        set_title("vedur:", "workers", shown)

    # -- what they share ------------------------------------------------------------------------

    def _take_budget(self) -> Budget:
        """Return the connections that first copies of all queues may hold to a node together."""
        from vedur.pipeline.copy import Budget

        with self._changing:
            if self._budget is None:
                self._budget = Budget(self._first.max_connections_per_node)
            return self._budget

    def _start_spark(self) -> SparkSession:
        from vedur.pipeline.spark.session import start_session

        return start_session(
            f"vedur {len(self.jobs)} queues",
            self._first.spark,
            self._spark_log,
            most_tasks=self._first.max_connections_per_node,
            more_tasks=len(self.jobs),  # a queue whose tasks wait keeps their slots
            echo=self._options.verbosity > 0 and self._detached is None,
        )


def _acquire(pidfile: PidFile, before: Callable[[], None]) -> None:
    try:
        pidfile.acquire(before)
    except AlreadyRunning as error:
        raise AlreadyRunning(f"{error.message} ({pidfile.path}); no queue was started") from error


def _complaint(job: QueueJob, *, again: bool = True) -> str:
    error = job.failure
    said = error.message if isinstance(error, VedurError) else first_line(error or "")
    tail = "; it is tried again" if again else ""
    return f'queue "{job.settings.queue_name}" ({job.settings.config_file}): {said}{tail}'
