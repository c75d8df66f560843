"""Keep a lake table in step with a table of PostgreSQL, from the events of its queue.

    python examples/lake/feed.py --url "host=db1 dbname=shop" --queue replika \\
        --table public.orders --key id --lake /data/lake/orders

Each micro-batch is a set of whole ticks. It is reduced to the last change of each key and merged
into the table, which is then published under a new name together with its tick. The tick decides
what is still to be merged: a batch that comes twice, or a lost checkpoint, changes nothing.

The table is a directory of Parquet files and one small file that says which version is current.
With Delta or Iceberg `LakeTable` goes and `merged` becomes one MERGE: see
docs/how-to/feed-a-lake.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: What the source puts before the columns of the table.
LEADING = ("_change_type", "_commit_version", "_commit_timestamp", "ev_id", "ev_txid")


class LakeTable:
    """Versions of a table, one directory each; `current.json` names the one that counts."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def _current(self) -> dict[str, Any]:
        pointer = self.path / "current.json"
        return json.loads(pointer.read_text()) if pointer.exists() else {"tick": -1}

    @property
    def tick(self) -> int:
        """Every change up to here is in the table."""
        return int(self._current()["tick"])

    def read(self) -> DataFrame | None:
        """The table as it is now, None before the first merge."""
        current = self._current()
        if "version" not in current:
            return None
        return self.spark.read.parquet(str(self.path / current["version"]))

    def publish(self, rows: DataFrame, tick: int) -> None:
        """Write a new version and make it current; readers see the old one or the new one."""
        before = self._current()
        version = f"tick-{tick:020d}"
        rows.write.mode("overwrite").parquet(str(self.path / version))
        draft = self.path / "current.json.new"
        draft.write_text(json.dumps({"tick": tick, "version": version}))
        draft.replace(self.path / "current.json")
        for old in self.path.glob("tick-*"):  # one version back stays for those who read it now
            if old.name not in (version, before.get("version")):
                shutil.rmtree(old)


def last_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The last change of each key; what happened before a truncate does not count."""
    cut = changes.where("_change_type = 'truncate'").agg(F.max("ev_id")).first()[0]
    rows = changes.where("_change_type <> 'truncate'")
    if cut is not None:
        rows = rows.where(F.col("ev_id") > cut)
    columns = F.struct(*[F.col(f"`{c}`") for c in changes.columns])
    latest = rows.groupBy(*[F.col(f"`{k}`") for k in keys]).agg(
        F.max_by(columns, "ev_id").alias("c")
    )
    return latest.select("c.*")


def merged(base: DataFrame | None, changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The table after the changes."""
    latest = last_changes(changes, keys)
    columns = [F.col(f"`{c}`") for c in changes.columns if c not in LEADING]
    new = latest.where("_change_type <> 'delete'").select(*columns)
    emptied = not changes.where("_change_type = 'truncate'").isEmpty()
    if base is None or emptied:
        return new
    touched = latest.select(*[F.col(f"`{k}`") for k in keys])
    return base.join(touched, list(keys), "left_anti").unionByName(new, allowMissingColumns=True)


def apply_batch(table: LakeTable, keys: Sequence[str], batch: DataFrame) -> None:
    """Merge what the table does not have yet."""
    changes = batch.where(F.col("_commit_version") > table.tick).persist()
    try:
        tick = changes.agg(F.max("_commit_version")).first()[0]
        if tick is not None:
            table.publish(merged(table.read(), changes, keys), tick)
    finally:
        changes.unpersist()


def feed(spark: SparkSession, args: argparse.Namespace) -> Any:
    """Start the stream."""
    table = LakeTable(spark, Path(args.lake))
    source = (
        spark.readStream.format("pgq")
        .option("url", args.url)
        .option("subscribe", args.queue)
        .option("table", args.table)
        .option("consumerName", args.consumer)
        .option("startingOffsets", "earliest")
        .option("maxEventsPerTrigger", args.max_events)
    )
    trigger: dict[str, Any] = (
        {"processingTime": "1 second"} if args.follow else {"availableNow": True}
    )
    return (
        source.load()
        .writeStream.foreachBatch(lambda batch, _: apply_batch(table, args.key, batch))
        .option("checkpointLocation", f"{args.lake}/checkpoint")
        .trigger(**trigger)
        .start()
    )


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Keep a lake table in step with PostgreSQL.")
    parser.add_argument("--url", required=True, help="connect string; passwords go to ~/.pgpass")
    parser.add_argument("--queue", required=True)
    parser.add_argument("--table", required=True, help="schema.name")
    parser.add_argument("--key", required=True, action="append", help="key column, repeatable")
    parser.add_argument("--lake", required=True, help="directory of the table")
    parser.add_argument("--consumer", default="lake", help="name of the consumer in the queue")
    parser.add_argument("--max-events", default=1_000_000, type=int, help="per micro-batch")
    parser.add_argument("--follow", action="store_true", help="go on for ever")
    return parser.parse_args(given)


def main() -> None:
    """Run until everything is in the lake, or for ever."""
    args = arguments()
    spark = SparkSession.builder.appName(f"feed {args.table}").getOrCreate()
    feed(spark, args).awaitTermination()


if __name__ == "__main__":
    main()
