"""What one node needs is not taken away by another: its consumer, its events, its settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fixtures.wait import until
from tests.integration.test_branch import change
from tests.integration.test_dead_subsets import allow
from tests.labs.chain import Chain, Node
from tests.labs.moving_root import alive, make_bank, move, roots, settle
from tests.labs.pair import QUEUE
from tests.labs.tree import kill_at
from vedur import failpoint
from vedur.db import connect
from vedur.errors import StateError
from vedur.node.info import NodeInfo, NodeType, get_node_info, get_queue_locations
from vedur.node.move_lock import try_lock_move
from vedur.ops.change_provider import change_provider
from vedur.ops.drop_node import drop_node
from vedur.ops.move_position import MoveTo, move_position
from vedur.ops.pause import pause, resume
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.ops.rename_node import rename_node
from vedur.ops.resurrect.run import ResurrectOptions, resurrect
from vedur.ops.takeover.verify import Verdict
from vedur.pipeline.repair import open_stage, refilter
from vedur.tables.stages import held_stage, quarantine_area, stage_prefix

MakeChain = Callable[..., Chain]

pytestmark = pytest.mark.usefixtures("without_spark")

TABLE = "create table t (id int primary key, v text)"


def place(node: Node, consumer: str) -> int | None:
    """Where a consumer stands in the queue of a node."""
    tick = node.db.value("select last_tick from pgq.get_consumer_info(%s, %s)", [QUEUE, consumer])
    return None if tick is None else int(tick)


def members(node: Node) -> set[str]:
    return {member.node_name for member in get_queue_locations(node.db, QUEUE)}


def info_of(node: Node) -> NodeInfo:
    info = get_node_info(node.db, QUEUE)
    assert info is not None
    return info


def rotate(node: Node) -> None:
    """Let a queue forget everything that nobody needs."""
    for _ in range(4):
        node.db.execute(
            "update pgq.queue set queue_rotation_period = '0', queue_switch_time = '-infinity'"
        )
        node.db.value("select pgq.maint_rotate_tables_step1(%s)", [QUEUE])
        node.db.value("select pgq.maint_rotate_tables_step2()")


def stand_still(node: Node) -> None:
    """Pause the worker of a node: it has seen that, and commands need not wait for it."""
    worker = info_of(node).worker_name
    node.db.execute("select pgq_node.set_consumer_paused(%s, %s, true)", [QUEUE, worker])
    node.worker.work()


@contextmanager
def running(*nodes: Node) -> Iterator[None]:
    """Workers work by themselves."""
    threads = [threading.Thread(target=node.worker.run, daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for node in nodes:
            node.worker.signals.stop.set()
            node.worker.signals.wake.set()
        for thread in threads:
            thread.join(120)


# -- one job name, two nodes ----------------------------------------------------------------------


def test_two_nodes_of_one_job_name_are_not_put_below_one_provider(make_chain: MakeChain) -> None:
    chain = make_chain(2, leaf=False)
    root, mid = chain.nodes
    shared = {"job_name": "shared"}
    first = chain.add("a", NodeType.LEAF, chain.make_db(), provider="n1", own=shared)
    stands = place(root, "shared")
    chain.catch_up()
    root.db.value("select pgq.force_tick(%s)", [QUEUE])
    with pytest.raises(StateError, match=r'"shared" on node "n1" is that of node "a".*job_name'):
        chain.add("b", NodeType.LEAF, chain.make_db(), provider="n1", own=shared)
    assert "b" not in members(root), "nothing is changed"
    with pytest.raises(StateError, match=r'has a consumer "plain" that is not of node "b"'):
        root.db.value("select pgq.register_consumer(%s, 'plain')", [QUEUE])
        chain.add("b", NodeType.LEAF, chain.make_db(), provider="n1", own={"job_name": "plain"})
    # below another provider it is no problem, until the node is moved
    second = chain.add("b", NodeType.LEAF, chain.make_db(), provider="n2", own=shared)
    chain.catch_up()
    assert (place(root, "shared") or 0) > (stands or 0)
    before = place(root, "shared")
    with (
        second.session() as session,
        pytest.raises(StateError, match=r'"shared" on node "n1" is that of node "a".*drop-node'),
    ):
        change_provider(session, "n1", max_wait=1)
    info = info_of(second)
    assert (info.provider_node, info.worker_paused, info.attrs) == ("n2", False, {})
    # a consumer beside a worker does not take that of a node either
    mid.db.execute("select pgq_node.register_consumer(%s, 'shared', 'n2', %s)", [QUEUE, before])
    with (
        mid.session() as session,
        pytest.raises(StateError, match='"shared" on node "n1" is that of node "a"'),
    ):
        change_provider(session, "n1", node="n2", consumer="shared", max_wait=1)
    assert place(root, "shared") == before
    # where an older version has let it happen, neither takes the consumer from the other
    root.db.execute(
        "insert into pgq_node.subscriber_info select queue_name, 'b', worker_name, watermark_name"
        " from pgq_node.subscriber_info where subscriber_node = 'a'"
    )
    root.db.execute("select pgq.register_consumer_at(%s, 'shared', %s)", [QUEUE, chain.tick()])
    with (
        first.session() as session,
        pytest.raises(StateError, match=r'is that of node "b".*drop-node one of the two'),
    ):
        rejoin(session, RejoinOptions(apply=True))


@pytest.mark.draw("takeovers")
def test_a_takeover_takes_no_consumer_of_another_node(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root reads from nobody, so a node further down may have its job name."""
    chain = make_bank(make_chain, 2, leaf=False)
    other = chain.add(
        "x", NodeType.LEAF, chain.make_db(), provider="n2", own={"job_name": "n1_job"}
    )
    chain.catch_up()
    steps: list[str] = []
    with alive(chain):
        stands = place(chain["n2"], "n1_job") or 0
        monkeypatch.setattr(failpoint, "_hook", steps.append)
        with pytest.raises(
            StateError, match=r'"n1_job" on node "n2" is that of node "x".*drop-node'
        ):
            move(chain, "n1", "n2")
        assert roots(chain) == ["n1"]
        assert "takeover.closed" not in steps, "it is seen before anything is changed"
        settle(chain)
        assert (place(chain["n2"], "n1_job") or 0) > stands, "the other node reads on"
    assert info_of(other).provider_node == "n2"


