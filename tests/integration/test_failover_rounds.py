"""The server of the root is killed under load again and again; each time another node takes over,
and the old root is brought back: what only it had is what `resurrect` reports, to the event."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fixtures.pg import VERSIONS, Servers
from tests.fixtures.wait import until
from tests.integration.test_takeover_load import MakeBank, bank_on, safe_server
from tests.labs.chain import Chain, Node
from tests.labs.moving_root import (
    MONEY,
    PATIENCE,
    Bank,
    Life,
    alive,
    move,
    provider,
    reign,
    require_equal,
    require_history,
    roots,
    rows,
    settle,
)
from vedur.clock import SYSTEM
from vedur.db import connect
from vedur.demo.server import Server
from vedur.ops.rejoin.run import RejoinOptions, rejoin
from vedur.ops.resurrect.run import ResurrectOptions, resurrect

__all__ = ["bank_on"]

pytestmark = [
    pytest.mark.usefixtures("without_spark"),
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]

#: Kills in one test; all of them together are a hundred.
ROUNDS = 10
SEEDS = range(10)


def counts(found: list[Any]) -> dict[int, int]:
    return {row.id: row.n for row in found}


class Rounds:
    """A root and a branch on servers that are killed, a leaf on one that is not."""

    def __init__(self, chain: Chain, life: Life, killed: dict[str, Server], spark: Any) -> None:
        self.chain, self.life, self.killed, self.spark = chain, life, killed, spark
        self.lost = self.rejoined = 0

    def play(self, old: str, new: str, rng: random.Random) -> None:
        """Kill the root at a random moment, replace it, bring it back."""
        chain = self.chain
        chain[old].db.execute("delete from done")
        settle(chain)
        bank = Bank(chain, old)
        goal = rng.randrange(3, 60)
        try:
            assert until(lambda: sum(bank.done.values()) >= goal, PATIENCE), bank.unexpected
            SYSTEM.sleep(rng.uniform(0, 0.05))  # not always right after a commit
        finally:
            self.killed[old].kill()
            bank.end()
        node = chain[old]
        self.life.stop(old)
        chain.nodes.remove(node)
        assert until(lambda: not self.killed[old].running)
        self._replace(old, new)
        survived = counts(rows(chain, new, "done"))
        assert all(survived.get(k, 0) <= bank.done[k] + 1 for k in bank.done)
        kept = self._return(node)
        assert all(kept[k] >= bank.done[k] for k in bank.done), (kept, bank.done)
        self._resurrect(node, new, survived, kept)

    def _replace(self, old: str, new: str) -> None:
        chain, said = self.chain, len(self.life.errors)
        move(chain, old, new, dead_root=True, timeout=PATIENCE)
        assert roots(chain) == [new]
        assert provider(chain, "n3") == new

        def told() -> bool:
            said_since = self.life.errors[said:]
            return any(name == "n3" and '"rejoin' in text for name, text in said_since)

        reads = lambda: reign(chain, "n3").epoch == reign(chain, new).epoch  # noqa: E731
        assert until(lambda: told() or reads(), PATIENCE)
        if not reads():  # the leaf was quicker than the new root
            with chain["n3"].session() as session:
                rejoin(session, RejoinOptions(apply=True), self.spark)
            self.rejoined += 1
        settle(chain)
        require_equal(chain, new, "n3")

    def _return(self, node: Node) -> dict[int, int]:
        """Start the server again; returns what the writers had counted there."""
        self.killed[node.name].start()
        node.db = connect(node.settings.db, autocommit=True)
        node.renew()
        kept = counts(node.db.query("select * from done"))
        assert sum(row.n for row in node.db.query("select n from acct")) == MONEY
        return kept

    def _resurrect(
        self, node: Node, new: str, survived: dict[int, int], kept: dict[int, int]
    ) -> None:
        chain = self.chain
        self.life.start(node)
        with node.session() as session:
            done = resurrect(session, ResurrectOptions(max_wait=PATIENCE), self.spark)
        chain.nodes.append(node)
        transfers = sum(kept[k] - survived.get(k, 0) for k in kept)
        inserted = sum(k not in survived for k in kept)
        found = {name: n for name, n in done.lost.items() if name.startswith("public.")}
        wanted = {"public.acct": 2 * transfers, "public.done": transfers + inserted}
        assert found == {name: n for name, n in wanted.items() if n}
        self.lost += transfers
        assert roots(chain) == [new]
        assert provider(chain, node.name) == new
        settle(chain)
        require_equal(chain)
        require_history(chain)
        assert len({tuple(counts(rows(chain, n, "done")).items()) for n in ("n1", "n2", "n3")}) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_root_is_killed_and_brought_back_in_turns(
    servers: Servers, bank_on: MakeBank, spark: Any, seed: int
) -> None:
    killed = {"n1": safe_server(servers), "n2": safe_server(servers)}
    chain = bank_on("r", killed["n1"], killed["n2"], servers.private(min(VERSIONS)))
    with alive(chain) as life:
        rounds, rng = Rounds(chain, life, killed, spark), random.Random(seed)
        for at in range(ROUNDS):
            rounds.play(*(("n1", "n2") if at % 2 == 0 else ("n2", "n1")), rng)
    print(f"{ROUNDS} kills: {rounds.lost} transfers lost, {rounds.rejoined} times a leaf ahead")
