"""A node that has applied ticks which its new provider never had: numbers are not believed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.backup import Backup
from tests.labs.chain import Chain
from tests.labs.pair import QUEUE, call
from vedur.errors import OtherEpoch, StateError
from vedur.node.info import NodeType, get_node_info
from vedur.node.position import AppliedTick, get_applied_tick
from vedur.ops.change_provider import change_provider
from vedur.ops.drop_node import drop_node
from vedur.ops.rejoin.plan import Way
from vedur.ops.rejoin.run import Rejoined, RejoinOptions, rejoin
from vedur.ops.resurrect.run import ResurrectOptions, resurrect

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]

MakeChain = Callable[..., Chain]

TABLE = "create table t (id int primary key, v text)"


def rest(chain: Chain) -> None:
    """Let no worker keep a connection."""
    for node in chain.nodes:
        node.worker._close_connections()


def state(chain: Chain, name: str) -> tuple[str | None, bool, dict[str, str], AppliedTick | None]:
    """What a move would change on a node."""
    info = get_node_info(chain[name].db, QUEUE)
    assert info is not None
    applied = get_applied_tick(chain[name].db, QUEUE, info.worker_name or "")
    return info.provider_node, info.worker_paused, info.attrs, applied


def back(chain: Chain, name: str, **options: object) -> Rejoined:
    """Run rejoin; tables are copied, which needs no Spark here."""
    with chain[name].session() as session:
        return rejoin(session, RejoinOptions(copy=True, **options))  # type: ignore[arg-type]


def is_refused(chain: Chain, name: str, provider: str, why: str) -> None:
    """change-provider says why, and changes nothing."""
    before, subscribers = state(chain, name), "select * from pgq_node.get_subscriber_info(%s)"
    known = chain[provider].db.query(subscribers, [QUEUE])
    with chain[name].session() as session, pytest.raises(StateError, match=why):
        change_provider(session, provider)
    assert state(chain, name) == before
    assert chain[provider].db.query(subscribers, [QUEUE]) == known


def comes_back(chain: Chain, name: str, provider: str) -> None:
    """The leaf is made equal at its new provider, which is the root, by the command that is named;
    killed or not, the same one goes on."""
    old = state(chain, name)[0]
    assert back(chain, name, provider=provider).way is Way.REPAIR
    assert state(chain, name)[0] == old, "without --apply nothing is changed"
    assert back(chain, name, provider=provider, apply=True).way is Way.REPAIR
    assert state(chain, name)[0] == provider
    assert back(chain, name, provider=provider, apply=True).way is Way.NOTHING
    left = chain[old or ""].db.query("select * from pgq_node.get_subscriber_info(%s)", [QUEUE])
    assert name not in [row.node_name for row in left]


@pytest.mark.draw("branches")
def test_a_root_that_was_set_back_has_other_ticks_of_the_same_numbers(
    make_chain: MakeChain,
) -> None:
    chain = make_chain(3)  # n1 root, n2 branch, n3 leaf
    chain.table("public.t", TABLE)
    chain.catch_up()
    rest(chain)
    backup = Backup(chain["n1"], chain.root)
    chain.root.execute("insert into t values (1, 'lost')")
    tick = chain.catch_up()
    rest(chain)
    backup.restore()
    chain.root.execute("insert into t values (2, 'other')")
    while chain.tick() <= tick:
        pass
    why = rf'tick {tick} of node "n1" is not the tick {tick} that node "n3".*rejoin --provider=n1'
    is_refused(chain, "n3", "n1", why)
    is_refused(chain, "n2", "n1", "has already 'n1' as provider")
    with chain["n1"].session() as session, pytest.raises(StateError, match=why):
        drop_node(session, "n2", reparent=True)
    comes_back(chain, "n3", "n1")
    with chain["n1"].session() as session:
        drop_node(session, "n2", reparent=True)
    chain.nodes.pop(1).close()
    chain.work_until(lambda: chain.states("n3") == {"public.t": "ok"})
    chain.catch_up()
    assert chain.require_same("t") == ["(2,other)"]


def promoted(make_chain: MakeChain, *, epochs: bool) -> tuple[Chain, int]:
    """n3, a leaf of n1, has one tick more than branch n2, which is made root and goes on."""
    chain = make_chain(2, leaf=False)
    chain.add("n3", NodeType.LEAF, chain.make_db(), provider="n1")
    chain.table("public.t", TABLE)
    chain.catch_up()
    if not epochs:
        for node in chain.nodes:
            node.db.execute("delete from vedur.reign")
    chain.root.execute("insert into t values (1, 'lost')")
    tick = chain.tick()
    while chain["n3"].worker.work():
        pass
    assert chain["n2"].position < tick == chain["n3"].position
    new = chain["n2"].db
    call(new, "vedur.promote", QUEUE, "11111111-1111-1111-1111-111111111111", "failover",
         chain["n2"].position)  # fmt: skip
    new.execute("insert into t values (2, 'other')")
    for _ in range(2):
        new.value("select pgq.force_tick(%s)", [QUEUE])
        new.value("select pgq.ticker(%s)", [QUEUE])
    assert max(chain["n2"].ticks()) >= tick
    return chain, tick


@pytest.mark.draw(1)
@pytest.mark.parametrize("epochs", [True, False])
def test_a_leaf_that_went_further_than_the_new_root(make_chain: MakeChain, epochs: bool) -> None:
    chain, tick = promoted(make_chain, epochs=epochs)
    because = 'root "n2" has taken over' if epochs else "a root was restored from a backup, or"
    is_refused(chain, "n3", "n2", rf'is not the tick {tick} that node "n3".*{because}')
    comes_back(chain, "n3", "n2")
    chain.nodes.pop(0).close()
    chain.work_until(lambda: chain.states("n3") == {"public.t": "ok"})
    chain.catch_up()
    assert chain.require_same("t") == ["(2,other)"]


def test_rejoin_sees_that_the_node_is_ahead_although_its_consumer_stands_there(
    make_chain: MakeChain,
) -> None:
    chain, tick = promoted(make_chain, epochs=True)
    n2, n3 = chain["n2"], chain["n3"]
    n3.db.execute("update pgq_node.local_state set provider_node = 'n2'")
    call(n2.db, "pgq_node.register_subscriber", QUEUE, "n3", "n3_job", tick)
    n3.renew()
    with pytest.raises(OtherEpoch, match='run "rejoin" on this node'):
        n3.worker.work()
    n3.worker._close_connections()
    assert back(chain, "n3").why.startswith(f"this node has applied tick {tick} of an earlier root")
    assert back(chain, "n3", apply=True).way is Way.REPAIR
    chain.nodes.pop(0).close()
    chain.work_until(lambda: chain.states("n3") == {"public.t": "ok"})
    assert chain.require_same("t") == ["(2,other)"]


def test_resurrect_puts_the_consumer_of_a_branch_back_to_the_common_tick(
    make_chain: MakeChain,
) -> None:
    chain, tick = promoted(make_chain, epochs=True)
    n2, common = chain["n2"], chain["n2"].position
    low = chain["n1"]  # the deposed root: its place at the new one was made too far ahead
    call(n2.db, "pgq_node.register_subscriber", QUEUE, "n1", "n1_job", tick)
    with low.session() as session:
        assert resurrect(session, ResurrectOptions(keep_rows=True)).tick == common
    place = "select consumer_name, last_tick from pgq.get_consumer_info(%s)"
    found = {row[0]: row[1] for row in n2.db.query(place, [QUEUE])}
    assert (found["n1_job"], found[".n1.watermark"]) == (common, common)


def test_a_node_whose_tick_fits_is_moved_and_not_repaired(make_chain: MakeChain) -> None:
    chain = make_chain(3)
    chain.table("public.t", TABLE)
    chain.catch_up()
    with pytest.raises(
        StateError, match=r"is the tick that this node has applied.*change-provider"
    ):
        back(chain, "n3", provider="n1", apply=True)
    with pytest.raises(StateError, match="Unknown node: nobody"):
        back(chain, "n3", provider="nobody")
    with pytest.raises(StateError, match="cannot subscribe to itself"):
        back(chain, "n3", provider="n3")
    assert state(chain, "n3")[0] == "n2"