@pytest.mark.draw("takeovers")
def test_a_failover_leaves_a_node_whose_consumer_is_anothers(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    own = {"job_name": "shared"}
    chain.add("x", NodeType.LEAF, chain.make_db(), provider="n2", own=own)
    chain.add("y", NodeType.LEAF, chain.make_db(), provider="n1", own=own)
    chain.catch_up()
    lost = chain["n1"]
    chain.nodes.remove(lost)
    allow(lost, False)
    with alive(chain):
        assert move(chain, "n1", "n2", dead_root=True) is Verdict.NODES_LEFT
        chain["n2"].db.execute("insert into acct values (1000, 1)")
        settle(chain, "x")
    assert roots(chain) == ["n2"]
    assert info_of(chain["y"]).provider_node == "n1", "it is left as it is, and named"
    worker = "select worker_name from pgq_node.subscriber_info where subscriber_node = %s"
    assert [chain["n2"].db.value(worker, [name]) for name in ("x", "y")] == ["shared", None]


@pytest.mark.draw("takeovers")
def test_resurrect_takes_no_consumer_of_another_node(make_chain: MakeChain) -> None:
    chain = make_bank(make_chain, 2, leaf=False)
    lost = chain["n1"]
    chain.nodes.remove(lost)
    allow(lost, False)
    with alive(chain):
        move(chain, "n1", "n2", dead_root=True)
        chain.add("x", NodeType.LEAF, chain.make_db(), provider="n2", own={"job_name": "n1_job"})
    stands = place(chain["n2"], "n1_job")
    allow(lost, True)
    with (
        lost.session() as session,
        pytest.raises(StateError, match=r'"n1_job" on node "n2" is that of node "x".*drop-node'),
    ):
        resurrect(session, ResurrectOptions())
    assert (info_of(lost).node_type, place(chain["n2"], "n1_job")) == (NodeType.ROOT, stands)


# -- watermarks -----------------------------------------------------------------------------------


def test_events_that_a_moved_node_needs_are_kept_up_to_the_root(make_chain: MakeChain) -> None:
    """The branches have reported a later tick than that of the node that comes below them."""
    chain = make_chain(3, leaf=False, local_wm_publish_period=0.0, global_wm_publish_period=0.0)
    root, mid, low = chain.nodes
    late = chain.add("late", NodeType.LEAF, chain.make_db(), provider="n1")
    chain.table("public.t", TABLE)
    chain.catch_up()
    late.worker.work()
    stand_still(late)
    needed = late.position
    for step in range(4):
        change(chain, step)
        chain.catch_up("n2", "n3")
    for node in (low, mid):
        node.worker.work()
    assert (place(root, ".n2.watermark") or 0) > needed
    assert (place(mid, ".n3.watermark") or 0) > needed
    with late.session() as session:
        change_provider(session, "n3")
    assert place(root, "late_job") is None
    assert place(root, ".n2.watermark") == place(mid, ".n3.watermark") == needed
    # a report that was on its way when the node came is followed by one that takes it back
    newest = mid.position
    for node, mark in ((root, ".n2.watermark"), (mid, ".n3.watermark")):
        node.db.execute("select pgq.register_consumer_at(%s, %s, %s)", [QUEUE, mark, newest])
    for node in (low, mid, root):
        node.worker.work()
    assert (place(mid, ".n3.watermark") or 0) <= needed
    assert (place(root, ".n2.watermark") or 0) <= needed
    for node in (root, mid, low):
        rotate(node)
    assert needed in root.ticks() and needed in mid.ticks()
    late.worker.work()  # it has seen where it reads, and stays paused
    with late.session() as session:
        change_provider(session, "n1", dead=["n3"])  # the branch dies: there is a way back
    late.db.execute("select pgq_node.set_consumer_paused(%s, 'late_job', false)", [QUEUE])
    change(chain, 5)
    chain.catch_up()
    chain.require_same("t")


def test_a_position_that_is_set_back_takes_the_watermark_with_it(make_chain: MakeChain) -> None:
    chain = make_chain(2, local_wm_publish_period=0.0)
    root, leaf = chain.nodes
    chain.table("public.t", TABLE)
    early = chain.catch_up()
    chain.root.execute("insert into t values (1, 'x')")
    later = chain.catch_up()
    leaf.worker.work()
    assert place(root, ".n2.watermark") == later
    with leaf.db.transaction():  # the row is lost there, and shall come again
        leaf.db.execute("set local session_replication_role = replica")
        leaf.db.execute("delete from t")
    with leaf.session() as session:
        move_position(session, MoveTo(tick=early), lambda text: True)
    assert place(root, ".n2.watermark") == place(root, "n2_job") == leaf.position == early
    while leaf.worker.work():
        pass
    chain.require_same("t")
    leaf.worker.work()
    assert place(root, ".n2.watermark") == later
    # nor does a watermark that is ahead, as an earlier version has left it, stop the worker
    ahead = chain.tick()
    root.db.execute("select pgq.register_consumer_at(%s, '.n2.watermark', %s)", [QUEUE, ahead])
    leaf.worker._close()
    leaf.renew()
    leaf.worker.work()
    assert (place(root, ".n2.watermark") or 0) <= later


def test_a_watermark_does_not_wait_for_a_node_that_has_left(make_chain: MakeChain) -> None:
    chain = make_chain(1, local_wm_publish_period=0.0, global_wm_publish_period=0.0)
    root = chain.nodes[0]
    mid = chain.add("mid", NodeType.BRANCH, chain.make_db(), sync_watermark="mid, far,nobody")
    far = chain.add("far", NodeType.BRANCH, chain.make_db(), provider="n1")
    mark = ".global_watermark"

    def goes_on() -> bool:
        before = place(mid, mark) or 0
        for _ in range(4):
            chain.catch_up()
            for node in (*chain.followers, root):
                node.worker.work()
        return (place(mid, mark) or 0) > before

    assert goes_on(), "nobody waits for a node that is not there"
    with root.session() as session:
        rename_node(session, "far", "east")
    far.name = "east"
    assert info_of(mid).attrs == {"sync_watermark": "mid,east,nobody"}
    chain.catch_up()
    with root.session() as session:
        drop_node(session, "east")
    chain.nodes.remove(far)
    far.close()
    assert info_of(mid).attrs == {"sync_watermark": "mid,nobody"}
    assert goes_on()


# -- settings of the queue ------------------------------------------------------------------------

SETTINGS = """
select queue_ticker_max_count, queue_ticker_max_lag::text, queue_ticker_idle_period::text,
    queue_rotation_period::text, queue_external_ticker, queue_ticker_paused
from pgq.queue
"""


def test_settings_of_the_queue_go_down_the_tree(make_chain: MakeChain) -> None:
    chain = make_chain(3, leaf=False, local_wm_publish_period=0.0)
    root, mid, low = chain.nodes
    asked = {
        "ticker_max_count": "77", "ticker_max_lag": "4 seconds", "ticker_idle_period": "5 minutes",
        "rotation_period": "33 minutes", "ticker_paused": "true",
    }  # fmt: skip
    for name, value in asked.items():
        root.db.call("pgq.set_queue_config", QUEUE, name, value)
    before = mid.db.one(SETTINGS)
    for node in (mid, low):
        node.worker.work()
    wanted = (77, "00:00:04", "00:05:00", "00:33:00")
    for node in (root, mid, low):
        assert tuple(node.db.one(SETTINGS))[:4] == wanted, node.name
    assert tuple(mid.db.one(SETTINGS))[4:] == tuple(before)[4:], "these are a node's own"
    again = "select vedur.follow_settings(%s, 77, '4 s', '5 min', '33 min')"
    assert mid.db.value(again, [QUEUE]) == []
    assert root.db.value("select vedur.follow_settings(%s, 1, '1 s', '1 s', '1 s')", [QUEUE]) == []
    assert tuple(root.db.one(SETTINGS))[:4] == wanted, "a root follows nobody"


# -- a move that was killed -----------------------------------------------------------------------


def test_a_worker_gives_up_the_move_of_a_command_that_was_killed(make_chain: MakeChain) -> None:
    chain = make_chain(2, leaf=False)
    root, mid = chain.nodes
    leaf = chain.add("leaf", NodeType.LEAF, chain.make_db(), provider="n1")
    chain.table("public.t", TABLE)
    chain.catch_up()
    move = "from vedur.ops.change_provider import change_provider; change_provider(session, 'n2')"
    with running(leaf):
        kill_at("provider.paused", move, leaf.db.connstr, QUEUE)
        assert until(lambda: info_of(leaf).attrs == {} and not info_of(leaf).worker_paused, 60)
        change(chain, 0)
        tick = chain.tick()
        assert until(lambda: leaf.position == tick, 60)
    chain.require_same("t", "leaf")
    leaf.renew()
    # a move that is under way, and a pause of an operator, are left alone
    note = "move_consumer=leaf_job&move_provider=n2&move_resume=%s"
    leaf.db.execute("select pgq_node.set_consumer_paused(%s, 'leaf_job', true)", [QUEUE])
    leaf.db.execute("select pgq_node.set_node_attrs(%s, %s)", [QUEUE, note % 1])
    with leaf.session() as session:
        assert try_lock_move(session.db, QUEUE)
        leaf.worker.work()
        assert info_of(leaf).worker_paused
        session.db.value("select pg_advisory_unlock_all()")
        leaf.db.execute("update pgq_node.local_state set uptodate = true")
        pause(session)
        assert info_of(leaf).attrs["move_resume"] == "0"
        leaf.renew()
        leaf.worker.work()
        assert info_of(leaf).worker_paused
    with running(mid, leaf), leaf.session() as session:
        resume(session)
        change_provider(session, "n2")
    assert (info_of(leaf).provider_node, info_of(leaf).attrs) == ("n2", {})
    assert place(root, "leaf_job") is None


# -- what killed commands leave -------------------------------------------------------------------


def test_a_worker_drops_what_killed_commands_have_left(make_chain: MakeChain) -> None:
    chain = make_chain(2)
    leaf = chain.nodes[1]
    chain.table("public.t", TABLE)
    prefix = stage_prefix(quarantine_area(QUEUE))
    left = [
        *(f"{kind}_0123abcd" for kind in ("filter_rows", "repair_keys", "repair_rows", "expected")),
        f"{prefix}1_0",
        f"{prefix}log_1",
    ]
    others = ["expected_rows", "mine", f"{stage_prefix('other queue')}1_0"]
    for name in (*left, *others):
        leaf.db.execute(f"create unlogged table vedur_work.{name} ()")
    used: set[str] = set()
    text = (
        "select relname from pg_class"
        " where relnamespace = 'vedur_work'::regnamespace and relkind = 'r'"
    )

    def there() -> set[str]:
        return {str(row.relname) for row in leaf.db.query(text)} & {*left, *others, *used}

    # a command that runs keeps what it uses
    side = cast(Any, SimpleNamespace(dest="public.t", target=SimpleNamespace(table="public.t")))
    columns = cast(Any, SimpleNamespace(target_columns=("id", "v")))
    with (
        connect(leaf.db.connstr, autocommit=True) as db,
        refilter.open_stage(db, side, columns) as rows,
        open_stage(db, side, ("id", "v")) as stage,
        held_stage(db, prefix),
    ):
        used |= {name.removeprefix("vedur_work.") for name in (rows, stage.keys, stage.rows)}
        leaf.worker.work()
        assert there() == {*others, *used, f"{prefix}1_0", f"{prefix}log_1"}
        leaf.renew()
    # one that has died does not; its tasks may still write
    with connect(leaf.db.connstr) as task:
        task.execute(f"insert into vedur_work.{prefix}1_0 default values")
        leaf.worker.work()
        assert there() == {*others, f"{prefix}1_0"}
    leaf.worker._close()
    leaf.renew()
    leaf.worker.work()
    assert there() == set(others)
