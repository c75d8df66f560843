"""At every step of a takeover the server of any node dies, or the network between any two nodes is
cut, or lets nothing through while connections stay open, under load; the same command, run again,
ends it. The properties of the model are looked at on the databases: at most one root takes writes,
positions are ticks of one history, and nothing that was committed is lost or doubled.

tests/torture/test_short.py counts on this: these steps have their faults here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.pg import Servers
from tests.fixtures.proxy import Proxy
from tests.fixtures.wait import until
from tests.integration.test_takeover_load import MakeBank, bank_on, safe_server
from tests.labs.chain import Chain
from tests.labs.moving_root import (
    PATIENCE,
    Bank,
    Life,
    alive,
    move,
    provider,
    require_equal,
    require_history,
    roots,
    settle,
)
from tests.labs.pair import QUEUE
from vedur.db import connect, silence
from vedur.db.conninfo import parse, with_params
from vedur.demo.server import Server
from vedur.errors import VedurError
from vedur.failpoint import set_hook
from vedur.ops.resurrect.run import ResurrectOptions, resurrect

__all__ = ["bank_on"]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(3600)]

NODES = ("n1", "n2", "n3")
#: Steps of a takeover of a root that works.
STEPS = (
    "checked", "caught_up", "closed", "drained", "ticked", "followed", "promoted", "turned",
    "finished",
)  # fmt: skip
#: Steps of a failover, and of the way back, which are reached with three nodes.
FAILOVER = ("tagged", "caught_up_from", "failed_over", "orphan_led")
RESURRECT = ("closed", "drained", "kept", "turned", "subscribed", "finished")

#: Locations are rewritten on each node, so that every pair of nodes has a wire of its own.
WIRE = """
create table public.wire (node text primary key, location text);
create function public.rewire() returns trigger language plpgsql as $$
begin
    new.node_location := coalesce(
        (select w.location from public.wire w where w.node = new.node_name), new.node_location);
    return new;
end $$;
create trigger rewire before insert or update on pgq_node.node_location
    for each row execute function public.rewire();
alter table pgq_node.node_location enable always trigger rewire
"""


class Net:
    """Three nodes, each on its server, and a wire from each to each."""

    def __init__(self, chain: Chain, servers: dict[str, Server], patch: pytest.MonkeyPatch) -> None:
        self.chain, self.servers, self._patch = chain, servers, patch
        self.wires: dict[tuple[str, str], Proxy] = {}
        self.nodes = {node.name: node for node in chain.nodes}
        for node in chain.nodes:
            node.db.execute(WIRE)
            for other in chain.nodes:
                location = other.settings.db
                if other is not node:
                    wire = Proxy(int(parse(location)["port"]))
                    self.wires[node.name, other.name] = wire
                    wired = {"host": wire.host, "port": str(wire.port), "connect_timeout": "5"}
                    location = with_params(location, **wired)
                node.db.execute("insert into wire values (%s, %s)", [other.name, location])
            node.db.execute("update pgq_node.node_location set node_location = node_location")

    def kill(self, name: str) -> None:
        """Kill the server of a node, unless it is gone already."""
        if name in self.servers:
            self.servers[name].kill()

    def cut(self, one: str, two: str) -> None:
        """Cut the wires between two nodes."""
        for pair in ((one, two), (two, one)):
            self.wires[pair].cut()

    def stall(self, one: str, two: str) -> None:
        """Let what passes between two nodes get stuck; it arrives when this is mended."""
        self.hurry(1.0, 5)
        for pair in ((one, two), (two, one)):
            self.wires[pair].stall()

    def stop(self, name: str) -> None:
        """Stop the processes of a server: it takes connections, and answers nobody."""
        self.hurry(1.0, 5)
        _signal_all(self.servers[name], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let them go on."""
        _signal_all(self.servers[name], signal.SIGCONT)

    def hurry(self, quiet: float, login: int) -> None:
        """Set how long a server is waited for that does not answer."""
        self._patch.setattr(silence, "QUIET", quiet)
        self._patch.setattr(silence, "LOGIN", login)

    def mend(self) -> None:
        """Start what was killed, and restore what was cut or stalled."""
        self.hurry(30.0, 30)
        for wire in self.wires.values():
            wire.restore()
        for name, server in self.servers.items():
            # what a killed server has left ends a moment later
            assert server.running or until(lambda server=server: _starts(server), PATIENCE)
            if self.nodes[name].db.closed or not self._answers(name):
                self.nodes[name].db = connect(self.nodes[name].settings.db, autocommit=True)

    def _answers(self, name: str) -> bool:
        try:
            return bool(self.nodes[name].db.value("select true"))
        except VedurError:
            return False

    def open_roots(self) -> list[str]:
        """The nodes that take writes, among those whose servers run."""
        found = []
        for name, node in self.nodes.items():
            try:
                with psycopg.connect(node.settings.db, connect_timeout=10) as db:
                    row = db.execute("select vedur.is_root(%s)", [QUEUE]).fetchone()
            except psycopg.Error:
                continue
            if row is not None and row[0]:
                found.append(name)
        return found

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()


