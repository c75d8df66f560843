"""The one way to run Spark tasks: a function and its items in, answers or errors out.

A job has one task for each item. The task calls the function with its item and sends the answer
to the driver as JSON, so an answer is a count or a summary and never data. An error of ours comes
back as an answer too, so that Spark does not run the task again, and is raised on the driver as
what it was. Any other exception fails the task; Spark then runs it again, up to
`spark.task.maxFailures` times. A function may therefore run more than once for the same item, and
on any machine. The same calls serve classic Spark and Spark Connect.

Items usually travel inside the function that Spark pickles, so every job is a new plan. A caller
whose jobs differ from each other in nothing but their items hands in `KeptPlans`: see there.

Task processes live longer than tasks. What they keep, libraries and connections, is at the end.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

import vedur
from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.errors import (
    DatabaseError,
    InternalError,
    StateError,
    VedurError,
    error_from_json,
    error_to_json,
)
from vedur.pipeline.spark.spark_pool import enter_pool, is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

#: The property of a job that holds the items of a kept plan, as JSON.
_ITEMS = "vedur.items"
#: Slots that must be left for others beside a resident task.
_OTHERS = 2
#: Sessions in which a slot is kept for one.
_with_resident: WeakSet[SparkSession] = WeakSet()
#: Kept plans: small batches have one task, large ones as many as run at once.
_PLANS = 2


@dataclass(frozen=True)
class TaskAnswer:
    """What one task returned: a value, or an error of ours."""

    value: Any = None
    error: VedurError | None = None

    def get(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass
class KeptPlans:
    """Plans of jobs that call an equal function, kept by their number of tasks.

    The items of such a job are strings and travel as a property of the job, so that Spark's plan,
    with the pickled function and all it holds, can be run again. That saves half of what a small
    batch costs Java and most of what it costs the driver (45 ms for a job of one task become 23).

    Spark may write properties to its event log and show them on its pages: use this only for items
    that hold nothing but numbers. Spark Connect has no such properties, and without pinned threads
    it is unknown which job gets them; there each job is a plan of its own, as without this object.
    """

    _plans: dict[int, tuple[object, DataFrame]] = field(default_factory=dict, repr=False)

    def find(self, spark: SparkSession, do: Callable[[str], Any], count: int) -> DataFrame:
        """Return the plan for `count` tasks; make it if there is none for an equal function."""
        kept = self._plans.pop(count, None)
        if kept is None or kept[0] != do:
            kept = do, _make_plan(spark, do, None, count)
        self._plans[count] = kept  # last in the dict: the first one is the longest unused
        for old in [*self._plans][:-_PLANS]:
            del self._plans[old]
        return kept[1]


def run_tasks(
    spark: SparkSession,
    do: Callable[[T], Any],
    items: Sequence[T],
    kept: KeptPlans | None = None,
) -> list[Any]:
    """Call `do(item)` for each item in a task of its own, and wait for all of them.

    Returns the values in the order of the items, or raises the error of the first item that has
    one. With `kept`, which needs items that are strings, the plan of an earlier job is used again.
    """
    return [answer.get() for answer in try_tasks(spark, do, items, kept)]


def try_tasks(
    spark: SparkSession,
    do: Callable[[T], Any],
    items: Sequence[T],
    kept: KeptPlans | None = None,
) -> list[TaskAnswer]:
    """Do the same as `run_tasks`, but return errors of ours instead of raising the first one."""
    if not items:
        return []
    enter_pool(spark)
    if kept is None or is_remote(spark) or not _has_pinned_threads():
        rows = _make_plan(spark, do, items, len(items)).collect()
        return read_answers([row.answer for row in rows], len(items))
    frame = kept.find(spark, do, len(items))  # type: ignore[arg-type]
    spark.sparkContext.setLocalProperty(_ITEMS, json.dumps(items))
    marks = [item_mark(item) for item in items]
    return read_answers([row.answer for row in frame.collect()], len(items), marks)


def stream_tasks(
    spark: SparkSession,
    read: Callable[[T], Iterator[pa.RecordBatch]],
    items: Sequence[T],
    columns: str,
) -> DataFrame:
    """Return a DataFrame of the rows that `read(item)` yields in a task for each item.

    Nothing runs until the DataFrame is used. `columns` is its schema as Spark writes it.
    """
    kept = list(items)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for number in _numbers(batches):
            yield from read(kept[number])

    return _plan_tasks(spark, run, len(kept), columns)


def read_answers(
    texts: Sequence[str], count: int, marks: Sequence[int] | None = None
) -> list[TaskAnswer]:
    """Decode the answers of `count` tasks and put them in order.

    Every item must have been answered once; with `marks`, tasks must have had the items that they
    were meant to have, and not those of another job.
    """
    answers = sorted((json.loads(text) for text in texts), key=lambda a: int(a["number"]))
    numbers = [answer["number"] for answer in answers]
    if numbers != list(range(count)):
        raise InternalError(f"BUG: {count} tasks were started, and these answered: {numbers}")
    if marks is not None and [answer["item"] for answer in answers] != list(marks):
        raise InternalError("BUG: tasks had other items than those of their job")
    return [
        TaskAnswer(error=error_from_json(answer))
        if "error" in answer
        else TaskAnswer(answer["value"])
        for answer in answers
    ]


def item_mark(item: object) -> int:
    """Return a checksum of an item, by which a task reports which item it had."""
    return zlib.crc32(json.dumps(item).encode())


def plain(value: object) -> object:
    """Convert what JSON has no form for: whole decimals become numbers, the rest text."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return str(value)


