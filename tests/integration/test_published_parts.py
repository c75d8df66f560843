"""A branch that passes on its own shard only: nodes below have the shard, and lose no row."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.killed import Killed, killed_at
from tests.fixtures.wait import until
from tests.integration.test_branch import script
from tests.integration.test_failover import gone
from tests.labs.chain import Chain, Node
from tests.labs.combined import COMBINED, Combined
from tests.labs.combined import make_combined as make_combined
from tests.labs.handlers import UseHandlers as UseHandlers
from tests.labs.handlers import set_handler
from tests.labs.handlers import use_handlers as use_handlers
from tests.labs.in_process import compare_here as compare_here
from tests.labs.moving_root import alive, roots, settle
from tests.labs.moving_root import move as move_root
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.db import connect
from vedur.errors import StateError, UsageError
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_filter import ChangeFilter, change_filter
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.remove_table import remove_table
from vedur.ops.resync import resync

MakeChain = Callable[..., Chain]

pytestmark = pytest.mark.usefixtures("without_spark")

TABLE = "create table t (id int, shop int, v text, primary key (id, shop))"
PARTS = "select table_name, condition, until_tick is null from vedur.passed_part order by 2"


def shard(nr: int = 0, count: int = 2, own: bool = False, more: str = "") -> str:
    return (
        f"shard(hash_expr=shop&shard_nr={nr}&shard_count={count}"
        f"{'&pass_on=own' if own else ''}{more})"
    )


def arguments(nr: int = 0, count: int = 2, pass_on: str = "") -> list[str]:
    found = ["hash_expr=shop", f"shard_nr={nr}", f"shard_count={count}"]
    return [*found, f"pass_on={pass_on}"] if pass_on else found


def condition(nr: int = 0, count: int = 2) -> str:
    return f"(coalesce((shop), 0) & {count - 1}) = {nr}"


def make(make_chain: MakeChain, nodes: int = 3, own: Sequence[str] = ("n2",), **more: Any) -> Chain:
    """Every node below the root has shard 0 of 2, and these branches pass on nothing else."""
    chain = make_chain(nodes, **more)
    chain.table("public.t", TABLE)
    for node in chain.followers:
        passing = node.name in own
        whole = node.kind is NodeType.BRANCH and not passing
        set_handler(node.db, "public.t", shard(own=passing, more="&pass_on=all" if whole else ""))
    return chain


def same(chain: Chain, *names: str, nr: int = 0, count: int = 2) -> list[Any]:
    """The nodes have the shard of the root's table, and nothing else."""
    text = "select t::text from t order by 1"
    wanted = chain.root.query(f"select t::text from t where {condition(nr, count)} order by 1")
    for node in chain.followers:
        if not names or node.name in names:
            assert node.db.query(text) == wanted, node.name
    return wanted


def require_filtered(
    chain: Chain, name: str = "n2", nr: int = 0, since: int = 0
) -> tuple[int, int]:
    """The queue of a branch is the root's, tick by tick, without the events of other shards; how
    many events it has, and how many it lacks."""
    node = chain[name]
    own, whole = node.ticks(), chain.nodes[0].ticks()
    assert own == {t: row for t, row in whole.items() if min(own) <= t <= max(own)}
    kept = left = 0
    for tick in sorted(t for t in own if t >= since)[:-1]:
        (to, here), (end, there) = chain.batch(node.db, tick), chain.batch(chain.root, tick)
        wanted = [event for event in there if not _of_other_shard(event, nr)]
        assert (to, here) == (end, wanted), tick
        kept, left = kept + len(here), left + len(there) - len(here)
    for db in (node.db, chain.root):
        db.value("select pgq.unregister_consumer(%s, 'compared')", [QUEUE])
    return kept, left


def _of_other_shard(event: tuple[Any, ...], nr: int) -> bool:
    kind, data, table = event[3], event[4], event[5]
    if table != "public.t" or kind[:1] != "{" or "TRUNCATE" in kind:
        return False
    return int(json.loads(data)["shop"]) % 2 != nr


def as_replica(node: Node, text: str) -> None:
    with node.db.transaction():
        node.db.execute("set local session_replication_role = replica")
        node.db.execute(text)


