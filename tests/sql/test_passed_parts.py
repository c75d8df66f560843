"""vedur.event_key reads the key of an event; vedur.passed_part says what a branch leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError, PrivilegeError

KEY = "select vedur.event_key(7, %s, %s, %s)"
JSON = '{{"op":"{}","table":["public","t"],"pkey":["id","b c"]}}'


@pytest.mark.parametrize(
    ("kind", "data", "columns", "wanted"),
    [
        ("I:id", "id=5&v=a", ["id"], {"id": "5"}),
        ("U:id,b c", "v&b+c=%c3%a9%26%3d+x&id=1", ["b c", "id"], {"b c": "é&= x", "id": "1"}),
        ("D:b%2cc,id", "b=&id=", ["id"], {"id": ""}),
        ("D:id", "id", ["id"], {"id": None}),
        ("I:a%b", "a%25b=100%25", ["a%b"], {"a%b": "100%"}),
        (JSON.format("UPDATE"), '{"id": 1.50, "b c": null, "v": [1]}', ["b c"], {"b c": None}),
        (JSON.format("DELETE"), '{"id": true}', ["id"], {"id": True}),
        (JSON.format("TRUNCATE"), "{}", ["id"], None),
        ('{"op":"NEW"}', "{}", ["id"], None),
        ("R", "", ["id"], None),
        ("EXECUTE", "select 1", ["id"], None),
        ("londiste.add-table", "public.t", ["id"], None),
    ],
)
def test_the_key_of_an_event(
    db: vdb.Database, kind: str, data: str, columns: list[str], wanted: dict[str, Any] | None
) -> None:
    found = db.value(KEY, [kind, data, columns])
    assert (json.loads(found) if isinstance(found, str) else found) == wanted


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("I:id", "id=5&shop=1", "its key is id"),
        ("I:", "id=5&shop=1", "its key is empty"),
        ("I:id,shop", "id=5", "its key is id, shop"),
        ("I:id,shop", None, "it cannot be read"),
        ("I:shop", "shop=%ff", "it cannot be read"),
        ("I", "(id, shop) values (1, 2)", "it is a fragment of SQL"),
        (JSON.format("INSERT"), '{"id": 1, "shop": 2}', "its key is id, b c"),
        (JSON.format("INSERT"), '{"id":', "it cannot be read"),
        ('{"op":"INSERT"', "{}", "it cannot be read"),
        ('{"op":"INSERT"}', '{"shop": 1}', "its key is empty"),
    ],
)
def test_an_event_that_does_not_tell(
    db: vdb.Database, kind: str, data: str | None, why: str
) -> None:
    with pytest.raises(DatabaseError, match=f"event 7 does not tell the row by shop: {why}") as e:
        db.value(KEY, [kind, data, ["shop"]])
    assert e.value.sqlstate == "XX001"


@pytest.mark.parametrize(
    ("kind", "extra1", "wanted"),
    [
        ("I:id", "public.t", "public.t"),
        ("I:id", None, None),
        ("EXECUTE", "public.t", None),
        (JSON.format("INSERT"), "", "public.t"),
        (JSON.format("INSERT"), "s.u", "s.u"),
        ('{"op"', None, None),
        ('{"op":"INSERT","table":7}', None, None),
    ],
)
def test_the_table_of_an_event(
    db: vdb.Database, kind: str, extra1: str | None, wanted: str | None
) -> None:
    assert db.value("select vedur.event_table(%s, %s)", [kind, extra1]) == wanted


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    """A queue whose ticks 1 to 9 are there."""
    db.call("pgq.create_queue", "q")
    db.execute("update pgq.queue set queue_external_ticker = true")
    for tick in range(2, 10):
        db.value("select pgq.ticker('q', %s, now(), %s)", [tick, tick])
    return db


def note(db: vdb.Database, tick: int, *parts: tuple[str, str, int | None]) -> int:
    columns = [list(c) for c in zip(*parts, strict=True)] if parts else [[], [], []]
    text = "select vedur.note_passed_parts('q', %s, %s::text[], %s::text[], %s::bigint[])"
    return int(db.value(text, [tick, *columns]))


def told(db: vdb.Database, tick: int) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.query("select * from vedur.passed_parts('q', %s)", [tick])]


def test_parts_begin_and_end(queue: vdb.Database) -> None:
    db = queue
    assert note(db, 2) == 0
    assert note(db, 2, ("t", "a", None), ("t", "b", 4)) == 2
    assert note(db, 3, ("t", "a", None), ("t", "b", 4)) == 0
    assert told(db, 3) == [("t", "a", None), ("t", "b", 4)]
    assert told(db, 4) == [("t", "a", None)]
    # what ends tells up to which tick; the provider's end is later than what was known
    assert note(db, 5, ("t", "b", 6)) == 2
    assert told(db, 4) == [("t", "a", 5), ("t", "b", 6)]
    assert note(db, 6, ("t", "b", 3), ("u", "a", None), ("u", "a", 9)) == 1
    assert told(db, 5) == [("t", "b", 6), ("u", "a", None)]
    # it begins again: what was in between counts as left out, too
    assert note(db, 7, ("t", "a", None), ("u", "a", 8)) == 2
    assert told(db, 1) == [("t", "a", None), ("t", "b", 6), ("u", "a", 8)]
    # ticks that come again, behind an earlier one
    assert note(db, 3, ("u", "a", 8)) == 2
    assert told(db, 3) == [("u", "a", 8)]
    assert note(db, 7, ("t", "a", None), ("u", "a", 8)) == 1
    # what is before all ticks of the queue is needed by nobody
    db.execute("delete from pgq.tick where tick_id < 7")
    assert note(db, 8, ("t", "a", None)) == 1
    assert db.query("select table_name, condition from vedur.passed_part order by 1, 2") == [
        ("t", "a"), ("u", "a")
    ]  # fmt: skip


def test_a_dropped_queue_leaves_nothing(queue: vdb.Database) -> None:
    note(queue, 2, ("t", "x" * 10_000, None))
    queue.call("pgq.drop_queue", "q")
    queue.call("pgq.create_queue", "q")
    assert told(queue, 0) == []
    assert note(queue, 1, ("t", "a", None)) == 2
    assert queue.query("select condition from vedur.passed_part") == [("a",)]


def test_what_is_refused(queue: vdb.Database) -> None:
    text = "select vedur.note_passed_parts({})"
    for args, state in (
        ("'nope', 1, '{}', '{}', '{}'", "42704"),
        ("'q', null, '{}', '{}', '{}'", "22023"),
        ("'q', 1, '{t}', '{}', '{}'", "22023"),
        ("'q', 1, '{t}', '{a}', '{}'", "22023"),
        ("'q', 1, '{t}', '{null}', '{1}'", "22023"),
    ):
        with pytest.raises(DatabaseError) as error, queue.transaction():
            queue.value(text.format(args))
        assert error.value.sqlstate == state


@pytest.mark.parametrize("role", ["pgq_admin", "londiste_writer"])
def test_who_runs_a_branch_may_leave_out(queue: vdb.Database, role: str) -> None:
    db = queue
    db.execute(f"set local role {role}")
    assert note(db, 2, ("t", "a", None)) == 1
    assert told(db, 2) == [("t", "a", None)]
    stage = db.value("select vedur.create_raw_stage('q', 0)")
    db.execute(
        f"insert into {stage} (slice, ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1)"
        " values (1, 1, now(), 1, 'I:a b', 'a+b=%2b', 't'), (1, 2, now(), 1, 'I:a b', 'a+b=2', 't')"
    )
    text = (
        f"delete from {stage} where vedur.event_table(ev_type, ev_extra1) = 't'"
        " and vedur.event_key(ev_id, ev_type, ev_data, '{a b}') ->> 'a b' = '+'"
    )
    assert db.execute(text) == 1


@pytest.mark.parametrize("role", ["pgq_reader", "pgq_writer", "londiste_reader"])
def test_who_runs_no_node_notes_nothing(queue: vdb.Database, role: str) -> None:
    with pytest.raises(PrivilegeError), queue.transaction():
        queue.execute(f"set local role {role}")
        note(queue, 2, ("t", "a", None))
    with queue.transaction():
        queue.execute(f"set local role {role}")
        if role == "pgq_writer":
            with pytest.raises(PrivilegeError), queue.transaction():
                told(queue, 0)
        else:
            assert told(queue, 0) == []
