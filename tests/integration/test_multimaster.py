"""`multimaster`: changes of several roots to one table; the later version of a row stays."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.examples import examples
from tests.labs.handlers import set_handler
from tests.labs.in_process import without_spark
from tests.labs.pair import call, content
from tests.labs.two_roots import Way
from tests.labs.upstream import SYSTEM_PYTHON, require_londiste
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.errors import DatabaseError, StateError, UsageError
from vedur.handlers.registry import registry
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.compare_tables import handler_refusal

__all__ = ["set_handler", "without_spark"]

MakeWay = Callable[[str, Database, Database], Way]

DDL = "create table t (id int primary key, v text, at timestamp not null)"
BY_TIME: dict[str, Any] = {"handler": "multimaster", "handler_args": ["timefield=at"]}


@pytest.fixture
def make_way(without_spark: None) -> Iterator[MakeWay]:
    made: list[Way] = []

    def make(queue: str, root: Database, leaf: Database) -> Way:
        made.append(Way(queue, root, leaf))
        return made[-1]

    yield make
    for way in made:
        way.close()


def add(way: Way, table: str = "t", **options: Any) -> None:
    call(way.root, "londiste.local_add_table", way.queue, f"public.{table}", ["expect_sync"])
    with way.session() as session:
        add_table(session, AddTable(tables=[table], expect_sync=True, **{**BY_TIME, **options}))


def write(db: Database, key: int, value: str, at: int) -> None:
    db.execute(
        "insert into t values (%s, %s, timestamp '2026-01-01' + %s * interval '1 s')"
        " on conflict (id) do update set v = excluded.v, at = excluded.at",
        [key, value, at],
    )


def rows(db: Database) -> list[tuple[Any, ...]]:
    text = "select id, v, extract(epoch from at - '2026-01-01')::int from t order by id"
    return [tuple(row) for row in db.query(text)]


def test_two_roots_agree(make_db: Callable[..., Database], make_way: MakeWay) -> None:
    """Each is the root of its own set, and a leaf of the other's."""
    one, two = make_db(), make_db()
    ways = [make_way("from_one", one, two), make_way("from_two", two, one)]
    for db in (one, two):
        db.execute(DDL)
    for way in ways:
        add(way, no_triggers=True)  # users write there, too
    write(one, 1, "one", 10)
    write(two, 1, "two", 20)  # later
    write(one, 2, "one", 40)  # later
    write(two, 2, "two", 30)
    write(one, 3, "only one", 50)
    write(two, 4, "only two", 50)
    for way in ways:
        way.catch_up()
    wanted = [(1, "two", 20), (2, "one", 40), (3, "only one", 50), (4, "only two", 50)]
    assert rows(one) == rows(two) == wanted
    # what came from the other is not sent back
    before = one.value("select count(*) from pgq.event_template where ev_extra1 = 'public.t'")
    for way in ways:
        way.catch_up()
    after = one.value("select count(*) from pgq.event_template where ev_extra1 = 'public.t'")
    assert before == after
    # a delete is the version that it deletes: as new as the other's, so it stays there
    one.execute("delete from t where id = 3")
    # a row that is newer than the other's copy of it
    two.execute("update t set v = 'newer', at = at + interval '1 s' where id = 4")
    two.execute("delete from t where id = 4")
    for way in ways:
        way.catch_up()
    assert [row[0] for row in rows(one)] == [1, 2, 4]
    assert rows(one)[2] == (4, "newer", 51)
    assert [row[0] for row in rows(two)] == [1, 2, 3]
    (table,) = [t for t in get_table_list(one, "from_two") if t.local]
    assert "knows what rows should be here" in (handler_refusal(table) or "")


def test_concurrent_changes_meet(make_db: Callable[..., Database], make_way: MakeWay) -> None:
    """Both roots and both workers write at once; in the end the latest version is everywhere."""
    one, two = make_db(), make_db()
    ways = [make_way("from_one", one, two), make_way("from_two", two, one)]
    for db in (one, two):
        db.execute(DDL)
    for way in ways:
        add(way, no_triggers=True)
    chance = random.Random(7)
    moments = list(range(1, 161))
    chance.shuffle(moments)
    errors: list[BaseException] = []

    def work(way: Way, mine: list[int]) -> None:
        try:
            with make_session(way.root) as db:
                for at in mine:
                    key = at % 5
                    # an application that goes by the same rule as the function
                    db.execute(
                        "insert into t values"
                        " (%s, %s, timestamp '2026-01-01' + %s * interval '1 s')"
                        " on conflict (id) do update set v = excluded.v, at = excluded.at"
                        " where t.at < excluded.at",
                        [key, f"{way.queue} {at}", at],
                    )
                    if at % 8 == 0:
                        catch_up_again(way)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(way, moments[at::2])) for at, way in enumerate(ways)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert errors == []
    for way in ways:
        catch_up_again(way)
    assert rows(one) == rows(two)
    assert [row[2] for row in rows(one)] == [160, 156, 157, 158, 159]