def test_only_the_own_shard_is_passed_on(make_chain: MakeChain) -> None:
    chain = make(make_chain, 4)
    root = chain.root
    root.execute("insert into t select i, i % 4, 'a&b=' || i from generate_series(1, 40) i")
    chain.tick()
    root.execute("update t set v = e'ü\\t%' where id < 20")
    root.execute("update t set shop = shop + 1 where id % 3 = 0")  # another shard
    root.execute("delete from t where id > 30")
    chain.tick()
    chain.tick()  # an empty one
    chain.catch_up()
    assert len(same(chain)) == 15
    for name in ("n2", "n3"):
        kept, left = require_filtered(chain, name)
        assert kept > 30 and left > 30
        assert chain[name].db.query(PARTS) == [("public.t", condition(), True)]
    root.execute("truncate t")
    script(chain, "a.sql", "alter table t add w int default 7")
    root.execute("insert into t select i, i % 4, 'n' from generate_series(1, 8) i")
    chain.catch_up()
    assert len(same(chain)) == 4
    require_filtered(chain)


OPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["insert", "insert", "update", "move", "key", "delete", "truncate", "swap", "batch",
             "tick", "tick", "work", "work", "catch"]
        ),
        st.integers(0, 7),
        st.integers(0, 5),
    ),
    min_size=5,
    max_size=40,
)  # fmt: skip


def do(chain: Chain, op: str, key: int, shop: int) -> None:
    texts = {
        "insert": f"insert into t values ({key}, {shop}, 'i') on conflict do nothing",
        "update": f"update t set v = v || '%&=u' where id = {key}",
        "move": f"update t set shop = shop + 10 + {shop} where id = {key}",
        "key": f"update t set id = id + 10 where id = {key} and not exists "
        f"(select 1 from t o where o.id = t.id + 10 and o.shop = t.shop)",
        "delete": f"delete from t where id = {key}",
        "truncate": "truncate t",
        "swap": f"update t set shop = 1 - shop where id = {key} and shop in (0, 1)",
        "batch": "insert into t select i, i % 5, 'b' from generate_series(20, 40) i"
        " on conflict (id, shop) do update set v = excluded.v || t.v",
    }
    if op == "tick":
        chain.tick()
    elif op == "work":
        chain.followers[key % len(chain.followers)].worker.work()
    elif op == "catch":
        chain.catch_up()
    else:
        chain.root.execute(texts[op])


