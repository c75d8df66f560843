"""A branch that masks: rows go on masked, and no clear value is on the branch or below."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.killed import Killed, killed_at
from tests.integration.test_branch import script
from tests.integration.test_failover import gone
from tests.integration.test_obfuscate import (
    DDL,
    MASKED,
    PLANTED,
    RULES,
    expected,
    insert,
    leaks,
    present,
)
from tests.labs.chain import Chain, Node, make_chain
from tests.labs.combined import COMBINED, Combined
from tests.labs.combined import make_combined as make_combined
from tests.labs.handlers import UseHandlers, set_handler, use_handlers
from tests.labs.in_process import compare_here, without_spark
from tests.labs.moving_root import alive, roots
from tests.labs.moving_root import move as move_root
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.db import connect
from vedur.errors import StateError, UsageError
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.change_table import change_table
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.compare_tables import local_tables, make_nodes, plan_pair
from vedur.ops.remove_table import remove_table
from vedur.ops.resync import resync

__all__ = ["compare_here", "make_chain", "use_handlers", "without_spark"]

MakeChain = Callable[..., Chain]

pytestmark = pytest.mark.usefixtures("without_spark")


def make(make_chain: MakeChain, use_handlers: UseHandlers, nodes: int = 3, **more: Any) -> Chain:
    """A root with people, and nodes below it that do not have them yet."""
    use_handlers(RULES)
    chain = make_chain(nodes, unknown_tables="stop", **more)
    chain.root.execute(DDL)
    for node in chain.followers:
        node.db.execute(MASKED)
    return chain


def on_root(chain: Chain, *args: str) -> None:
    chain.root.execute(
        "select londiste.local_add_table(%s, 'public.people', %s)", [QUEUE, list(args)]
    )


def add(chain: Chain, name: str, **more: Any) -> None:
    with chain[name].session() as session:
        add_table(session, AddTable(tables=["people"], **more))


def masked_chain(chain: Chain, *below: str) -> None:
    """The branch masks people, and nodes below have them as they come."""
    add(chain, "n2", handler="obfuscate")
    chain.work_until(lambda: chain.states("n2")["public.people"] == "ok")
    for name in below:
        add(chain, name)
        chain.work_until(lambda name=name: chain.states(name)["public.people"] == "ok")


@pytest.mark.parametrize(
    "trigger", [(), ("backup",), ("tgflags=AIUDL",), ("tgflags=AIUDL", "backup")]
)
def test_what_goes_on_is_masked_and_nothing_leaks(
    make_chain: MakeChain, use_handlers: UseHandlers, caplog: pytest.LogCaptureFixture, trigger: Any
) -> None:
    caplog.set_level("DEBUG")
    chain = make(make_chain, use_handlers)
    root, branch, leaf = (node.db for node in chain.nodes)
    insert(root, *range(1, 60))
    on_root(chain, *trigger)
    masked_chain(chain, "n3")
    assert present(branch) == present(leaf) == expected(root)
    insert(root, *range(60, 90))
    chain.tick()
    root.execute("update people set name = 'PLANTED again', private = 'planted' where id < 9")
    root.execute("update people set id = id + 1000 where id between 10 and 20")
    chain.tick()
    root.execute("delete from people where id between 30 and 40")
    chain.tick()
    chain.tick()
    chain.catch_up()
    assert present(branch) == present(leaf) == expected(root)
    assert chain["n2"].ticks() == {
        t: row for t, row in chain.nodes[0].ticks().items() if t >= min(chain["n2"].ticks())
    }
    root.execute("truncate people")
    insert(root, 7)
    chain.catch_up()
    assert present(branch) == present(leaf) == expected(root)
    assert len(present(leaf)) == 1
    for db in (branch, leaf):
        assert list(leaks(db)) == []
    assert not [word for word in PLANTED if word in caplog.text]


_EVENTS = """
select ev_id, ev_time, ev_retry, ev_type, ev_extra1, ev_data, ev_extra2, ev_extra3, ev_extra4
from pgq.event_template
where ev_id > %s
order by ev_id
"""


def events(node: Node, since: int) -> list[Any]:
    """All events of a node's queue behind one."""
    return node.db.query(_EVENTS, [since])