def warm_up(spark: SparkSession) -> None:
    """Run two jobs now, so that no batch pays for loading classes and starting Python.

    Tasks run our code, which is not sent to them: an executor without it, or with another version,
    is found here and not in the middle of a batch. This function must therefore not refer to
    anything of this module, which is not there to be imported.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            import vedur
            from vedur.pipeline.spark.tasks import settle

            settle()
            found = vedur.__version__
        except ImportError as error:
            found = str(error)
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"found": [found] * batch.num_rows})

    for _ in range(2):
        for row in _plan_tasks(spark, look, parallelism(spark), "found string").collect():
            if row.found != vedur.__version__:
                raise StateError(
                    f"Spark's executors cannot run vedur {vedur.__version__}, they have "
                    f'"{row.found}": install the same version in their Python'
                )


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks of jobs run at once; a slot may be kept for a task that stays."""
    return _slots(spark) - (spark in _with_resident)


def keep_slot(spark: SparkSession) -> bool:
    """Keep a slot for a resident task; False where too few would be left for all else, and where
    tasks run elsewhere than in this machine's Java."""
    if is_remote(spark) or not (spark.sparkContext.master or "").startswith("local["):
        return False
    if _slots(spark) <= _OTHERS:
        return False
    _with_resident.add(spark)
    return True


def has_slot_kept(spark: SparkSession) -> bool:
    """Is a slot kept for a resident task?"""
    return spark in _with_resident


def _slots(spark: SparkSession) -> int:
    value = spark.conf.get("spark.default.parallelism", None)
    if value and value.isdigit():
        return int(value)
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    return _remote_parallelism(spark)


@functools.lru_cache(maxsize=4)
def _remote_parallelism(spark: SparkSession) -> int:
    """Run a job to see into how many parts a range falls: a client has no context to ask."""
    from pyspark.sql import functions

    frame = spark.range(0, 10_000).select(functions.spark_partition_id().alias("part"))
    return int(frame.distinct().count())


def _has_pinned_threads() -> bool:
    """Does each thread of ours have a thread of Java's, which keeps the properties of its jobs?"""
    return os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"


def _make_plan(
    spark: SparkSession, do: Callable[[T], Any], items: Sequence[T] | None, count: int
) -> DataFrame:
    """Plan a job whose tasks answer in JSON; without `items` they are a property of the job."""
    known = None if items is None else list(items)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        for number in _numbers(batches):
            item = known[number] if known is not None else _read_items()[number]
            answer = {"number": number, **attempt(do, item)}
            if known is None:
                answer["item"] = item_mark(item)
            text = json.dumps(answer, default=plain)
            yield pa.RecordBatch.from_pydict({"answer": [text]})

    return _plan_tasks(spark, run, count, "answer string")


def _plan_tasks(
    spark: SparkSession,
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    count: int,
    columns: str,
) -> DataFrame:
    """Plan a job in which each task gets one of the numbers below `count`."""
    return spark.range(0, count, 1, max(1, count)).mapInArrow(run, columns)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from map(int, batch.column(0).to_pylist())


def attempt(do: Callable[[Any], Any], item: object) -> dict[str, Any]:
    """Call `do(item)`; its value, or an error of ours, as it goes to the driver."""
    try:
        return {"value": do(item)}
    except VedurError as error:
        return error_to_json(error)


def _read_items() -> list[str]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    items: list[str] = json.loads(context.getLocalProperty(_ITEMS) or "[]")
    return items


# -- what a task process keeps from one task to the next: libraries and connections ---------------

#: What is in memory after a first batch, a first copy and a comparison. Spark asks for pandas
#: wherever Arrow data goes through Python, whether pandas is used or not.
_NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.ipc",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "vedur.pipeline.compare",
    "vedur.pipeline.copy",
    "vedur.pipeline.replay.task",
)

#: A slice is sorted where it is read, 100,000 events take about 30 MB.
SORT_MEMORY = "64MB"

#: Seconds after which a kept connection that nobody used is closed: a queue that has been stopped,
#: or reads from another node now, must not keep a database from being dropped.
IDLE = 300.0


@functools.cache
def settle() -> None:
    """Load what tasks need; what is there now is never looked at by the collector again.

    Tasks call it too: processes of a cluster's executors are Spark's own, and the first does it.
    """
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


class _Kept(NamedTuple):
    db: Database
    since: float


_kept: dict[tuple[int, str], _Kept] = {}


def _alive(db: Database) -> bool:
    """Does the connection still work? A server that restarted leaves connections that fail on first
    use."""
    if db.closed:
        return False
    try:
        db.value("select 1")
    except DatabaseError:
        db.close()
        return False
    return True


@contextmanager
def link(connstr: str, name: str, keep: bool) -> Iterator[Database]:
    """Open a connection in autocommit mode, or take one that was kept; after an error, or without
    `keep`, it is closed."""
    mark = (os.getpid(), connstr)
    found = _kept.pop(mark, None)
    _close_idle()
    db = found.db if found is not None else None
    if db is None or not _alive(db):
        db = connect(connstr, name=name, autocommit=True, application_name="vedur task")
        # A giant tick is one statement of many minutes, a kept connection is idle for hours.
        db.without_timeouts().with_memory("work_mem", SORT_MEMORY)
    try:
        yield db
    except BaseException:
        db.close()
        raise
    if keep:
        _kept[mark] = _Kept(db, SYSTEM.monotonic())
    else:
        db.close()


def _close_idle() -> None:
    old = SYSTEM.monotonic() - IDLE
    for mark in [mark for mark, kept in _kept.items() if kept.since < old]:
        kept = _kept.pop(mark, None)
        if kept is not None and mark[0] == os.getpid():
            kept.db.close()
