"""A resident task: one Spark task that stays, and does one small piece of work after the other.

An empty Spark job costs some 25 ms of CPU in Java and the driver, more than all else of a small
batch. So while small batches follow each other, a task of a job that does not end does them: it is
sent an order (`orders.py`) and answers as any task does. Spark places that task, watches it and
runs it again elsewhere, because it is a job as any other: one barrier task, which a thread of the
driver waits for.

Nothing depends on it. Whatever goes wrong with the task, and whenever there is none, the work is an
ordinary job (`run_tasks`), which may do for a second time what a lost task had begun. So only such
work is fit for it as may be done twice by tasks that do not know of each other, as staging is.

It ends when the driver says so, when the driver's session is gone, and when there was nothing to do
for a while: then a worker that is idle has no task. A new one is made after `_LIFETIME`, when what
it was made for has changed (DDL), and after errors.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vedur.clock import SYSTEM, Backoff, Clock
from vedur.db import Database, connect
from vedur.errors import ConnectError, DatabaseError, ResidentLost, error_from_json, first_line
from vedur.failpoint import reach
from vedur.log import mask
from vedur.pipeline.spark.orders import Desk, DriverEnd, TaskEnd, serve
from vedur.pipeline.spark.spark_pool import enter_pool, interrupt_tag, tag_jobs
from vedur.pipeline.spark.tasks import TaskAnswer, attempt, plain, settle
from vedur.sql import query
from vedur.threads import Thread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Work that comes that often in a row, with so many seconds between, is worth a resident task.
_OFTEN = 3
_SOON = 10.0
#: Seconds without an order after which the task ends. The driver does not trust it so long: an
#: order must not arrive while it is going.
_IDLE = 30.0
_IDLE_HERE = 20.0
#: Seconds after which a new task takes its place: no process, connection or table gets old.
_LIFETIME = 900.0
#: Seconds that Spark may take to find a slot.
_PLACING = 60.0
#: Seconds that an order may take: as long as a server that has stopped answering is waited for.
#: A larger batch, or a slower server, is better off with an ordinary job.
_PATIENCE = 60.0
#: Seconds between two looks whether the other side is there: the driver's, and the task's.
_LOOK_HERE = 0.5
_LOOK = 5.0
#: Seconds that the end of a worker waits for the end of its task.
_GRACE = 2.0


@dataclass(frozen=True)
class _Duty:
    """What the task does; it travels to where it runs. Holds connect strings: never print it."""

    desk: Desk
    target: str = field(repr=False)
    do: Callable[[str], Any] = field(repr=False)

    def run(self) -> str:
        """Answer orders until the end; returns why it has come."""
        settle()
        title = "vedur resident task"
        with connect(self.target, name="db", autocommit=True, application_name=title) as db:
            words = json.dumps({"pid": os.getpid(), "backend": db.backend_pid})
            return serve(
                TaskEnd(self.desk, db),
                self._answer,
                words=words,
                look=_LOOK,
                idle=_IDLE,
                now=SYSTEM.monotonic,
            )

    def _answer(self, order: str) -> str:
        return json.dumps(attempt(self.do, order), default=plain)


class ResidentTask:
    """One such task as its driver sees it, and the session by which the two talk."""

    def __init__(
        self, spark: SparkSession, target: str, prefix: str, do: Callable[[str], Any], clock: Clock
    ) -> None:
        self.do = do
        self.opened = clock.monotonic()
        self.used = self.opened
        self._spark, self._target, self._clock = spark, target, clock
        self._desk = Desk.make(prefix)
        self._tag = f"vedur-resident-{secrets.token_hex(8)}"
        self._end: DriverEnd | None = None
        self.said: dict[str, Any] = {}  # what the task says of itself, once it is there
        self._removing = threading.Lock()
        self._leaving = threading.Event()
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run, name="resident-task", daemon=True)

    def start(self) -> None:
        """Have Spark place it; waits for nothing."""
        self._thread.start()
        reach("resident.started")

    # -- the thread that Spark's job belongs to --------------------------------------------------

    def _run(self) -> None:
        """Wait for the job, which lasts as long as the task."""
        try:
            title = "vedur resident driver"
            db = connect(self._target, name="db", autocommit=True, application_name=title)
            end = DriverEnd(self._desk, db)
            try:
                end.open()
            except BaseException:
                db.close()
                raise
            self._end = end
            if not self._leaving.is_set():
                log.debug("resident task: %s", self._collect())
        except Exception as error:
            log.debug("resident task: it has ended: %s", first_line(error))
            self._failure = error
        finally:
            self._ended.set()
            # the task has had nothing to do; or its end has not waited for the connection
            if self._failure is None or self._leaving.is_set():
                self._remove()

    def _collect(self) -> str:
        duty = _Duty(self._desk, self._target, self.do)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for _ in batches:
                yield pa.RecordBatch.from_pydict({"why": [duty.run()]})

        enter_pool(self._spark, "resident")
        tag_jobs(self._spark, self._tag)
        plan = self._spark.range(0, 1, 1, 1).mapInArrow(run, "why string", barrier=True)
        return str(plan.collect()[0].why)

    # -- its user --------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Has its job ended?"""
        return self._ended.is_set()

    @property
    def failure(self) -> Exception | None:
        """Why its job has failed, if it did."""
        return self._failure

    def is_ready(self) -> bool:
        """Has the task said that it is there?"""
        if not self.said:
            now, end = self._clock.monotonic(), self._end
            if end is not None and not self.has_ended:
                self.said = json.loads(end.hello() or "{}")
            if not self.said:
                self.used = now  # it comes after this
        return bool(self.said)

    def ask(self, order: str) -> TaskAnswer:
        """Have an order done and wait for the answer; raises where there is none to be had."""
        end = self._end
        assert end is not None
        end.send(order)
        reach("resident.ordered")
        said = json.loads(self._await(end, self._clock.monotonic() + _PATIENCE))
        reach("resident.answered")
        self.used = self._clock.monotonic()
        if "error" in said:
            return TaskAnswer(error=error_from_json(said))
        return TaskAnswer(said["value"])

    def _await(self, end: DriverEnd, deadline: float) -> str:
        """Wait for the answer to the last order; raises where the task has gone, or is too slow."""
        lost = ""
        while True:
            text = end.wait(0.0 if lost else _LOOK_HERE)
            if text is not None:
                return text
            if lost:  # and it has not gone right behind its answer
                raise ResidentLost(lost)
            lost = self._why_lost(end)
            if not lost and self._clock.monotonic() > deadline:
                lost = f"it has not answered for {_PATIENCE:.0f} s"

    def _why_lost(self, end: DriverEnd) -> str:
        """Say why no answer will come any more; empty where one may."""
        if self._failure is not None:
            return f"Spark has ended it: {first_line(self._failure)}"
        if self.has_ended:
            return "its job has ended"
        if end.is_alone():
            return "its process, or its connection to this node, is gone"
        return ""

    def close(self, *, wait: bool) -> None:
        """End it, and remove the table of orders; `wait`: for a moment, until that is done."""
        self._leaving.set()
        thread = Thread(target=self._finish, name="resident-task-end", daemon=True)
        thread.start()
        if wait:
            thread.join(2 * _GRACE)
        reach("resident.closed")

    def _finish(self) -> None:
        """Tell the task to end, and Spark where it does not; a server may hang meanwhile."""
        end = self._end
        if end is not None and not self.has_ended:
            with contextlib.suppress(DatabaseError):
                end.leave()
        if not self._ended.wait(_GRACE):
            with contextlib.suppress(Exception):  # Java may be gone
                interrupt_tag(self._spark, self._tag)
            self._ended.wait(_GRACE)
        self._remove()

    def _remove(self) -> None:
        """Drop the table of orders and close the session, once."""
        with self._removing:
            end, self._end = self._end, None
            if end is not None:
                end.remove()


