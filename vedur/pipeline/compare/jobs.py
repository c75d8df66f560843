"""Runs statements of a comparison as Spark tasks, each with its own connections, at the side's
moment, and says how far it is: on a terminal as it goes, else a log line at times.
"""

from __future__ import annotations

import itertools
import logging
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.errors import VedurError, error_from_json
from vedur.pipeline.compare.model import Pair, Piece, Side
from vedur.pipeline.compare.plan import slices
from vedur.pipeline.spark.tasks import has_slot_kept, parallelism, run_tasks, stream_tasks
from vedur.sql import query
from vedur.threads import Pool, Thread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")

SOURCE, TARGET = 0, 1

#: The last line of a traceback that came through Spark as text.
_OURS = re.compile(r"^vedur\.errors\.(\w+): (.*)$", re.M)
#: Stand for a piece and for its pages in the pattern of a statement; no SQL has such characters.
_TABLE, _PAGES = "\x01table\x01", "\x01pages\x01"
#: Bytes of COPY data that are parsed together.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Work:
    """Statements of one task, all on one side: `pattern` for each of `cuts`, (table, pages), on
    so many connections at once.

    All tasks travel in every closure, so what they share is one text, and each has only its cuts.
    """

    side: int
    begin: str
    pattern: str
    cuts: tuple[tuple[str, str], ...]
    connstr: str = field(repr=False)
    connections: int = 1

    @property
    def statements(self) -> tuple[str, ...]:
        """One for each cut."""
        return tuple(
            self.pattern.replace(_TABLE, table).replace(_PAGES, pages) for table, pages in self.cuts
        )


@contextmanager
def moment(connstr: str, begin: str) -> Iterator[Database]:
    """Open a connection inside a transaction at an exported snapshot; closed at the end."""
    db = connect(connstr, name="compare", autocommit=True, application_name="vedur compare")
    try:
        db.without_timeouts()
        db.execute(query("compare", "pin"))
        db.execute(begin)
        yield db
    finally:
        db.close()


def ask_each(work: Work, turn: Callable[[Database, Iterator[str]], T]) -> list[T]:
    """Call `turn` for each connection of the work, with an iterator that all of them share: whoever
    is done with a statement takes the next one. Waits for all."""
    texts = iter(work.statements)

    def run(_number: int) -> T:
        try:
            with moment(work.connstr, work.begin) as db:
                return turn(db, texts)
        except BaseException:
            list(texts)  # nobody begins another one
            raise

    count = min(work.connections, len(work.cuts))
    with Pool(count) as pool:
        return list(pool.map(run, range(count)))


def plan_work(
    pair: Pair,
    template: str,
    limit: int,
    *,
    mask: int | None = None,
    buckets: Sequence[int] | None = None,
) -> list[Work]:
    """Return one statement for each slice of both sides, dealt out to at most `limit` tasks a side.

    Tasks of both sides alternate, so that both servers work from the first moment on. `mask`
    numbers the buckets of keys, `buckets` chooses some of them.
    """
    planned = plan_both(pair, template, limit, mask=mask, buckets=buckets)
    return [work for both in planned for work in both]


def plan_both(
    pair: Pair,
    template: str,
    limit: int,
    *,
    connections: int = 1,
    mask: int | None = None,
    buckets: Sequence[int] | None = None,
) -> list[tuple[Work, ...]]:
    """Return the same for tasks that work on both sides at once, see `side_by_side`; `connections`
    is how many a task has to each side."""
    sides = []
    for number, side in ((SOURCE, pair.source), (TARGET, pair.target)):
        args = side.slice_args(Piece(_TABLE, None), _PAGES)
        pattern, begin = template.format(**_filled(side, args, mask, buckets)), side.begin()
        cuts = [(piece.name, pages) for piece, pages in slices(side)]
        tasks = min(limit, len(cuts))
        sides.append(
            [
                Work(number, begin, pattern, tuple(cuts[i::tasks]), side.connstr, connections)
                for i in range(tasks)
            ]
        )
    return [tuple(w for w in both if w is not None) for both in zip_longest(*sides)]


