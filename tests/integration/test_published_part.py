"""A branch that passes on a part of a table's events: what comes out, and who may read from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wants import wanting
from tests.integration.test_branch import Killed, killed_at
from tests.labs.chain import Chain, Node, make_chain
from tests.labs.handlers import UseHandlers, set_handler, use_handlers
from tests.labs.in_process import without_spark
from tests.labs.pair import QUEUE, call, content
from tests.oracle.upstream_dispatch import is_there
from tests.oracle.upstream_rows import run_upstream
from vedur.catalog.copy_source import read_table_node
from vedur.catalog.published import get_open_parts
from vedur.catalog.tables import get_table_list
from vedur.change.event import parse_type
from vedur.db import Database
from vedur.errors import StateError, UsageError, VedurError
from vedur.handlers.registry import handler_attr
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.change_provider import change_provider
from vedur.ops.members import read_members
from vedur.ops.takeover.checks import Candidate, find_reasons

UPSTREAM_FIELDS = (
    "ev_id, ev_txid, ev_time::text as ev_time, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, "
    "ev_extra4"
)

__all__ = ["make_chain", "use_handlers", "without_spark"]

pytestmark = pytest.mark.usefixtures("without_spark")

DDL = 'create table t (id int primary key, shop int, v text, "a b" numeric default 1.50)'
HASH = "create function hash_of(int) returns int language sql as 'select $1' immutable"
SHARDS = "create table shard_info as select {nr} as nr, 1 as mask, 2 as count"
SHARD = "shard(key=shop)"
SETTINGS = {
    "shard_hash_func": "public.hash_of",
    "shard_info_sql": "select nr, mask, count from shard_info",
}


def give_shard(node: Node, number: int, handler: str | None = SHARD) -> None:
    node.db.execute(HASH)
    node.db.execute(SHARDS.format(nr=number))
    if handler is not None:
        set_handler(node.db, "public.t", handler)


def sharded(make_chain: Callable[..., Chain], *flags: str, nodes: int = 3) -> Chain:
    """A root, branches and a leaf; all but the root have shard 1 of two."""
    chain = make_chain(nodes)
    for node in chain.nodes:
        node.db.execute(DDL)
        args = ["expect_sync", *flags] if node.name == "n1" else ["expect_sync"]
        if node.name != "n1":
            call(node.db, "londiste.global_add_table", QUEUE, "public.t")
        call(node.db, "londiste.local_add_table", QUEUE, "public.t", args)
    for node in chain.followers:
        give_shard(node, 1)
    return chain


class Strict:
    """A node below that has no condition and takes each event at its word."""

    def __init__(self, chain: Chain, node: Node) -> None:
        self.chain, self.node = chain, node
        self.tick = max(node.ticks())
        self.rows: dict[str, dict[str, Any]] = {}

    def follow(self) -> None:
        """Read what the branch has passed on, tick by tick."""
        while self.tick < max(self.node.ticks()):
            end, events = self.chain.batch(self.node.db, self.tick)
            for event in events:
                self._apply(*event[3:6])
            assert end == min(t for t in self.node.ticks() if t > self.tick)
            self.tick = end
        self.node.db.value("select pgq.unregister_consumer(%s, 'compared')", [QUEUE])

    def _apply(self, ev_type: str, data: str, table: str) -> None:
        said = parse_type(ev_type)
        if table != "public.t" or said.op == "-":
            return
        if said.op == "R":
            self.rows.clear()
            return
        row = json.loads(data) if said.format == "json" else dict(parse_qsl(data, True))
        key = str(row["id"])
        assert (key in self.rows) == (said.op != "I"), (said.op, row)
        if said.op == "D":
            del self.rows[key]
        else:
            assert int(row["shop"]) % 2 == 1
            self.rows[key] = row

    def content(self) -> list[tuple[int, int, str]]:
        return sorted((int(r["id"]), int(r["shop"]), r["v"]) for r in self.rows.values())


def of_root(chain: Chain) -> list[tuple[int, int, str]]:
    text = "select id, shop, v from t where shop & 1 = 1 order by 1"
    return [(r.id, r.shop, r.v) for r in chain.root.query(text)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["insert", "update", "move", "move", "key", "delete", "truncate", "tick", "batch"]
        ),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=25,
)


def do(chain: Chain, what: str, key: int, shop: int) -> None:
    texts = {
        "insert": f"insert into t values ({key}, {shop}, 'i') on conflict do nothing",
        "update": f"update t set v = v || 'u' where id = {key}",
        "move": f"update t set shop = {shop} where id = {key}",
        "key": f"update t set id = id + 10, shop = {shop} where id = {key} and not exists "
        f"(select 1 from t o where o.id = {key} + 10)",
        "delete": f"delete from t where id = {key}",
        "truncate": "truncate t",
    }
    if what == "tick":
        chain.tick()
    elif what == "batch":
        chain.catch_up()
    else:
        chain.root.execute(texts[what])


@pytest.mark.parametrize("flags", [(), ("tgflags=AIUDL",)], ids=["json", "urlenc"])
def test_what_is_passed_on_is_the_part(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers, flags: tuple[str, ...]
) -> None:
    """An insert is of a row that is not there, all else of one that is; after each batch the rows
    are those of the root that meet the condition."""
    use_handlers(**SETTINGS)
    chain = sharded(make_chain, *flags)
    below = Strict(chain, chain["n2"])

    @settings(
        max_examples=examples(8), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(STEPS)
    def histories(steps: list[tuple[str, int, int]]) -> None:
        for step in steps:
            do(chain, *step)
        chain.catch_up()
        below.follow()
        assert below.content() == of_root(chain)
        for name in ("n2", "n3"):
            chain.require_same("t", name, where="shop & 1 = 1")
            assert chain[name].db.value("select count(*) from t where shop & 1 = 0") == 0
        branch, whole = chain["n2"].ticks(), chain.nodes[0].ticks()
        assert branch == {t: row for t, row in whole.items() if t in branch}

    histories()
    assert [p.table for p in get_open_parts(chain["n2"].db, QUEUE)] == ["public.t"]


def events_of(node: Node) -> list[Any]:
    """Events of the table in the queue of a node."""
    text = (
        "select ev_type, ev_data, ev_extra2, ev_extra3 from pgq.event_template "
        "where ev_extra1 = 'public.t' order by ev_id"
    )
    return [(parse_type(r[0]).op, r[1], r[2], r[3]) for r in node.db.query(text)]


def test_values_of_other_parts_are_not_passed_on(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain, "backup", "ev_extra3='hash='||hash_of(shop)")
    chain.root.execute(HASH)
    chain.root.execute("insert into t values (1, 1, 'mine'), (2, 2, 'foreign')")
    chain.catch_up()
    chain.root.execute("update t set shop = 2, v = 'foreign too' where id = 1")
    chain.root.execute("update t set shop = 3, v = 'came' where id = 2")
    chain.root.execute("delete from t where id = 1")
    chain.catch_up()
    told = events_of(chain["n2"])
    assert "foreign" not in str(told)
    assert [event[0] for event in told] == ["I", "D", "I"]
    assert json.loads(told[1][1]) == {"id": 1} and told[1][3] == "hash=1"
    assert told[2][2] is None and told[2][3] == "hash=3"


def test_scripts_between_events(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    """What is passed on behind a script is told by the tables as the script has left them."""
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    chain.root.execute("insert into t values (1, 1, 'a'), (2, 2, 'b')")
    chain.catch_up()
    script = "alter table t add more int; update t set shop = shop + 2"
    chain.root.execute("update t set shop = 5 where id = 2")
    call(chain.root, "londiste.execute_start", QUEUE, "one.sql", script, True)
    chain.root.execute("set session_replication_role = replica")
    chain.root.execute(script)
    chain.root.execute("set session_replication_role = origin")
    call(chain.root, "londiste.execute_finish", QUEUE, "one.sql")
    chain.root.execute("update t set more = 9")
    chain.root.execute("update t set shop = 0 where id = 1; insert into t values (3, 3, 'c', 1, 3)")
    chain.catch_up()
    for name in ("n2", "n3"):
        chain.require_same("t", name, where="shop & 1 = 1")
    ops = [event[0] for event in events_of(chain["n2"])]
    assert ops == ["I", "I", "U", "U", "D", "I"]


def test_truncates_that_a_branch_leaves_out_are_not_passed_on(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    for node in chain.followers:
        set_handler(node.db, "public.t", "shard(key=shop&ignore_truncate=1)")
    chain.root.execute("insert into t values (1, 1, 'a')")
    chain.root.execute("truncate t; insert into t values (3, 3, 'c')")
    chain.catch_up()
    assert [event[0] for event in events_of(chain["n2"])] == ["I", "I"]
    assert content(chain["n3"].db, "t") == content(chain["n2"].db, "t")
    assert len(content(chain["n3"].db, "t")) == 2


def test_odd_names_and_types(make_chain: Callable[..., Chain], use_handlers: UseHandlers) -> None:
    """Names and conditions with percent signs and quotes; values of many types."""
    use_handlers(**SETTINGS)
    chain = make_chain(3)
    ddl = """create table "o%s ""T" ("k'y %%" text, "N" int, shop int, j jsonb, a text[], b bytea,
        at timestamptz, n numeric, f float8, d date, c char(3), g int generated always as (shop * 2)
        stored, primary key ("k'y %%", "N"))"""
    for node in chain.nodes:
        node.db.execute(ddl)
        args = ["expect_sync"]
        if node.name != "n1":
            call(node.db, "londiste.global_add_table", QUEUE, 'public.o%s "T')
        call(node.db, "londiste.local_add_table", QUEUE, 'public.o%s "T', args)
    for node in chain.followers:
        node.db.execute(SHARDS.format(nr=1))
        set_handler(node.db, 'public.o%s "T', handler_attr("shard", [
            "hash_expr=(shop % 10 + (coalesce(j ->> 'it''s', '0'))::int) % 2 * 1",
        ]))  # fmt: skip
    table = '"o%s ""T"'
    rows = r"""select 'k%''\' || i, i, i, '{"it''s": "2", "x": [1.50, "\u00e9\""]}',
        array['a,b', null, '"{}'], '\x00ff', '2026-01-01 00:00+00', case when i % 3 = 0 then 'NaN'
        else 1.500 end, 'Infinity', 'infinity', 'c' from generate_series(1, 8) i"""
    chain.root.execute(
        f"""insert into {table} ("k'y %%", "N", shop, j, a, b, at, n, f, d, c) {rows}"""
    )
    chain.catch_up()
    chain.root.execute(f"update {table} set shop = shop + 1, j = j || '{{}}' where shop < 6")
    chain.root.execute(f"""update {table} set j = '{{"it''s": "1"}}' where shop = 7""")
    chain.root.execute(f"delete from {table} where shop = 8")
    chain.catch_up()
    where = "(shop % 10 + (coalesce(j ->> 'it''s', '0'))::int) % 2 = 1"
    assert len(chain.require_same(table, "n2", "n3", where=where)) > 1
    for name in ("n2", "n3"):
        assert chain[name].db.query(f"select 1 from {table} where not ({where})") == []
    text = "select ev_type from pgq.event_template where ev_extra1 like 'public.o%' order by ev_id"
    ops = "".join(parse_type(row[0]).op for row in chain["n2"].db.query(text))
    assert sorted(ops) == sorted("IIII" + "III" + "DDD" + "D")


def test_nodes_of_upstream_below(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers, make_db: Callable[..., Database]
) -> None:
    """Upstream's plain handler, and its shard of the same number, make the rows of the part of what
    the branch passes on."""
    if not is_there():
        pytest.skip(wanting("upstream's londiste"))
    use_handlers(**SETTINGS)
    chain = sharded(make_chain, "tgflags=AIUDL", "ev_extra3='hash='||hash_of(shop)")
    chain.root.execute(HASH)
    chain.root.execute("insert into t select i, i, 'a' from generate_series(1, 9) i")
    chain.catch_up()
    chain.root.execute("update t set shop = shop + 1, v = 'b' where id < 5")
    chain.root.execute(
        "update t set shop = shop + 1 where id < 3; update t set id = 50 where id = 7"
    )
    chain.root.execute("delete from t where id = 9; delete from t where id = 8")
    chain.catch_up()
    text = f"select {UPSTREAM_FIELDS} from pgq.event_template order by ev_id"
    batch = [row._asdict() for row in chain["n2"].db.query(text)]
    for handler in (("londiste", {}), ("shard", {"key": "shop"})):
        theirs = make_db()
        theirs.autocommit = True
        theirs.execute(DDL)
        theirs.execute(HASH)
        theirs.execute(SHARDS.format(nr=1))
        run_upstream(theirs.connstr, {"public.t": handler}, [batch])
        assert content(theirs, "t") == chain.require_same("t", "n2", "n3", where="shop & 1 = 1")


def test_while_the_branch_copies_and_quarantines(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    """Its rows do not tell then what the nodes below have: they get more than they need."""
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    branch = chain["n2"]
    chain.root.execute("insert into t select i, i, 'a' from generate_series(1, 20) i")
    chain.catch_up()
    call(branch.db, "londiste.local_set_table_state", QUEUE, "public.t", None, None)

    left = iter(range(5))

    def changed() -> bool:
        if next(left, None) is not None:
            chain.root.execute("update t set shop = shop + 1 where id % 5 = 0")
            chain.root.execute("update t set v = v || 'b' where id % 5 = 1")
        return chain.states("n2") == {"public.t": "ok"}

    chain.work_until(changed)
    chain.catch_up()
    chain.require_same("t", "n2", "n3", where="shop & 1 = 1")
    attrs = "handler=shard%28key%3Dshop%29&on_error=quarantine-row"
    branch.db.execute("select londiste.local_set_table_attrs(%s, 'public.t', %s)", [QUEUE, attrs])
    branch.db.execute("alter table t add check (v <> 'bad')")
    chain.root.execute("insert into t values (100, 1, 'bad'), (101, 1, 'good')")
    chain.catch_up()
    chain.root.execute("update t set shop = 3 where id = 100; update t set shop = 2 where id = 101")
    chain.root.execute("update t set shop = 5 where id = 2; delete from t where id = 3")
    chain.catch_up()
    assert branch.db.value("select count(*) from vedur.quarantine") > 0
    chain.require_same("t", "n3", where="shop & 1 = 1")
    assert chain["n3"].db.value("select count(*) from t where shop & 1 = 0") == 0


@pytest.mark.parametrize("point", ["batch.staged", "branch.published", "branch.noted"])
def test_a_crash_passes_nothing_on_twice(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers, point: str
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    below, branch = Strict(chain, chain["n2"]), chain["n2"]
    chain.root.execute("insert into t select i, i, 'a' from generate_series(1, 9) i")
    chain.tick()
    chain.root.execute("update t set shop = shop + 1 where id % 3 = 0")
    chain.tick()
    with killed_at(point) as reached:
        try:
            while branch.worker.work():
                pass
        except Killed:
            pass
    assert reached
    branch.worker._close()
    branch.renew()
    chain.catch_up()
    below.follow()
    assert below.content() == of_root(chain)
    chain.require_same("t", "n2", "n3", where="shop & 1 = 1")


def test_fragments_of_sql_are_refused(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain, "tgflags=AIUDQ")
    chain.root.execute("insert into t values (1, 1, 'a')")
    with pytest.raises(StateError, match="event_format = json"):
        chain.catch_up()
    assert events_of(chain["n2"]) == []


# -- who may read from it -------------------------------------------------------------------------


def test_a_node_that_expects_the_whole_stops(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    leaf = chain["n3"]
    set_handler(leaf.db, "public.t", None)
    chain.root.execute("insert into t values (1, 1, 'a'), (2, 2, 'b')")
    with pytest.raises(StateError, match=r'"n2" passes on only events of rows where .*hash_of'):
        chain.catch_up()
    assert content(leaf.db, "t") == []
    # what was passed on in part stays so in the past, whatever the branch does from now on
    set_handler(chain["n2"].db, "public.t", "shard(key=shop&pass_on=all)")
    with pytest.raises(StateError, match='"n2" passes on only'):
        chain.catch_up()
    assert get_open_parts(chain["n2"].db, QUEUE) == ()
    set_handler(leaf.db, "public.t", SHARD)
    chain.catch_up()
    chain.require_same("t", "n3", where="shop & 1 = 1")
    chain.root.execute("insert into t values (4, 4, 'd')")
    chain.catch_up()
    assert [event[1] for event in events_of(chain["n2"])][-1].count('"d"') == 1


def test_a_branch_below_passes_on_that_it_is_a_part(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    """Even if it does not have the table, or passes on all that it gets."""
    use_handlers(**SETTINGS)
    chain = sharded(make_chain, nodes=4)
    set_handler(chain["n3"].db, "public.t", "shard(key=shop&pass_on=all)")
    chain.root.execute("insert into t values (1, 1, 'a'), (2, 2, 'b')")
    chain.catch_up()
    chain.require_same("t", "n4", where="shop & 1 = 1")
    call(chain["n3"].db, "londiste.local_remove_table", QUEUE, "public.t")
    set_handler(chain["n4"].db, "public.t", None)
    chain.root.execute("insert into t values (3, 3, 'c')")
    with pytest.raises(StateError, match='"n3" passes on only'):
        chain.catch_up()
    assert len(content(chain["n4"].db, "t")) == 1


def test_commands_refuse_a_part_for_the_whole(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    branch, leaf = chain["n2"], chain["n3"]
    chain.root.execute("insert into t values (1, 1, 'a'), (2, 2, 'b')")
    chain.catch_up()
    with leaf.session() as session:
        with pytest.raises(StateError, match="rows would be missing"):
            change_handler(session, ChangeHandler(table="t", handler="londiste", resync=True))
        call(leaf.db, "londiste.local_remove_table", QUEUE, "public.t")
        for options in ({}, {"expect_sync": True}, {"copy_node": "n1"}):
            with pytest.raises(StateError, match=r"in part only|rows would be missing"):
                add_table(session, AddTable(tables=["t"], **options))
        add_table(session, AddTable(tables=["t"], handler="shard", handler_args=["key=shop"]))
    chain.work_until(lambda: chain.states("n3") == {"public.t": "ok"})
    chain.catch_up()
    chain.require_same("t", "n3", where="shop & 1 = 1")
    above = read_table_node(branch.db, QUEUE)
    (mine,) = get_table_list(leaf.db, QUEUE).local
    assert above.why_not_compared(mine.mapping) == above.why_not(mine.mapping) == ""
    assert "in part only" in above.why_not_compared(replace(mine.mapping, condition=None))
    with branch.session() as session:
        view = read_members(session)
        members = view.members
        found = find_reasons(Candidate(session, view, members["n2"], members["n1"], 60.0))
        assert any('"n2" has only rows where' in reason for reason in found)
        with pytest.raises(UsageError, match=r"pass_on=all"):
            args = ["key=shop", "disable_replay=1"]
            change_handler(session, ChangeHandler(table="t", handler="shard", handler_args=args))
    # another leaf, of the root, which has everything
    whole = chain.add("n4", NodeType.LEAF, chain.make_db(), provider="n1")
    whole.db.execute(DDL)
    call(whole.db, "londiste.global_add_table", QUEUE, "public.t")
    call(whole.db, "londiste.local_add_table", QUEUE, "public.t", ["expect_sync"])
    with whole.session() as session:
        with pytest.raises(StateError, match=r"passes on only .*; nothing is changed"):
            change_provider(session, "n2", max_wait=0.0)
        assert read_members(session).members["n4"].provider == "n1"


def test_a_leaf_of_the_part_moves_to_the_whole_and_back(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = sharded(make_chain)
    leaf = chain["n3"]
    chain.root.execute("insert into t select i, i, 'a' from generate_series(1, 6) i")
    chain.catch_up()
    move = "select pgq_node.change_consumer_provider(%s, %s, %s)"
    for number, (name, node) in enumerate((("n1", chain.root), ("n2", chain["n2"].db))):
        subscribe = "select pgq_node.register_subscriber(%s, 'n3', 'n3_job', %s)"
        known = "select * from pgq_node.get_subscriber_info(%s) where node_name = 'n3'"
        if not node.query(known, [QUEUE]):
            node.execute(subscribe, [QUEUE, leaf.position])
        else:
            node.value("select pgq.register_consumer_at(%s, 'n3_job', %s)", [QUEUE, leaf.position])
        leaf.db.execute(
            "select pgq_node.register_location(%s, %s, %s, false)", [QUEUE, name, node.connstr]
        )
        leaf.db.execute(move, [QUEUE, "n3_job", name])
        leaf.renew()
        chain.root.execute("update t set shop = shop + 1, v = v || %s", [str(number)])
        chain.root.execute("insert into t values (%s, 7, 'new'), (%s, 8, 'new')",
                           [100 + number, 200 + number])  # fmt: skip
        chain.catch_up()
        chain.require_same("t", "n2", "n3", where="shop & 1 = 1")
        assert leaf.db.value("select count(*) from t where shop & 1 = 0") == 0


def test_columns_with_other_names_are_refused(
    make_chain: Callable[..., Chain], use_handlers: UseHandlers
) -> None:
    use_handlers(**SETTINGS)
    chain = make_chain(2, leaf=False)
    chain.root.execute(DDL)
    call(chain.root, "londiste.local_add_table", QUEUE, "public.t")
    branch = chain["n2"]
    branch.db.execute("create table t (id int primary key, store int)")
    give_shard(branch, 0, None)
    with branch.session() as session, pytest.raises(VedurError, match="columns have other names"):
        add_table(session, AddTable(
            tables=["t"], handler="shard", handler_args=["key=shop"], columns="id,shop=store",
        ))  # fmt: skip