@dataclass
class Residence:
    """Has small pieces of work done by a resident task while they follow each other closely.

    `area` is whose staging tables the table of orders is among, `prefix` how their names begin.
    """

    spark: SparkSession
    target: str = field(repr=False)
    area: str
    prefix: str
    clock: Clock = SYSTEM
    _task: ResidentTask | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _backoff: Backoff = field(default_factory=lambda: Backoff(first=5.0, cap=300.0))
    _not_before: float = 0.0
    _last: float = 0.0  # when work came, and how often it came soon
    _often: int = 0
    _misfits: int = 0  # pieces of work in a row that were not for the task that is there
    _noted: bool = False  # is there a loss written down?

    def ask(self, db: Database, do: Callable[[str], Any], order: str) -> TaskAnswer | None:
        """Have the resident task do it; None where it is to be an ordinary job.

        `db` is an autocommit connection to the target, for what `status` shows.
        """
        if not self._lock.acquire(blocking=False):
            return None  # the range ahead is being staged
        try:
            task = self._find(db, do)
            if task is None:
                return None
            try:
                answer = task.ask(order)
            except Exception as error:
                self._lose(db, error)
                return None
            self._works(db)
            return answer
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the task, if there is one."""
        with self._lock:
            self._end(wait=True)
            self._often = 0

    # -- when there is one -----------------------------------------------------------------------

    def _find(self, db: Database, do: Callable[[str], Any]) -> ResidentTask | None:
        """Return the task if it can be asked now; make one where it pays."""
        now = self.clock.monotonic()
        self._often = self._often + 1 if now - self._last <= _SOON else 1
        self._last = now
        try:
            if self._keep(db, do, now):
                task = self._task
                return task if task is not None and task.is_ready() and task.do == do else None
        except Exception as error:
            self._lose(db, error)
            return None
        if now >= self._not_before and self._often >= _OFTEN:
            self._task = ResidentTask(self.spark, self.target, self.prefix, do, self.clock)
            self._task.start()
        return None

    def _keep(self, db: Database, do: Callable[[str], Any], now: float) -> bool:
        """Is there a task that is to stay? Ends one that is not."""
        task = self._task
        if task is None:
            return False
        if task.failure is not None:
            raise ResidentLost(f"Spark has ended it: {first_line(task.failure)}")
        if not task.is_ready() and not task.has_ended:
            if now - task.opened > _PLACING:
                raise ResidentLost(f"Spark has had no slot for it for {_PLACING:.0f} s")
            return True
        self._misfits = 0 if task.do == do else self._misfits + 1
        old = now - task.used > _IDLE_HERE or now - task.opened > _LIFETIME
        if not task.has_ended and not old and self._misfits < _OFTEN:
            return True
        self._end(wait=False)
        return False

    def _end(self, *, wait: bool) -> None:
        task, self._task = self._task, None
        self._misfits = 0
        if task is not None:
            task.close(wait=wait)

    # -- what status shows -----------------------------------------------------------------------

    def _lose(self, db: Database, error: Exception) -> None:
        """Go on with ordinary jobs, for some time."""
        self._end(wait=False)
        pause = self._backoff.pause()
        self._not_before = self.clock.monotonic() + pause
        reason = mask(first_line(error))
        log.warning(
            "the resident task is lost, batches are ordinary Spark jobs for at least %.0f s: %s",
            pause, reason,
        )  # fmt: skip
        self._noted = True
        with contextlib.suppress(DatabaseError):
            if db.value(query("resident", "has_loss")):
                db.execute(query("resident", "write_loss"), [self.area, reason])
        reach("resident.lost")

    def _works(self, db: Database) -> None:
        self._backoff.reset()
        if self._noted:
            log.info("batches are done by a resident task again")
            forget_loss(db, self.area)
            self._noted = False


def forget_loss(db: Database, queue: str) -> None:
    """Write down that no resident task is lost."""
    try:
        if db.value(query("resident", "has_loss")):
            db.execute(query("resident", "forget_loss"), [queue])
    except ConnectError:
        raise
    except DatabaseError as error:
        log.debug("what status shows of the resident task is not up to date: %s", error.message)
