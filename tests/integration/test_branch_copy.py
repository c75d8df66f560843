"""First copies below a branch, watermarks through it, and what it says to copies of upstream's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fixtures.killed import Killed, killed_at
from tests.integration.test_branch import change
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.change.attrs import encode_attrs
from vedur.db import Database, connect
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.remove_table import remove_table
from vedur.ops.resync import resync
from vedur.worker.first_copy.context import CopySetup, Step, TableJob

MakeChain = Callable[..., Chain]

TABLE = "create table t (id int primary key, v text)"

pytestmark = pytest.mark.usefixtures("without_spark")


@contextmanager
def writing(chain: Chain) -> Iterator[None]:
    """Somebody writes to the root all the time."""
    over = threading.Event()

    def write() -> None:
        with connect(chain.root.connstr, autocommit=True) as db:
            at = 0
            while not over.wait(0.01):
                at += 1
                db.execute(f"insert into t values ({100_000 + at}, 'w') on conflict do nothing")
                db.execute(f"update t set v = v || '.' where id % 97 = {at % 97}")
                db.execute(f"delete from t where id = {at}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)


def add_on_root(chain: Chain) -> None:
    for node in chain.nodes:
        node.db.execute(TABLE)
    chain.root.execute("insert into t select i, 'x' || i from generate_series(1, 2000) i")
    call(chain.root, "londiste.local_add_table", QUEUE, "public.t")


def add_below(node: Node, **attrs: str) -> None:
    call(node.db, "londiste.global_add_table", QUEUE, "public.t")
    args = (QUEUE, "public.t", [], encode_attrs(attrs), "public.t")
    call(node.db, "londiste.local_add_table", *args)


def is_ok(chain: Chain, *names: str) -> bool:
    return all(chain.states(name) == {"public.t": "ok"} for name in names)


def copy_error(node: Node) -> str:
    return str(node.db.value("select error from vedur.copy_progress") or "")


# -- first copies ---------------------------------------------------------------------------------


@pytest.mark.draw("copies")
def test_tables_are_copied_down_the_chain_while_changes_come(make_chain: MakeChain) -> None:
    chain = make_chain(4)
    add_on_root(chain)
    with writing(chain):
        for node in chain.followers:  # all at once: who has no table above waits for it
            add_below(node)
        chain.work_until(lambda: is_ok(chain, "n2", "n3", "n4"))
    chain.catch_up()
    assert len(chain.require_same("t")) > 1900
    assert chain.require_queues() > 0
    texts = "select count(*) from pgq.get_consumer_info(%s) where consumer_name like '%%.copy.%%'"
    assert [node.db.value(texts, [QUEUE]) for node in chain.nodes] == [0, 0, 0, 0]
    change(chain, 700)
    chain.catch_up()
    chain.require_same("t")


def test_a_copy_from_a_branch_that_has_nothing_to_do(make_chain: MakeChain) -> None:
    """Its newest tick is the one that the copy shows: nobody has to wait for another."""
    chain = make_chain(3)
    add_on_root(chain)
    add_below(chain["n2"])
    chain.work_until(lambda: is_ok(chain, "n2"))
    chain.catch_up()
    low = chain["n3"]
    add_below(low)
    while not is_ok(chain, "n3"):
        low.worker.work()  # no tick comes
    chain.require_same("t")


@pytest.mark.draw("copies")
@pytest.mark.parametrize(
    ("attrs", "part"),
    [({"copy_condition": "id < 100"}, "rows where id < 100"), ({"columns": "id"}, "some of its")],
)
def test_a_part_of_a_table_is_not_copied_from(
    make_chain: MakeChain, attrs: dict[str, str], part: str
) -> None:
    chain = make_chain(3)
    add_on_root(chain)
    add_below(chain["n2"], **attrs)
    chain.work_until(lambda: is_ok(chain, "n2"))
    add_below(chain["n3"])
    chain.work_until(lambda: "in part only" in copy_error(chain["n3"]))
    said = copy_error(chain["n3"])
    assert part in said and "--copy-node" in said and "change-provider" in said
    assert chain.states("n3") == {"public.t": None}
    with chain["n3"].session() as session:
        with pytest.raises(StateError, match=r"in part only.*--copy-node"):
            resync(session, ["public.t"])
        remove_table(session, ["public.t"])
        with pytest.raises(StateError, match=r"in part only.*--copy-node"):
            add_table(session, AddTable(tables=["public.t"]))
    assert chain.states("n3") == {}
    chain.catch_up()
    assert chain.require_queues() > 0


@pytest.mark.draw("copies")
def test_a_table_with_events_in_quarantine_is_not_copied_from(make_chain: MakeChain) -> None:
    chain = make_chain(3, on_error="quarantine-row")
    add_on_root(chain)
    mid, low = chain["n2"], chain["n3"]
    add_below(mid)
    chain.work_until(lambda: is_ok(chain, "n2"))
    mid.db.execute("alter table t add constraint no_bad check (v <> 'bad')")
    chain.root.execute("update t set v = 'bad' where id = 7")
    chain.catch_up("n2")
    assert mid.db.value("select count(*) from vedur.quarantine") == 1
    add_below(low)
    chain.work_until(lambda: "events in quarantine on the provider" in copy_error(low))
    mid.db.execute("alter table t drop constraint no_bad")
    mid.db.execute("update londiste.table_info set merge_state = null, custom_snapshot = null")
    chain.work_until(lambda: is_ok(chain, "n2", "n3"))
    chain.catch_up()
    chain.require_same("t")


# -- copies of upstream's -------------------------------------------------------------------------


@pytest.mark.draw("copies")
def test_while_upstream_copies_each_batch_is_one_tick(make_chain: MakeChain) -> None:
    """Its copy compares numbers of events with snapshots of the branch's server."""
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    mid = chain["n2"]
    for step in range(3):
        change(chain, step)
        chain.tick()
    with killed_at("batch.staged") as reached, pytest.raises(Killed):
        mid.worker.work()  # a batch of three ticks stays open
    assert reached
    mid.worker._close()
    mid.renew()
    mid.db.value("select pgq.register_consumer(%s, 'up.copy.public.t')", [QUEUE])
    positions = [mid.position]
    with killed_at("branch.reopened") as reached, pytest.raises(Killed):
        mid.worker.work()
    assert reached
    mid.worker._close()
    mid.renew()
    while mid.worker.work():
        positions.append(mid.position)
    assert sorted(set(positions)) == sorted(chain.nodes[0].ticks())[-4:]
    mid.db.value("select pgq.unregister_consumer(%s, 'up.copy.public.t')", [QUEUE])
    for step in range(3, 6):
        change(chain, step)
        chain.tick()
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 60


