"""The root moves, and its server is killed, under a load of every isolation level and of two-phase
commits, on servers of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.pg import VERSIONS, Servers
from tests.fixtures.wait import until
from tests.labs.chain import Chain
from tests.labs.moving_root import (
    ACCOUNTS,
    MONEY,
    PATIENCE,
    TABLE,
    Bank,
    alive,
    move,
    require_equal,
    roots,
    rows,
    settle,
)
from tests.labs.pair import QUEUE
from vedur.db import Database, connect
from vedur.demo.server import Server
from vedur.errors import OtherEpoch, StateError
from vedur.failpoint import set_hook

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(3600)]

MakeBank = Callable[..., Chain]


@pytest.fixture
def bank_on() -> Iterator[MakeBank]:
    """bank_on(name, server for each node...): a chain with the tables of a bank."""
    made: list[Chain] = []

    def make(name: str, *servers: Server) -> Chain:
        dbs: list[Database] = []
        for at, server in enumerate(servers):
            with connect(server.connstr(), autocommit=True) as admin:
                admin.execute(f"create database {name}{at}")
            dbs.append(connect(server.connstr(f"{name}{at}"), autocommit=True))
        chain = Chain(dbs, lambda: dbs[0])
        made.append(chain)
        chain.table("public.acct", TABLE)
        chain.table("public.done", Bank.DDL)
        fill = "insert into acct select i, 100 from generate_series(0, %s) i"
        chain.root.execute(fill, [ACCOUNTS - 1])
        chain.catch_up()
        return chain

    yield make
    for chain in made:
        chain.close()


def safe_server(servers: Servers) -> Server:
    """Make a server that keeps, when it is killed, what it has said is committed; those of other
    tests need not."""
    return servers.private(max(VERSIONS), synchronous_commit="on")


def goes_on(bank: Bank) -> bool:
    """Wait until every writer has committed again."""
    before = dict(bank.done)
    return until(lambda: all(bank.done[k] > before[k] for k in before), PATIENCE)


def back_and_forth(chain: Chain, times: int) -> None:
    with alive(chain) as life:
        bank = Bank(chain, "n1", two_phase=True)
        try:
            for old, new in [("n1", "n2"), ("n2", "n1")] * (times // 2):
                assert goes_on(bank), bank.unexpected
                move(chain, old, new)
                assert roots(chain) == [new]
            assert goes_on(bank), bank.unexpected
        finally:
            bank.end()
        assert bank.unexpected == []
        settle(chain)
        require_equal(chain)
        for name in ("n1", "n2", "n3"):
            bank.require_kept(name)
    assert life.errors == []


@pytest.mark.draw("takeovers")
def test_back_and_forth_with_two_phase_commits(servers: Servers, bank_on: MakeBank) -> None:
    server = servers.private(max(VERSIONS), max_prepared_transactions="20")
    back_and_forth(bank_on("b", server, server, server), 2)


@pytest.mark.long
def test_ten_times_in_a_row(servers: Servers, bank_on: MakeBank) -> None:
    server = servers.private(max(VERSIONS), max_prepared_transactions="20")
    back_and_forth(bank_on("b", server, server, server), 10)


@pytest.mark.draw("takeovers")
def test_a_prepared_transaction_is_waited_for_and_named(
    servers: Servers, bank_on: MakeBank
) -> None:
    server = servers.private(max(VERSIONS), max_prepared_transactions="5")
    chain = bank_on("b", server, server, server)
    with alive(chain), psycopg.connect(chain["n1"].settings.db, autocommit=True) as db:
        db.execute("begin; update acct set n = n + (-1) ^ id; prepare transaction 'late'")
        with pytest.raises(StateError, match='prepared transaction "late" of role "postgres"'):
            move(chain, "n1", "n2", timeout=1.0)
        assert roots(chain) == ["n1"]
        closed = threading.Event()
        set_hook(lambda name: closed.set() if name == "takeover.closed" else None)
        try:
            thread = threading.Thread(target=move, args=(chain, "n1", "n2"))
            thread.start()
            assert closed.wait(PATIENCE)
            db.execute("commit prepared 'late'")
            thread.join(PATIENCE)
        finally:
            set_hook(None)
        assert roots(chain) == ["n2"]
        settle(chain)
        require_equal(chain)
        assert chain["n2"].db.value("select count(*) from acct where n <> 100") == ACCOUNTS


def fail_over_once(at: int, chain: Chain, killed: Server) -> None:
    """The server of the root is killed under load; the others go on, and it is not believed."""
    n1 = chain.nodes[0]
    with alive(chain) as life:
        bank = Bank(chain, "n1")
        try:
            assert goes_on(bank), bank.unexpected
        finally:
            life.stop("n1")
            killed.kill()
            bank.end()
        chain.nodes = chain.nodes[1:]
        assert until(lambda: not killed.running)
        move(chain, "n1", "n2", dead_root=True)
        settle(chain)
        require_equal(chain, "n2", "n3")
        survived = {row.id: row.n for row in rows(chain, "n2", "done")}
        assert all(survived.get(k, 0) <= bank.done[k] + 1 for k in bank.done)
        killed.start()
        n1.db = connect(n1.settings.db, autocommit=True)
        n1.renew()
        with pytest.raises(OtherEpoch, match="was deposed"):
            n1.worker.work()
        kept = {row.id: row.n for row in n1.db.query("select * from done")}
        assert all(kept[k] >= bank.done[k] for k in bank.done), (at, kept, bank.done)
        require_lost_is_the_difference(chain, n1.db, survived, kept)
    n1.close()
    chain.close()
    for node in (n1, *chain.nodes):
        drop_database(node.db)


def drop_database(db: Database) -> None:
    """Remove a database: the connections of a hundred would be too many for a server."""
    name = db.value("select current_database()")
    db.close()
    with connect(f"{db.connstr} dbname=postgres", autocommit=True) as admin:
        admin.execute(f"drop database {name} with (force)")


def require_lost_is_the_difference(
    chain: Chain, old: Database, survived: dict[int, int], kept: dict[int, int]
) -> None:
    """What the old root has behind the tick of the takeover is what the others lack."""
    tick = chain["n2"].db.value("select first_tick from vedur.reign order by serial desc limit 1")
    snapshot = old.value("select tick_snapshot::text from pgq.tick where tick_id = %s", [tick])
    events = old.value("select queue_data_pfx from pgq.queue where queue_name = %s", [QUEUE])
    count: Any = old.value(
        f"select count(*) from {events} where ev_extra1 = 'public.done' and"
        " not txid_visible_in_snapshot(ev_txid, %s::txid_snapshot)",
        [snapshot],
    )
    # a row that the others do not have at all was inserted with 0
    assert count == sum(kept[k] - survived.get(k, -1) for k in kept)
    assert sum(row.n for row in old.query("select n from acct")) == MONEY


@pytest.mark.draw("takeovers")
def test_the_server_of_the_root_is_killed(servers: Servers, bank_on: MakeBank) -> None:
    killed, other = safe_server(servers), servers.private(min(VERSIONS))
    for at in range(2):
        fail_over_once(at, bank_on(f"f{at}_", killed, other, other), killed)


@pytest.mark.long
def test_the_server_of_the_root_is_killed_a_hundred_times(
    servers: Servers, bank_on: MakeBank
) -> None:
    killed, other = safe_server(servers), servers.private(min(VERSIONS))
    for at in range(100):
        fail_over_once(at, bank_on(f"f{at}_", killed, other, other), killed)
