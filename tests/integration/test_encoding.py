"""`londiste` with `encoding=utf8`: bytes that are no text are replaced, in copies and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.any_bytes import ascii_root, writing_bytes
from tests.labs.first_copy import Lab
from tests.labs.handlers import set_handler
from tests.labs.in_process import run_here, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, Pair
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.db.install import install
from vedur.errors import DatabaseError, StateError, UsageError
from vedur.handlers.registry import handler_attr, registry
from vedur.node.info import NodeInfo, NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.handlers import _require_place
from vedur.ops.session import Session
from vedur.pipeline.compare import expected
from vedur.pipeline.compare.jobs import moment
from vedur.pipeline.replay import stage as replay
from vedur.tables.mapping import TableMap

__all__ = ["ascii_root", "without_spark"]

DDL = "create table {} (id int primary key, v text, b bytea, tags text[], note text)"
MENDS = "londiste(encoding=utf8)"
#: b"caf\xe9 \xe2\x82\t\xed\xa0\x80"
TWO = "caf\ufffd \ufffd\ufffd\t\ufffd\ufffd\ufffd"


@pytest.fixture
def leaf(
    ascii_root: vdb.Database,
    newest: Any,
    make_db_on: Callable[..., vdb.Database],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Leaf]:
    monkeypatch.setattr(replay, "run_tasks", run_here)
    made = Leaf(Pair.make(ascii_root, make_db_on(newest)), None)
    yield made
    made.close()


def rows(db: vdb.Database, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.query(f"select id, v, b::text, tags from {table} order by id")]


@pytest.mark.parametrize("flags", ["AIUDJ", "AIUDL"])
def test_changes_are_mended(leaf: Leaf, flags: str) -> None:
    leaf.pair.table("public.t", DDL.format("t"), flags=flags)
    leaf.pair.table("public.n", "create table n (k text primary key, v text)", flags=flags)
    for table in ("t", "n"):
        set_handler(leaf.leaf, f"public.{table}", MENDS)
    with writing_bytes(leaf.root) as app:
        app.execute("insert into t values (1, 'gr\u00fc\u00df', '\\xe9ff', '{a}')".encode())
        app.execute(b"insert into t values (2, 'caf\xe9 \xe2\x82\t\xed\xa0\x80', null, '{\xff,b}')")
        app.execute(b"insert into t values (3, 'x'), (4, 'gone \xfe')")
        leaf.catch_up()
        assert rows(leaf.leaf, "t") == [
            (1, "gr\u00fc\u00df", "\\xe9ff", ["a"]),
            (2, TWO, None, ["\ufffd", "b"]),
            (3, "x", None, None),
            (4, "gone \ufffd", None, None),
        ]
        app.execute(b"update t set v = '\xc3' where id = 3; update t set id = 20 where id = 2")
        app.execute(b"delete from t where id in (1, 4)")
        app.execute(b"insert into n values ('k\xe9', '1'), ('gone\xe9', '2')")
        leaf.catch_up()
        assert [r[:2] for r in rows(leaf.leaf, "t")] == [(3, "\ufffd"), (20, TWO)]
        # the key is mended, too: changes and deletes find their row
        app.execute(b"update n set v = '3' where k = 'k\xe9'; delete from n where k = 'gone\xe9'")
        leaf.catch_up()
        assert [tuple(r) for r in leaf.leaf.query("select * from n")] == [("k\ufffd", "3")]
        app.execute(b"truncate t; insert into t values (5, '\xe9')")
        leaf.catch_up()
        assert [r[:2] for r in rows(leaf.leaf, "t")] == [(5, "\ufffd")]
        # two keys that become one: the second is refused as any row with a key that is there
        app.execute(b"insert into n values ('k\xe8', '4')")
        leaf.pair.tick()
        with pytest.raises(DatabaseError, match=r'^\[ev_id=.* table "public.n": duplicate key'):
            leaf.worker.work()


def test_a_table_without_it_stops(leaf: Leaf) -> None:
    leaf.pair.table("public.t", DDL.format("t"))
    leaf.pair.table("public.u", DDL.format("u"))
    set_handler(leaf.leaf, "public.t", MENDS)
    with writing_bytes(leaf.root) as app:
        app.execute(b"insert into t values (1, '\xe9'); insert into u values (1, '\xe9')")
    leaf.pair.tick()
    with pytest.raises(StateError, match=r'table "public\.u": its data cannot be read'):
        leaf.worker.work()


def test_fragments_of_sql_are_refused(leaf: Leaf) -> None:
    leaf.pair.table("public.t", DDL.format("t"), flags="AIUDQ")
    set_handler(leaf.leaf, "public.t", MENDS)
    leaf.root.execute("insert into t values (1, 'a')")
    leaf.pair.tick()
    with pytest.raises(StateError, match="does not write whole rows"):
        leaf.worker.work()


def test_copies_are_mended(
    ascii_root: vdb.Database,
    newest: Any,
    make_db_on: Callable[..., vdb.Database],
    without_spark: None,
) -> None:
    lab = Lab(ascii_root, make_db_on(newest, autocommit=True), None)
    for db in (lab.root, lab.leaf):
        db.execute(DDL.format("t"))
    with writing_bytes(lab.root) as app:
        app.execute(b"insert into t values (1, 'a\tb')")
        app.execute(b"insert into t values (2, 'caf\xe9 \xe2\x82', '\\xe9', '{\xff}')")
    lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
    settings = LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf")
    with Session(settings) as session:
        for args, message in (
            (["encoding=latin1"], 'is one of utf8, utf-8, UTF8, UTF-8, not "latin1"'),
            (["encoding="], "is one of utf8"),
        ):
            with pytest.raises(UsageError, match=message):
                add_table(session, AddTable(tables=["t"], handler="londiste", handler_args=args))
        mends = {"handler": "londiste", "handler_args": ["encoding=utf8"]}
        with pytest.raises(UsageError, match='looks at column "v", which handler'):
            add_table(session, AddTable(tables=["t"], copy_condition="v > 'a'", **mends))
        add_table(session, AddTable(tables=["t"], **mends))
        lab.start()
        lab.wait_ok()
        lab.settle()
        wanted = [
            (1, "a\tb", None, None),
            (2, "caf\ufffd \ufffd\ufffd", "\\xe9", ["\ufffd"]),
        ]
        assert rows(lab.leaf, "t") == wanted
        with writing_bytes(lab.root) as app:
            app.execute(b"delete from t where id = 2; update t set v = '\xe9' where id = 1")
        lab.settle()
        assert rows(lab.leaf, "t") == [(1, "\ufffd", None, None)]
        # other rows, so to and fro the table is copied
        plain = ChangeHandler(table="t", handler="londiste")
        with pytest.raises(UsageError, match="--resync"):
            change_handler(session, plain)
        with writing_bytes(lab.root) as app:
            app.execute(b"update t set v = 'text'")
        lab.settle()
        change_handler(session, ChangeHandler(table="t", handler="londiste", resync=True))
        lab.wait_ok()
        change_handler(session, ChangeHandler(table="t", resync=True, **mends))
        lab.wait_ok()
        with writing_bytes(lab.root) as app:
            app.execute(b"update t set v = 'last \xff'")
        lab.settle()
        assert rows(lab.leaf, "t") == [(1, "last \ufffd", None, None)]
    lab.close()


def test_not_on_a_branch() -> None:
    assert handler_attr("londiste", ["encoding=utf8"]) == MENDS
    handler = registry().make("londiste", "public.t", {"encoding": "utf8"})
    fields = dict.fromkeys(NodeInfo.__dataclass_fields__)
    branch = NodeInfo(**{**fields, "node_type": NodeType.BRANCH})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be on a branch"):
        _require_place(branch, MENDS, handler)


@pytest.mark.spark
def test_compare_expects_mended_rows(
    ascii_root: vdb.Database, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> None:
    leaf = make_db_on(newest, autocommit=True)
    for db in (ascii_root, leaf):
        install(db)
        db.execute(DDL.format("t"))
    with writing_bytes(ascii_root) as app:
        app.execute(b"insert into t values (1, 'caf\xe9 \xe2\x82', '\\xe9', '{\xff}')")
    rows = registry().resolve(MENDS, "public.t", None, None).rows
    pair = expected.make_expected_pair(
        ascii_root, leaf, TableMap("public.t", "public.t", rows=rows)
    )
    with vdb.connect(ascii_root.connstr) as holder, vdb.connect(leaf.connstr) as other:
        names = []
        for db in (holder, other):
            db.execute("set transaction isolation level repeatable read")
            names.append(db.value("select pg_export_snapshot()"))
        at = pair.at(*names, "vedur compare")
        with expected.stage_expected(spark, at, limit=1) as staged:
            side = staged.source
            with moment(side.connstr, side.begin()) as db:
                text = f"select v, b::text, tags from {side.table} t where {side.selected}"
                assert [tuple(row) for row in db.query(text)] == [
                    ("caf\ufffd \ufffd\ufffd", "\\xe9", ["\ufffd"])
                ]
