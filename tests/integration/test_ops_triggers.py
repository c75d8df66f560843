"""add-table's options about triggers and states, seen in the events that changes make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.fixtures.pg import TestServer
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.errors import DatabaseError
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.session import Session
from vedur.ops.show import tables


@pytest.fixture
def root(oldest: TestServer, make_db_on: Callable[..., vdb.Database]) -> Iterator[Session]:
    db = make_db_on(oldest, "ours", autocommit=True)
    db.execute("create table public.t (id int primary key, x text)")
    settings = LondisteSettings(
        db=db.connstr, queue_name="replika", job_name="src", config_file="/src.ini"
    )
    with Session(settings) as session:
        create_node(session, plan_node(session, NodeType.ROOT, "src", db.connstr))
        yield session


def events(session: Session) -> list[tuple[str, str, str | None]]:
    rows = session.db.query(
        "select ev_type, ev_data, ev_extra2 from pgq.event_1 where ev_extra1 = 'public.t'"
        " order by ev_id"
    )
    return [tuple(row) for row in rows]


def change(session: Session) -> None:
    session.db.execute("insert into t values (1, 'a')")
    session.db.execute("update t set x = 'b'")
    session.db.execute("delete from t")


def test_events_are_json_by_default(root: Session) -> None:
    add_table(root, AddTable(tables=["t"]))
    change(root)
    kinds = [kind for kind, _, _ in events(root)]
    assert [kind.split('"')[3] for kind in kinds] == ["INSERT", "UPDATE", "DELETE"]


def test_event_format_urlenc_writes_as_londiste(root: Session) -> None:
    with Session(replace(root.settings, event_format="urlenc")) as session:
        add_table(session, AddTable(tables=["t"]))
    change(root)
    assert events(root) == [
        ("I:id", "id=1&x=a", None),
        ("U:id", "id=1&x=b", None),
        ("D:id", "id=1&x=b", None),
    ]


def test_trigger_flags_choose_operations_and_format(root: Session) -> None:
    add_table(root, AddTable(tables=["t"], trigger_flags="AIL"))
    change(root)
    assert events(root) == [("I:id", "id=1&x=a", None)]


def test_trigger_arguments(root: Session) -> None:
    wish = AddTable(tables=["t"], trigger_flags="AIUDL", trigger_args=["backup", "ignore=x"])
    add_table(root, wish)
    change(root)
    assert events(root) == [("I:id", "id=1", None), ("D:id", "id=1", None)]


def test_no_triggers(root: Session, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "vedur")
    add_table(root, AddTable(tables=["t"], no_triggers=True))
    assert caplog.messages[-1] == "Table added with no triggers: public.t"
    change(root)
    assert events(root) == []


def test_expect_sync_and_skip_truncate_on_a_leaf(
    root: Session, newest: TestServer, make_db_on: Callable[..., vdb.Database]
) -> None:
    db = make_db_on(newest, "ours", autocommit=True)
    db.execute("create table public.t (id int primary key, x text)")
    db.execute("create table public.u (id int primary key, x text)")
    root.db.execute("create table public.u (id int primary key, x text)")
    add_table(root, AddTable(tables=["*"]))
    settings = LondisteSettings(
        db=db.connstr, queue_name="replika", job_name="dst", config_file="/dst.ini"
    )
    with Session(settings) as leaf:
        node = plan_node(leaf, NodeType.LEAF, "dst", db.connstr, root.db.connstr)
        create_node(leaf, node)
        add_table(leaf, AddTable(tables=["t"], expect_sync=True))
        add_table(leaf, AddTable(tables=["u"], skip_truncate=True))
        states = {t.table_name: (t.merge_state, t.attrs) for t in tables(leaf)}
    assert states["public.t"] == ("ok", {})
    assert states["public.u"][0] is None
    assert "skip_truncate" in states["public.u"][1]
    with pytest.raises(DatabaseError, match="change not allowed"):
        db.execute("insert into public.t values (1, 'x')")