def _starts(server: Server) -> bool:
    try:
        server.start()
    except VedurError:
        return False
    return True


def _signal_all(server: Server, number: signal.Signals) -> None:
    """Send a signal to the postmaster, which makes no more processes then, and to its children."""
    pid = server.postmaster_pid
    assert pid is not None
    os.kill(pid, number)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), number)


Fault = Callable[[Net], None]


def killed(name: str) -> Fault:
    return lambda net: net.kill(name)


def cut(one: str, two: str) -> Fault:
    return lambda net: net.cut(one, two)


def stalled(one: str, two: str) -> Fault:
    return lambda net: net.stall(one, two)


FAULTS: dict[str, Fault] = {
    **{f"{name} killed": killed(name) for name in NODES},
    **{f"{one} and {two} cut": cut(one, two) for one, two in combinations(NODES, 2)},
    **{f"{one} and {two} stalled": stalled(one, two) for one, two in combinations(NODES, 2)},
}


@pytest.fixture
def net(servers: Servers, bank_on: MakeBank, monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    own = {name: safe_server(servers) for name in NODES}
    made = Net(bank_on("x", *own.values()), own, monkeypatch)
    yield made
    set_hook(None)
    made.mend()
    made.close()


def with_fault(net: Net, point: str, fault: Fault, run: Callable[[], object]) -> None:
    """Run a command, break something when it comes to a step, mend it, and run the command again
    until it says that it is done."""
    reached: list[str] = []

    def hook(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            fault(net)

    def again() -> bool:
        try:
            run()
        except VedurError as error:
            errors.append(error.message)
            return False
        return True

    errors: list[str] = []
    set_hook(hook)
    try:
        assert until(lambda: again() or bool(reached), PATIENCE), errors
        assert reached == [point], errors
        assert len(net.open_roots()) <= 1
        again()  # nobody has mended anything yet, and the operator tries once more
        assert len(net.open_roots()) <= 1
    finally:
        set_hook(None)
        net.mend()
    assert until(again, PATIENCE), errors


def takeovers(net: Net, cases: list[tuple[str, str]]) -> None:
    """Move the root there and back, with a fault each time."""
    chain = net.chain
    with alive(chain):
        bank = Bank(chain, "n1")
        old, new = "n1", "n2"
        try:
            for step, fault in cases:
                before = dict(bank.done)
                assert until(lambda b=before: all(bank.done[k] > b[k] for k in b), PATIENCE)
                with_fault(
                    net, f"takeover.{step}", FAULTS[fault],
                    lambda old=old, new=new: move(chain, old, new, max_lag=30.0, timeout=10.0),
                )  # fmt: skip
                assert roots(chain) == [new], (step, fault)
                assert provider(chain, old) == new
                settle(chain)
                require_history(chain)
                old, new = new, old
        finally:
            bank.end()
        settle(chain)
        require_equal(chain)
        for name in NODES:
            bank.require_kept(name)


@pytest.mark.draw("takeovers")
def test_some_faults_of_a_takeover(net: Net) -> None:
    takeovers(
        net,
        [("ticked", "n2 killed"), ("followed", "n1 and n2 cut"), ("closed", "n1 and n2 stalled")],
    )


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_every_step_of_a_takeover(net: Net, fault: str) -> None:
    takeovers(net, [(step, fault) for step in STEPS])


# -- failover and the way back ---------------------------------------------------------------------


def failovers(net: Net, cases: list[tuple[str, str, str]]) -> None:
    """The server of the root dies with nothing left to pass on; it is replaced, and brought back,
    with a fault in each: (step of failover, step of resurrect, fault)."""
    chain = net.chain
    with alive(chain) as life:
        old, new = "n1", "n2"
        for step, later, fault in cases:
            failover_once(net, life, old, new, (step, later, fault))
            old, new = new, old


def failover_once(net: Net, life: Life, old: str, new: str, case: tuple[str, str, str]) -> None:
    chain, (step, later, fault) = net.chain, case
    node = net.nodes[old]
    chain[old].db.execute("update acct set n = n + (-1) ^ id")
    settle(chain)
    life.stop(old)  # from now on there are no ticks that one node could have and another not
    top = node.db.value("select last_tick_id from pgq.get_queue_info(%s)", [QUEUE])
    others = [other for other in chain.nodes if other is not node]
    assert until(lambda: all(other.position >= top for other in others), PATIENCE)
    wanted = net.servers.pop(old)  # it stays away whatever is mended
    wanted.kill()
    chain.nodes.remove(node)
    try:
        with_fault(
            net, f"takeover.{step}", FAULTS[fault],
            lambda: move(chain, old, new, dead_root=True, timeout=PATIENCE, max_lag=PATIENCE),
        )  # fmt: skip
        assert roots(chain) == [new], case
        chain[new].db.execute("update acct set n = n - (-1) ^ id")
        settle(chain)
        require_equal(chain)
    finally:
        net.servers[old] = wanted
        net.mend()
        chain.nodes.append(node)
    node.renew()
    life.start(node)

    def bring_back() -> None:
        with node.session() as session:
            resurrect(session, ResurrectOptions(keep_rows=True, timeout=PATIENCE))

    with_fault(net, f"resurrect.{later}", FAULTS[fault], bring_back)
    assert roots(chain) == [new], case
    assert provider(chain, old) == new
    settle(chain)
    require_equal(chain)
    require_history(chain)
    assert (
        node.db.value("select count(*) from vedur.lost_event where ev_extra1 like 'public.%%'", [])
        == 0
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", ["n2 killed", "n3 killed", "n1 killed", "n2 and n3 cut", "n2 and n3 stalled"]
)
def test_every_step_of_a_failover_and_of_the_way_back(net: Net, fault: str) -> None:
    # the roles of n1 and n2 change each time, so each of them is the one that is replaced
    steps = [FAILOVER[at % len(FAILOVER)] for at in range(len(RESURRECT))]
    failovers(net, [(step, later, fault) for step, later in zip(steps, RESURRECT, strict=True)])


@pytest.mark.draw("takeovers")
def test_a_root_that_hangs_is_replaced(net: Net) -> None:
    """Its disk does not answer, say: connections to it stay open, new ones are taken, and nothing
    comes. Workers of the survivors must not wait for it."""
    chain, node = net.chain, net.nodes["n1"]
    with alive(chain) as life:
        settle(chain)
        life.stop("n1")
        chain.nodes.remove(node)
        net.stop("n1")
        try:
            move(chain, "n1", "n2", dead_root=True, timeout=PATIENCE, max_lag=PATIENCE)
            assert roots(chain) == ["n2"]
            chain["n2"].db.execute("update acct set n = n + (-1) ^ id")
            settle(chain)
            require_equal(chain)
        finally:
            net.resume("n1")
            net.mend()
            chain.nodes.append(node)
        node.renew()
        life.start(node)
        assert until(lambda: roots(chain) == ["n2"], PATIENCE)  # it sees that it was deposed
        with node.session() as session:
            resurrect(session, ResurrectOptions(keep_rows=True, timeout=PATIENCE))
        settle(chain)
        require_equal(chain)
        require_history(chain)