def make_session(db: Database) -> Database:
    from vedur.db import connect

    return connect(db.connstr, autocommit=True)


def catch_up_again(way: Way) -> None:
    """Two workers and two writers may lock rows in a circle: the server ends one of them."""
    while True:
        try:
            way.catch_up()
            return
        except DatabaseError as error:
            if error.sqlstate != "40P01":
                raise


def test_several_roots_come_together(make_db: Callable[..., Database], make_way: MakeWay) -> None:
    one, two, hub = make_db(), make_db(), make_db()
    ways = [make_way("from_one", one, hub), make_way("from_two", two, hub)]
    one.execute(DDL)
    two.execute(DDL)
    hub.execute("create schema all_; " + DDL.replace("table t", "table all_.t"))
    place = {"dest_table": "all_.t"}
    call(two, "londiste.local_add_table", "from_two", "public.t", ["expect_sync"])
    add(ways[0], **place)
    with ways[1].session() as session:
        with pytest.raises(UsageError, match="needs a column to decide by"):
            add_table(session, AddTable(tables=["t"], handler="multimaster"))
        with pytest.raises(StateError, match="only conditions can tell whose a row is"):
            add_table(session, AddTable(tables=["t"], **place))
        with pytest.raises(StateError, match="a first copy can come from one of them only"):
            add_table(session, AddTable(tables=["t"], **place, **BY_TIME))
        add_table(session, AddTable(tables=["t"], expect_sync=True, **place, **BY_TIME))
    write(one, 1, "one", 10)
    write(two, 1, "two", 5)
    write(two, 2, "two", 5)
    for way in ways:
        way.catch_up()
    assert content(hub, "all_.t") == [
        '(1,one,"2026-01-01 00:00:10")',
        '(2,two,"2026-01-01 00:00:05")',
    ]
    one.execute("truncate t")
    ways[0].tick()
    with pytest.raises(StateError, match="TRUNCATE would empty"):
        ways[0].worker.work()


