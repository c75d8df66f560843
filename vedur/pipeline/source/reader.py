"""The data source itself: what Spark calls to plan and to read.

Spark makes these objects in Python processes of its own. Those that plan hold one connection;
what travels to executors holds none. Offsets are `{"queue": name, "tick": number}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from vedur.db import Database, connect
from vedur.errors import ConnectError, StateError, UsageError
from vedur.pipeline.source import position
from vedur.pipeline.source.columns import check_schema, event_schema, load_columns, table_schema
from vedur.pipeline.source.options import SourceOptions, read_options
from vedur.pipeline.source.task import Slice, SliceReader
from vedur.sql import query

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # before Spark 4.2 sources had no limits
        ReadAllAvailable = ReadLimit = ReadMaxRows = None
        SupportsTriggerAvailableNow = object

T = TypeVar("T")

#: Seconds to wait for the ticker's NOTIFY when there is nothing new: Spark asks again at once.
PATIENCE = 0.2


class QueueSource(DataSource):
    """Format `pgq`."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "pgq"

    def schema(self) -> StructType:
        """Read the columns of an event or, with option `table`, of that table's changes."""
        options = read_options(self.options, "both")
        if options.table is None:
            return event_schema()
        with connect(options.connstr, name="queue", autocommit=True) as db:
            columns = load_columns(db, options.table)
        return table_schema(options.table, columns, options.prefix)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`."""
        return BatchReader(read_options(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for `spark.readStream`."""
        return StreamReader(read_options(self.options, "stream"), schema)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark compares the first batch with."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # Spark 4.1


class _Reader:
    """What both readers share: options, schema, a connection, reading a slice."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options_read = options
        self.wanted = schema
        self._db: Database | None = None
        check_schema(schema, options.table, None, options.prefix)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_db": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(queue={self.options_read.queue!r})"

    def _with_db(self, work: Callable[[Database], T]) -> T:
        """Run on the kept connection, once more on a new one if the server went away."""
        kept = self._db is not None
        try:
            return work(self._connected())
        except ConnectError:
            self._close()
            if not kept:
                raise
            return work(self._connected())

    def _connected(self) -> Database:
        if self._db is None or self._db.closed:
            options = self.options_read
            db = connect(options.connstr, name="queue", autocommit=True)
            if options.table:
                columns = load_columns(db, options.table)
                check_schema(self.wanted, options.table, columns, options.prefix)
            db.execute(query("worker", "listen"))
            self._db = db
        return self._db

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the events of a slice, on an executor; Spark sends None where there are no
        slices."""
        if isinstance(partition, Slice):
            reader = SliceReader(self.options_read, _arrow_schema(self.wanted), partition)
            yield from reader.read()


class BatchReader(_Reader, DataSourceReader):
    """The events between two ticks, as they are when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        """Read the ticks, and cut them into slices of about equal size."""
        try:
            return list(self._with_db(self._plan))
        finally:
            self._close()

    def _plan(self, db: Database) -> list[Slice]:
        options = self.options_read
        reach = position.find_queue(db, options.queue)
        start = position.resolve(reach, options.queue, options.start or "earliest")
        end = position.resolve(reach, options.queue, options.end)
        return position.plan_slices(db, options, reach, start, end)


class _StreamReader(_Reader, DataSourceStreamReader):
    """Micro-batches of whole ticks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: int | None = None
        self._seen = False

    # -- where to read -------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Read the offset at which a query without a checkpoint begins; with a consumer, write its
        place."""
        options = self.options_read

        def start(db: Database) -> int:
            reach = position.find_queue(db, options.queue)
            return position.take_place(db, options, reach)

        tick = self._with_db(start)
        self._seen = True
        return self._offset(tick)

    def _end(self, start: int, limit: int | None) -> int:
        """Read where the micro-batch after `start` ends; `start` itself if there is nothing new."""
        options = self.options_read

        def look(db: Database) -> int:
            reach = position.find_queue(db, options.queue)
            position.resolve(reach, options.queue, start)
            last = reach.last if self._target is None else min(reach.last, self._target)
            if last <= start:
                return start
            at = position.existing(db, options, reach, start)
            return position.end_within(db, options.queue, at, last, limit)

        end = self._with_db(look)
        if end > start or self._target is not None:
            return end
        self._with_db(lambda db: db.notifications(PATIENCE))
        return self._with_db(look)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Read the newest tick, for the progress that Spark shows."""
        return self._offset(self._newest())

    def _newest(self) -> int:
        queue = self.options_read.queue
        return self._with_db(lambda db: position.find_queue(db, queue)).last

    # -- reading -------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Read the ticks after `start` up to `end`, and cut them into slices; a consumer that was
        dropped is registered again."""
        options = self.options_read
        first, last = self._tick(start), self._tick(end)

        def plan(db: Database) -> list[Slice]:
            reach = position.find_queue(db, options.queue)
            position.resolve(reach, options.queue, last)
            if not self._seen:
                position.keep_place(db, options, reach, first)
                self._seen = True
            return position.plan_slices(db, options, reach, first, last)

        return self._with_db(plan)

    def commit(self, end: dict[str, Any]) -> None:
        """Advance the consumer: Spark has written down that everything up to here is done."""
        if self.options_read.consumer is not None:
            tick = self._tick(end)
            self._with_db(lambda db: position.advance(db, self.options_read, tick))

    def stop(self) -> None:
        """Close the connection: the query ends."""
        self._close()

    # -- offsets -------------------------------------------------------------------------------

    def _offset(self, tick: int) -> dict[str, Any]:
        return {"queue": self.options_read.queue, "tick": tick}

    def _tick(self, offset: dict[str, Any]) -> int:
        if offset.get("queue") != self.options_read.queue:
            raise StateError(
                f'the checkpoint is of queue "{offset.get("queue")}", the query reads '
                f'"{self.options_read.queue}": give each query a checkpoint of its own'
            )
        return int(offset["tick"])


class LimitedStreamReader(_StreamReader, SupportsTriggerAvailableNow):
    """With what Spark has since 4.2: limits, and a target for Trigger.AvailableNow."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what option `maxEventsPerTrigger` says."""
        limit = self.options_read.max_events
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Read the end of the next micro-batch."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._offset(self._end(self._tick(start), rows))

    def prepareForTriggerAvailableNow(self) -> None:
        """Read the newest tick now, which is the last that this run reads."""
        self._target = self._newest()


class PlainStreamReader(_StreamReader):
    """For Spark 4.1: each micro-batch reads all there is."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.max_events is not None:
            raise UsageError('option "maxEventsPerTrigger" needs Spark 4.2 or newer: leave it out')

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Read the newest tick."""
        return self._offset(self._newest())


StreamReader: type[_StreamReader] = PlainStreamReader if ReadLimit is None else LimitedStreamReader
