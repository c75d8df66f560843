"""`spark.read.format("pgq")`: a batch is what the queue holds, whole and exact."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.fixtures.pg import TestServer
from vedur import db as vdb
from vedur.pipeline.source import position
from vedur.pipeline.source.options import SourceOptions

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

QUEUE = 'queue "of" Ünïcode\'s'
EVENT_NAMES = [
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
    "ev_id",
    "ev_txid",
    "ev_time",
    "table_name",
    "ev_type",
    "ev_data",
    "ev_extra1",
    "ev_extra2",
    "ev_extra3",
    "ev_extra4",
]


@pytest.fixture
def db(newest: TestServer, make_db_on: Callable[..., vdb.Database]) -> vdb.Database:
    """A database with a queue, in autocommit mode."""
    found = make_db_on(newest, autocommit=True)
    found.call("pgq.create_queue", QUEUE)
    return found


def tick(db: vdb.Database) -> int:
    db.query("select pgq.force_tick(%s)", [QUEUE])
    return int(db.value("select pgq.ticker(%s)", [QUEUE]))


def put(db: vdb.Database, *events: tuple[str, str | None]) -> None:
    for ev_type, data in events:
        db.query("select pgq.insert_event(%s, %s, %s)", [QUEUE, ev_type, data])


def reader(spark: Any, db: vdb.Database, **options: str) -> Any:
    base = {"url": db.connstr, "subscribe": QUEUE}
    return spark.read.format("pgq").options(**base, **options)


def capture(db: vdb.Database, table: str, kind: str = "jsontriga", *args: str) -> None:
    literals = ", ".join("'" + a.replace("'", "''") + "'" for a in (QUEUE, *args))
    db.execute(
        f"create trigger c after insert or update or delete on {table}"
        f" for each row execute function pgq.{kind}({literals})"
    )
    db.execute(
        f"create trigger ct after truncate on {table}"
        f" for each statement execute function pgq.{kind}({literals})"
    )


def failure(work: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:
        work()
    return str(caught.value)


def test_a_batch_is_what_the_queue_holds(spark: Any, db: vdb.Database) -> None:
    texts = ["", "null", "tab\there", "line\nbreak", "back\\slash \\N", "日本 ☃ 🎉", "'\""]
    put(db, *[("note", t) for t in texts], ("note", None))
    first = tick(db)
    put(db, ("I:id", "id=1&name=x"), ("D:id", "id=1"), ("R", None), ('{"not ours"', "{}"))
    last = tick(db)
    put(db, ("note", "after the last tick"))
    frame = reader(spark, db).load()
    assert frame.columns == EVENT_NAMES
    micros = "unix_micros(ev_time) as at", "unix_micros(_commit_timestamp) as tick_at"
    got = sorted(frame.selectExpr("*", *micros).collect(), key=lambda r: r.ev_id)
    assert [(r.ev_type, r.ev_data) for r in got] == [
        *[("note", t) for t in texts],
        ("note", None),
        ("I:id", "id=1&name=x"),
        ("D:id", "id=1"),
        ("R", None),
        ('{"not ours"', "{}"),
    ]
    changes = [None] * 8 + ["insert", "delete", "truncate", None]
    assert [r._change_type for r in got] == changes
    assert [r._commit_version for r in got] == [first] * 8 + [last] * 4
    events = db.value("select pgq.quote_fqname(queue_data_pfx) from pgq.queue")
    since_1970 = "(extract(epoch from {}) * 1000000)::int8"
    rows = db.query(
        f"select ev_id, ev_txid, {since_1970.format('ev_time')} from {events} order by 1 limit 12"
    )
    assert [(r.ev_id, r.ev_txid, r.at) for r in got] == [tuple(r) for r in rows]
    ticks = dict(db.query(f"select tick_id, {since_1970.format('tick_time')} from pgq.tick"))
    assert [r.tick_at for r in got] == [ticks[r._commit_version] for r in got]


def test_extra_fields_and_other_consumers_retries(spark: Any, db: vdb.Database) -> None:
    db.query("select pgq.insert_event(%s, 't', 'd', 'a', 'b\tb', null, '')", [QUEUE])
    db.query("select pgq.register_consumer(%s, 'other')", [QUEUE])
    put(db, ("mine", "x"))
    tick(db)
    batch = db.value("select pgq.next_batch(%s, 'other')", [QUEUE])
    event = db.value("select max(ev_id) from pgq.get_batch_events(%s)", [batch])
    db.query("select pgq.event_retry(%s, %s, 0)", [batch, event])
    db.query("select pgq.finish_batch(%s)", [batch])
    db.query("select pgq.maint_retry_events()")
    tick(db)
    got = sorted(reader(spark, db).load().collect(), key=lambda r: r.ev_id)
    assert [(r.ev_extra1, r.ev_extra2, r.ev_extra3, r.ev_extra4) for r in got] == [
        ("a", "b\tb", None, ""),
        (None, None, None, None),
    ]


def test_ticks_as_offsets(spark: Any, db: vdb.Database) -> None:
    ticks = []
    for number in range(5):
        put(db, ("n", str(number)))
        ticks.append(tick(db))

    def read(**options: str) -> list[str]:
        return sorted(r.ev_data for r in reader(spark, db, **options).load().collect())

    assert read() == list("01234")
    assert read(startingOffsets=str(ticks[0])) == list("1234")
    assert read(startingOffsets=str(ticks[0]), endingOffsets=str(ticks[2])) == list("12")
    assert read(startingOffsets="latest") == []
    assert read(endingOffsets=str(ticks[1])) == list("01")
    db.execute("delete from pgq.tick where tick_id = %s", [ticks[1]])  # a gap in the numbers
    assert read(startingOffsets=str(ticks[1])) == list("1234")
    assert "tick 999 is ahead of queue" in failure(lambda: read(startingOffsets="999"))


def test_a_transaction_belongs_to_the_tick_that_sees_it(spark: Any, db: vdb.Database) -> None:
    """Events are numbered when written, and belong to ticks by when they were committed."""
    with vdb.connect(db.connstr) as slow:
        slow.query("select pgq.insert_event(%s, 'slow', '1')", [QUEUE])
        put(db, ("fast", "1"))
        first = tick(db)
        slow.query("select pgq.insert_event(%s, 'slow', '2')", [QUEUE])
        slow.commit()
    put(db, ("fast", "2"))
    second = tick(db)
    got = {(r.ev_type, r.ev_data): r._commit_version for r in reader(spark, db).load().collect()}
    assert got == {
        ("fast", "1"): first,
        ("slow", "1"): second,
        ("slow", "2"): second,
        ("fast", "2"): second,
    }


@pytest.mark.draw("source")
def test_many_events_in_slices(spark: Any, db: vdb.Database) -> None:
    for part in range(6):
        db.query(
            "select count(pgq.insert_event(%s, 'n', g::text)) from generate_series(%s::int, %s) g",
            [QUEUE, part * 15_000 + 1, (part + 1) * 15_000],
        )
        tick(db)
    frame = reader(spark, db).load()
    assert 5 <= frame.rdd.getNumPartitions() <= 8
    assert reader(spark, db, numPartitions="2").load().rdd.getNumPartitions() == 2
    # one reading for all that is asked: the events of each part have a tick, and all are there
    rows = frame.selectExpr("_commit_version v", "ev_id", "cast(ev_data as long) d").collect()
    assert len({row.ev_id for row in rows}) == 90_000
    parts = sorted((row.v, row.d) for row in rows)
    assert [number for _, number in parts] == list(range(1, 90_001))
    assert sorted(Counter(tick for tick, _ in parts).values()) == [15_000] * 6


@pytest.mark.parametrize("kind", ["jsontriga", "logutriga"])
def test_decoded_columns_of_a_table(spark: Any, db: vdb.Database, kind: str) -> None:
    db.execute("create domain price as numeric(9,2)")
    db.execute(
        """create table public."Odd ""Täble" (
            id bigint primary key, s smallint, i int, r real, d float8, b bool, n numeric(20,4),
            free numeric, p price, day date, ts timestamp, tz timestamptz, bin bytea, u uuid,
            j jsonb, a int[], t text, "Col & =%+" text)"""
    )
    table = 'public."Odd ""Täble"'
    capture(db, table, kind)
    db.execute(
        f"""insert into {table} values
        (1, -1, 2, 1.5, 'NaN', true, 1234.5, 1e30, 9.99, '2024-02-29', '2024-02-29 12:00:00.123456',
         '2024-02-29 12:00:00.5+05:30', '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
         '{{"k": [1, null]}}', '{{1,2}}', 'tab\there', 'é&=%+'),
        (2, null, null, null, null, null, null, null, null, null, null, null, null, null,
         null, null, null, null)"""
    )
    db.execute(f"update {table} set b = false, t = '' where id = 1")
    db.execute(f"delete from {table} where id = 2")
    db.execute(f"truncate {table}")
    last = tick(db)
    frame = reader(spark, db, table='public.Odd "Täble').load()
    types = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    assert list(types)[:5] == [
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
        "ev_id",
        "ev_txid",
    ]
    assert {k: v for k, v in types.items() if k[0] != "_" and k[:3] != "ev_"} == {
        "id": "bigint",
        "s": "smallint",
        "i": "int",
        "r": "float",
        "d": "double",
        "b": "boolean",
        "n": "decimal(20,4)",
        "free": "string",
        "p": "decimal(9,2)",
        "day": "date",
        "ts": "timestamp_ntz",
        "tz": "timestamp",
        "bin": "binary",
        "u": "string",
        "j": "string",
        "a": "string",
        "t": "string",
        "Col & =%+": "string",
    }
    got = sorted(frame.selectExpr("*", "unix_micros(tz) as tzus").collect(), key=lambda r: r.ev_id)
    assert [r._change_type for r in got] == [
        "insert",
        "insert",
        "update_postimage",
        "delete",
        "truncate",
    ]
    assert {r._commit_version for r in got} == {last}
    one = got[0].asDict()
    assert one.pop("d") != one["i"]
    assert (one["id"], one["s"], one["i"], one["r"], one["b"]) == (1, -1, 2, 1.5, True)
    assert (one["n"], one["p"]) == (Decimal("1234.5000"), Decimal("9.99"))
    assert Decimal(one["free"]) == Decimal("1e30")
    assert one["day"] == dt.date(2024, 2, 29)
    assert one["ts"] == dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
    assert (
        one["tzus"]
        == int(dt.datetime(2024, 2, 29, 6, 30, tzinfo=dt.UTC).timestamp() * 10**6) + 500_000
    )
    assert bytes(one["bin"]) == b"\x00\xff"
    assert one["u"] == "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert (one["t"], one["Col & =%+"]) == ("tab\there", "é&=%+")
    two = got[1].asDict()
    assert [k for k, v in two.items() if v is None and k in types] == [
        k for k in types if k[0] != "_" and k[:3] != "ev_" and k != "id"
    ]
    assert (got[2].b, got[2].t) == (False, "")
    assert got[3].id == 2
    assert got[4].id is None


def test_a_schema_of_ones_own(spark: Any, db: vdb.Database) -> None:
    db.execute("create table t (id int primary key, day date, n numeric(5,1))")
    capture(db, "t")
    db.execute("insert into t values (1, 'infinity', 'NaN'), (2, '2024-01-01', 1.5)")
    tick(db)
    base = reader(spark, db, table="t")
    said = failure(lambda: base.load().collect())
    assert '[ev_id=1] column "day": its value is no date32' in said
    assert "declare the column as string with .schema(...)" in said
    wish = "n string, day string, _change_type string, id bigint, ev_time timestamp"
    got = base.schema(wish).load()
    assert got.columns == ["n", "day", "_change_type", "id", "ev_time"]
    rows = sorted((r.id, r.day, r.n) for r in got.collect())
    assert rows == [(1, "infinity", "NaN"), (2, "2024-01-01", "1.5")]
    assert 'column "x" is not in table "public.t"' in failure(
        lambda: base.schema("id int, x int").load().collect()
    )
    assert "declare it as string" in failure(
        lambda: base.schema("id int, n array<int>").load().collect()
    )
    assert 'column "ev_id" is bigint: the schema says string' in failure(
        lambda: base.schema("ev_id string").load().collect()
    )


def test_names_that_clash(spark: Any, db: vdb.Database) -> None:
    db.execute("create table t (ev_id int primary key, note text)")
    capture(db, "t")
    db.execute("insert into t values (77, 'x')")
    tick(db)
    said = failure(lambda: reader(spark, db, table="t").load())
    assert "has the name of the source's own column for Spark: give option columnPrefix" in said
    frame = reader(spark, db, table="t", columnPrefix="c_").load()
    got = frame.first()
    assert (got.ev_id, got.c_ev_id, got.c_note) == (1, 77, "x")
    db.execute('create table u (id int primary key, "Id" int)')
    assert 'has the name of "id" column' in failure(lambda: reader(spark, db, table="u").load())


def test_tables_are_told_apart_and_fragments_refused(spark: Any, db: vdb.Database) -> None:
    db.execute("create table a (id int primary key); create table b (id int primary key, v text)")
    capture(db, "a")
    capture(db, "b", "sqltriga")
    db.execute("insert into a values (1); insert into b values (5, 'x')")
    tick(db)
    assert [r.id for r in reader(spark, db, table="a").load().collect()] == [1]
    assert "is captured by pgq.sqltriga" in failure(
        lambda: reader(spark, db, table="b").load().collect()
    )
    raw = reader(spark, db).load().where("table_name = 'public.b'").first()
    assert (raw._change_type, raw.ev_type) == ("insert", "I")


def test_events_rotated_away(spark: Any, db: vdb.Database) -> None:
    put(db, ("n", "old"))
    old = tick(db)
    db.execute("update pgq.queue set queue_rotation_period = '0'")
    for number in range(6):
        put(db, ("n", str(number)))
        tick(db)
        db.query("select pgq.maint_rotate_tables_step1(%s)", [QUEUE])
        db.query("select pgq.maint_rotate_tables_step2()")
    put(db, ("n", "new"))
    tick(db)
    assert db.value("select min(tick_id) from pgq.tick") > old
    said = failure(lambda: reader(spark, db, startingOffsets=str(old)).load().collect())
    assert f"after tick {old} were rotated away unread" in said
    lenient = reader(spark, db, startingOffsets=str(old), failOnDataLoss="false").load()
    assert "new" in [r.ev_data for r in lenient.collect()]


def test_a_role_needs_no_more_than_pgq_reader(
    spark: Any, db: vdb.Database, newest: TestServer
) -> None:
    db.execute("create table t (id int primary key, secret text)")
    capture(db, "t")
    db.execute("insert into t values (1, 'x')")
    tick(db)
    db.execute("drop role if exists lake_reader; create role lake_reader login in role pgq_reader")
    url = newest.connstr(db.value("select current_database()"), "lake_reader")
    frame = reader(spark, db, table="t", user="lake_reader").load()
    assert [r.secret for r in frame.collect()] == ["x"]
    options = SourceOptions(connstr=url, queue=QUEUE, consumer="lake", start="earliest")
    with vdb.connect(url, autocommit=True) as plain:
        reach = position.find_queue(plain, QUEUE)
        start = position.take_place(plain, options, reach)
        assert start == reach.first
        position.advance(plain, options, reach.last)
        position.advance(plain, options, start)  # never back
        assert position.take_place(plain, options, reach) == reach.last
    db.query("select pgq.unregister_consumer(%s, 'lake')", [QUEUE])
    db.execute("drop role lake_reader")


def test_errors_say_what_is_wrong(spark: Any, db: vdb.Database) -> None:
    assert 'queue "nope" does not exist in this database' in failure(
        lambda: spark.read.format("pgq").options(url=db.connstr, subscribe="nope").load().collect()
    )
    assert 'option "subscribe" is missing' in failure(
        lambda: spark.read.format("pgq").options(url=db.connstr).load()
    )
    assert 'table "public.nope" does not exist in this database' in failure(
        lambda: reader(spark, db, table="nope").load()
    )


def test_passwords_are_nowhere_to_be_seen(spark: Any, db: vdb.Database) -> None:
    secret = "sw0rdf1sh"
    put(db, ("n", "1"))
    tick(db)
    frame = reader(spark, db, password=secret).load()
    assert frame.count() == 1
    execution = frame._jdf.queryExecution()
    texts = [
        execution.toString(),
        execution.analyzed().treeString(),
        execution.executedPlan().treeString(),
        execution.analyzed().toJSON(),
        repr(frame),
    ]
    assert all("pgq" in t.lower() for t in texts[:2])
    wrong = {"url": "host=127.0.0.1 port=1 dbname=x", "password": secret, "subscribe": "q"}
    texts.append(failure(lambda: spark.read.format("pgq").options(**wrong).load().collect()))
    texts.append(failure(lambda: reader(spark, db, password=secret, table="nope").load()))
    assert [t for t in texts if secret in t] == []