@pytest.mark.parametrize(
    "given, message",
    [
        ({"timefield": "at", "fkey_cols": "a"}, "needs fkey_ref_table"),
        (
            {"timefield": "at", "fkey_ref_table": "p", "fkey_ref_cols": "a,b", "fkey_cols": "a"},
            "as many fkey_cols",
        ),
        ({"altpk": "v"}, "timefield=COLUMN"),
        ({"timefield": "at", "nope": "1"}, "Invalid handler argument"),
    ],
)
def test_bad_arguments(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        registry().make("multimaster", "public.t", given)


# -- the function ---------------------------------------------------------------------------------

#: Upstream's function is PL/Python: here it runs outside of the server, on a connection.
UPSTREAM = """
import json, sys, types
import psycopg2, psycopg2.extras

told = json.load(sys.stdin)
db = psycopg2.connect(told["connstr"])
as_text = psycopg2.extensions.new_type((1114,), "AS_TEXT", lambda value, curs: value)
psycopg2.extensions.register_type(as_text)
plpy = types.ModuleType("plpy")

def run(text):
    curs = db.cursor(cursor_factory=psycopg2.extras.RealDictCursor)
    curs.execute(text)
    found = curs.fetchall() if curs.description else []
    return [{k: None if v is None else str(v) for k, v in row.items()} for row in found]

plpy.execute = run
sys.modules["plpy"] = plpy
import skytools, skytools.plpy_applyrow as upstream

def plpy_exec(gd, text, fields):
    for name, value in fields.items():
        text = text.replace("{%s}" % name, skytools.quote_literal(value))
    return run(text)

skytools.plpy_exec = plpy_exec
upstream.plpy = plpy
answers = []
for kind, data in told["events"]:
    try:
        done = upstream.ts_conflict_handler({}, [told["conf"], kind, data, "public.t", None])
        answers.append("ignored" if done.startswith("IGN") else "done")
        db.commit()
    except Exception as error:
        db.rollback()
        answers.append("error")
json.dump(answers, sys.stdout)
"""
CALL = "select vedur.merge_on_time(%s, '1', '1', null, '1', null, %s, %s, 'public.t', '', '', '')"
SHAPE = (
    "create table t (id int primary key, code text unique, p int, v text, at timestamp, n numeric);"
    "create table p (q int primary key); insert into p values (1), (2)"
)


def history(chance: random.Random, count: int) -> list[tuple[str, str]]:
    events = []
    for _ in range(count):
        kind = chance.choice("IIUUUD")
        moments = [f"2026-01-01+00%3a00%3a0{chance.randrange(6)}"] * 9 + ["infinity"]
        row = {
            "id": str(chance.randrange(4)),
            "code": chance.choice(["a", "b", "%c3%a9+%25", "c%26"]),
            "p": chance.choice(["1", "2", "3"]),
            "v": chance.choice(["%3dv", "", "%0a%5c%27x", "plain"]),
            "at": chance.choice(moments),
        }
        text = "&".join(f"{k}={v}" for k, v in row.items()) + chance.choice(["&n", "&n=1.50"])
        events.append((f"{kind}:id", text))
    return events


@pytest.mark.parametrize("conf", ["timefield=at", "timefield=at&altpk=code"])
def test_the_function_does_what_upstreams_does(make_db: Callable[..., Database], conf: str) -> None:
    require_londiste()
    ours, theirs = make_db(autocommit=True), make_db(autocommit=True)
    for seed in range(examples(3)):
        events = history(random.Random(seed), 60)
        for db in (ours, theirs):
            db.execute("drop table if exists t, p")
            db.execute(SHAPE)
        told = {"connstr": theirs.connstr, "conf": conf, "events": events}
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", UPSTREAM], input=json.dumps(told), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        answers = []
        for kind, data in events:
            try:
                answers.append(ours.value(CALL, [conf, kind, data]).split(":")[0])
            except DatabaseError:
                answers.append("error")
        mine = ["done" if a in ("insert", "update", "delete") else a for a in answers]
        assert mine == json.loads(done.stdout), [
            (e, a, b) for e, a, b in zip(events, answers, json.loads(done.stdout), strict=True)
        ]
        assert content(ours, "t") == content(theirs, "t")
    assert {"insert", "update", "ignored"} <= set(answers)


def test_events_of_json(make_db: Callable[..., Database]) -> None:
    db = make_db(autocommit=True)
    db.execute(
        "create table t (id int, k text, a text[], j json, b bytea, n numeric(6, 3),"
        " c char(3), twice int generated always as (id * 2) stored, at timestamptz,"
        " primary key (id, k))"
    )

    def run(op: str, conf: str = "timefield=at", **row: Any) -> str:
        kind = json.dumps({"op": op, "table": ["public", "t"], "pkey": ["id", "k"]})
        data = json.dumps(row, ensure_ascii=False)
        return str(db.value(CALL, [conf, kind, data]))

    first = {"id": 1, "k": "o'x", "a": ["a,b", None], "j": {"z": [1, "\u00e9"]}, "b": "\\xff"}
    assert run("INSERT", **first, n=1.5, c="x", at="2026-01-01T00:00:00+02:00") == "insert"
    # an earlier moment, though its text is greater
    assert "as new" in run("UPDATE", id=1, k="o'x", c="y", at="2026-01-01T00:30:00+03:00")
    assert run("UPDATE", id=1, k="o'x", c="y", at="2026-01-01T00:30:00+02:00") == "update"
    assert run("UPDATE", id=2, k="", at="2026-01-01T00:30:00+02:00") == "insert"
    found = db.one("select a, j::text, b, n::text, c, twice from t where id = 1")
    assert tuple(found) == (["a,b", None], '{"z": [1, "\u00e9"]}', b"\xff", "1.500", "y  ", 2)
    assert run("DELETE", id=1, k="o'x", at="2026-01-02T00:00:00+00:00") == "delete"
    fkey = "timefield=at&fkey_ref_table=public.p&fkey_ref_cols=x,y&fkey_cols=id,k"
    db.execute("create table p (x int, y text); insert into p values (7, 'q')")
    assert "public.p is not here" in run("INSERT", fkey, id=7, k="r", at="2026-01-01")
    assert run("INSERT", fkey, id=7, k="q", at="2026-01-01") == "insert"
    for message, arguments in (
        ('has no column "at"', {"id": 7, "k": "q"}),
        ("cannot be compared", {"id": 7, "k": "q", "at": None}),
        ("cannot be compared", {"id": 7, "k": "q", "at": "infinity"}),
        ('column "nope" is missing', {"id": 7, "k": "q", "at": "2027-01-01", "nope": 1}),
        ("value too long", {"id": 8, "k": "q", "at": "2027-01-01", "c": "wxyz"}),
    ):
        with pytest.raises(DatabaseError, match=message):
            run("UPDATE", **arguments)
    with pytest.raises(DatabaseError, match="no change of a whole row"):
        db.value(CALL, ["timefield=at", "I", "(id) values (1)"])
