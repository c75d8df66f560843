"""compare and repair with another node than the provider."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.test_copy_node import Fork, copy_rows
from tests.labs.chain import Chain
from tests.labs.pair import QUEUE, call
from vedur.clock import SYSTEM
from vedur.errors import StateError
from vedur.node.info import NodeType
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.repair import RepairOptions, repair

log = logging.getLogger(__name__)


@pytest.fixture
def fork(make_chain: Any, make_db_on: Any, newest: Any, spark: Any) -> Fork:
    """As for copies; the leaf has the table and its rows."""
    made = Fork(make_chain(2, spark=spark, leaf=False), lambda: make_db_on(newest))
    low = made.chain["low"].db
    call(low, "londiste.local_add_table", QUEUE, "public.t", ["expect_sync"])
    copy_rows(made.chain.root, low)
    return made


@contextmanager
def working(chain: Chain, fork: Fork, slow: str = "") -> Iterator[None]:
    """Let all workers run beside the test, and changes come; `slow` does a round now and then."""
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        count = 0
        try:
            while not SYSTEM.wait(over, 0.05):
                count += 1
                fork.change(2)
                chain.tick()
                for node in chain.followers:
                    if node.name != slow or count % 6 == 0:
                        node.worker.work()
        except BaseException as error:
            log.exception("the workers stopped")
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    assert failed == []


@pytest.mark.draw("compare")
@pytest.mark.parametrize(("node", "slow"), [(None, ""), ("n1", ""), ("n2", ""), ("n2", "n2")])
def test_compare_and_repair(fork: Fork, spark: Any, node: str | None, slow: str) -> None:
    chain, low = fork.chain, fork.chain["low"]
    with working(chain, fork, slow), low.session() as session:
        result = compare(session, CompareOptions(node=node), spark)
        assert (result.exit_code, [t.node for t in result.tables]) == (0, [node or "n1"])
        low.db.execute("set session_replication_role = replica")
        low.db.execute("update t set v = 'wrong' where id = 1")
        low.db.execute("delete from t where id = 2")
        assert compare(session, CompareOptions(node=node), spark).exit_code == 1
        done = repair(session, RepairOptions(node=node, apply=True), spark)
        assert [(r.inserts, r.updates, r.deletes) for r in done] == [(1, 1, 0)]
        assert compare(session, CompareOptions(node=node), spark).exit_code == 0


@pytest.mark.draw("compare")
def test_a_part_is_not_compared_with(fork: Fork, spark: Any) -> None:
    chain = fork.chain
    args = ["expect_sync"]
    attrs = "copy_condition=id+%3C+10"
    call(chain["mid"].db, "londiste.local_add_table", QUEUE, "public.t", args, attrs, "public.t")
    with working(chain, fork), chain["low"].session() as session:
        result = compare(session, CompareOptions(), spark)
        assert (result.exit_code, [t.node for t in result.tables]) == (0, ["n1"])
        named = compare(session, CompareOptions(node="mid"), spark)
        assert named.exit_code == 100
        assert "in part only (rows where id < 10)" in named.tables[0].reason
        assert repair(session, RepairOptions(node="mid", apply=True), spark) == []


@pytest.mark.draw("compare")
def test_what_cannot_be_compared_with(fork: Fork, spark: Any, make_db_on: Any, newest: Any) -> None:
    chain = fork.chain
    chain.add("leaf", NodeType.LEAF, make_db_on(newest), provider="n2")
    chain.catch_up()
    with chain["low"].session() as session:
        with pytest.raises(StateError, match="Unknown node: nobody"):
            compare(session, CompareOptions(node="nobody"), spark)
        assert (
            "it is a leaf" in compare(session, CompareOptions(node="leaf"), spark).tables[0].reason
        )