@pytest.mark.draw("histories")
def test_histories(make_chain: MakeChain) -> None:
    """Rows come and go, change their keys and so their shards; a branch below passes on what it
    gets, the leaf is equal at each tick that it is looked at."""
    chain = make(make_chain, 4)
    since = chain.catch_up()

    @settings(
        max_examples=examples(8, 100), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip
    @given(ops=OPS, limit=st.sampled_from([1, 7, 100_000]))
    def run(ops: list[tuple[str, int, int]], limit: int) -> None:
        nonlocal since
        for node in chain.followers:
            node.worker.settings = dataclasses.replace(node.worker.settings, max_batch_events=limit)
            node.worker._close_connections()  # the runner takes the settings when it is made
            node.settings = node.worker.settings
        for op in ops:
            do(chain, *op)
            if op[0] == "catch":
                same(chain)
        end = chain.catch_up()
        same(chain)
        for name in ("n2", "n3"):
            require_filtered(chain, name, since=since)
        since = end

    run()


# -- what the branch has of the table does not matter --------------------------------------------


def test_what_the_branch_has_does_not_matter(make_chain: MakeChain) -> None:
    """Its table is empty, or has other rows, or it is being copied; and there is none to replay."""
    chain = make(make_chain, 3)
    chain.root.execute("insert into t select i, i % 4, 'a' from generate_series(1, 20) i")
    chain.catch_up()
    branch = chain["n2"]
    as_replica(branch, "delete from t where id < 10; insert into t values (100, 0, 'x')")
    chain.root.execute("update t set v = 'b'; update t set shop = shop + 1 where id % 3 = 0")
    chain.catch_up("n2", "n3")
    same(chain, "n3")
    call(branch.db, "londiste.local_set_table_state", QUEUE, "public.t", None, "in-copy")
    chain.root.execute("update t set v = 'c'; update t set shop = shop + 1 where id % 3 = 1")
    chain.root.execute("insert into t select i, i % 4, 'n' from generate_series(30, 40) i")
    branch.worker.copies = None
    chain.catch_up("n2", "n3")
    same(chain, "n3")
    assert branch.db.value("select count(*) from t where v = 'c'") == 0
    set_handler(branch.db, "public.t", shard(own=True, more="&disable_replay=1"))
    chain.root.execute("update t set v = 'd'; delete from t where id % 5 = 0")
    chain.catch_up("n2", "n3")
    same(chain, "n3")
    kept, left = require_filtered(chain)
    assert kept > 20 and left > 20


def test_events_in_quarantine_on_the_branch(make_chain: MakeChain) -> None:
    """The branch cannot apply some; the leaf gets those of its shard, and can."""
    chain = make(make_chain, 3)
    branch = chain["n2"]
    branch.db.execute("alter table t add check (v <> 'bad')")
    attrs = f"handler={quote_plus(shard(own=True))}&on_error=quarantine-row"
    call(branch.db, "londiste.local_set_table_attrs", QUEUE, "public.t", attrs)
    chain.root.execute("insert into t select i, i % 4, 'a' from generate_series(1, 20) i")
    chain.catch_up()
    chain.root.execute("update t set v = 'bad' where id < 12")
    chain.catch_up()
    chain.root.execute("update t set shop = shop + 1 where id < 6")
    chain.root.execute("delete from t where id between 6 and 8")
    chain.catch_up()
    same(chain, "n3")
    assert branch.db.value("select count(*) from vedur.quarantine") > 0
    require_filtered(chain)


@pytest.mark.draw(2)
@pytest.mark.parametrize(
    "point", ["branch.left_out", "branch.published", "batch.merged", "batch.committed"]
)
def test_a_branch_that_is_killed(make_chain: MakeChain, point: str) -> None:
    chain = make(make_chain, 3)
    for step in range(3):
        low = step * 10
        chain.root.execute(
            f"insert into t select i, i % 4, 'a' from generate_series({low}, {low + 9}) i"
        )
        chain.root.execute("update t set shop = shop + 1, v = 'b' where id % 3 = 0")
        chain.tick()
        with killed_at(point) as reached, pytest.raises(Killed):
            while True:
                chain["n2"].worker.work()
        assert reached
        chain["n2"].close()
        chain["n2"].renew()
        chain.catch_up()
        same(chain)
    kept, left = require_filtered(chain)
    assert kept > 20 and left > 20


# -- who may read from such a branch --------------------------------------------------------------


def test_a_leaf_that_has_the_table_whole_stops(make_chain: MakeChain) -> None:
    """Whatever happened to it: it applies nothing, and goes on where all is passed on."""
    chain = make(make_chain, 3)
    leaf, branch = chain["n3"], chain["n2"]
    chain.root.execute("insert into t values (1, 0, 'a'), (2, 2, 'b')")
    chain.catch_up()
    set_handler(leaf.db, "public.t", None)
    chain.root.execute("insert into t values (3, 1, 'c'), (4, 4, 'd')")
    chain.tick()
    chain.catch_up("n2")
    with pytest.raises(StateError, match=r"n2.* passes on only events of rows where .*shop.*whole"):
        leaf.worker.work()
    assert leaf.db.query("select id from t order by 1") == [(1,), (2,)]
    set_handler(leaf.db, "public.t", shard(nr=1))
    with pytest.raises(StateError, match="passes on only events"):
        leaf.worker.work()
    # the branch passes all on from now on; what it has left out is missing all the same
    set_handler(branch.db, "public.t", shard(more="&pass_on=all"))
    chain.root.execute("insert into t values (5, 1, 'e')")
    chain.catch_up("n2")
    assert [row[2] for row in branch.db.query(PARTS)] == [False]
    with pytest.raises(StateError, match=r"has, up to tick \d+, only events"):
        leaf.worker.work()
    set_handler(leaf.db, "public.t", shard())
    chain.catch_up()
    assert len(same(chain)) == 3
    # behind that tick it may have all
    set_handler(leaf.db, "public.t", None)
    rows = chain.root.value("select string_agg(format('(%s, %s, %L)', id, shop, v), ', ') from t")
    as_replica(leaf, f"delete from t; insert into t values {rows}")
    chain.root.execute("insert into t values (6, 1, 'f'), (7, 2, 'g')")
    chain.catch_up()
    chain.require_same("t", "n3")


def test_another_part_of_a_branch_above(make_chain: MakeChain) -> None:
    """Two branches in a row: what is left out by either is noted by the lower one."""
    chain = make(make_chain, 4, own=("n2", "n3"))
    set_handler(chain["n2"].db, "public.t", shard(0, 2, own=True))
    set_handler(chain["n3"].db, "public.t", shard(2, 4, own=True, more="&disable_replay=1"))
    chain.root.execute("insert into t select i, i % 8, 'a' from generate_series(1, 40) i")
    chain.catch_up("n2", "n3")
    assert chain["n3"].db.query(PARTS) == [
        ("public.t", condition(0, 2), True), ("public.t", condition(2, 4), True)
    ]  # fmt: skip
    for wrong in (shard(0, 2), shard(2, 4)):
        set_handler(chain["n4"].db, "public.t", wrong)
        with pytest.raises(StateError, match="passes on only events of rows"):
            chain["n4"].worker.work()
    where = quote_plus(condition(0, 2))
    call(chain["n4"].db, "londiste.local_set_table_attrs", QUEUE, "public.t",
         f"copy_condition={where}&handler={quote_plus(shard(2, 4))}")  # fmt: skip
    chain.root.execute("update t set v = 'b'; delete from t where id = 2")
    chain.catch_up()
    assert len(same(chain, "n4", nr=2, count=4)) == 9


def add_nodes(chain: Chain) -> None:
    """A branch and a leaf below the root that have the table whole."""
    chain.add("w", NodeType.BRANCH, chain.make_db(), "n1")
    chain.add("l", NodeType.LEAF, chain.make_db(), "w")
    chain.root.execute("insert into t select i, i % 4, 'a' from generate_series(1, 20) i")
    for name in "wl":
        db = chain[name].db
        db.execute(TABLE)
        call(db, "londiste.global_add_table", QUEUE, "public.t")
        call(db, "londiste.local_add_table", QUEUE, "public.t", [])
    chain.work_until(lambda: all(chain.states(n) == {"public.t": "ok"} for n in "wl"))


def test_moves(make_chain: MakeChain) -> None:
    """A leaf with the shard moves to any node and back; one that has more is refused."""
    chain = make(make_chain, 3)
    add_nodes(chain)

    for name, why in (("l", "has other rows, too"), ("w", "has other rows, too")):
        with pytest.raises(StateError, match=f"passes on only events of rows .* {why}"):
            chain.move(name, "n2")
    for place in ("w", "n1", "n2", "w"):
        chain.root.execute("update t set v = v || 'm', shop = shop + 1 where id % 3 = 0")
        chain.catch_up("n2", "w")
        chain.move("n3", place)
        chain.root.execute("update t set shop = shop + 1 where id % 4 = 0")
        tick = chain.tick()
        for name in ("n2", "w", "l", "n3"):  # a provider before those that read from it
            while chain[name].worker.work():
                pass
            assert chain[name].position == tick, name
        same(chain, "n2", "n3")
        chain.require_same("t", "w", "l")
    remove_here(chain["w"])
    with pytest.raises(StateError, match='nodes below "w" may have other rows, too'):
        chain.move("w", "n2")


def remove_here(node: Node) -> None:
    with node.session() as session:
        remove_table(session, ["t"])


# -- commands -------------------------------------------------------------------------------------


def new_chain(make_chain: MakeChain, ddl: str = TABLE) -> Chain:
    """Root, branch and leaf with the table on the root alone."""
    chain = make_chain(3)
    for node in chain.nodes:
        node.db.execute(ddl)
    chain.root.execute("insert into t select i, i % 4, 'a' from generate_series(1, 100) i")
    call(chain.root, "londiste.local_add_table", QUEUE, "public.t")
    return chain


def add(node: Node, args: Sequence[str] = (), **options: Any) -> None:
    handler = "shard" if args else None
    with node.session() as session:
        add_table(session, AddTable(tables=["t"], handler=handler, handler_args=args, **options))


def ready(chain: Chain, *names: str) -> Callable[[], bool]:
    return lambda: all(chain.states(name) == {"public.t": "ok"} for name in names)


def test_tables_are_added_and_copied(make_chain: MakeChain) -> None:
    """The leaf is copied from the branch, or from the root, and then again."""
    chain = new_chain(make_chain)
    branch, leaf = chain["n2"], chain["n3"]
    add(branch, arguments(pass_on="own"))
    chain.work_until(ready(chain, "n2"))
    with pytest.raises(UsageError, match="that is for a branch, and this node is a leaf"):
        add(leaf, arguments(pass_on="own"))
    since = chain.catch_up()
    chain.root.execute("update t set v = 'b' where id < 50")
    chain.catch_up()
    for options in ({}, {"copy_node": "n1"}, {"expect_sync": True}, {"copy_condition": "id > 3"}):
        with pytest.raises(StateError, match=r"in part only|passes on only events"):
            add(leaf, **options)
    with pytest.raises(StateError, match=r"in part only|passes on only events"):
        add(leaf, arguments(1), copy_node="n1")
    add(leaf, arguments())
    chain.root.execute("update t set v = 'c', shop = shop + 1 where id % 3 = 0")
    chain.work_until(ready(chain, "n3"))
    chain.root.execute("update t set v = 'd', shop = shop + 1 where id % 5 = 0")
    chain.catch_up()
    assert len(same(chain)) > 40
    for how in ({}, {"copy_node": "n1"}):
        with leaf.session() as session:
            resync(session, ["t"], **how)
        chain.root.execute("update t set v = 'e', shop = shop + 1 where id % 7 = 0")
        chain.work_until(ready(chain, "n3"))
        chain.catch_up()
        same(chain)
    with branch.session() as session:
        resync(session, ["t"])
    chain.root.execute("update t set v = 'f', shop = shop + 1 where id % 3 = 1")
    chain.work_until(ready(chain, "n2"))
    chain.catch_up()
    same(chain)
    require_filtered(chain, since=since)


def test_the_branch_passes_on_less_and_more_again(make_chain: MakeChain) -> None:
    """change-handler on the branch; nodes below have the handler before, and notice nothing."""
    chain = new_chain(make_chain)
    branch, leaf = chain["n2"], chain["n3"]

    def change(node: Node, args: Sequence[str], handler: str = "shard") -> None:
        with node.session() as session:
            change_handler(session, ChangeHandler(table="t", handler=handler, handler_args=args))

    add(branch, arguments(pass_on="all"))
    chain.work_until(ready(chain, "n2"))
    add(leaf, arguments(1), copy_node="n1")
    chain.work_until(ready(chain, "n3"))
    with pytest.raises(StateError, match=r'"n3" reads from this one .* would lose the others'):
        change(branch, arguments(pass_on="own"))
    with leaf.session() as session:
        remove_table(session, ["t"])
    add(leaf, arguments(), copy_node="n1")
    chain.work_until(ready(chain, "n3"))
    for pass_on in ("own", "all", "own"):
        change(branch, arguments(pass_on=pass_on))
        chain.root.execute("update t set v = v || 'c', shop = shop + 1 where id % 3 = 0")
        chain.catch_up()
        same(chain)
    with pytest.raises(StateError, match="another part cannot take its place at once"):
        change(branch, arguments(2, 4, pass_on="own"))
    with pytest.raises(StateError, match="passes on only events of rows"):
        change(leaf, arguments(2, 4))
    with pytest.raises(StateError, match="passes on only events of rows"):
        change(leaf, (), "londiste")
    with leaf.session() as session, pytest.raises(StateError):
        change_filter(session, ChangeFilter(table="t", all_rows=True))
    same(chain)


def test_another_shard_in_three_steps(make_chain: MakeChain, compare_here: object) -> None:
    """As the page about shards says, while rows change; and the leaf is equal to its provider."""
    chain = new_chain(make_chain)

    def change(name: str, nr: int, count: int, pass_on: str = "") -> None:
        args = arguments(nr, count, pass_on)
        with chain[name].session() as session:
            wanted = ChangeHandler(table="t", handler="shard", handler_args=args)
            change_handler(session, wanted, cast(Any, compare_here))

    add(chain["n2"], arguments(pass_on="own"))
    chain.work_until(ready(chain, "n2"))
    add(chain["n3"], arguments())
    chain.work_until(ready(chain, "n3"))
    with alive(chain):
        for nr, count in ((2, 4), (0, 2)):
            change("n2", *((0, 2) if count == 4 else (2, 4)), "all")
            for name, pass_on in (("n2", "all"), ("n3", "")):
                chain.root.execute("update t set v = v || 'c', shop = shop + 1 where id % 3 = 0")
                change(name, nr, count, pass_on)
            change("n2", nr, count, "own")
            chain.root.execute("update t set v = v || 'd', shop = shop + 1 where id % 5 = 0")
            settle(chain)
            same(chain, nr=nr, count=count)
            for name in ("n2", "n3"):
                with chain[name].session() as session:
                    result = compare(session, CompareOptions(), cast(Any, compare_here))
                assert (result.exit_code, [t.compared for t in result.tables]) == (0, [True])


def test_the_key_must_tell_the_shard(make_chain: MakeChain) -> None:
    chain = new_chain(make_chain, "create table t (id int primary key, shop int, v text)")
    with pytest.raises(UsageError, match=r'column "shop", which is not in its key \(id\)'):
        add(chain["n2"], arguments(pass_on="own"))
    add(chain["n2"], arguments(pass_on="all"))
    chain.work_until(ready(chain, "n2"))
    with chain["n2"].session() as session:
        wanted = ChangeHandler(table="t", handler="shard", handler_args=arguments(pass_on="own"))
        with pytest.raises(UsageError, match=r'column "shop", which is not in its key \(id\)'):
            change_handler(session, wanted)
    # stored by another way, an event is the last to say it
    set_handler(chain["n2"].db, "public.t", shard(own=True))
    chain.root.execute("insert into t values (1000, 1, 'x')")
    chain.tick()
    before = chain["n2"].position
    with pytest.raises(StateError, match=r"does not tell the row by shop: its key is id"):
        chain["n2"].worker.work()
    assert chain["n2"].position == before
    set_handler(chain["n2"].db, "public.t", shard(more="&pass_on=all"))
    chain.catch_up()


def test_other_formats(make_chain: MakeChain) -> None:
    """JSON tells the key, a fragment of SQL does not; names and values that are encoded."""
    chain = make_chain(3)
    ddl = 'create table t (id int, "sh op%" text, v text, primary key (id, "sh op%"))'
    chain.table("public.t", ddl)
    expression = 'length("sh op%")'
    stored = f"shard(hash_expr={quote_plus(expression)}&shard_nr=0&shard_count=2"
    set_handler(chain["n2"].db, "public.t", f"{stored}&pass_on=own)")
    set_handler(chain["n3"].db, "public.t", f"{stored})")
    for kind in ("urlenc", "json"):
        if kind == "json":
            for row in chain.root.query(
                "select tgname from pg_trigger where tgrelid = 't'::regclass and not tgisinternal"
            ):
                chain.root.execute(f'drop trigger "{row[0]}" on t')
            chain.root.execute(
                "create trigger j after insert or update or delete on t for each row execute"
                f" function pgq.jsontriga('{QUEUE}')"
            )
        chain.root.execute(
            "insert into t select i, repeat('é&+%', i / 4) || repeat('x', i % 4), 'a'"
            f" from generate_series({'1, 20' if kind == 'urlenc' else '21, 40'}) i"
        )
        chain.root.execute("update t set v = 'b' where id % 2 = 0; delete from t where id % 5 = 0")
        chain.catch_up()
        wanted = chain.root.query(
            'select t::text from t where length("sh op%%") & 1 = 0 order by 1', []
        )
        assert len(wanted) > 5
        for name in ("n2", "n3"):
            assert chain[name].db.query("select t::text from t order by 1") == wanted
    sizes = [
        node.db.value("select count(*) from pgq.event_template where ev_extra1 = 'public.t'")
        for node in chain.nodes[:2]
    ]
    assert 0 < sizes[1] < sizes[0]
    chain.root.execute("drop trigger j on t")
    chain.root.execute(
        "create trigger s after insert or update or delete on t for each row execute"
        f" function pgq.sqltriga('{QUEUE}')"
    )
    chain.root.execute("insert into t values (100, 'x', 'y')")
    chain.tick()
    with pytest.raises(StateError, match="it is a fragment of SQL: nothing is applied"):
        chain["n2"].worker.work()


# -- the root moves -------------------------------------------------------------------------------


def make_two_branches(make_chain: MakeChain) -> Chain:
    """Below the root: n2, which passes on its shard, with leaf l below, and w, which has all."""
    chain = make_chain(2, leaf=False)
    chain.add("w", NodeType.BRANCH, chain.make_db(), "n1")
    chain.add("l", NodeType.LEAF, chain.make_db(), "n2")
    chain.table("public.t", TABLE)
    set_handler(chain["n2"].db, "public.t", shard(own=True))
    set_handler(chain["l"].db, "public.t", shard())
    chain.root.execute("insert into t select i, i % 4, 'a' from generate_series(1, 20) i")
    chain.catch_up()
    same(chain, "n2", "l")
    return chain


def test_the_root_moves_to_a_branch_that_has_all(make_chain: MakeChain) -> None:
    chain = make_two_branches(make_chain)
    with alive(chain):
        with pytest.raises(StateError, match="has only rows where"):
            move_root(chain, "n1", "n2")
        move_root(chain, "n1", "w")
        chain["w"].db.execute("update t set v = 'b'; update t set shop = shop + 1 where id < 9")
        settle(chain)
    shown = "select t::text from t where {} order by 1"
    wanted = chain["w"].db.query(shown.format(condition()))
    for name, where in (("n2", "true"), ("l", "true"), ("n1", condition())):
        assert chain[name].db.query(shown.format(where)) == wanted, name


def test_a_failover_does_not_catch_up_from_a_part(make_chain: MakeChain) -> None:
    """n2 has the newest tick, and lacks rows that w would lose; so w goes on without it."""
    chain = make_two_branches(make_chain)
    chain.root.execute("update t set v = 'newest'")
    chain.catch_up("n2", "l")
    assert chain["w"].position < chain["n2"].position
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain):
            with pytest.raises(StateError, match=r"cannot catch up from it.*--dead=n2"):
                move_root(chain, "n1", "w", dead_root=True)
            assert roots(chain) == []
            move_root(chain, "n1", "w", dead_root=True, dead=("n2",))
            assert roots(chain) == ["w"]
        assert chain["w"].db.value("select count(*) from t where v = 'a'") == 20