def side_by_side(do: Callable[[Work], T]) -> Callable[[Sequence[Work]], list[T]]:
    """Return a function that does `do` for several pieces of work in one task, all at once.

    While one server hashes, the other does too, and what a task costs besides (Spark, a connection,
    a snapshot) is spent while backends of other tasks are at work.
    """

    def run(works: Sequence[Work]) -> list[T]:
        with Pool(len(works)) as pool:
            return list(pool.map(do, works))

    return run


def _filled(
    side: Side, args: dict[str, object], mask: int | None, buckets: Sequence[int] | None
) -> dict[str, object]:
    filled = {**args, "key": side.key_json()}
    if mask is not None:
        filled["bucket"] = side.bucket(mask)
    if buckets is not None:
        chosen = query("compare", "in_buckets").format(
            bucket=filled["bucket"], numbers=",".join(map(str, buckets))
        )
        filled["condition"] = f"{args['condition']} and {chosen}"
    return filled


@contextmanager
def job(spark: SparkSession, what: str, count: Count | None = None) -> Iterator[None]:
    """Show the progress of jobs meanwhile; an error of ours inside Spark's long one is raised as it
    was."""
    with progress(spark, what, count):
        try:
            yield
        except VedurError:
            raise
        except Exception as error:
            found = _OURS.findall(str(error))
            if not found:
                raise
            name, message = found[-1]
            raise error_from_json({"error": name, "message": message, "values": {}}) from error


def collect(
    spark: SparkSession, work: Sequence[T], do: Callable[[T], Any], what: str, lanes: int = 0
) -> list[Any]:
    """Run `do` for each piece of work in a task of its own, and wait for all; small answers only,
    in order.

    With `lanes` so many of them at once, others of the session have the rest of its slots. Errors
    of ours cross from the task as values and are raised here as what they were.
    """
    if not work:
        return []
    if lanes:
        return _in_lanes(spark, work, do, what, lanes)
    with job(spark, what):
        return run_tasks(spark, do, work)


def _in_lanes(
    spark: SparkSession, work: Sequence[T], do: Callable[[T], Any], what: str, lanes: int
) -> list[Any]:
    """Run each piece of work as a job of its own, so many at once: Spark has no limit for the tasks
    of a job that run at once. Waits for all."""
    from pyspark import inheritable_thread_target

    waiting = deque(enumerate(work))
    answers: dict[int, Any] = {}

    def lane() -> None:
        try:
            while True:
                try:
                    number, item = waiting.popleft()
                except IndexError:
                    return
                (answers[number],) = run_tasks(spark, do, [item])
        except BaseException:
            waiting.clear()  # the other lanes end, too
            raise

    # Java forgets jobs that have ended: how far it is can only be counted here.
    with job(spark, what, lambda: (len(answers), len(work))):
        with Pool(lanes) as pool:
            # threads of their own, in the same job group and pool of Spark's
            running = [pool.submit(inheritable_thread_target(spark)(lane)) for _ in range(lanes)]
        for future in running:
            future.result()
    return [answers[number] for number in range(len(work))]


def stream(spark: SparkSession, work: Sequence[Work], names: Sequence[str]) -> DataFrame:
    """Return rows of all statements as a DataFrame; column `side` comes first, then the query's:
    `key` is text, all others are numbers."""
    kinds = ["side int", *(f"{n} string" if n == "key" else f"{n} bigint" for n in names)]
    columns = list(names)
    return stream_tasks(spark, lambda item: _read(item, columns), work, ", ".join(kinds))


