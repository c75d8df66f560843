"""What Londiste's own test scripts do with cascades, with assertions where they print: a set of
five nodes from its beginning to a change of its shape, copies in any order down a chain, foreign
keys, and nodes that record some tables only.

The staging tasks of the workers run in this process; compare and repair use Spark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.chain import Chain, Node
from tests.labs.moving_root import move
from tests.labs.pair import QUEUE
from vedur.catalog.tables import get_table_list
from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.node.info import NodeType, get_node_info
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_provider import change_provider
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.execute.run import execute
from vedur.ops.remove_table import remove_table
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.sequences import add_seq
from vedur.ops.show import status
from vedur.ops.wait_sync import wait_root, wait_sync

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(900)]

MakeChain = Callable[..., Chain]
MAIN = "create table mytable (id serial primary key, data text)"
ROWS = (
    "create table mytable_rows (id serial primary key, main_id int references mytable, extra text)"
)
SEQUENCE = "public.mytable_id_seq"


@contextmanager
def running(chain: Chain, write: Callable[[Database, int], None] | None = None) -> Iterator[None]:
    """Every worker runs by itself, the root ticks, and `write` is called again and again."""
    over, failed = threading.Event(), list[BaseException]()

    def beside(work: Callable[[Database, int], None]) -> Callable[[], None]:
        def run() -> None:
            number = 0
            try:
                with connect(chain.root.connstr, autocommit=True) as db:
                    while not SYSTEM.wait(over, 0.05):
                        number += 1
                        work(db, number)
            except BaseException as error:
                failed.append(error)

        return run

    def tick(db: Database, _number: int) -> None:
        db.value("select pgq.force_tick(%s)", [QUEUE])
        db.value("select pgq.ticker(%s)", [QUEUE])

    threads = [threading.Thread(target=beside(tick), daemon=True)]
    if write is not None:
        threads.append(threading.Thread(target=beside(write), daemon=True))
    for node in chain.nodes:
        node.renew()
        threads.append(threading.Thread(target=node.worker.run, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for node in chain.nodes:
            node.worker.signals.stop.set()
            node.worker.signals.wake.set()
        for thread in threads:
            thread.join(120)
        for node in chain.nodes:
            node.renew()
    assert failed == []


def do(node: Node, command: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with node.session() as session:
        return command(session, *args, **options)


def add(node: Node, *tables: str, **options: Any) -> None:
    do(node, add_table, AddTable(tables=tables, **options))


def known(node: Node) -> set[str]:
    return set(get_table_list(node.db, QUEUE).names)


def provider(node: Node) -> str | None:
    info = get_node_info(node.db, QUEUE)
    assert info is not None
    return info.provider_node


def foreign_keys(node: Node, table: str) -> list[tuple[Any, ...]]:
    text = (
        "select pg_get_constraintdef(oid), convalidated from pg_constraint"
        " where conrelid = %s::regclass and contype = 'f'"
    )
    return [tuple(row) for row in node.db.query(text, [table])]


@pytest.fixture
def new_db(make_db_on: Any, newest: Any) -> Callable[[], Database]:
    return lambda: make_db_on(newest, "bare", autocommit=True)


@pytest.mark.long
def test_five_nodes_from_the_beginning_to_another_shape(
    make_chain: MakeChain,
    new_db: Callable[[], Database],
    spark: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "vedur")
    chain = make_chain(1, global_wm_publish_period=0.5, local_wm_publish_period=0.5)
    for name, above in (("n2", "n1"), ("n3", "n1"), ("n4", "n2"), ("n5", "n3")):
        more = {"sync_watermark": "n4,n5"} if name in ("n4", "n5") else {}
        chain.add(name, NodeType.BRANCH, new_db(), provider=above, **more)
    root = chain.nodes[0]
    root.db.execute(MAIN)
    root.db.execute("insert into mytable (data) select 'row' || i from generate_series(1, 4) i")

    def write(db: Database, number: int) -> None:
        db.execute("insert into mytable (data) values ('load')")
        db.execute("update mytable set data = data || '+' where id = %s", [5 + number % 20])
        if number % 5 == 0:
            db.execute("delete from mytable where data = 'load' and id % 7 = 0")

    with running(chain, write):
        # -- tables and a sequence, from the root down
        add(root, "mytable")
        do(root, add_seq, [SEQUENCE])
        root.db.execute("create table mytable2 (id int primary key, data text)")
        root.db.execute("insert into mytable2 values (1, 'one')")
        add(root, "mytable2")
        for node in chain.followers:
            node.db.execute("create sequence mytable_id_seq")
            do(node, add_seq, [SEQUENCE])
            add(node, "mytable", create_full=True, find_copy_node=True)
            add(node, "mytable2", create=True, find_copy_node=True)
        for node in chain.followers:
            do(node, wait_sync)
            assert chain.states(node.name) == {"public.mytable": "ok", "public.mytable2": "ok"}
        # -- a table leaves the set everywhere, and comes back on one node alone
        do(root, remove_table, ["mytable2"])
        for node in chain.followers:
            do(node, wait_root)
            assert known(node) == {"public.mytable"}
            left = "select count(*) from pg_trigger where tgrelid = 'mytable2'::regclass"
            assert node.db.value(left) == 0
        add(root, "mytable2")
        do(chain["n5"], wait_root)
        caplog.clear()
        add(chain["n5"], "mytable2", find_copy_node=True)
        do(chain["n5"], wait_sync)
        assert 'public.mytable2: copied from node "n1"' in caplog.text
        assert chain["n5"].db.query("select * from mytable2") == [(1, "one")]
        assert chain.states("n3") == {"public.mytable": "ok"}
        # -- a script of the set reaches all nodes
        script = tmp_path / "column.sql"
        script.write_text("alter table mytable add column data2 text;\n")
        do(root, execute, [str(script)])
        root.db.execute(
            "insert into mytable (data, data2)"
            " select 'row' || i, 'data2' from generate_series(5, 8) i"
        )
        for node in chain.followers:
            do(node, wait_root)
            new = "select data from mytable where data2 is not null order by data"
            assert [r.data for r in node.db.query(new)] == ["row5", "row6", "row7", "row8"]
        # -- damage on a branch is found and mended there, and nobody else is touched by it
        n3 = chain["n3"]
        with connect(n3.db.connstr, autocommit=True) as db:
            db.execute("set session_replication_role = replica")
            db.execute("delete from mytable where data = 'row5'")
        options = CompareOptions(tables=["mytable"])
        assert do(n3, compare, options, spark).exit_code == 1
        (done,) = do(n3, repair, RepairOptions(tables=["mytable"], apply=True), spark)
        assert (done.inserts, done.updates, done.deletes) == (1, 0, 0)
        assert do(n3, compare, options, spark).exit_code == 0
        assert do(chain["n5"], compare, options, spark).exit_code == 0
        # -- another shape
        do(chain["n4"], change_provider, "n3")
        do(chain["n5"], change_provider, "n2")
        assert [provider(chain[n]) for n in ("n4", "n5")] == ["n3", "n2"]
        seen = do(root, status)
        assert {n.name: n.provider for n in seen.nodes if n.type != "root"} == {
            "n2": "n1", "n3": "n1", "n4": "n3", "n5": "n2",
        }  # fmt: skip
        for node in chain.followers:
            do(node, wait_root)
        # -- a branch takes the place of the one above it
        move(chain, "n3", "n4")
        assert [provider(chain[n]) for n in ("n3", "n4")] == ["n4", "n1"]
        for node in chain.followers:
            do(node, wait_root)
    tick = chain.tick()
    for name in ("n2", "n4", "n3", "n5"):  # from the root down, as they are now
        while chain[name].worker.work():
            pass
        assert chain[name].position == tick, name
    assert len(chain.require_same("mytable")) > 8
    assert chain["n5"].ticks().keys() >= {tick}
    # n4 and n5 tell of a watermark of their own, and n3 reads from n4
    chain.require_queue(chain["n2"], root, max(min(chain["n2"].ticks()), tick - 20))
    for name in ("n2", "n3", "n4", "n5"):
        last = "select last_value from mytable_id_seq"
        assert chain[name].db.value(last) >= root.db.value("select max(id) from mytable")


@pytest.mark.long
def test_copies_in_any_order_down_a_chain(
    make_chain: MakeChain, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vedur")
    chain = make_chain(5, leaf=False)
    for node in chain.nodes:
        node.db.execute(MAIN)
        node.db.execute(ROWS)
    chain.root.execute("insert into mytable (data) select 'row' || i from generate_series(1, 4) i")
    chain.root.execute("insert into mytable_rows (main_id, extra) select 1, 'x' from mytable")

    def write(db: Database, number: int) -> None:
        db.execute("insert into mytable_rows (main_id, extra) values (%s, 'y')", [1 + number % 4])
        db.execute("update mytable set data = data || '.' where id = %s", [1 + number % 4])

    add(chain.nodes[0], "mytable", "mytable_rows")
    wanted = foreign_keys(chain.nodes[0], "mytable_rows")
    with running(chain, write):
        # nobody above n5 has the tables; n4 then copies past n3, and n3 from the node above it
        for name, source in (("n5", "n1"), ("n2", ""), ("n4", "n2"), ("n3", "")):
            caplog.clear()
            node = chain[name]
            do(node, wait_root)
            do(node, add_table, AddTable(tables=[], all=True, find_copy_node=True))
            do(node, wait_sync)
            for table in ("mytable", "mytable_rows"):
                said = f'public.{table}: copied from node "{source}"'
                assert (said in caplog.text) == bool(source), name
            # foreign keys come back when both of their tables are in sync
            assert until(lambda node=node: foreign_keys(node, "mytable_rows") == wanted)
            assert do(node, compare, CompareOptions(), spark).exit_code == 0
            found = do(node, repair, RepairOptions(), spark)
            assert [(r.inserts, r.updates, r.deletes) for r in found] == [(0, 0, 0)] * 2
    chain.catch_up()
    for table in ("mytable", "mytable_rows"):
        chain.require_same(table)
    chain.require_queues(max(chain["n5"].ticks()) - 10)


@pytest.mark.draw("branches")
def test_tables_with_a_foreign_key_between_them(make_chain: MakeChain) -> None:
    chain = make_chain(2, leaf=False)
    root, branch = chain.nodes
    for node in chain.nodes:
        node.db.execute(MAIN)
        node.db.execute(ROWS)
    chain.root.execute("insert into mytable (data) select 'row' || i from generate_series(1, 4) i")
    chain.root.execute("insert into mytable_rows (main_id, extra) select 1, 'x' from mytable")

    def write(db: Database, number: int) -> None:
        """New rows refer to rows that are new, too: whoever copies meanwhile gets one late."""
        with db.transaction():
            new = db.value("insert into mytable (data) values ('load') returning id")
            db.execute("insert into mytable_rows (main_id, extra) values (%s, 'load')", [new])

    with running(chain, write):
        for name in ("mytable", "mytable_rows"):
            add(root, name)
            do(root, add_seq, [f"public.{name}_id_seq"])
            do(branch, add_seq, [f"public.{name}_id_seq"])
            add(branch, name)
        do(branch, wait_sync)
        do(branch, wait_root)
        (node,) = (n for n in do(root, status).nodes if n.name == "n2")
        assert (node.tables_ok, node.tables_half, node.errors) == (2, 0, ())
    assert branch.db.value("select count(*) from londiste.pending_fkeys") == 0
    assert foreign_keys(branch, "mytable_rows") == foreign_keys(root, "mytable_rows")
    assert foreign_keys(branch, "mytable_rows")[0][1] is True
    chain.catch_up()
    assert len(chain.require_same("mytable_rows")) > 4
    chain.require_same("mytable")


@pytest.mark.draw("branches")
def test_a_branch_that_records_some_tables_only(
    make_chain: MakeChain, new_db: Callable[[], Database]
) -> None:
    chain = make_chain(1)
    root = chain.nodes[0]
    names = [f"public.table{i}" for i in range(1, 6)]
    branch = chain.add(
        "n2",
        NodeType.BRANCH,
        new_db(),
        own={
            "register_only_tables": tuple(names[:3]),
            "register_skip_tables": (names[1], names[3]),
        },
    )
    leaf = chain.add("n3", NodeType.LEAF, new_db())
    for node in chain.nodes:
        for name in names:
            node.db.execute(f"create table {name} (id int primary key, data text)")
    with running(chain):
        add(root, *names[:2])
        do(branch, wait_root)
        add(branch, names[0])
        add(root, *names[2:])
        do(branch, wait_sync)
        for name in names:
            root.db.execute(f"insert into {name} values (1, 'x')")
        do(leaf, wait_root)
    assert known(branch) == {names[0], names[2]}
    assert known(leaf) == set(names)  # what the branch does not record it passes on
    chain.catch_up()
    chain.require_same("table1", "n2")
    assert branch.db.value("select count(*) from table2") == 0
    chain.require_queues()
