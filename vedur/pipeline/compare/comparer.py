"""What a comparison asks of Spark, as one thing: in a session of this process here, in the
shared session of a running worker in `shared_session.py`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vedur.pipeline.compare.differing_rows import Differences, describe, differing_keys
from vedur.pipeline.compare.engine import bucket_sums, checksum, custom_checksum
from vedur.pipeline.compare.expected import stage_expected
from vedur.pipeline.compare.model import Buckets, Pair, Sums
from vedur.pipeline.compare.plan import Use

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: About as many rows are in a page of 8 kB; only to choose a number of buckets.
_PAGE_ROWS = 80


class Comparer(Protocol):
    """Questions about a pair at its snapshots, while these are open."""

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """Rows and sums of both sides; with `count_only` just rows."""
        ...

    def buckets(self, pair: Pair) -> Buckets:
        """Sums from which a difference can be narrowed."""
        ...

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        """What an operator's own statement says on each side."""
        ...

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        """How many rows differ, and the first of them."""
        ...

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        """The pair with what a handler makes of the provider's rows as its source."""
        ...


@dataclass(frozen=True)
class SparkComparer:
    """In a session of this process; `limit` is how many connections a node may see, `use` what
    of the session it may take."""

    spark: SparkSession
    limit: int
    use: Use = Use.ALL

    def checksum(self, pair: Pair, *, count_only: bool = False) -> tuple[Sums, Sums]:
        """See `Comparer`, as for all of them."""
        return checksum(self.spark, pair, limit=self.limit, count_only=count_only, use=self.use)

    def buckets(self, pair: Pair) -> Buckets:
        rows = estimated_rows(pair)
        return bucket_sums(self.spark, pair, rows=rows, limit=self.limit, use=self.use)

    def custom(self, pair: Pair, source_sql: str, target_sql: str) -> tuple[dict[str, Any], ...]:
        return custom_checksum(self.spark, pair, source_sql, target_sql)

    def rows(self, pair: Pair, buckets: Buckets, shown: int) -> Differences:
        keys = differing_keys(self.spark, pair, buckets, limit=self.limit)
        return describe(self.spark, pair, keys, shown=shown)

    def expected(self, pair: Pair) -> AbstractContextManager[Pair]:
        return stage_expected(self.spark, pair, limit=self.limit)


def estimated_rows(pair: Pair) -> int:
    """A guess from pages."""
    sides = (pair.source, pair.target)
    return max(sum((p.pages or 0) for p in side.pieces) * _PAGE_ROWS for side in sides)
