"""`applyfn`: each event goes to a function of the node's database, once and in its order."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Crash, Lab
from tests.labs.handlers import set_handler
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, content
from tests.labs.upstream import SYSTEM_PYTHON, require_londiste
from vedur import failpoint
from vedur.catalog.tables import get_table_list
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.errors import DatabaseError, StateError, UsageError
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.compare_tables import handler_refusal
from vedur.ops.quarantine import replay as ops
from vedur.ops.session import Session

__all__ = ["quick_leaf", "without_spark"]

MakeLeaf = Callable[..., Leaf]

DDL = "create table t (id int primary key, v text)"
#: A function that notes what it is given, and refuses some rows.
FUNCTION = """
create sequence called;
create table note (
    nr int, conf text, tick bigint, id bigint, at timestamptz, txid bigint, retry int, type text,
    data text, e1 text, e2 text, e3 text, e4 text);
create schema "od d%";
create function "od d%"."take ""it" (
    conf text, tick bigint, id bigint, at timestamptz, txid bigint, retry int, type text, data text,
    e1 text, e2 text, e3 text, e4 text)
returns text language plpgsql as $$
begin
    if data like '%bad%' then
        raise exception 'the function does not like this';
    end if;
    insert into public.note values (
        nextval('public.called'), conf, tick, id, at, txid, retry, type, data, e1, e2, e3, e4);
    return 'taken';
end
$$;
"""

UPSTREAM = """
import datetime, json, sys
from londiste.handlers.applyfn import ApplyFuncHandler

class Row:
    def __init__(self, fields):
        self.__dict__.update(fields)

told = json.load(sys.stdin)
handler = ApplyFuncHandler("public.t", told["args"], "public.t")
handler.prepare_batch({"tick_id": told["tick"]}, None)
made = []
for fields in told["events"]:
    handler.process_event(Row(fields), lambda sql, arg: made.append(sql), None)
json.dump(made, sys.stdout)
"""


@pytest.fixture
def crash_at() -> Iterator[Callable[[str], None]]:
    def plan(name: str) -> None:
        def hook(reached: str) -> None:
            if reached == name:
                failpoint.set_hook(None)
                raise Crash

        failpoint.set_hook(hook)

    yield plan
    failpoint.set_hook(None)


def with_function(leaf: Leaf, *, flags: str | None = None, attrs: str = "") -> None:
    leaf.pair.table("public.t", DDL, flags=flags)
    leaf.leaf.execute(FUNCTION)
    handler = "applyfn(func_name=od+d%25.take+%22it&func_conf=a%3D1%26b)"
    set_handler(leaf.leaf, "public.t", handler)
    if attrs:
        leaf.leaf.execute(
            "update londiste.table_info set table_attrs = table_attrs || %s", ["&" + attrs]
        )


def calls(db: Database) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.query("select * from note order by nr")]


def data(db: Database) -> list[str]:
    return [str(row[0]) for row in db.query("select data from note order by nr")]


@pytest.mark.parametrize("flags", ["AIUDJ", "AIUDL", "AIUDQ"])
def test_events_are_given_as_upstream_gives_them(
    quick_leaf: MakeLeaf, make_db: Callable[..., Database], flags: str
) -> None:
    leaf = quick_leaf()
    with_function(leaf, flags=flags)
    leaf.pair.table("public.other", "create table other (id int primary key)")
    leaf.leaf.execute("set session_replication_role = replica; insert into t values (7, 'here')")
    leaf.root.execute("insert into t values (1, e'\\\\ '' %s\n\u00e9'), (2, null)")
    leaf.root.execute("insert into other values (1)")
    leaf.root.execute("update t set v = 'b' where id = 1; update t set id = 3 where id = 2")
    leaf.root.execute("delete from t where id = 1")
    leaf.catch_up()
    leaf.same("other")
    assert content(leaf.leaf, "t") == ["(7,here)"]
    given = calls(leaf.leaf)
    events = leaf.root.query("""
        select ev_id, ev_time::text as ev_time, ev_txid, ev_retry, ev_type, ev_data, ev_extra1,
            ev_extra2, ev_extra3, ev_extra4
        from pgq.event_template where ev_extra1 = 'public.t' order by ev_id""")
    assert len(given) == len(events) >= 5
    tick = leaf.root.value("select max(tick_id) from pgq.tick")
    assert {row[2] for row in given} == {tick}
    leaf.root.execute("truncate t")
    leaf.catch_up()
    assert content(leaf.leaf, "t") == [] and calls(leaf.leaf) == given
    require_londiste()
    told = {
        "args": {"func_name": 'od d%.take "it', "func_conf": "a=1&b"},
        "tick": tick,
        "events": [row._asdict() for row in events],
    }
    done = subprocess.run(
        [SYSTEM_PYTHON, "-c", UPSTREAM], input=json.dumps(told), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    theirs = make_db()
    theirs.execute(FUNCTION)
    for text in json.loads(done.stdout):
        theirs.execute(text)
    assert calls(theirs) == given


def test_a_batch_is_applied_once(quick_leaf: MakeLeaf, crash_at: Callable[[str], None]) -> None:
    leaf = quick_leaf()
    with_function(leaf)
    leaf.root.execute("insert into t select n, 'v' from generate_series(1, 1200) n")
    leaf.pair.tick()
    for point in ("batch.merged", "batch.committed"):
        crash_at(point)
        with pytest.raises(Crash):
            leaf.worker.work()
        leaf.worker._close_connections()
    leaf.catch_up()
    ids = [json.loads(text)["id"] for text in data(leaf.leaf)]
    assert ids == list(range(1, 1201))


def test_a_refusal_names_the_event_and_stops(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf()
    with_function(leaf)
    leaf.root.execute("insert into t values (1, 'good'), (2, 'bad'), (3, 'good')")
    leaf.pair.tick()
    with pytest.raises(
        DatabaseError, match=r'^\[ev_id=\d+,ev_txid=\d+\] table "public\.t": the function does not'
    ):
        leaf.worker.work()
    assert calls(leaf.leaf) == []
    assert leaf.leaf.value("select table_name from vedur.replay_error") == "public.t"


def test_a_refused_event_waits_in_quarantine(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf()
    with_function(leaf, attrs="on_error=quarantine-row")
    leaf.root.execute("insert into t select n, 'good' from generate_series(1, 30) n")
    leaf.root.execute("update t set v = 'bad' where id = 2")
    leaf.root.execute("update t set v = 'better'")
    leaf.catch_up()
    assert len(data(leaf.leaf)) == 30 + 29
    first = leaf.leaf.value("select max(tick) from note")
    leaf.root.execute("insert into t values (100, 'later')")
    leaf.catch_up()
    leaf.leaf.execute("""
        create or replace function "od d%"."take ""it" (
            conf text, tick bigint, id bigint, at timestamptz, txid bigint, retry int, type text,
            data text, e1 text, e2 text, e3 text, e4 text)
        returns text language sql as 'insert into public.note values (
            nextval(''public.called''), conf, tick, id, at, txid, retry, type, data, e1, e2, e3, e4)
            returning null::text'""")
    with Session(leaf.settings) as session:
        assert ops.replay(session, ops.Choice(), spark=object()) == [  # type: ignore[arg-type]
            ops.Replayed("public.t", 2, 0)
        ]
    late = leaf.leaf.query("select data, tick, e1, at from note order by nr desc limit 2")
    assert [json.loads(row.data) for row in reversed(late)] == [
        {"id": 2, "v": "bad"},
        {"id": 2, "v": "better"},
    ]
    # the tick is that of the batch in which it was refused; its time is not kept
    assert {(row.tick, row.e1, row.at) for row in late} == {(first, "public.t", None)}


