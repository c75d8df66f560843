"""A tree of four nodes as status, doctor's problems and the overview see it."""

from __future__ import annotations

import pytest

from tests.labs.tree import QUEUE, Tree, tree
from vedur import __version__
from vedur.ops.doctor.result import Verdict
from vedur.ops.doctor.run import check_versions
from vedur.ops.show import status
from vedur.status.overview import open_reader
from vedur.status.problems import Kind, problems
from vedur.status.tree import OWN, tree_lines

__all__ = ["tree"]


@pytest.fixture
def chain(tree: Tree) -> Tree:
    """src, mid, low and dst, each below the one before."""
    tree.add("mid", "branch")
    tree.add("low", "branch", "mid")
    tree.add("dst", "leaf", "low")
    tree.everybody_reaches(tree.tick())
    return tree


def test_status_shows_each_hop(chain: Tree) -> None:
    last = chain.tick()
    chain.reach("mid", last)
    chain.dbs["src"].execute(
        "update pgq.tick set tick_time = tick_time - interval '100 s' where tick_id < %s", [last]
    )
    found = status(chain.sessions["dst"])
    lags = {node.name: node.hop_lag for node in found.nodes}
    assert lags["mid"] == pytest.approx(0.0, abs=1.0)
    assert lags["low"] == pytest.approx(100.0, abs=5.0)
    assert lags["dst"] == pytest.approx(0.0, abs=1.0)
    assert [node.disagreements for node in found.nodes] == [(), (), (), ()]
    text = "\n".join(tree_lines(found))
    assert "behind mid), Tick" in text and "(0s behind low), Tick" in text
    assert "behind src)" not in text


def test_the_overview_names_who_holds_back_rotation_and_who_disagrees(chain: Tree) -> None:
    reader = open_reader(chain.sessions["src"].settings, "test")
    try:
        look = reader.read()
        assert {node.name: node.status.disagreements for node in look.nodes} == dict.fromkeys(
            chain.dbs, ()
        )
        # dst falls behind, its watermark and those above it stay with it
        slow = chain.position("dst")
        for _ in range(2):
            tick = chain.tick()
            chain.reach("mid", tick)
            chain.reach("low", tick)
        for name, below in (("src", "mid"), ("mid", "low")):
            chain.dbs[name].execute(
                "select pgq.register_consumer_at(%s, %s, %s)",
                [QUEUE, f".{below}.watermark", slow],
            )
        chain.dbs["low"].execute(
            "select pgq.register_consumer_at(%s, '.dst.watermark', %s)", [QUEUE, tick]
        )
        held = {node.name: node.held_by for node in reader.read().nodes}["src"]
        assert held is not None
        assert (held.consumer, held.node, held.path) == ("dst", "low", ("src", "mid", "low"))
        # a crash between two databases, and a provider set by hand
        chain.dbs["src"].execute(
            "select pgq_node.register_subscriber(%s, 'dst', 'dst', null)", [QUEUE]
        )
        chain.dbs["mid"].execute("select pgq_node.unregister_subscriber(%s, 'low')", [QUEUE])
        found = [p for p in problems(reader.read()) if p.kind is Kind.TREE]
        assert [(p.node, p.severity.value) for p in found] == [("low", "fail"), ("src", "warn")]
        assert "which keeps no subscription for it" in found[0].what
        assert 'keeps a subscription for "dst", which reads from "low"' in found[1].what
        # two names, one database
        chain.dbs["src"].execute(
            "update pgq_node.node_location set node_location = %s where node_name = 'dst'",
            [chain.dbs["mid"].connstr],
        )
        nodes = {node.name: node for node in reader.read().nodes}
        assert nodes["dst"].status.failure == 'the database at its location has node "mid"'
    finally:
        reader.close()


def test_each_node_says_what_it_is(chain: Tree) -> None:
    chain.dbs["dst"].execute("update vedur.component set version = '0.0.9' where schema = 'vedur'")
    found = status(chain.sessions["src"])
    assert {node.name: node.software for node in found.nodes} == {
        "src": OWN, "mid": "Londiste", "low": "Londiste", "dst": "Vedur 0.0.9",
    }  # fmt: skip
    assert found.as_dict()["nodes"][0].keys() >= {"software"}
    text = "\n".join(tree_lines(found))
    assert (text.count("Version: "), text.count("Version: Londiste")) == (3, 2)
    reader = open_reader(chain.sessions["src"].settings, "test")
    try:
        (other,) = check_versions(reader.read())
        assert other.verdict is Verdict.WARN
        assert other.found == f"dst has the SQL of Vedur 0.0.9, this program is {OWN}"
        chain.dbs["dst"].execute("update vedur.component set version = %s", [__version__])
        (fine,) = check_versions(reader.read())
        assert fine.found == f"{OWN} on all nodes but low: Londiste, mid: Londiste"
    finally:
        reader.close()
