"""The data source over Spark Connect: found without registration, batch and stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.pg import TestServer
from tests.fixtures.wants import wanting
from vedur import db as vdb
from vedur.pipeline.spark.java_start import OPTIONS, java_settings

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]

#: A program as a user writes it: it imports nothing of ours.
PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

url, where = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
assert "connect" in type(spark).__module__
options = {"url": url, "subscribe": "q", "table": "public.t"}
batch = spark.read.format("pgq").options(**options).load().select("id", "note", "_change_type")
stream = spark.readStream.format("pgq").options(
    **options, startingOffsets="earliest", consumerName="connect", maxEventsPerTrigger="1"
)
query = (
    stream.load().writeStream.format("parquet").trigger(availableNow=True)
    .option("checkpointLocation", where + "/checkpoint").start(where + "/rows")
)
assert query.awaitTermination(200)
again = spark.read.parquet(where + "/rows").select("id", "note", "_change_type")
print(json.dumps([sorted((list(r) for r in f.collect()), key=str) for f in (batch, again)]))
spark.stop()
"""


@pytest.mark.draw("programs")
def test_batch_and_stream(
    newest: TestServer, make_db_on: Callable[..., vdb.Database], tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason=wanting("grpcio"))
    db = make_db_on(newest, autocommit=True)
    db.call("pgq.create_queue", "q")
    db.execute("update pgq.queue set queue_ticker_max_count = 1")
    db.execute("create table t (id int primary key, note text)")
    db.execute(
        "create trigger c after insert or update or delete on t"
        " for each row execute function pgq.jsontriga('q')"
    )
    for statement in ("insert into t values (1, 'é ☃'), (2, null)", "delete from t where id = 2"):
        db.execute(statement)
        db.query("select pgq.ticker('q')")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, script, db.connstr, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
        # Spark looks at directories of sys.path: a package that is installed lies in one.
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "JAVA_TOOL_OPTIONS": java_settings({})[OPTIONS],  # half of the CPU
        },
    )
    assert done.returncode == 0, done.stderr[:6000]
    batch, stream = json.loads(done.stdout.strip().splitlines()[-1])
    assert batch == stream
    assert batch == [[1, "é ☃", "insert"], [2, None, "delete"], [2, None, "insert"]]
    assert db.value("select count(*) from pgq.consumer where co_name = 'connect'") == 1
