"""A branch that was restored from a backup, and the nodes below it: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.backup import Backup
from tests.labs.chain import Chain
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.errors import LostPosition, StateError
from vedur.ops.rejoin.plan import Way
from vedur.ops.rejoin.run import Rejoined, RejoinOptions, rejoin

pytestmark = pytest.mark.usefixtures("without_spark")

MakeChain = Callable[..., Chain]


def filled(make_chain: MakeChain) -> Chain:
    chain = make_chain(3)
    chain.table("public.t", "create table t (id int primary key, v text)")
    chain.root.execute("insert into t select i, 'a' from generate_series(1, 20) i")
    chain.catch_up()
    return chain


def change(chain: Chain, rounds: int = 3) -> None:
    for number in range(rounds):
        chain.root.execute("update t set v = %s where id %% 2 = 0", [f"round {number}"])
        chain.root.execute("insert into t values (%s, 'new')", [100 + number])
        chain.catch_up()


def rest(chain: Chain) -> None:
    """Let no worker keep a connection."""
    for node in chain.followers:
        node.worker._close_connections()


def back(chain: Chain, name: str, **options: bool) -> Rejoined:
    with chain[name].session() as session:
        return rejoin(session, RejoinOptions(**options))


def restored(make_chain: MakeChain) -> Chain:
    """The branch is as it was three ticks ago; the leaf below it is three ticks ahead of it."""
    chain = filled(make_chain)
    rest(chain)
    backup = Backup(chain["n2"], chain["n2"].db)
    change(chain)
    rest(chain)
    backup.restore()
    return chain


@pytest.mark.draw("branches")
def test_a_restored_branch_passes_the_same_ticks_on_again(make_chain: MakeChain) -> None:
    chain = restored(make_chain)
    at, below = chain["n2"].position, chain["n3"].position
    assert at < below
    with pytest.raises(LostPosition, match=r'consumer .* stands at tick \d+.*run "rejoin"'):
        chain["n2"].worker.work()
    said = r'branch "n2" does not have it.*run "rejoin" on "n2" first, this node goes on by itself'
    with pytest.raises(LostPosition, match=said):
        chain["n3"].worker.work()
    rest(chain)
    assert back(chain, "n2").way is Way.MOVE
    done = back(chain, "n2", apply=True)
    assert (done.way, done.tick) == (Way.MOVE, at)
    chain.root.execute("delete from t where id = 1")
    chain.catch_up()
    assert len(chain.require_same("t")) == 22
    assert chain.require_queues(at) > 0
    for node in chain.followers:
        assert node.db.value("select cur_error from pgq_node.local_state limit 1") is None


@pytest.mark.draw("branches")
@pytest.mark.parametrize("point", ["rejoin.planned", "rejoin.moved"])
def test_a_rejoin_of_a_branch_that_dies_is_finished_by_the_next(
    make_chain: MakeChain, point: str
) -> None:
    chain = restored(make_chain)
    at = chain["n2"].position

    def die(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    failpoint.set_hook(die)
    try:
        with pytest.raises(KeyboardInterrupt):
            back(chain, "n2", apply=True)
    finally:
        failpoint.set_hook(None)
    back(chain, "n2", apply=True)
    chain.catch_up()
    chain.require_same("t")
    assert chain.require_queues(at) > 0


def test_a_branch_whose_tick_is_gone_gets_no_hole(make_chain: MakeChain) -> None:
    chain = restored(make_chain)
    at = chain["n2"].position
    call(chain.root, "pgq_node.set_subscriber_watermark", QUEUE, "n2", chain.tick())
    chain.root.execute("delete from pgq.tick where tick_id <= %s", [at])
    for options in ({}, {"apply": True}, {"apply": True, "force": True}):
        said = r'"n2" is a branch, and its queue would have a hole: .*drop-node n2 --reparent'
        with pytest.raises(StateError, match=said):
            back(chain, "n2", **options)
    assert chain["n2"].position == at


def test_a_branch_restored_from_a_dump_into_another_server(make_chain: MakeChain) -> None:
    """Its transaction numbers are below those of its queue: events would count as read."""
    chain = filled(make_chain)
    at = chain["n2"].position
    chain["n2"].db.execute("update pgq.tick set tick_snapshot = '9000000000:9000000000:'")
    chain["n2"].worker._close_connections()
    chain.root.execute("insert into t values (500, 'later')")
    chain.tick()
    said = r'transaction numbers of this server are at \d+.*"pg_resetwal --epoch=3"'
    with pytest.raises(StateError, match=said):
        chain["n2"].renew()
        chain["n2"].worker.work()
    assert chain["n2"].position == at
