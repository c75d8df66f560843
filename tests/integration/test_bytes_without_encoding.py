"""A root without an encoding: one event with bytes that are no text does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.labs.any_bytes import ascii_root
from tests.labs.in_process import run_here
from tests.labs.leaf import Leaf
from tests.labs.pair import Pair
from vedur import db as vdb
from vedur.change.formats import readable
from vedur.config import LondisteSettings
from vedur.errors import StateError
from vedur.node.info import NodeType
from vedur.ops.create_node import NewNode, create_node
from vedur.ops.doctor.server import check_server
from vedur.ops.session import Session
from vedur.pipeline.replay import stage as replay

__all__ = ["ascii_root"]

DDL = "create table {} (id int primary key, v text)"


def test_the_event_is_named_and_its_policy_holds(
    ascii_root: vdb.Database,
    newest: Any,
    make_db_on: Callable[..., vdb.Database],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(replay, "run_tasks", run_here)
    leaf = Leaf(Pair.make(ascii_root, make_db_on(newest)), None)
    app = psycopg.connect(ascii_root.connstr, autocommit=True)
    app.execute("set client_encoding = 'SQL_ASCII'")
    flags = {"j": "AIUDJ", "u": "AIUDL", "s": "AIUDQ"}
    for name, flag in flags.items():
        leaf.pair.table(f"public.{name}", DDL.format(name), flags=flag)
        app.execute(f"insert into {name} values (1, 'good'), (2, 'gr\u00fc\u00df')".encode())
        app.execute(f"insert into {name} values (3, 'caf".encode() + b"\xe9')")
        app.execute(f"insert into {name} values (4, 'after')")
    with pytest.raises(StateError, match=r"^\[ev_id=\d+,ev_txid=\d+\] .*(not UTF-8|utf-8)"):
        leaf.catch_up()
    stopped = leaf.leaf.one("select * from vedur.replay_error")
    assert (stopped.ev_id is not None, stopped.table_name) == (True, "public.j")
    for name in flags:
        text = "select londiste.local_set_table_attrs('q', %s, 'on_error=quarantine-row')"
        leaf.leaf.value(text, [f"public.{name}"])
    leaf.catch_up()
    kept = leaf.leaf.query("select table_name, ev_data from vedur.quarantine order by id")
    assert {row.table_name for row in kept} == {"public.j", "public.u", "public.s"}
    assert any(row.ev_data == 'not UTF-8: {"id":3,"v":"caf\\xe9"}' for row in kept)
    rows = leaf.leaf.query("select id, v from j order by id")
    assert [tuple(r) for r in rows][:2] == [(1, "good"), (2, "grüß")]
    # the connection of the task is one for UTF-8 again
    app.execute("delete from j where id = 1")
    leaf.catch_up()
    app.close()
    leaf.close()
    found = list(check_server("database", ascii_root, leaf.worker.clock))
    assert any(f.check == "encoding" and "SQL_ASCII" in f.found for f in found)
    caplog.set_level(logging.WARNING)
    settings = LondisteSettings(db=ascii_root.connstr, queue_name="other", job_name="r")
    with Session(settings) as session:
        create_node(session, NewNode(NodeType.ROOT, "r", ascii_root.connstr, None))
    assert "has no encoding (SQL_ASCII)" in caplog.text


def test_only_rows_that_are_no_text_change() -> None:
    good = '1\t7\t\t\tI\tt\t{"v":"ü"}\n'.encode()
    assert readable(good) is good
    bad = b'2\t7\t\t\tI\tt\t{"v":"\xe9\xff"}\n'
    assert readable(good + bad) == good + b'2\t7\t\t\tI\tt\tnot UTF-8: {"v":"\\\\xe9\\\\xff"}\n'
    assert readable(b"") == b""
