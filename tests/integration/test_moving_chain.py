"""Nodes of a running cascade move, get other names and go, while changes go on: nothing is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from tests.labs.chain import Chain
from tests.labs.pair import QUEUE
from vedur.clock import SYSTEM
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info
from vedur.ops import create_node as ops_create
from vedur.ops.change_provider import change_provider
from vedur.ops.drop_node import drop_node
from vedur.ops.rename_node import rename_node
from vedur.ops.show import status
from vedur.worker.loop import Worker

MakeChain = Callable[..., Chain]

TABLE = "create table t (id int primary key, v text)"

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]


@contextmanager
def running(chain: Chain) -> Iterator[None]:
    """The root is written to and ticks, and every follower has a worker that works by itself."""
    over, failed = threading.Event(), []
    number = count(int(chain.root.value("select coalesce(max(id), 0) + 1 from t")))

    def write() -> None:
        while not SYSTEM.wait(over, 0.02):
            at = next(number)
            chain.root.execute("insert into t values (%s, 'a')", [at])
            chain.root.execute("update t set v = 'b' || id where id = %s", [at // 2])
            if at % 3 == 0:
                chain.tick()

    def work(worker: Worker) -> None:
        while not SYSTEM.wait(over, 0.02):
            try:
                worker.work()
            except Exception as error:
                failed.append(error)
                raise

    threads = [threading.Thread(target=write, daemon=True)]
    threads += [
        threading.Thread(target=work, args=(n.worker,), daemon=True) for n in chain.followers
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert failed == []


def provider(chain: Chain, name: str) -> str | None:
    info = get_node_info(chain[name].db, QUEUE)
    assert info is not None
    return info.provider_node


@pytest.mark.draw("branches")
def test_a_leaf_moves_up_and_down_a_running_chain(make_chain: MakeChain) -> None:
    chain = make_chain(4)  # n1 root, n2 and n3 branches, n4 leaf
    chain.table("public.t", TABLE)
    with running(chain), chain["n4"].session() as session:
        for target in ("n1", "n2", "n3", "n1", "n3"):
            change_provider(session, target)
            assert provider(chain, "n4") == target
        found = status(session)
        assert [node.disagreements for node in found.nodes] == [()] * 4
    chain.catch_up()
    assert chain.require_same("t")
    assert chain.require_queues()


@pytest.mark.draw("branches")
def test_a_branch_moves_with_the_leaf_below_it_and_is_dropped(make_chain: MakeChain) -> None:
    chain = make_chain(4)
    chain.table("public.t", TABLE)
    with running(chain), chain["n1"].session() as session:
        change_provider(session, "n1", node="n3")
        assert (provider(chain, "n3"), provider(chain, "n4")) == ("n1", "n3")
        rename_node(session, "n3", "lower")
        assert provider(chain, "n4") == "lower"
        change_provider(session, "n2", node="n4")
    gone = chain.nodes.pop(1)
    gone.close()
    with running(chain), chain["n1"].session() as session:
        drop_node(session, "n2", reparent=True)
        assert provider(chain, "n4") == "n1"
        change_provider(session, "lower", node="n4")
        found = {node.name: node for node in status(session).nodes}
        assert set(found) == {"n1", "lower", "n4"}
        assert [node.disagreements for node in found.values()] == [()] * 3
    chain.catch_up()
    assert chain.require_same("t")
    assert chain.require_queues()
    assert chain.nodes[1].kind is NodeType.BRANCH


def test_a_new_node_of_an_old_name_waits_until_its_branch_has_forgotten_that(
    make_chain: MakeChain, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The branch would take the new node for the old one, and end its subscription."""
    caplog.set_level(logging.INFO, "vedur")
    chain = make_chain(3)  # n1 root, n2 branch, n3 leaf
    chain.catch_up()
    with chain["n1"].session() as session:
        drop_node(session, "n3")
    chain.nodes.pop().close()
    monkeypatch.setattr(ops_create, "FORGET_WAIT", 0.0)
    said = r'provider "n2", at tick \d+, has not read yet that an earlier node "n3" left the set'
    with pytest.raises(StateError, match=said):
        chain.add("n3", NodeType.LEAF, chain.make_db(), provider="n2")
    subscribers = "select node_name from pgq_node.get_subscriber_info(%s)"
    assert chain["n2"].db.query(subscribers, [QUEUE]) == []

    class Works(logging.Handler):
        """The branch comes up as soon as somebody waits for it."""

        def emit(self, record: logging.LogRecord) -> None:
            if "Waiting until 'n2' has read that 'n3' left" in record.getMessage():
                chain.catch_up("n2")

    monkeypatch.setattr(ops_create, "FORGET_WAIT", 60.0)
    handler = Works()
    logging.getLogger("vedur").addHandler(handler)
    try:
        chain.add("n3", NodeType.LEAF, chain.make_db(), provider="n2")
    finally:
        logging.getLogger("vedur").removeHandler(handler)
    chain.catch_up()
    assert [row.node_name for row in chain["n2"].db.query(subscribers, [QUEUE])] == ["n3"]
