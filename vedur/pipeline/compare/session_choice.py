"""A comparer for a command: in the worker's shared Spark session, or in a session of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from vedur.config import LondisteSettings
from vedur.errors import SessionNotShared
from vedur.pipeline.compare.comparer import Comparer, SparkComparer
from vedur.pipeline.compare.differing_rows import Differences
from vedur.pipeline.compare.model import Buckets, Pair, Sums
from vedur.pipeline.compare.shared_session import SharedComparer, socket_path
from vedur.pipeline.spark.command_session import end_spark, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

T = TypeVar("T")


@contextmanager
def open_comparer(
    settings: LondisteSettings, spark: SparkSession | None = None, *, own: bool = False
) -> Iterator[Comparer]:
    """Yield a comparer in `spark`; without one, in the session that the worker shares or, with
    `own` or where none is shared, in a session that is started for it."""
    if spark is not None:
        yield SparkComparer(spark, settings.max_connections_per_node)
        return
    comparer = _AnyComparer(settings, own)
    try:
        yield comparer
    finally:
        comparer.close()


class _AnyComparer:
    """Uses the shared session of the node's worker, if it runs here; else, or when that ends, a
    session of its own.

    Its own is started before anything is looked at: no snapshot is to wait for Java.
    """

    def __init__(self, settings: LondisteSettings, own: bool) -> None:
        self._settings = settings
        self._shared: SharedComparer | None = None
        self._spark: SparkSession | None = None
        path = "" if own else socket_path(settings.pidfile)
        try:
            self._shared = SharedComparer(path, self._limit) if path else None
        except SessionNotShared as why:
            log.debug("no shared Spark session at %s: %s", path, why)
        if self._shared is None:
            self._spark = start_spark(settings)

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        return self._ask(lambda c: c.checksum(pair, count_only=count_only))

    def buckets(self, pair: Pair) -> Buckets:
        return self._ask(lambda c: c.buckets(pair))

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        return self._ask(lambda c: c.custom(pair, source_sql, target_sql))

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        return self._ask(lambda c: c.rows(pair, buckets, shown))

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        if pair.expected is None:
            return nullcontext(pair)
        if self._spark is None:
            self._spark = start_spark(self._settings)
        return SparkComparer(self._spark, self._limit).expected(pair)

    def _ask(self, question: Callable[[Comparer], T]) -> T:
        if self._shared is not None:
            try:
                return question(self._shared)
            except SessionNotShared as why:
                log.debug("not in the shared Spark session, going on in one of our own: %s", why)
                self._shared.close()
                self._shared = None
        if self._spark is None:
            self._spark = start_spark(self._settings)
        return question(SparkComparer(self._spark, self._limit))

    @property
    def _limit(self) -> int:
        return self._settings.max_connections_per_node

    def close(self) -> None:
        """Leave the shared session, end the own one."""
        if self._shared is not None:
            self._shared.close()
        if self._spark is not None:
            end_spark(self._spark)
