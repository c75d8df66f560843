"""First copies from another node than the provider: --copy-node, --find-copy-node, resync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.labs.chain import Chain
from tests.labs.first_copy import Crash
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.clock import SYSTEM
from vedur.db import Database
from vedur.errors import StateError, UsageError, VedurError
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.drop_node import drop_node
from vedur.ops.execute.run import execute
from vedur.ops.resync import resync
from vedur.sql import query

TABLE = "create table t (id int primary key, v text)"
CONSUMER = "low_job.copy.public.t"


class Fork:
    """Root `n1`; below it branch `n2`, which has the table, and branch `mid`, which has not; leaf
    `low` below `mid`."""

    def __init__(self, chain: Chain, make_db: Callable[[], Database]) -> None:
        self.chain = chain
        chain.add("mid", NodeType.BRANCH, make_db(), provider="n1")
        chain.add("low", NodeType.LEAF, make_db(), provider="mid")
        chain.table("public.t", TABLE, on=["n2"])
        self.rows = 0
        self.change()
        chain.catch_up()

    def change(self, count: int = 20) -> None:
        """Insert, change and delete rows on the root."""
        first, self.rows = self.rows, self.rows + count
        root = self.chain.root
        root.execute(
            f"insert into t select i, 'x' || i from generate_series({first}, {self.rows - 1}) i"
        )
        root.execute(f"update t set v = v || '+' where id % 3 = 0 and id >= {first - 10}")
        root.execute(f"delete from t where id = {first + 5}")

    def add(self, **options: Any) -> None:
        with self.chain["low"].session() as session:
            add_table(session, AddTable(tables=["public.t"], **options))

    def resync(self, **options: Any) -> None:
        with self.chain["low"].session() as session:
            resync(session, ["public.t"], **options)

    @property
    def attrs(self) -> str | None:
        text = "select table_attrs from londiste.get_table_list(%s) where table_name = 'public.t'"
        found: str | None = self.chain["low"].db.value(text, [QUEUE])
        return found

    def place(self) -> str | None:
        """The node on which the copy's consumer stands, by the leaf's word."""
        row = self.chain["low"].db.one(query("copy", "consumer_node"), [QUEUE, CONSUMER])
        return None if row is None else str(row.node)

    def consumers(self, name: str) -> list[str]:
        """First copies that stand on a node, by its own word."""
        rows = self.chain[name].db.query("select * from pgq.get_consumer_info(%s)", [QUEUE])
        return [row.consumer_name for row in rows if ".copy." in row.consumer_name]

    def finish(self) -> None:
        """Let the copy end under changes, and require that all is right then."""
        chain = self.chain

        def done() -> bool:
            self.change(3)
            return chain.states("low").get("public.t") == "ok"

        chain.work_until(done)
        self.change()
        for node in chain.followers:  # threads of the copy may look at connections still
            node.worker.work()
        chain.catch_up()
        assert len(chain.require_same("t", "n2", "low")) > 10
        chain.work_until(lambda: self.place() is None)
        assert [self.consumers(n) for n in ("n1", "n2", "mid")] == [[], [], []]


@pytest.fixture
def fork(make_chain: Any, servers: Any, make_db_on: Any, newest: Any, spark: Any) -> Iterator[Fork]:
    yield Fork(make_chain(2, spark=spark, leaf=False), lambda: make_db_on(newest))
    failpoint.set_hook(None)


@pytest.mark.parametrize("source", ["n1", "n2"])
def test_copy_from_a_named_node(fork: Fork, source: str) -> None:
    fork.add(copy_node=source)
    assert fork.attrs == f"copy_node={source}"
    seen: set[str | None] = set()
    failpoint.set_hook(lambda name: seen.add(fork.place()) if name == "copy.replayed" else None)
    fork.finish()
    assert seen <= {source}
    assert fork.chain.require_queues() > 0


@pytest.mark.draw("copies")
def test_copy_from_the_nearest_node(fork: Fork) -> None:
    with pytest.raises(UsageError, match="Problems, canceling"):
        fork.add()
    assert fork.chain.states("low") == {}
    fork.add(find_copy_node=True)
    assert fork.attrs == "copy_node=%3F"
    fork.finish()
    # the choice holds for the next copy, until there is another
    fork.resync()
    fork.finish()
    fork.resync(copy_node="n2")
    assert fork.attrs == "copy_node=n2"
    fork.finish()


@pytest.mark.draw("copies")
def test_a_node_that_has_yet_to_run_a_script_is_waited_for(fork: Fork, tmp_path: Path) -> None:
    """The leaf has run it and will not run it again: the rows must have it."""
    chain = fork.chain
    (tmp_path / "s.sql").write_text("update public.t set v = v || '!'")
    with chain["n1"].session() as root:
        execute(root, [str(tmp_path / "s.sql")])
    fork.change()
    chain.catch_up("mid", "low")
    fork.add(copy_node="n2")
    for _ in range(50):
        chain["mid"].worker.work()
        chain["low"].worker.work()
        SYSTEM.sleep(0.05)
    assert fork.consumers("n2") == [CONSUMER]
    assert chain.states("low") == {"public.t": None}
    fork.finish()


@pytest.mark.draw("copies")
def test_a_look_for_the_nearest_node_that_fails_is_repeated(fork: Fork) -> None:
    failed: list[str] = []

    def fail(name: str) -> None:
        if name == "copy.found" and not failed:
            failed.append(name)
            raise RuntimeError("whatever")

    failpoint.set_hook(fail)
    fork.add(find_copy_node=True)
    fork.finish()
    assert failed


@pytest.mark.draw("copies")
def test_the_nearest_node_is_the_provider_if_it_has_the_table(fork: Fork) -> None:
    call(fork.chain["mid"].db, "londiste.local_add_table", QUEUE, "public.t", ["expect_sync"])
    fork.chain["mid"].db.execute("insert into t select * from generate_series(0, 0) i where false")
    copy_rows(fork.chain.root, fork.chain["mid"].db)
    fork.add(find_copy_node=True)
    seen: set[str | None] = set()
    failpoint.set_hook(lambda name: seen.add(fork.place()) if name == "copy.snapshot" else None)
    fork.finish()
    assert seen == {"mid"}


def copy_rows(source: Database, target: Database) -> None:
    target.execute("set session_replication_role = replica")
    target.execute("delete from t")
    for row in source.query("select id, v from t"):
        target.execute("insert into t values (%s, %s)", list(row))
    target.execute("set session_replication_role = origin")


@pytest.mark.parametrize(
    ("attrs", "part"),
    [
        ("copy_condition=id+%3C+10", "rows where id < 10"),
        ("columns=id", "some of its columns"),
    ],
)
def test_a_part_of_a_table_is_not_copied_from(fork: Fork, attrs: str, part: str) -> None:
    mid = fork.chain["mid"].db
    args = ["expect_sync"]
    call(mid, "londiste.local_add_table", QUEUE, "public.t", args, attrs, "public.t")
    with pytest.raises(StateError, match=f"in part only .{part}.*--find-copy-node"):
        fork.add()
    with pytest.raises(StateError, match=f'copied from node "mid".*in part only .{part}'):
        fork.add(copy_node="mid")
    assert fork.chain.states("low") == {}
    fork.add(find_copy_node=True)
    seen: set[str | None] = set()
    failpoint.set_hook(lambda name: seen.add(fork.place()) if name == "copy.snapshot" else None)
    fork.finish()
    assert seen == {"n1"}


def test_a_part_that_became_one_meanwhile_is_not_copied(fork: Fork, caplog: Any) -> None:
    fork.add(copy_node="n2")
    fork.chain["n2"].db.value(
        "select londiste.local_set_table_attrs(%s, 'public.t', 'copy_condition=id+%%3C+10')",
        [QUEUE],
    )
    said = 'public.t" is on node "n2" in part only'
    fork.chain.work_until(lambda: said in caplog.text)
    fork.resync(copy_node="n1")
    fork.chain["n2"].db.value(
        "select londiste.local_set_table_attrs(%s, 'public.t', null)", [QUEUE]
    )
    fork.finish()


def test_what_cannot_be_a_node_to_copy_from(fork: Fork, make_db_on: Any, newest: Any) -> None:
    chain = fork.chain
    chain.add("leaf", NodeType.LEAF, make_db_on(newest), provider="n2")
    chain.catch_up()
    for name, said in (
        ("nobody", "Unknown node: nobody"),
        ("low", "is the local one"),
        ("leaf", "is a leaf"),
        ("mid", "does not have the table"),
    ):
        with pytest.raises(StateError, match=said):
            fork.add(copy_node=name)
    with chain["mid"].session() as session, pytest.raises(StateError, match="is below this one"):
        add_table(session, AddTable(tables=["public.t"], copy_node="low"))
    with pytest.raises(UsageError, match="give one of them"):
        fork.add(copy_node="n1", find_copy_node=True)
    with pytest.raises(UsageError, match="makes no copy"):
        fork.add(copy_node="n1", expect_sync=True)
    with chain["n1"].session() as session, pytest.raises(UsageError, match="root has no first"):
        add_table(session, AddTable(tables=["public.t"], copy_node="n2"))
    low = chain["low"].db
    low.execute("select pgq_node.register_location(%s, 'n2', null, true)", [QUEUE])
    with pytest.raises(StateError, match="tagged as dead"):
        fork.add(copy_node="n2")
    gone = "dbname=gone host=127.0.0.1 port=1"
    low.execute("select pgq_node.register_location(%s, 'n2', %s, false)", [QUEUE, gone])
    with pytest.raises(StateError, match='"n2", or one above it, does not answer'):
        fork.add(copy_node="n2")
    assert chain.states("low") == {}


POINTS = ["register", "snapshot", "emptied", "loaded", "rebuilt", "merged", "replayed", "ok"]


@pytest.mark.draw(1)
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_dies_goes_on_where_the_copy_stands(fork: Fork, point: str) -> None:
    fork.add(copy_node="n2")
    died: list[str] = []

    def die(name: str) -> None:
        if name == f"copy.{point}" and not died:
            died.append(name)
            raise Crash

    failpoint.set_hook(die)
    chain = fork.chain

    def dead() -> bool:
        fork.change(3)
        return bool(died)

    quiet, threading.excepthook = threading.excepthook, lambda args: None
    try:
        chain.work_until(dead)
        failpoint.set_hook(None)
        chain["low"].close()
        chain["low"].renew()
        fork.finish()
    finally:
        threading.excepthook = quiet


@pytest.mark.draw("copies")
def test_a_node_that_goes_away_is_left_for_another(fork: Fork, caplog: Any) -> None:
    chain, low = fork.chain, fork.chain["low"]
    away: list[bool] = []
    location = chain["n2"].db.connstr
    gone = "dbname=gone host=127.0.0.1 port=1"
    text = "select pgq_node.register_location(%s, 'n2', %s, false)"

    def cut(name: str) -> None:
        if name == "copy.rebuilt" and not away:
            away.append(True)
            low.db.execute(text, [QUEUE, gone])
            raise VedurError("the network is gone")

    failpoint.set_hook(cut)
    fork.add(copy_node="n2")
    chain.work_until(lambda: caplog.text.count("copy failed, next try") > 2)
    assert fork.place() == "n2" and fork.consumers("n2") == [CONSUMER]
    fork.resync(copy_node="n1")
    chain.work_until(lambda: "stays on node" in caplog.text)
    low.db.execute(text, [QUEUE, location])
    chain["n2"].db.value("select pgq.unregister_consumer(%s, %s)", [QUEUE, CONSUMER])
    fork.finish()


def test_a_node_that_comes_back_is_taken_up_again(fork: Fork, caplog: Any) -> None:
    chain, low = fork.chain, fork.chain["low"]
    away: list[bool] = []
    location = chain["n2"].db.connstr
    gone = "dbname=gone host=127.0.0.1 port=1"
    text = "select pgq_node.register_location(%s, 'n2', %s, false)"

    def cut(name: str) -> None:
        if name == "copy.catch_up" and not away:
            away.append(True)
            low.db.execute(text, [QUEUE, gone])
            raise VedurError("the network is gone")

    failpoint.set_hook(cut)
    fork.add(copy_node="n2")
    chain.work_until(lambda: caplog.text.count("copy failed, next try") > 2)
    low.db.execute(text, [QUEUE, location])
    fork.finish()


def keep_from_catching_up(fork: Fork) -> None:
    """Let the copy be loaded, and no more, until the hook is taken away."""

    def fail(name: str) -> None:
        if name == "copy.catch_up":
            raise VedurError("not yet")

    failpoint.set_hook(fail)
    fork.add(copy_node="n2")
    fork.chain.work_until(lambda: fork.chain.states("low").get("public.t") == "catching-up")


def test_a_node_that_leaves_the_set_stops_nobody(fork: Fork, caplog: Any) -> None:
    chain = fork.chain
    keep_from_catching_up(fork)
    n2 = chain["n2"]
    n2.close()
    chain.nodes.remove(n2)
    with chain["n1"].session() as session:
        drop_node(session, "n2")
    failpoint.set_hook(None)
    chain.work_until(lambda: 'node "n2", from which the table is to be copied' in caplog.text)
    assert "which has left the set" in caplog.text
    fork.resync(find_copy_node=True)
    chain.work_until(lambda: chain.states("low").get("public.t") == "ok")
    fork.change()
    chain.catch_up()
    chain.require_same("t", "low")


@pytest.mark.draw("copies")
def test_a_node_that_is_behind_is_waited_for(fork: Fork) -> None:
    """The hand-over is at a tick that both nodes have: the worker is ahead of the copy's node."""
    chain = fork.chain
    keep_from_catching_up(fork)
    nodes = chain.nodes
    chain.nodes = [node for node in nodes if node.name != "n2"]  # n2 stands still
    for _ in range(3):
        fork.change()
        chain.catch_up()
    failpoint.set_hook(None)
    chain.work_until(lambda: (chain.states("low")["public.t"] or "").startswith("do-sync"))
    agreed = int((chain.states("low")["public.t"] or "").partition(":")[2])
    assert chain.nodes[0].ticks() and agreed > max(nodes[1].ticks())
    chain.nodes = nodes
    fork.finish()


def test_tables_of_one_node_share_a_snapshot(fork: Fork) -> None:
    chain = fork.chain
    chain.table("public.u", "create table u (id int primary key)", on=["n2"])
    chain.root.execute("insert into u values (1), (2)")
    chain.catch_up()
    opened: list[str] = []
    failpoint.set_hook(lambda name: opened.append(name) if name == "copy.snapshot" else None)
    with chain["low"].session() as session:
        add_table(session, AddTable(tables=["public.t", "public.u"], find_copy_node=True))
    chain.work_until(lambda: set(chain.states("low").values()) == {"ok"})
    chain.catch_up()
    chain.require_same("t", "low")
    chain.require_same("u", "low")