def test_a_copy_of_upstreams_that_begins_meanwhile(make_chain: MakeChain) -> None:
    """The batch is merged already: it is taken back and repeated tick by tick."""
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    mid = chain["n2"]
    for step in range(3):
        change(chain, step)
        chain.tick()
    registered: list[str] = []

    def hook(name: str) -> None:
        if name == "batch.staged" and not registered:
            registered.append(name)
            mid.db.value("select pgq.register_consumer(%s, 'up.copy.public.t')", [QUEUE])

    failpoint.set_hook(hook)
    try:
        positions = [mid.position]
        while mid.worker.work():
            positions.append(mid.position)
    finally:
        failpoint.set_hook(None)
    assert registered and len(set(positions)) == 4
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues() > 30


def test_a_table_removed_just_before_it_catches_up_leaves_nothing(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its consumer would keep the queue from rotating."""
    chain = make_chain(2)
    chain.table("public.t", TABLE, on=[])
    low = chain["n2"]
    enter = CopySetup.enter

    def removed_before(setup: CopySetup, db: Database, job: TableJob, step: Step) -> None:
        if step is Step.CATCH_UP:
            call(low.db, "londiste.local_remove_table", QUEUE, job.name)
            job.cancel()
        enter(setup, db, job, step)

    monkeypatch.setattr(CopySetup, "enter", removed_before)
    with low.session() as session:
        add_table(session, AddTable(tables=["public.t"]))
    chain.work_until(lambda: chain.states("n2") == {})
    text = "select count(*) from pgq.get_consumer_info() where consumer_name ~ 'copy'"
    chain.work_until(lambda: chain.root.value(text) == 0)
    left = "select count(*) from pgq_node.local_state where consumer_name ~ 'copy'"
    chain.work_until(lambda: low.db.value(left) == 0)


# -- watermarks -----------------------------------------------------------------------------------


def rotate(node: Node) -> bool:
    text = "select queue_cur_table from pgq.queue"
    before = node.db.value(text)
    node.db.value("select pgq.maint_rotate_tables_step1(%s)", [QUEUE])
    node.db.value("select pgq.maint_rotate_tables_step2()")
    return bool(node.db.value(text) != before)


@pytest.mark.draw("copies")
def test_the_roots_queue_is_rotated_when_all_nodes_have_passed(make_chain: MakeChain) -> None:
    chain = make_chain(4, local_wm_publish_period=0.0, global_wm_publish_period=0.0)
    chain.table("public.t", TABLE)
    root = chain.nodes[0]
    for node in chain.nodes:
        node.db.execute("update pgq.queue set queue_rotation_period = '0'")

    def settle(*names: str) -> None:
        """Positions go up the chain, the lowest of them comes down again."""
        for _ in range(5):
            chain.catch_up(*names)
            for name in reversed(names):
                chain[name].worker.work()
            root.worker.work()

    settle("n2", "n3", "n4")
    assert [rotate(node) for node in chain.nodes[:3]] == [True] * 3
    settle("n2", "n3", "n4")
    behind = chain["n4"].position
    change(chain, 0)
    settle("n2", "n3")  # the leaf stands still
    assert chain["n3"].position > behind
    lowest = get_node_info(root.db, QUEUE)
    assert lowest is not None and lowest.local_watermark == behind
    for node in chain.nodes[:3]:
        rotate(node)
        rotate(node)  # the tables that are left have what the leaf needs
        assert behind in node.ticks()
    settle("n2", "n3", "n4")
    chain.require_same("t")
    after = get_node_info(root.db, QUEUE)
    assert after is not None and after.local_watermark is not None
    assert after.local_watermark > behind
    marks = "select last_tick from pgq.get_consumer_info(%s, '.global_watermark')"
    assert all(node.db.value(marks, [QUEUE]) > behind for node in chain.nodes[:3])


def test_a_consumer_that_begins_behind_the_watermark_of_the_branch(make_chain: MakeChain) -> None:
    """The provider need not go back for it: the branch's own queue has what it reads."""
    chain = make_chain(2, leaf=False, local_wm_publish_period=0.0)
    chain.table("public.t", TABLE)
    mid = chain["n2"]
    for step in range(3):
        change(chain, step)
        chain.catch_up()
    mid.worker.work()
    marks = "select last_tick from pgq.get_consumer_info(%s, '.n2.watermark')"
    reported = chain.root.value(marks, [QUEUE])
    assert reported == mid.position
    early = sorted(mid.ticks())[1]
    mid.db.value("select pgq.register_consumer_at(%s, 'late', %s)", [QUEUE, early])
    change(chain, 3)
    chain.catch_up()
    mid.worker.work()
    assert chain.root.value(marks, [QUEUE]) == reported
    chain.require_same("t")
    mid.db.value("select pgq.unregister_consumer(%s, 'late')", [QUEUE])
    chain.catch_up()
    mid.worker.work()
    assert chain.root.value(marks, [QUEUE]) == mid.position


@pytest.mark.draw("copies")
def test_a_branch_with_sync_watermark(make_chain: MakeChain) -> None:
    chain = make_chain(1, local_wm_publish_period=0.0, global_wm_publish_period=0.0)
    dbs = [chain.make_db() for _ in range(3)]
    mid = chain.add("mid", NodeType.BRANCH, dbs[0], sync_watermark="mid,far")
    far = chain.add("far", NodeType.BRANCH, dbs[1], provider="n1")
    low = chain.add("low", NodeType.LEAF, dbs[2], provider="mid")
    root = chain.nodes[0]
    for _ in range(6):
        chain.catch_up()
        for node in (low, mid, far, root):
            node.worker.work()
    marks = "select last_tick from pgq.get_consumer_info(%s, %s)"
    stands, before = low.position, mid.position
    for _ in range(6):
        chain.catch_up("mid", "far")
        for node in (mid, far, root):
            node.worker.work()
    # the root does not wait for the leaf below; the branch's own queue does
    assert root.db.value(marks, [QUEUE, ".mid.watermark"]) > before
    assert mid.db.value(marks, [QUEUE, ".global_watermark"]) <= stands
    # and the nodes below hear of the branch's own watermark
    said = mid.db.query(
        "select ev_data::bigint from pgq.event_1 where ev_type = 'pgq.global-watermark'"
        " order by ev_id desc limit 1"
    )
    assert said[0][0] <= stands
    # nothing else of the queue differs from the root's, and no watermark is ahead of the root's
    text = "select ev_id, ev_data, ev_type, ev_time, ev_extra1, ev_extra2 from pgq.event_1"
    there, here = ({row[0]: row[1:] for row in n.db.query(text)} for n in (root, mid))
    first, last = min(here), max(here)
    assert here.keys() == {number for number in there if first <= number <= last}
    told = [(here[number], there[number]) for number in here if here[number] != there[number]]
    assert told
    for have, want in told:
        assert have[1:] == want[1:] and have[1] == "pgq.global-watermark"
        assert int(have[0]) < int(want[0])
    for _ in range(6):
        chain.catch_up()
        for node in (low, mid, far, root):
            node.worker.work()
    assert mid.db.value(marks, [QUEUE, ".global_watermark"]) > stands


# -- creation -------------------------------------------------------------------------------------


def test_the_queue_of_a_new_branch(make_chain: MakeChain) -> None:
    chain = make_chain(1, leaf=False)
    settings = {
        "ticker_max_lag": "7 seconds",
        "rotation_period": "3 hours",
        "ticker_max_count": "9",
    }
    for name, value in settings.items():
        chain.root.value("select pgq.set_queue_config(%s, %s, %s)", [QUEUE, name, value])
    chain.add("n2", NodeType.BRANCH, chain.make_db())
    mid = chain["n2"]
    row = mid.db.one(
        "select queue_ticker_max_lag::text, queue_rotation_period::text, queue_ticker_max_count,"
        " queue_external_ticker, queue_disable_insert from pgq.queue"
    )
    assert tuple(row) == ("00:00:07", "03:00:00", 9, True, True)
    (first,) = mid.ticks()
    assert mid.ticks()[first] == chain.nodes[0].ticks()[first]
    assert first == mid.position
