"""Handlers that declare what comes: in replay, first copy, compare and the commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.labs.chain import Chain, make_chain
from tests.labs.first_copy import Lab
from tests.labs.handlers import UseHandlers, set_handler, use_handlers
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, content
from vedur.catalog.tables import get_table_list
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import handler_attr, require_handlers
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_filter import ChangeFilter, change_filter
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.check import check
from vedur.ops.compare_tables import handler_refusal
from vedur.ops.doctor.tables import check_tables
from vedur.ops.session import Session
from vedur.status.snapshot import read_node

__all__ = ["make_chain", "quick_leaf", "use_handlers", "without_spark"]

DDL = "create table t (id int primary key, shop int, v text)"
HASH = "create function hash_of(int) returns int language sql as 'select $1' immutable"
SHARDS = "create table shard_info as select {nr} as nr, {mask} as mask, {count} as count"
SHARD_SETTINGS = {
    "shard_hash_func": "public.hash_of",
    "shard_info_sql": "select nr, mask, count from shard_info",
}


def local_rows(leaf: Leaf | Lab, table: str = "t") -> list[str]:
    return content(leaf.leaf, table)


def test_ignored_truncates_leave_rows(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL)
    leaf.pair.table("public.plain", "create table plain (id int primary key)")
    set_handler(leaf.leaf, "public.t", "londiste(ignore_truncate=1)")
    leaf.root.execute("insert into t values (1, 1, 'a'); insert into plain values (1)")
    leaf.catch_up()
    leaf.root.execute("truncate t; truncate plain; insert into t values (2, 1, 'b')")
    leaf.catch_up()
    assert local_rows(leaf) == ["(1,1,a)", "(2,1,b)"]
    assert local_rows(leaf, "plain") == []


def test_only_some_operations(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL)
    set_handler(leaf.leaf, "public.t", handler_attr("bulk_direct", ["event_types=I,U"]))
    leaf.root.execute("insert into t values (1, 1, 'a'), (2, 1, 'a')")
    leaf.root.execute("update t set v = 'b' where id = 1; delete from t")
    leaf.catch_up()
    assert local_rows(leaf) == ["(1,1,b)", "(2,1,a)"]
    (table,) = get_table_list(leaf.leaf, QUEUE)
    assert "history" in handler_refusal(table)


@pytest.mark.parametrize("handler", ["nop", "shard(key=id&disable_replay=1)"])
def test_a_table_that_is_left_alone(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, handler: str
) -> None:
    use_handlers(**SHARD_SETTINGS)
    leaf = quick_leaf()
    leaf.leaf.execute(SHARDS.format(nr=0, mask=0, count=1))
    leaf.pair.table("public.t", DDL)
    leaf.pair.table("public.plain", "create table plain (id int primary key)")
    set_handler(leaf.leaf, "public.t", handler)
    leaf.leaf.execute("set session_replication_role = replica")
    leaf.leaf.execute("insert into t values (7, 7, 'local')")
    leaf.root.execute("insert into t values (1, 1, 'a'); insert into plain values (1)")
    leaf.catch_up()
    leaf.root.execute("truncate t")
    leaf.catch_up()
    assert local_rows(leaf) == ["(7,7,local)"]
    leaf.same("plain")


def test_a_table_that_is_not_there(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.root.execute(DDL)
    with Session(leaf.settings) as session:
        leaf.root.execute("select londiste.local_add_table(%s, 't')", [QUEUE])
        add_table(session, AddTable(tables=["t"], handler="vtable"))
        (table,) = get_table_list(leaf.leaf, QUEUE)
        assert table.ready and not table.mapping.applies
        assert "no rows here" in handler_refusal(table)
        assert [f.differences for f in check(session)] == [()]
        told = [f.found for f in check_tables(session, session.require_node())]
        assert not [text for text in told if "not in the database" in text]
    leaf.root.execute("insert into t values (1, 1, 'a')")
    leaf.catch_up()
    assert leaf.leaf.value("select to_regclass('t')") is None


def test_a_resync_of_a_table_that_is_left_alone_copies_nothing(quick_lab: Lab) -> None:
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(DDL)
    lab.root.execute("insert into t values (1, 1, 'a')")
    lab.leaf.execute("insert into t values (7, 7, 'local')")
    lab.add("public.t", attrs="handler=nop")
    assert lab.states() == {"public.t": None}  # as an older version may have left it
    lab.start()
    lab.wait_ok()
    lab.settle()
    assert local_rows(lab) == ["(7,7,local)"]


def test_an_entrance_of_the_queue(quick_leaf: Callable[..., Leaf]) -> None:
    from vedur.config import LondisteSettings

    leaf = quick_leaf()
    leaf.root.execute(DDL)
    with Session(LondisteSettings(db=leaf.root.connstr, queue_name=QUEUE)) as session:
        add_table(session, AddTable(tables=["t"], handler="qtable"))
    leaf.root.execute("insert into t values (1, 1, 'a')")
    assert content(leaf.root, "t") == []
    text = "select count(*) from pgq.event_template where ev_extra1 = 'public.t'"
    assert leaf.root.value(text) == 1
    with Session(leaf.settings) as session:
        with pytest.raises(UsageError, match="is for the root: use vtable"):
            add_table(session, AddTable(tables=["t"], handler="qtable"))
        add_table(session, AddTable(tables=["t"], handler="vtable"))
    leaf.catch_up()


# -- shards ---------------------------------------------------------------------------------------


def test_a_shard_on_a_branch_passes_all_shards_on(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers, without_spark: None
) -> None:
    """Londiste's branch would pass on its own: so somebody must have said that all is right."""
    use_handlers(**SHARD_SETTINGS)
    chain = make_chain(3)
    chain.table("public.t", DDL)
    for number, node in enumerate(chain.followers):
        node.db.execute(HASH)
        node.db.execute(SHARDS.format(nr=number, mask=1, count=2))
        set_handler(node.db, "public.t", "shard(key=shop)")
    branch = chain["n2"]
    chain.root.execute("insert into t select i, i % 4, 'a' from generate_series(1, 20) i")
    with pytest.raises(StateError, match=r"those of all shards.*pass_on=all"):
        chain.catch_up()
    assert content(branch.db, "t") == []
    with branch.session() as session:
        wanted = ChangeHandler(table="t", handler="shard", handler_args=["key=shop"])
        with pytest.raises(UsageError, match="pass_on=all"):
            change_handler(session, wanted)
    set_handler(branch.db, "public.t", "shard(key=shop&pass_on=all)")
    chain.catch_up()
    chain.root.execute("update t set shop = shop + 1, v = 'b' where id < 6")
    chain.catch_up()
    for number, node in enumerate(chain.followers):
        chain.require_same("t", node.name, where=f"shop % 2 = {number}")
        assert node.db.value("select count(*) from t where shop %% 2 <> %s", [number]) == 0
    assert chain.require_queues() >= 25


OPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "move", "key", "delete", "truncate", "tick"]),
        st.integers(0, 5),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=30,
)


def do(leaf: Leaf, op: str, key: int, shop: int) -> None:
    texts = {
        "insert": f"insert into t values ({key}, {shop}, 'i') on conflict do nothing",
        "update": f"update t set v = v || 'u' where id = {key}",
        "move": f"update t set shop = {shop} where id = {key}",
        "key": f"update t set id = id + 10 where id = {key} and not exists "
        f"(select 1 from t o where o.id = {key} + 10)",
        "delete": f"delete from t where id = {key}",
        "truncate": "truncate t",
    }
    if op == "tick":
        leaf.catch_up()
    else:
        leaf.root.execute(texts[op])


def test_rows_move_between_shards(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    use_handlers(**SHARD_SETTINGS)
    leaf = quick_leaf()
    for db in (leaf.root, leaf.leaf):
        db.execute(HASH)
    leaf.leaf.execute(SHARDS.format(nr=1, mask=3, count=4))
    leaf.pair.table("public.t", DDL)
    set_handler(leaf.leaf, "public.t", "shard(key=shop)")

    @settings(
        max_examples=examples(10), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(OPS)
    def histories(ops: list[tuple[str, int, int]]) -> None:
        for op in ops:
            do(leaf, *op)
        leaf.catch_up()
        wanted = leaf.root.query("select t::text from t where shop & 3 = 1 order by 1")
        assert local_rows(leaf) == [row[0] for row in wanted]

    histories()


@pytest.mark.parametrize("number", [0, 1])
def test_a_row_without_a_hash_is_of_the_first_shard(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, number: int
) -> None:
    use_handlers(**SHARD_SETTINGS)
    leaf = quick_leaf()
    leaf.pair.table("public.t", DDL)
    set_handler(leaf.leaf, "public.t", f"shard(hash_expr=shop&shard_nr={number}&shard_count=2)")
    for text in (
        "insert into t values (1, null, 'none'), (2, 2, 'even'), (3, 3, 'odd')",
        "update t set shop = null where id = 3",
        "update t set shop = 1 where id = 1",
        "delete from t where shop is null",
    ):
        leaf.root.execute(text)
        leaf.catch_up()
        share = f"select t::text from t where coalesce(shop, 0) & 1 = {number} order by 1"
        assert local_rows(leaf) == [row[0] for row in leaf.root.query(share)], text


def test_shards_are_copied_and_asked_for(quick_lab: Lab, use_handlers: UseHandlers) -> None:
    use_handlers(**SHARD_SETTINGS)
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(f"{DDL}; {HASH}")
    lab.leaf.execute(SHARDS.format(nr=2, mask=3, count=4))
    lab.root.execute("insert into t select n, n % 8, 'v' from generate_series(1, 500) n")
    settings_ = {"db": lab.leaf.connstr, "queue_name": QUEUE, "job_name": "leaf"}
    from vedur.config import LondisteSettings

    with Session(LondisteSettings(**settings_)) as session:
        lab.root.execute("select londiste.local_add_table(%s, 'public.t')", [QUEUE])
        with pytest.raises(UsageError, match="needs a column to hash"):
            add_table(session, AddTable(tables=["t"], handler="shard"))
        with pytest.raises(UsageError, match='names "nope"'):
            add_table(session, AddTable(tables=["t"], handler="shard", handler_args=["key=nope"]))
        add_table(session, AddTable(tables=["t"], handler="shard", handler_args=["key=shop"]))
        lab.start()
        lab.wait_ok()
        lab.root.execute("update t set shop = shop + 1 where id <= 250")
        lab.settle()
        lab.same("t", where="shop & 3 = 2")
        with pytest.raises(StateError, match="change-filter does not know"):
            change_filter(session, ChangeFilter(table="t", all_rows=True))
        assert {f.table: f.differences for f in check(session)} == {"public.t": ()}
        lab.leaf.execute("update shard_info set mask = 2")
        told = {f.table: f.differences for f in check(session)}
        assert "must be a power of two" in told["public.t"][0]
    lab.wait_until(lambda: "power of two" in str(read_node(lab.leaf, QUEUE, "leaf").errors))


def test_the_root_tells_the_hash(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    """Nodes of upstream's read it in ev_extra3."""
    use_handlers(**SHARD_SETTINGS)
    leaf = quick_leaf()
    leaf.root.execute(f"{DDL}; {HASH}")
    from vedur.config import LondisteSettings

    with Session(LondisteSettings(db=leaf.root.connstr, queue_name=QUEUE)) as session:
        add_table(session, AddTable(tables=["t"], handler="shard", handler_args=["key=shop"]))
        with pytest.raises(UsageError, match="is for nodes that copy a table"):
            leaf.root.execute("create table u (id int primary key)")
            add_table(session, AddTable(tables=["u"], transform="tests.labs.transforms:same"))
    leaf.root.execute("insert into t values (1, 6, 'a'); update t set shop = 7")
    text = "select ev_extra3 from pgq.event_template where ev_extra1 = 'public.t' order by ev_id"
    assert [r[0] for r in leaf.root.query(text)] == ["hash=6", "hash=7"]


def test_a_branch_passes_on_what_it_leaves_alone(
    make_chain: Callable[..., Chain], without_spark: None, use_handlers: UseHandlers
) -> None:
    chain = make_chain(3)
    chain.table("public.t", DDL)
    set_handler(chain["n2"].db, "public.t", "nop")
    chain.root.execute("insert into t values (1, 1, 'a'), (2, 2, 'b'); truncate t")
    chain.root.execute("insert into t values (3, 3, 'c')")
    chain.catch_up()
    assert chain.require_same("t", "n3") == ["(3,3,c)"]
    assert content(chain["n2"].db, "t") == []
    chain.require_queues()
    refusal = "cannot be on a branch: a branch passes all events on as they are, so its queue "
    use_handlers({"public.t": {"*": "hash"}, "public.u": {"*": "hash"}})
    chain.table("public.u", "create table u (id int primary key)")
    chain["n2"].db.execute("select londiste.local_remove_table(%s, 'public.u')", [QUEUE])
    with chain["n2"].session() as session:
        other = "tests.labs.transforms:same"
        with pytest.raises(UsageError, match=refusal):
            add_table(session, AddTable(tables=["u"], transform=other))
        with pytest.raises(UsageError, match=refusal):
            change_handler(session, ChangeHandler(table="t", transform=other, resync=True))
    set_handler(chain["n2"].db, "public.t", f"transform(function={other})")
    chain.tick()
    with pytest.raises(StateError, match=refusal):
        chain["n2"].worker.work()


# -- what cannot be served ------------------------------------------------------------------------


def test_replay_stops_before_a_row_moves(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.people", "create table people (id int primary key, name text)")
    leaf.pair.table("public.other", "create table other (id int primary key)")
    set_handler(leaf.leaf, "public.people", "qsplitter(queue=other)")
    leaf.root.execute("insert into people values (1, 'Ann'); insert into other values (1)")
    leaf.pair.tick()
    with pytest.raises(StateError, match=r'"public\.people" .* handler "qsplitter\(queue=other\)"'):
        leaf.worker.work()
    leaf.worker.on_alive = lambda: None
    with pytest.raises(StateError):
        leaf.worker.run()
    assert leaf.leaf.query("select * from people") == []
    assert leaf.leaf.query("select * from other") == []
    assert "qsplitter" in str(read_node(leaf.leaf, QUEUE, "leaf").errors)
    from vedur.ops.compare_tables import chosen_tables

    with Session(leaf.settings) as session:
        with pytest.raises(StateError, match="qsplitter"):  # compare, repair, change-filter
            chosen_tables(session, ("people",))
        told = {f.table: f.differences for f in check(session)}
        assert "qsplitter" in told["public.people"][0]
        assert told["public.other"] == ()
        (found,) = [
            f for f in check_tables(session, session.require_node()) if f.check == "handlers"
        ]
        assert found.verdict == "fail" and "public.people (qsplitter" in found.found
    set_handler(leaf.leaf, "public.people", None)
    leaf.catch_up()
    leaf.same("people")
    leaf.same("other")


def test_the_first_copy_does_not_begin(quick_lab: Lab) -> None:
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(DDL)
    lab.root.execute("insert into t values (1, 1, 'Ann')")
    lab.add("public.t", attrs="handler=obfuscate")
    lab.start()
    lab.wait_until(lambda: "obfuscate" in str(read_node(lab.leaf, QUEUE, "leaf").errors))
    assert lab.states() == {"public.t": None}
    assert lab.leaf.query("select * from t") == []


def test_add_table_refuses_one(quick_leaf: Callable[..., Leaf]) -> None:
    leaf = quick_leaf()
    for db in (leaf.root, leaf.leaf):
        db.execute(DDL)
    leaf.root.execute("select londiste.local_add_table(%s, 't')", [QUEUE])
    refused: list[tuple[dict[str, Any], str]] = [
        ({"handler": "my.own"}, 'unknown handler "my.own"'),
        ({"handler": "obfuscate"}, "set obfuscator_key"),
        ({"transform": "nope"}, "write it as module:function"),
        ({"transform": "no_such_module:f"}, "cannot be loaded: ModuleNotFoundError"),
        ({"transform": "json:nope"}, 'module "json" has no function "nope"'),
        ({"transform": "a:b", "handler": "bulk"}, "without --handler"),
    ]
    with Session(leaf.settings) as session:
        for options, message in refused:
            with pytest.raises(UsageError, match=message):
                add_table(session, AddTable(tables=["t"], **options))
    assert not get_table_list(leaf.leaf, QUEUE).local


# -- change-handler -------------------------------------------------------------------------------


def test_change_handler(quick_lab: Lab, use_handlers: UseHandlers) -> None:
    use_handlers(**SHARD_SETTINGS)
    lab = quick_lab
    for db in (lab.root, lab.leaf):
        db.execute(f"{DDL}; {HASH}")
    lab.leaf.execute(SHARDS.format(nr=1, mask=1, count=2))
    lab.root.execute("insert into t select n, n, 'v' from generate_series(1, 100) n")
    lab.add("public.t")
    lab.start()
    lab.wait_ok()

    def change(**options: Any) -> None:
        from vedur.config import LondisteSettings

        settings_ = LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf")
        with Session(settings_) as session:
            change_handler(session, ChangeHandler(table="t", **options))

    for options, message in (
        ({}, "needs --handler=NAME"),
        ({"handler": "nope"}, "unknown handler"),
        ({"transform": "tests.labs.transforms:same"}, "say so with --resync"),
    ):
        with pytest.raises(UsageError, match=message):
            change(**options)
    change(handler="londiste", handler_args=["ignore_truncate=1"])
    lab.root.execute("truncate t")
    lab.root.execute("insert into t values (1000, 1, 'new')")
    lab.settle()
    assert lab.leaf.value("select count(*) from t") == 101
    with pytest.raises(UsageError, match="--resync"):  # rows that the root lacks
        change(handler="londiste")
    change(handler="shard", handler_args=["key=shop"], resync=True)
    lab.wait_ok()
    lab.root.execute("insert into t values (1001, 2, 'other'), (1002, 3, 'mine')")
    lab.settle()
    lab.same("t", where="shop & 1 = 1")
    lab.leaf.execute("update shard_info set nr = 0")
    with pytest.raises(StateError, match=r"the shard of this node .* is not what its rows were"):
        require_handlers(get_table_list(lab.leaf, QUEUE).local)
    lab.leaf.execute("update shard_info set nr = 1")
    change(handler="nop")
    lab.root.execute("delete from t")
    lab.settle()
    assert lab.leaf.value("select count(*) from t") == 2
    with pytest.raises(UsageError, match="--resync"):
        change(handler="londiste")
    change(handler="londiste", resync=True)
    lab.wait_ok()
    lab.settle()
    lab.same("t")
