"""The stream reader, driven by hand as Spark drives it: positions, limits, rotation, loss."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.pg import TestServer
from tests.labs import pair
from tests.labs.chain import Chain
from vedur import db as vdb
from vedur.errors import StateError, UsageError
from vedur.pipeline.source.columns import event_schema
from vedur.pipeline.source.reader import LimitedStreamReader, QueueSource

QUEUE = 'reader\'s "queue" {x} %s'
CONSUMER = 'lake "one"'


class Lab:
    """A queue whose ticks are where the test wants them."""

    def __init__(self, db: vdb.Database) -> None:
        self.db = db
        db.call("pgq.create_queue", QUEUE)
        # Every event is enough for a tick.
        db.execute("update pgq.queue set queue_ticker_max_count = 1, queue_rotation_period = '0'")

    def tick(self, *events: str) -> int:
        for data in events:
            self.db.query("select pgq.insert_event(%s, 'n', %s)", [QUEUE, data])
        return int(self.db.value("select pgq.ticker(%s)", [QUEUE]))

    def rotate(self, times: int = 4) -> None:
        for _ in range(times):
            self.db.query("select pgq.maint_rotate_tables_step1(%s)", [QUEUE])
            self.db.query("select pgq.maint_rotate_tables_step2()")

    def oldest(self) -> int:
        return int(self.db.value("select min(tick_id) from pgq.tick"))

    def consumer(self) -> int | None:
        value = self.db.value(
            "select sub_last_tick from pgq.subscription s join pgq.consumer c"
            " on c.co_id = s.sub_consumer where co_name = %s",
            [CONSUMER],
        )
        return None if value is None else int(value)

    def query(self, **options: str) -> Query:
        source = QueueSource({"url": self.db.connstr, "subscribe": QUEUE, **options})
        reader = source.streamReader(event_schema())
        assert isinstance(reader, LimitedStreamReader)
        return Query(reader)


class Query:
    """What Spark does with a reader; `at` is what its checkpoint would hold."""

    def __init__(self, reader: LimitedStreamReader) -> None:
        self.reader = reader
        self.at: dict[str, Any] | None = None

    def restarted(self, other: Query) -> Query:
        """A new run with the checkpoint of another."""
        other.reader.stop()
        self.at = other.at
        return self

    def next(self, commit: bool = True) -> list[str] | None:
        """The events of the next micro-batch, None if there is none."""
        reader = self.reader
        start = self.at if self.at is not None else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        self.at = start
        if end == start:
            return None
        rows = self.read(start, end)
        self.at = end
        if commit:
            reader.commit(end)
        return rows

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        parts = self.reader.partitions(start, end)
        # Executors have a reader of their own, which came by pickle.
        remote = pickle.loads(pickle.dumps(self.reader))
        batches = [batch for part in parts for batch in remote.read(part)]
        return [str(text) for batch in batches for text in batch.column("ev_data").to_pylist()]

    def all(self) -> list[list[str]]:
        found = []
        while (batch := self.next()) is not None:
            found.append(batch)
        return found


@pytest.fixture
def lab(newest: TestServer, make_db_on: Callable[..., vdb.Database]) -> Lab:
    return Lab(make_db_on(newest, autocommit=True))


def test_limits_never_cut_a_tick(lab: Lab) -> None:
    lab.tick("a1", "a2", "a3")
    lab.tick("b1", "b2", "b3")
    lab.tick(*[f"c{n}" for n in range(10)])
    lab.tick("d1")
    lab.tick("e1")
    batches = [["a1", "a2", "a3"], ["b1", "b2", "b3"], [f"c{n}" for n in range(10)], ["d1", "e1"]]
    for name in ("maxEventsPerTrigger", "maxOffsetsPerTrigger"):
        query = lab.query(startingOffsets="earliest", **{name: "5"})
        query.reader.prepareForTriggerAvailableNow()
        assert query.all() == batches
        query.reader.stop()
    whole = lab.query(startingOffsets="earliest")
    whole.reader.prepareForTriggerAvailableNow()
    assert whole.all() == [[event for batch in batches for event in batch]]


def test_available_now_does_not_go_beyond_its_start(lab: Lab) -> None:
    lab.tick("1")
    query = lab.query(startingOffsets="earliest", maxEventsPerTrigger="1")
    query.reader.prepareForTriggerAvailableNow()
    last = lab.tick("2")
    assert query.all() == [["1"]]
    assert query.reader.reportLatestOffset() == {"queue": QUEUE, "tick": last}
    again = lab.query().restarted(query)
    again.reader.prepareForTriggerAvailableNow()
    assert again.all() == [["2"]]


def test_latest_is_the_default_and_new_events_come(lab: Lab) -> None:
    lab.tick("old")
    query = lab.query()
    assert query.next() is None
    lab.tick("new")
    assert query.next() == ["new"]


def test_rotation_waits_for_the_consumer(lab: Lab) -> None:
    options = {"startingOffsets": "earliest", "consumerName": CONSUMER, "maxEventsPerTrigger": "1"}
    query = lab.query(**options)
    first = lab.oldest()
    for number in range(6):
        lab.tick(str(number))
        lab.rotate(1)
        if number == 0:
            assert query.next(commit=False) == ["0"]
    assert lab.consumer() == first
    assert lab.oldest() == first
    start, end = {"queue": QUEUE, "tick": first}, query.at
    assert end is not None
    assert query.read(start, end) == ["0"]  # once more: nothing was committed
    query.reader.commit(end)
    assert lab.consumer() == end["tick"]
    restarted = lab.query(**options).restarted(query)
    restarted.reader.prepareForTriggerAvailableNow()
    assert restarted.all() == [["1"], ["2"], ["3"], ["4"], ["5"]]
    lab.tick("more")
    lab.rotate(8)
    assert lab.oldest() > first


def test_without_a_consumer_a_gap_is_told(lab: Lab) -> None:
    lab.tick("0")
    query = lab.query(startingOffsets="earliest")
    assert query.next() == ["0"]
    for number in range(1, 6):
        lab.tick(str(number))
        lab.rotate(1)
    lab.tick("end")
    with pytest.raises(StateError, match=r"were rotated away unread.*consumerName"):
        lab.query().restarted(query).next()
    lenient = lab.query(failOnDataLoss="false").restarted(query)
    got = lenient.next()
    assert got is not None and got[-1] == "end" and "1" not in got


def test_rotation_between_planning_and_reading_is_noticed(lab: Lab) -> None:
    lab.tick("0")
    query = lab.query(startingOffsets="earliest")
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    parts = query.reader.partitions(start, end)
    for number in range(6):
        lab.tick(str(number))
        lab.rotate(1)
    with pytest.raises(StateError, match="rotated away while they were read"):
        [batch for part in parts for batch in query.reader.read(part)]
    lenient = lab.query(failOnDataLoss="false")
    assert [batch for part in parts for batch in lenient.reader.read(part)] == []


def test_a_consumer_has_its_place(lab: Lab) -> None:
    first = lab.tick("1")
    second = lab.tick("2")
    lab.db.query("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, CONSUMER, first])
    for start in ("latest", "earliest"):
        query = lab.query(startingOffsets=start, consumerName=CONSUMER)
        assert query.next(commit=False) == ["2"], "words do not move a consumer that is there"
        query.reader.stop()
    query = lab.query(startingOffsets=str(second), consumerName=CONSUMER)
    assert query.next() is None
    assert lab.consumer() == second
    # Another query of the same name was faster: the consumer does not go back.
    query.reader.commit({"queue": QUEUE, "tick": first})
    assert lab.consumer() == second


def test_a_consumer_that_was_dropped_comes_back(lab: Lab) -> None:
    lab.tick("1")
    options = {"startingOffsets": "earliest", "consumerName": CONSUMER}
    query = lab.query(**options)
    assert query.next() == ["1"]
    lab.db.query("select pgq.unregister_consumer(%s, %s)", [QUEUE, CONSUMER])
    last = lab.tick("2")
    assert lab.query(**options).restarted(query).next() == ["2"]
    assert lab.consumer() == last


def test_a_checkpoint_that_does_not_fit(lab: Lab) -> None:
    lab.tick("1")
    query = lab.query(startingOffsets="earliest")
    query.next()
    other = lab.query(startingOffsets="earliest")
    other.at = {"queue": "other", "tick": 1}
    with pytest.raises(StateError, match='the checkpoint is of queue "other"'):
        other.next()
    lab.db.call("pgq.drop_queue", QUEUE)
    lab.db.call("pgq.create_queue", QUEUE)
    with pytest.raises(StateError, match=r"is ahead of queue .* restored to an earlier state"):
        lab.query().restarted(query).next()


def test_a_lost_connection_is_made_again(lab: Lab) -> None:
    query = lab.query(startingOffsets="earliest", consumerName=CONSUMER)
    for number in range(3):
        lab.tick(str(number))
        assert query.next() == [str(number)]
        lab.db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


def test_readers_travel_without_connection_and_show_no_secret(lab: Lab) -> None:
    lab.tick("1")
    query = lab.query(startingOffsets="earliest", password="sw0rdf1sh")
    query.next()
    assert query.reader._db is not None
    assert pickle.loads(pickle.dumps(query.reader))._db is None
    start = {"queue": QUEUE, "tick": lab.oldest()}
    parts = query.reader.partitions(start, query.at or {})
    shown = [repr(query.reader), *map(repr, parts), repr(query.reader.__dict__)]
    assert len(shown) == 3
    assert [text for text in shown if "sw0rdf1sh" in text] == []


def test_options_of_the_wrong_kind(lab: Lab) -> None:
    with pytest.raises(UsageError, match="is for a batch"):
        lab.query(endingOffsets="5")


@pytest.mark.usefixtures("without_spark")
def test_a_stream_moves_between_root_and_branch_by_position(
    make_chain: Callable[..., Chain],
) -> None:
    """The branch applies all ticks in one batch; its queue has each of them, at the same offset."""
    chain = make_chain(2, leaf=False)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.catch_up()
    for number in range(5):
        chain.root.execute("insert into t values (%s, 'x'), (%s, 'y')", [number, number + 100])
        chain.root.execute("update t set v = 'z' where id < 100")
        chain.tick()
    chain.catch_up()
    first = str(min(chain["n2"].ticks()))

    def stream(name: str) -> Query:
        where = {"url": chain[name].db.connstr, "subscribe": pair.QUEUE}
        options = {"startingOffsets": first, "maxEventsPerTrigger": "1"}
        reader = QueueSource(where | options).streamReader(event_schema())
        assert isinstance(reader, LimitedStreamReader)
        reader.prepareForTriggerAvailableNow()
        return Query(reader)

    whole = stream("n1").all()
    assert len(whole) >= 5 and sum(map(len, whole)) >= 5 * 3
    for there, here in (("n1", "n2"), ("n2", "n1")):
        for cut in (1, 3, len(whole) - 1):
            query = stream(there)
            assert [query.next() for _ in range(cut)] == whole[:cut]
            moved = stream(here).restarted(query)
            assert moved.all() == whole[cut:]
            moved.reader.stop()