# -- other ways to read ---------------------------------------------------------------------------


def test_a_copy_that_catches_up_stops(make_chain: MakeChain) -> None:
    """The branch has passed on all when the copy began, and a part while it catches up."""
    chain = new_chain(make_chain)
    branch, leaf = chain["n2"], chain["n3"]
    add(branch)
    chain.work_until(ready(chain, "n2"))
    seen: list[str] = []

    def hook(name: str) -> None:
        if name != "copy.catch_up" or seen:
            return
        seen.append(name)
        with connect(branch.db.connstr, autocommit=True) as db:
            set_handler(db, "public.t", shard(own=True))
            assert until(lambda: db.query(PARTS) != [], 60)

    failpoint.set_hook(hook)
    try:
        add(leaf)
        error = "select coalesce(max(error), '') from vedur.copy_progress"
        wanted = 'node "n2" passes on only events of rows where'
        chain.work_until(lambda: wanted in leaf.db.value(error))
    finally:
        failpoint.set_hook(None)
    assert seen
    assert not ready(chain, "n3")()


def test_a_part_of_a_combined_queue_cannot_read_from_it(
    make_combined: Callable[..., Combined],
) -> None:
    """Nobody below the combined queue would know that it lacks events."""
    lab = make_combined(0)
    lab.add("p", "p", NodeType.ROOT)
    lab.add("p", "b", NodeType.BRANCH, "p")
    lab.add("p", "c1", NodeType.LEAF, "b", combined=COMBINED)
    lab.table(name="public.t", ddl=TABLE)
    attrs = f"handler={quote_plus(shard(own=True))}"
    call(lab.dbs["b"], "londiste.local_set_table_attrs", "p", "public.t", attrs)
    lab.dbs["p"].execute("insert into t select i, i from generate_series(1, 9) i")
    lab.tick("p", "p")
    lab.work("p", "b")
    with pytest.raises(StateError, match=r"passes on only events .* this node has it whole"):
        lab.work("p", "c1")
    call(lab.dbs["c1"], "londiste.local_remove_table", "p", "public.t")
    with pytest.raises(StateError, match=r"passes on only events .* the combined queue needs all"):
        lab.work("p", "c1")
    assert lab.events() == []
