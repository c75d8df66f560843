"""`spark.readStream.format("pgq")` in real streams; test_spark_source_reader.py has the details."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.fixtures.pg import TestServer
from vedur import db as vdb

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

QUEUE = 'stream\'s "queue"'
CONSUMER = 'lake "one"'


def came_late(error: StreamingQueryException) -> bool:
    """Did a Python process need more than the ten seconds that Spark gives it to begin? There is no
    setting for that; who runs streams on a very busy machine has to start them again."""
    return "failed to connect back" in str(error)


class Lab:
    """A queue, and streams over it that hand their micro-batches to the test."""

    def __init__(self, spark: Any, db: vdb.Database, path: Path) -> None:
        self.spark, self.db, self.path = spark, db, path
        self.batches: list[tuple[int, list[str]]] = []
        self.progress: list[dict[str, Any]] = []
        db.call("pgq.create_queue", QUEUE)
        # Every event is enough for a tick, so that a test alone decides where ticks are.
        db.execute("update pgq.queue set queue_ticker_max_count = 1, queue_rotation_period = '0'")

    def tick(self, *events: str) -> int:
        """Put events and write a tick after them."""
        for data in events:
            self.db.query("select pgq.insert_event(%s, 'n', %s)", [QUEUE, data])
        return int(self.db.value("select pgq.ticker(%s)", [QUEUE]))

    def rotate(self, times: int = 4) -> None:
        for _ in range(times):
            self.db.query("select pgq.maint_rotate_tables_step1(%s)", [QUEUE])
            self.db.query("select pgq.maint_rotate_tables_step2()")

    def consumer(self) -> int | None:
        value = self.db.value(
            "select sub_last_tick from pgq.subscription s join pgq.consumer c"
            " on c.co_id = s.sub_consumer where co_name = %s",
            [CONSUMER],
        )
        return None if value is None else int(value)

    def frame(self, **options: str) -> Any:
        base = {"url": self.db.connstr, "subscribe": QUEUE}
        return self.spark.readStream.format("pgq").options(**{**base, **options}).load()

    def start(
        self,
        on_batch: Callable[[int], None] | None = None,
        trigger: dict[str, Any] | None = None,
        checkpoint: str = "checkpoint",
        **options: str,
    ) -> Any:
        def take(frame: Any, batch_id: int) -> None:
            rows = sorted(frame.select("ev_id", "ev_data").collect())
            self.batches.append((batch_id, [r.ev_data for r in rows]))
            if on_batch:
                on_batch(batch_id)

        return (
            self.frame(**options)
            .writeStream.foreachBatch(take)
            .trigger(**(trigger or {"availableNow": True}))
            .option("checkpointLocation", str(self.path / checkpoint))
            .start()
        )

    def run(self, *args: Any, **options: Any) -> list[list[str]]:
        """One run with Trigger.AvailableNow; the events of its micro-batches."""
        self.batches.clear()
        query = self.start(*args, **options)
        try:
            assert query.awaitTermination(240)
            self.progress = list(query.recentProgress)
        except StreamingQueryException as error:
            if came_late(error) and not self.batches:
                return self.run(*args, **options)
            raise
        finally:
            query.stop()
        return [events for _, events in self.batches]

    def start_and_register(self, **options: Any) -> Any:
        """A stream whose consumer is there: it reads from here on."""
        query = self.start(consumerName=CONSUMER, **options)
        while not self.consumer():
            error = query.exception()
            if error is not None:
                assert came_late(error), error
                query = self.start(consumerName=CONSUMER, **options)
        return query

    def failure(self, *args: Any, **options: Any) -> str:
        with pytest.raises(Exception) as caught:
            self.run(*args, **options)
        return str(caught.value)


@pytest.fixture
def lab(
    spark: Any, newest: TestServer, make_db_on: Callable[..., vdb.Database], tmp_path: Path
) -> Lab:
    return Lab(spark, make_db_on(newest, autocommit=True), tmp_path)


@pytest.mark.draw("source")
def test_available_now_takes_what_was_there_in_limits(lab: Lab) -> None:
    ticks = [lab.tick("a1", "a2", "a3"), lab.tick("b1", "b2", "b3")]
    ticks += [lab.tick(*[f"c{n}" for n in range(10)]), lab.tick("d1"), lab.tick("e1")]

    def more(batch: int) -> None:
        if batch == 0:
            lab.tick("late")

    options = {"startingOffsets": "earliest", "consumerName": CONSUMER, "maxOffsetsPerTrigger": "5"}
    assert lab.run(more, **options) == [
        ["a1", "a2", "a3"],
        ["b1", "b2", "b3"],
        [f"c{n}" for n in range(10)],  # more than the limit, but a tick is never cut
        ["d1", "e1"],
    ]
    ends = [json.loads(p["sources"][0]["endOffset"]) for p in lab.progress if p["numInputRows"]]
    assert ends == [{"queue": QUEUE, "tick": t} for t in (*ticks[:3], ticks[4])]
    # Spark says that a batch is done when it begins the next: the last one is still held.
    assert lab.consumer() in (ticks[2], ticks[4])
    assert lab.run(**options) == [["late"]]
    assert lab.run(**options) == []


@pytest.mark.draw("source")
def test_a_batch_that_failed_comes_again_as_it_was(lab: Lab) -> None:
    lab.tick("1", "2")
    options = {"startingOffsets": "earliest", "consumerName": CONSUMER}

    def fail(batch: int) -> None:
        raise RuntimeError("the sink is out of order")

    assert "the sink is out of order" in lab.failure(fail, **options)
    lab.tick("3")
    lab.rotate()
    assert lab.run(**options) == [["1", "2"], ["3"]]


@pytest.mark.draw("source")
def test_a_running_stream_survives_lost_connections_and_tells_its_lag(lab: Lab) -> None:
    secret = "sw0rdf1sh"
    # `latest` is where the stream began: it must be there.
    query = lab.start_and_register(trigger={"processingTime": "0 seconds"}, password=secret)
    try:
        for number in range(3):
            last = lab.tick(f"event {number}")
            query.processAllAvailable()
            lab.db.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        lab.tick("end")
        query.processAllAvailable()
        shown = [query.lastProgress.json, str(query.status)]
        shown += [query._jsq.toString(), query._jsq.explainInternal(True)]
    finally:
        query.stop()
    assert [e for _, events in lab.batches for e in events] == [
        "event 0",
        "event 1",
        "event 2",
        "end",
    ]
    assert lab.consumer() in (last, last + 1)
    assert '"latestOffset"' in shown[0].replace(" ", "")
    assert [text for text in shown if secret in text] == []