def test_copy_and_change(quick_lab: Lab) -> None:
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(DDL)
    lab.root.execute("insert into t values (1, 'a'), (2, 'b')")
    lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
    settings = LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf")
    handler: dict[str, Any] = {"handler": "applyfn", "handler_args": ["func_name=take"]}
    with Session(settings) as session:
        with pytest.raises(UsageError, match='needs argument "func_name"'):
            add_table(session, AddTable(tables=["t"], handler="applyfn"))
        with pytest.raises(StateError, match=r'no function "public"\."take" of 12 arguments'):
            add_table(session, AddTable(tables=["t"], **handler))
        lab.leaf.execute(FUNCTION)
        lab.leaf.execute('alter function "od d%"."take ""it" rename to take')
        lab.leaf.execute('alter function "od d%".take set schema public')
        with pytest.raises(UsageError, match="cannot have a condition"):
            add_table(session, AddTable(tables=["t"], copy_condition="id > 1", **handler))
        with pytest.raises(UsageError, match="cannot have a column list"):
            add_table(session, AddTable(tables=["t"], columns="id,v", **handler))
        add_table(session, AddTable(tables=["t"], **handler))
        lab.start()
        lab.wait_ok()
        lab.root.execute("update t set v = 'c' where id = 2")
        lab.settle()
        assert content(lab.leaf, "t") == ["(1,a)", "(2,b)"]
        assert data(lab.leaf) == ['{"id":2,"v":"c"}']
        (table,) = get_table_list(lab.leaf, QUEUE)
        assert 'only function "public"."take" knows' in (handler_refusal(table) or "")
        plain = {"table": "t", "handler": "londiste"}
        with pytest.raises(UsageError, match="--resync"):
            change_handler(session, ChangeHandler(**plain))
        change_handler(session, ChangeHandler(resync=True, **plain))
        lab.wait_ok()
        lab.root.execute("update t set v = 'd' where id = 1")
        lab.settle()
        lab.same("t")
        change_handler(session, ChangeHandler(table="t", **handler))  # the rows that are here stay
        lab.root.execute("delete from t where id = 1")
        lab.settle()
        assert content(lab.leaf, "t") == ["(1,d)", "(2,c)"]
        assert data(lab.leaf)[-1] == '{"id":1,"v":"d"}'
        lab.leaf.execute("drop function take")
        lab.root.execute("delete from t")
        lab.wait_until(
            lambda: "no function" in str(lab.leaf.query("select * from pgq_node.local_state"))
        )