@pytest.mark.parametrize("flags", [(), ("tgflags=AIUDL",)])
def test_events_stay_what_they_are(
    make_chain: MakeChain, use_handlers: UseHandlers, flags: Any
) -> None:
    """Number, time, type and table are the root's; the data is masked, old rows are gone, and other
    tables' events are passed on byte for byte."""
    chain = make(make_chain, use_handlers)
    chain.table("public.plain", "create table plain (id int primary key, v text)")
    on_root(chain, "backup", "ev_extra3='planted '||name", "ev_extra4=mail", *flags)
    masked_chain(chain, "n3")
    since = chain.root.value("select coalesce(max(ev_id), 0) from pgq.event_template")
    insert(chain.root, 1, 2)
    chain.root.execute("insert into plain values (1, e'a\\\\b\\t&=%'), (2, null)")
    chain.tick()
    chain.root.execute("update people set name = null, id = 3 where id = 1; truncate people")
    script(chain, "a.sql", "alter table plain add w int default 7")
    chain.root.execute("insert into plain values (3, 'c')")
    chain.catch_up()
    root, branch = events(chain.nodes[0], since), events(chain["n2"], since)
    assert [row[:5] for row in branch] == [row[:5] for row in root]
    kinds = set()
    for here, there in zip(branch, root, strict=True):
        if here[4] != "public.people":
            assert tuple(here) == tuple(there)
            continue
        kinds.add(here[3][:14])
        assert tuple(here[6:]) == (None, None, None)
        assert any(there[6:]) or "R" in there[3]
        assert not [word for word in PLANTED if word in here[5]]
    assert len(kinds) >= 3
    chain.require_same("plain")
    assert present(chain["n3"].db) == present(chain["n2"].db) == []


@pytest.mark.parametrize("point", ["masked.written", "branch.published", "batch.committed"])
def test_a_branch_that_is_killed(
    make_chain: MakeChain, use_handlers: UseHandlers, point: str
) -> None:
    chain = make(make_chain, use_handlers)
    on_root(chain)
    masked_chain(chain, "n3")
    for step in range(3):
        insert(chain.root, *range(step * 10, step * 10 + 10))
        chain.root.execute("update people set id = id + 1000 where id = %s", [step * 10 + 3])
        chain.tick()
        with killed_at(point) as reached, pytest.raises(Killed):
            while True:
                chain["n2"].worker.work()
        assert reached
        chain["n2"].close()
        chain["n2"].renew()
        chain.catch_up()
    for name in ("n2", "n3"):
        assert present(chain[name].db) == expected(chain.root)
        assert list(leaks(chain[name].db)) == []


