"""Londiste takes over from a root of ours, and ours takes over from a root of Londiste."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.mixed import PATIENCE, Load, Mixed
from tests.labs.pair import QUEUE
from vedur.node.epoch import last_reign, read_reigns
from vedur.node.info import get_node_info
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import takeover
from vedur.ops.takeover.verify import Verdict

pytestmark = [pytest.mark.timeout(600)]

MakeMixed = Callable[..., Mixed]


def kind(chain: Mixed, name: str) -> str:
    info = get_node_info(chain[name].db, QUEUE)
    assert info is not None
    return str(info.node_type)


def write_and_compare(chain: Mixed, root: str, number: int) -> None:
    """A change on the root arrives on all other nodes."""
    db = chain[root].db
    db.execute("insert into acct values (%s, 0)", [number])
    text = "select * from acct order by id"
    for node in chain.nodes:
        same: Any = lambda node=node: node.db.query(text) == db.query(text)  # noqa: E731
        assert until(same, PATIENCE), node.name


@pytest.mark.draw("upstream")
def test_upstream_takes_over_from_ours_and_back(
    make_mixed: MakeMixed, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_mixed("ouo")
    chain.create_tables(Load.DDL[0])
    for name in ("n1", "n2", "n3"):
        if name != "n1":
            chain.settle()
        chain.add_tables(name, Load.TABLES[0])
        chain.wait_copied(name)
    write_and_compare(chain, "n1", 1)
    upstream: Any = chain["n2"]
    upstream.run("takeover", "n1")
    assert (kind(chain, "n1"), kind(chain, "n2")) == ("branch", "root")
    write_and_compare(chain, "n2", 2)
    with chain["n1"].session() as session:
        done = takeover(session, "n2", TakeoverOptions(timeout=60.0, max_lag=30.0))
    assert done is Verdict.NOT_PROVEN
    assert "'n2' is not compared: its database has none of what" in caplog.text
    assert (kind(chain, "n1"), kind(chain, "n2")) == ("root", "branch")
    write_and_compare(chain, "n1", 3)
    for name in ("n1", "n3"):
        found = last_reign(read_reigns(chain[name].db, QUEUE))
        assert found is not None and (found.root, found.kind) == ("n1", "takeover"), name