def _read(work: Work, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Read COPY's rows, which come one by one and are parsed many at a time, by Arrow."""
    with moment(work.connstr, work.begin) as db:
        for text in work.statements:
            blocks: list[bytes] = []
            size = 0
            with db.copy_out(query("compare", "as_csv").format(statement=text)) as rows:
                for row in rows:
                    blocks.append(bytes(row))
                    size += len(row)
                    if size > _BLOCK:
                        yield from _parse(work.side, names, blocks)
                        blocks, size = [], 0
            if blocks:
                yield from _parse(work.side, names, blocks)


def _parse(side: int, names: list[str], blocks: list[bytes]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() if name == "key" else pa.int64() for name in names}
    # No value holds a line break: keys are JSON, which writes it as two characters.
    table = csv.read_csv(
        pa.BufferReader(b"".join(blocks)),
        csv.ReadOptions(use_threads=False, column_names=names),
        csv.ParseOptions(newlines_in_values=False),
        csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    column = pa.array([side], pa.int32()).take(pa.array([0] * table.num_rows, pa.int32()))
    yield from table.add_column(0, "side", column).to_batches()


# -- how far a job is -----------------------------------------------------------------------------

# Work that takes a moment says nothing: then the output is what Londiste printed and no more.

#: As many as there are slices.
_ALL_TASKS = 1 << 20
#: Nobody wonders before.
_SAY_EVERY = 30.0
_SHOW_EVERY = 1.0
#: How many parts are done, and how many there are.
Count = Callable[[], tuple[int, int]]
_groups = itertools.count(1)
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def tasks_a_side(spark: SparkSession, connections: int) -> int:
    """Return how many tasks may be made for a side, so that `connections` are never exceeded.

    Where fewer tasks run at once than that, there may be many: each one done is progress.
    """
    slots = parallelism(spark) + has_slot_kept(spark)
    return _ALL_TASKS if slots <= connections else connections


@contextmanager
def progress(spark: SparkSession, what: str, count: Count | None = None) -> Iterator[None]:
    """Name the jobs inside and say how far they are: as `count` says, or as Spark does.

    Over Spark Connect there is no tracker to ask, and nothing is said.
    """
    context = spark.sparkContext if getattr(spark, "_jsc", None) else None
    if context is None:
        yield
        return
    group = f"{what} {next(_groups)}"
    context.setJobGroup(group, what)
    done = threading.Event()
    watcher = _watcher.get() or Terminal()
    thread = Thread(
        target=_watch,
        args=(context, group, what, count, watcher, done),
        name="progress",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", "")


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Send the progress of jobs in this thread to `watcher`, not to the terminal."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@dataclass(frozen=True)
class Parts:
    """How many parts of some work there are, how many are done, and for how long it goes on."""

    what: str
    done: int
    total: int
    seconds: float

    def text(self) -> str:
        """Return the progress as a text for people; the rest is guessed from the parts done so
        far."""
        said = f"{self.what}: {self.done} of {self.total} parts"
        if not self.done or self.done == self.total:
            return said
        left = self.seconds * (self.total - self.done) / self.done
        return f"{said}, about {left:.0f} s left"


class Watcher(Protocol):
    """Whom progress is told, every so many seconds; if he has `gone`, jobs are given up."""

    every: float

    def show(self, parts: Parts) -> None: ...
    def gone(self) -> bool: ...
    def close(self) -> None: ...


class Terminal:
    """A line that is drawn again and again; where nobody looks, a line of the log at times."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty() and log.isEnabledFor(logging.INFO)
        self.every = _SHOW_EVERY if self._shown else _SAY_EVERY
        self._last = SYSTEM.monotonic()
        self._drawn = False

    def show(self, parts: Parts) -> None:
        """Show the progress, not more often than is good for the log, however often it is told."""
        now = SYSTEM.monotonic()
        if not parts.total or now - self._last < self.every * 0.9:
            return
        self._last = now
        if self._shown:
            sys.stderr.write(f"\r{parts.text()}\x1b[K")
            sys.stderr.flush()
            self._drawn = True
        else:
            log.info("%s", parts.text())

    def gone(self) -> bool:
        """Return False: whoever waits at a terminal is there."""
        return False

    def close(self) -> None:
        """Clear the line: it was for watching only."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _watch(
    context: SparkContext,
    group: str,
    what: str,
    count: Count | None,
    watcher: Watcher,
    done: threading.Event,
) -> None:
    begun = SYSTEM.monotonic()
    while not SYSTEM.wait(done, watcher.every):
        if watcher.gone():
            context.cancelJobGroup(group)
        else:
            done_of = count() if count is not None else _ask(context, group)
            watcher.show(Parts(what, *done_of, SYSTEM.monotonic() - begun))
    watcher.close()


def _ask(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [
        tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
    ]
    known = [s for s in stages if s is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