def test_masks_hold_in_every_state(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    """While the table is copied, in quarantine, or not there for other reasons."""
    chain = make(make_chain, use_handlers)
    on_root(chain)
    add(chain, "n2", handler="obfuscate")
    branch = chain["n2"]
    copies, branch.worker.copies = branch.worker.copies, None
    for state in (None, "in-copy", "catching-up"):
        call(branch.db, "londiste.local_set_table_state", QUEUE, "public.people", None, state)
        insert(chain.root, *range(10))
        chain.root.execute("delete from people")
        chain.catch_up("n2")
    call(branch.db, "londiste.local_set_table_state", QUEUE, "public.people", None, None)
    branch.worker.copies = copies
    chain.work_until(lambda: chain.states("n2") == {"public.people": "ok"})
    with branch.session() as session:
        change_table(session, ["people"], "quarantine-row")
    branch.db.execute("alter table people add constraint c check (country <> 'no') not valid")
    insert(chain.root, 1, 2)
    chain.root.execute("update people set country = 'no', name = 'PLANTED bad' where id = 1")
    chain.catch_up("n2")
    chain.root.execute("update people set name = 'PLANTED worse' where id = 1")
    chain.catch_up("n2")
    assert branch.db.value("select count(*) from vedur.quarantine") > 0
    assert len(events(branch, 0)) > 40
    assert list(leaks(branch.db)) == []


def test_an_event_of_an_unknown_table_stops_the_branch(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    """Until it is added: then it goes on as the branch says."""
    chain = make(make_chain, use_handlers)
    chain.root.execute("create table other (id int primary key, v text)")
    call(chain.root, "londiste.local_add_table", QUEUE, "public.other")
    on_root(chain)
    masked_chain(chain, "n3")
    insert(chain.root, 1)
    chain.root.execute("insert into other values (1, 'planted other')")
    chain.tick()
    branch = chain["n2"]
    before = branch.position
    for _ in range(2):
        with pytest.raises(StateError, match=r"\[ev_id=\d+.*of table \"public.other\"") as error:
            branch.worker.work()
        assert "planted" not in str(error.value)
    assert branch.position == before
    assert list(leaks(branch.db)) == []
    with branch.session() as session:
        add_table(session, AddTable(tables=["other"], handler="vtable"))
    chain.catch_up()
    assert present(chain["n3"].db) == expected(chain.root)
    assert branch.db.value(
        "select ev_data from pgq.event_template where ev_extra1 = 'public.other'"
    )
    # a masked table that is removed here is unknown, too
    with branch.session() as session:
        remove_table(session, ["people"])
    chain.catch_up()
    insert(chain.root, 2)
    chain.tick()
    with pytest.raises(StateError, match=r"of table \"public.people\""):
        branch.worker.work()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("set ev_type = 'I'", "does not write whole rows"),
        ("set ev_type = 'planted'", "its type says neither"),
        ('set ev_type = \'{"op":"INSERT","pkey":["id"],"x":"planted"}\'', "says more"),
        ('set ev_data = \'{"id":"planted\'', "cannot be read"),
        ('set ev_data = \'{"id":1,"strange":1}\'', "no rule for column"),
        ('set ev_type = \'{"op":"INSERT","pkey":["nokey"]}\'', 'column "nokey" of the key'),
        ("set ev_extra1 = 'public.Planted', ev_type = 'I:id'", "which this branch does not have"),
        ("set ev_retry = 1", "is a retry"),
    ],
)
def test_an_event_that_cannot_be_masked_stops_the_branch(
    make_chain: MakeChain, use_handlers: UseHandlers, change: str, why: str
) -> None:
    chain = make(make_chain, use_handlers, 2, leaf=False)
    on_root(chain)
    masked_chain(chain)
    insert(chain.root, 1)
    event = chain.root.value("select max(ev_id) from pgq.event_template")
    chain.root.execute(f"update pgq.event_template {change} where ev_id = {event}")
    chain.tick()
    before = chain["n2"].position
    with pytest.raises(StateError, match=why) as error:
        chain["n2"].worker.work()
    assert str(event) in str(error.value)
    assert "planted" not in str(error.value)
    assert chain["n2"].position == before
    assert list(leaks(chain["n2"].db)) == []


# -- what is refused ------------------------------------------------------------------------------


def other_rules(use_handlers: UseHandlers) -> None:
    use_handlers({"public.people": {**RULES["public.people"], "country": "null"}})


def settings(node: Node, **change: Any) -> None:
    """As after the ini was changed and read."""
    node.settings = dataclasses.replace(node.settings, **change)
    node.close()
    node.renew()


def test_a_branch_that_passes_unknown_tables_on_cannot_mask(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    chain = make(make_chain, use_handlers)
    on_root(chain)
    settings(chain["n2"], unknown_tables="pass-on")
    with pytest.raises(UsageError, match="unknown_tables = stop"):
        add(chain, "n2", handler="obfuscate")
    settings(chain["n2"], unknown_tables="stop")
    masked_chain(chain)
    settings(chain["n2"], unknown_tables="pass-on")
    insert(chain.root, 1)
    chain.tick()
    with pytest.raises(StateError, match="must say unknown_tables = stop"):
        chain["n2"].worker.work()
    assert list(leaks(chain["n2"].db)) == []


def test_events_that_went_on_before(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    """A table whose events are on the branch already cannot be masked there, until they are gone;
    nor can one that was masked become a plain one, or be masked in another way."""
    chain = make(make_chain, use_handlers, 2, leaf=False)
    branch = chain["n2"]
    on_root(chain)
    settings(branch, unknown_tables="pass-on")
    insert(chain.root, 1)
    chain.catch_up()
    settings(branch, unknown_tables="stop")
    refused = r"events of it are in the queue of this branch already \(%s"
    with pytest.raises(StateError, match=refused % "pgq.event"):
        add(chain, "n2", handler="obfuscate")
    branch.db.execute("delete from pgq.event_template")
    with pytest.raises(StateError, match=refused % "vedur_work.raw"):
        add(chain, "n2", handler="obfuscate")
    settings(branch)
    chain.catch_up()  # its worker begins anew
    masked_chain(chain)
    insert(chain.root, 2)
    chain.catch_up()
    with branch.session() as session:
        remove_table(session, ["people"])
    with pytest.raises(StateError, match=refused % "pgq.event"):
        add(chain, "n2")
    other_rules(use_handlers)
    with pytest.raises(StateError, match=refused % "pgq.event"):
        add(chain, "n2", handler="obfuscate")
    use_handlers(RULES)
    masked_chain(chain)  # by the same rules it can
    with branch.session() as session:
        remove_table(session, ["people"])
    branch.db.execute("delete from pgq.event_template")
    settings(branch)
    chain.catch_up()
    other_rules(use_handlers)
    masked_chain(chain)
    parts = branch.db.query(
        "select condition, until_tick is null from vedur.passed_part order by 2"
    )
    assert [part[1] for part in parts] in ([True], [False, True])
    chain.catch_up()


def test_rules_cannot_change_under_way(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    chain = make(make_chain, use_handlers)
    chain.table("public.plain", "create table plain (id int primary key, v text)")
    on_root(chain)
    masked_chain(chain)
    branch = chain["n2"]
    refused = "cannot get this handler on a branch while it is replicated"
    with branch.session() as session:
        for table, handler in (("people", "londiste"), ("plain", "obfuscate")):
            if table == "plain":
                use_handlers({**RULES, "public.plain": {"*": "keep"}})
            options = ChangeHandler(table=table, handler=handler, resync=True)
            with pytest.raises(StateError, match=refused):
                change_handler(session, options)
        resync(session, ["people"])
        chain.work_until(lambda: chain.states("n2")["public.people"] == "ok")
        other_rules(use_handlers)
        with pytest.raises(StateError, match=r"the rules by which .* have changed"):
            resync(session, ["people"])
    insert(chain.root, 1)
    chain.tick()
    with pytest.raises(StateError, match="its key or its rules are not what"):
        branch.worker.work()
    use_handlers(RULES)
    set_handler(branch.db, "public.people", "obfuscate")
    with pytest.raises(StateError, match="may have been passed on by other rules"):
        branch.worker.work()
    set_handler(branch.db, "public.people", None)
    with pytest.raises(StateError, match=r"was passed on masked .* and would be no more"):
        branch.worker.work()
    assert list(leaks(branch.db)) == []


def test_nodes_below_cannot_mix(
    make_chain: MakeChain, use_handlers: UseHandlers, compare_here: Any
) -> None:
    """Neither by another handler, nor by rows of another node, nor by what the tables say."""
    chain = make(make_chain, use_handlers)
    insert(chain.root, *range(1, 20))
    on_root(chain)
    chain["n2"].worker.copies, copies = None, chain["n2"].worker.copies
    chain.catch_up("n2")
    add(chain, "n3", copy_node="n1")
    with pytest.raises(StateError, match=r'"n3" reads from this one and has .* already'):
        add(chain, "n2", handler="obfuscate")
    with chain["n3"].session() as session:
        remove_table(session, ["people"])
    chain["n2"].worker.copies = copies
    masked_chain(chain)
    for options in (
        {"handler": "obfuscate"},
        {"handler": "obfuscate", "copy_node": "n1"},
        {"transform": "tests.labs.transforms:same"},
        {"copy_node": "n1"},
    ):
        with pytest.raises(StateError, match="masked by obfuscate"):
            add(chain, "n3", **options)
    add(chain, "n3", find_copy_node=True)
    chain.work_until(lambda: chain.states("n3")["public.people"] == "ok")
    assert present(chain["n3"].db) == expected(chain.root)
    leaf = chain["n3"]
    with leaf.session() as session:
        with pytest.raises(StateError, match="masked by obfuscate"):
            options = ChangeHandler(table="people", handler="obfuscate", resync=True)
            change_handler(session, options)
        with pytest.raises(StateError, match="masked by obfuscate"):
            resync(session, ["people"], copy_node="n1")
        result = compare(session, CompareOptions(node="n1"), compare_here)
        assert [t.compared for t in result.tables] == [False]
        assert "here they are masked by obfuscate" in result.tables[0].reason
        info, tables = local_tables(session, ("people",))
        with pytest.raises(StateError, match="cannot be put beside that of its provider"):
            plan_pair(session, make_nodes(session, info, other="n1"), tables[0])
    for name in ("n2", "n3"):
        with alive(chain), chain[name].session() as session:
            result = compare(session, CompareOptions(), compare_here)
        assert (result.exit_code, [t.compared for t in result.tables]) == (0, [True])
    # whatever its table says
    kept = leaf.db.value("select table_attrs from londiste.table_info")
    for attrs in (None, "masked=masked+by+obfuscate+0123456789"):
        call(leaf.db, "londiste.local_set_table_attrs", QUEUE, "public.people", attrs)
        insert(chain.root, 100)
        chain.root.execute("delete from people where id = 100")
        chain.tick()
        chain.catch_up("n2")
        with pytest.raises(StateError, match="masked by obfuscate"):
            leaf.worker.work()
    call(leaf.db, "londiste.local_set_table_attrs", QUEUE, "public.people", kept)
    # and whatever its provider is
    chain["n2"].db.execute("create table away as table vedur.passed_part")
    chain["n2"].db.execute("delete from vedur.passed_part")
    with pytest.raises(StateError, match="does not pass on its events so"):
        leaf.worker.work()
    chain["n2"].db.execute("insert into vedur.passed_part table away")
    chain.catch_up()
    assert present(leaf.db) == expected(chain.root)


def test_moves(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    """n3 and the leaf n4 below it have what n2 masks, w and its leaf l are clear; x masks, too."""
    chain = make(make_chain, use_handlers, 4)
    insert(chain.root, *range(1, 20))
    on_root(chain)
    masked_chain(chain, "n3", "n4")
    chain.add("w", NodeType.BRANCH, chain.make_db(), "n1")
    chain.add("l", NodeType.LEAF, chain.make_db(), "w")
    chain.add("x", NodeType.BRANCH, chain.make_db(), "n1")
    for name in "wlx":
        chain[name].db.execute(DDL if name != "x" else MASKED)
        add(chain, name, handler="obfuscate" if name == "x" else None)
        chain.work_until(lambda name=name: chain.states(name)["public.people"] == "ok")
    clear = "does not pass on its events so"
    for name, to, why in (
        ("n4", "n1", clear),
        ("n4", "w", clear),
        ("n3", "n1", clear),
        ("l", "n2", "passes on its events masked by obfuscate"),
        ("w", "n3", "passes on its events masked by obfuscate"),
        ("x", "n2", "passes on its events masked by obfuscate"),
    ):
        with pytest.raises(StateError, match=why):
            chain.move(name, to)
    with chain["n3"].session() as session:
        remove_table(session, ["people"])
    settings(chain["n3"], unknown_tables="pass-on")
    chain.catch_up("n2", "n3", "n4")
    with pytest.raises(StateError, match=clear):
        chain.move("n3", "n1")  # n4 has it
    for to in ("n2", "x", "n3"):
        insert(chain.root, 100 + len(to))
        chain.move("n4", to)
        chain.root.execute(
            "update people set name = 'PLANTED ' || id, id = id + 1000 where id > 99"
        )
        tick = chain.tick()
        for name in ("n2", "n3", "x", "n4"):
            while chain[name].worker.work():
                pass
            assert chain[name].position == tick, name
        assert present(chain["n4"].db) == expected(chain.root)
        chain.root.execute("delete from people where id > 99")
    for name in ("n2", "n3", "n4", "x"):
        assert list(leaks(chain[name].db)) == []


def test_a_masked_branch_cannot_become_root(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    chain = make(make_chain, use_handlers, 3, leaf=False)
    insert(chain.root, 1)
    on_root(chain)
    masked_chain(chain, "n3")
    with alive(chain):
        for name in ("n2", "n3"):
            with pytest.raises(StateError, match="has only rows masked by obfuscate"):
                move_root(chain, "n1", name)
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        with alive(chain), pytest.raises(StateError, match="has only rows masked by obfuscate"):
            move_root(chain, "n1", "n2", dead_root=True)
    assert roots(chain) == []


def test_a_table_that_is_added_while_a_batch_is_staged(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    """The batch is staged again, so what it tells nodes below is right."""
    chain = make(make_chain, use_handlers)
    chain.table("public.plain", "create table plain (id int primary key, v text)")
    chain.catch_up()
    on_root(chain)
    chain.root.execute("insert into plain values (1, 'a')")
    chain.tick()
    seen: list[str] = []

    def hook(name: str) -> None:
        if name == "batch.staged" and not seen:
            seen.append(name)
            add(chain, "n2", handler="obfuscate")

    failpoint.set_hook(hook)
    try:
        chain["n2"].worker.work()
    finally:
        failpoint.set_hook(None)
    assert seen
    masked = "select until_tick from vedur.passed_part"
    assert chain["n2"].db.query(masked) == [(None,)]
    chain.catch_up()
    assert chain["n2"].db.query(masked) == [(None,)]


def test_an_add_table_that_is_killed(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    chain = make(make_chain, use_handlers)
    on_root(chain)
    with killed_at("mask.noted") as reached, pytest.raises(Killed):
        add(chain, "n2", handler="obfuscate")
    assert reached
    assert chain["n2"].db.query("select * from vedur.passed_part") == []
    assert chain.states("n2") == {}
    masked_chain(chain, "n3")


def test_columns_that_the_branch_lacks_go_on(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    """As its rules say, whatever their type: nobody is to lose a value because of the branch."""
    use_handlers({"public.t": {"name": "hash", "more": "hash", "*": "keep"}})
    chain = make_chain(3, unknown_tables="stop")
    whole = "create table t (id int primary key, name text, more text, tags text[], doc jsonb)"
    for node in chain.nodes:
        branch = node is chain["n2"]
        node.db.execute("create table t (id int primary key, name text)" if branch else whole)
    call(chain.root, "londiste.local_add_table", QUEUE, "public.t")
    for name, handler in (("n2", "obfuscate"), ("n3", None)):
        with chain[name].session() as session:
            add_table(session, AddTable(tables=["t"], handler=handler))
        chain.work_until(lambda name=name: chain.states(name)["public.t"] == "ok")
    chain.root.execute(
        "insert into t values (1, 'planted', 'PLANTED', '{a,\"b\\\"c\",null}', '{\"x\": [1, {}]}'),"
        " (2, null, null, null, null)"
    )
    chain.root.execute("update t set tags = '{}' where id = 2")
    chain.catch_up()
    read = "select id, {}, tags::text, doc::text from t order by 1"
    kept = chain.root.query(read.format("name is null"))
    assert chain["n3"].db.query(read.format("name is null")) == kept
    one = chain["n3"].db.one("select name, more from t where id = 1")
    assert all(len(value) == 36 for value in one)
    for name in ("n2", "n3"):
        assert list(leaks(chain[name].db)) == []


def test_a_failover_does_not_catch_up_from_a_masked_branch(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    """It has the newest tick, and masked rows; w goes on without it."""
    chain = make(make_chain, use_handlers, 2, leaf=False)
    chain.add("w", NodeType.BRANCH, chain.make_db(), "n1")
    chain["w"].db.execute(DDL)
    on_root(chain)
    masked_chain(chain)
    add(chain, "w")
    chain.work_until(lambda: chain.states("w")["public.people"] == "ok")
    insert(chain.root, 1)
    chain.catch_up("n2")
    with gone(chain, "n1"):
        chain.nodes.pop(0)
        refused = r"only events masked by .*--dead=n2"
        with alive(chain), pytest.raises(StateError, match=refused):
            move_root(chain, "n1", "w", dead_root=True)
    assert chain["w"].db.value("select count(*) from people") == 0


def _copy_error(chain: Chain, wanted: str) -> Callable[[], bool]:
    error = "select coalesce(max(error), '') from vedur.copy_progress"
    return lambda: wanted in chain["n3"].db.value(error)


def test_a_copy_does_not_begin_from_other_rows(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    """What commands refuse, the copy refuses, too."""
    chain = make(make_chain, use_handlers)
    insert(chain.root, 1)
    on_root(chain)
    masked_chain(chain)
    leaf = chain["n3"]
    leaf.worker.copies, copies = None, leaf.worker.copies
    add(chain, "n3")
    attrs = leaf.db.value("select table_attrs from londiste.table_info")
    call(leaf.db, "londiste.local_set_table_attrs", QUEUE, "public.people", f"{attrs}&copy_node=n1")
    leaf.worker.copies = copies
    chain.work_until(_copy_error(chain, "rows as the root has them, and here they are masked by"))
    assert present(leaf.db) == []


def test_a_copy_that_catches_up_stops(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    chain = make(make_chain, use_handlers)
    insert(chain.root, 1)
    on_root(chain)
    masked_chain(chain)
    seen: list[str] = []

    def hook(name: str) -> None:
        if name == "copy.catch_up" and not seen:
            seen.append(name)
            with connect(chain["n3"].db.connstr, autocommit=True) as db:
                set_handler(db, "public.people", None)

    failpoint.set_hook(hook)
    try:
        add(chain, "n3")
        chain.work_until(_copy_error(chain, "passes on its events masked by obfuscate"))
    finally:
        failpoint.set_hook(None)
    assert seen
    assert chain.states("n3")["public.people"] != "ok"


def test_a_part_of_a_combined_queue_does_not_mask(
    make_combined: Callable[..., Combined], use_handlers: UseHandlers
) -> None:
    """Its events go on from there in another queue, as they are."""
    use_handlers({"public.t": {"v": "hash", "*": "keep"}})
    lab = make_combined(0)
    lab.add("p", "p", NodeType.ROOT)
    lab.add("p", "c1", NodeType.LEAF, "p", combined=COMBINED)
    lab.table(name="public.t", ddl="create table t (id int primary key, v text)")
    attrs = "handler=obfuscate"
    call(lab.dbs["c1"], "londiste.local_set_table_attrs", "p", "public.t", attrs)
    lab.dbs["p"].execute("insert into t values (1, 'planted')")
    lab.tick("p", "p")
    with pytest.raises(StateError, match="would go on into combined queue"):
        lab.work("p", "c1")
    assert lab.events() == []


@pytest.mark.parametrize("rules", [{"code": "hash", "v": "keep"}, {"code": "hash", "*": "keep"}])
def test_a_key_that_has_another_name_on_the_root(
    make_chain: MakeChain, use_handlers: UseHandlers, rules: dict[str, str]
) -> None:
    """Of a delete the handler sees the key alone, and would keep it under its new name."""
    use_handlers({"public.t": rules})
    chain = make_chain(2, leaf=False, unknown_tables="stop")
    for node in chain.nodes:
        node.db.execute("create table t (code text primary key, v text)")
    call(chain.root, "londiste.local_add_table", QUEUE, "public.t")
    branch = chain["n2"]
    with branch.session() as session:
        add_table(session, AddTable(tables=["t"], handler="obfuscate"))
    chain.work_until(lambda: chain.states("n2")["public.t"] == "ok")
    chain.root.execute("insert into t values ('planted', 'a')")
    chain.catch_up()
    chain.root.execute("alter table t rename code to kode")
    chain.root.execute("delete from t")
    chain.tick()
    with pytest.raises(StateError, match=r'ev_id=\d+.* has no column "kode" here'):
        branch.worker.work()
    assert list(leaks(branch.db)) == []


def test_a_root_that_has_passed_on_masked_rows(
    make_chain: MakeChain, use_handlers: UseHandlers
) -> None:
    """It had not the table as a branch. What users of the new root write comes as it is, so the
    leaf, whose rows are masked, stops."""
    chain = make(make_chain, use_handlers, 4)
    on_root(chain)
    masked_chain(chain)
    chain.catch_up()
    add(chain, "n4", find_copy_node=True)
    chain.work_until(lambda: chain.states("n4")["public.people"] == "ok")
    root, leaf = chain["n3"], chain["n4"]
    masked = "select until_tick is null from vedur.passed_part"
    with gone(chain, "n1"):
        del chain.nodes[:2]
        call(root.db, "londiste.global_remove_table", QUEUE, "public.people")
        with alive(chain):
            move_root(chain, "n1", "n3", dead_root=True)
        assert root.db.query(masked) == [(True,)]
        chain.catch_up("n4")
        root.db.execute("drop table people")
        root.db.execute(DDL)
        with root.session() as session:
            add_table(session, AddTable(tables=["people"]))
        insert(root.db, 1)
        chain.tick()
        with pytest.raises(StateError, match="does not pass on its events so"):
            while leaf.worker.work():
                pass
        assert list(leaks(leaf.db)) == []
        # what is read from now on is plain
        with leaf.session() as session:
            remove_table(session, ["people"])
            leaf.db.execute("drop table people")
            leaf.db.execute(DDL)
            chain.catch_up("n4")
            add_table(session, AddTable(tables=["people"]))
        chain.work_until(lambda: chain.states("n4")["public.people"] == "ok")
        assert leaf.db.value("select name from people") == "PLANTED Planted 1"


def test_rows_that_were_there_do_not_stay(make_chain: MakeChain, use_handlers: UseHandlers) -> None:
    """Nodes below would take them for masked ones."""
    chain = make(make_chain, use_handlers)
    on_root(chain)
    chain["n2"].db.execute(
        "insert into people (id, mail, name) values (1, %s, 'PLANTED')", ["0" * 32]
    )
    with pytest.raises(UsageError, match="--skip-truncate leaves rows"):
        add(chain, "n2", handler="obfuscate", skip_truncate=True)
    masked_chain(chain, "n3")
    assert present(chain["n2"].db) == present(chain["n3"].db) == []
