"""A chain whose root moves: every node has a worker and a ticker that run by themselves, and
writers go where they are told to, as applications would."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.fixtures.wait import until
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE
from vedur.clock import SYSTEM
from vedur.db import connect
from vedur.errors import VedurError
from vedur.node.epoch import Reign, last_reign, read_reigns
from vedur.node.info import get_node_info
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import takeover
from vedur.ops.takeover.verify import Verdict

ACCOUNTS = 40
MONEY = ACCOUNTS * 100
TABLE = "create table acct (id int primary key, n int not null)"
PATIENCE = 60.0
#: Errors that isolation levels bring about by themselves.
CONTENTION = ("40001", "40P01")


class Life:
    """Workers and tickers of all nodes, in threads; what workers complain about is kept."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.errors: list[tuple[str, str]] = []
        self._over = threading.Event()
        self._stopped: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._of: dict[str, list[threading.Thread]] = {}
        for node in chain.nodes:
            self.start(node)

    def start(self, node: Node) -> None:
        """Let the worker and the ticker of a node run."""
        stopped = self._stopped[node.name] = threading.Event()
        self._of[node.name] = []
        for work in (self._work, self._tick):
            thread = threading.Thread(target=work, args=(node, stopped), daemon=True)
            self._threads.append(thread)
            self._of[node.name].append(thread)
            thread.start()

    def stop(self, name: str) -> None:
        """Let them end, and wait for that; they say nothing any more."""
        self._stopped[name].set()
        for thread in self._of[name]:
            thread.join(PATIENCE)

    def _work(self, node: Node, stopped: threading.Event) -> None:
        while not self._over.is_set() and not stopped.is_set():
            try:
                if not node.worker.work():
                    SYSTEM.wait(stopped, 0.02)
            except VedurError as error:
                if not stopped.is_set():
                    self.errors.append((node.name, error.message))
                node.worker._close_connections(doubtful=True)
                SYSTEM.wait(stopped, 0.1)

    def _tick(self, node: Node, stopped: threading.Event) -> None:
        while not self._over.is_set() and not stopped.is_set():
            try:
                with connect(node.settings.db, autocommit=True, application_name="pgqd") as db:
                    while not SYSTEM.wait(stopped, 0.03) and not self._over.is_set():
                        db.value("select pgq.ticker()")
            except VedurError:
                SYSTEM.wait(stopped, 0.1)

    def end(self) -> None:
        self._over.set()
        for event in self._stopped.values():
            event.set()
        for thread in self._threads:
            thread.join(60)


@contextmanager
def alive(chain: Chain) -> Iterator[Life]:
    """All nodes of a chain work by themselves."""
    life = Life(chain)
    try:
        yield life
    finally:
        life.end()


def move(chain: Chain, old: str, new: str, **options: Any) -> Verdict:
    """Run takeover as the operator does, on the new node; by default nothing is compared then."""
    with chain[new].session() as session:
        return takeover(session, old, TakeoverOptions(**{"compare": False, **options}))


def roots(chain: Chain) -> list[str]:
    """The nodes that take writes."""
    asked = "select vedur.is_root(%s)"
    return [node.name for node in chain.nodes if node.db.value(asked, [QUEUE])]


def provider(chain: Chain, name: str) -> str | None:
    info = get_node_info(chain[name].db, QUEUE)
    assert info is not None
    return info.provider_node


def reign(chain: Chain, name: str) -> Reign:
    """The last reign that a node knows."""
    found = last_reign(read_reigns(chain[name].db, QUEUE))
    assert found is not None
    return found


def settle(chain: Chain, *names: str) -> None:
    """Wait until all nodes (or those named) have what the root has now."""
    root = chain[roots(chain)[0]]
    tick = int(root.db.value("select pgq.force_tick(%s)", [QUEUE]))
    newest = "select last_tick_id from pgq.get_queue_info(%s)"
    assert until(lambda: root.db.value(newest, [QUEUE]) > tick, PATIENCE)
    tick = int(root.db.value(newest, [QUEUE]))
    for node in chain.nodes:
        if node is root or (names and node.name not in names):
            continue
        assert until(lambda node=node: node.position >= tick, PATIENCE), (node.name, node.position)


def require_history(chain: Chain) -> None:
    """What the model asks for at every moment: at most one root takes writes, and every node stands
    at a tick of the history that its last reign belongs to."""
    assert len(roots(chain)) <= 1
    known: dict[tuple[str, int], set[Any]] = {}
    for node in chain.nodes:
        reigns = read_reigns(node.db, QUEUE)
        last = last_reign(reigns)
        assert last is not None
        for tick, row in node.ticks().items():
            # a number belongs to the newest reign that began before it
            began = last_reign([r for r in reigns if r.first_tick < tick]) or reigns[0]
            known.setdefault((began.epoch, tick), set()).add(row[1])
        info = get_node_info(node.db, QUEUE)
        assert info is not None
        if not info.is_root:
            assert node.position >= last.first_tick, (node.name, node.position, last)
    # whoever has a tick of a reign has the same one
    assert {key: found for key, found in known.items() if len(found) > 1} == {}


def rows(chain: Chain, name: str, table: str = "acct") -> list[Any]:
    return chain[name].db.query(f"select * from {table} order by 1")


def require_equal(chain: Chain, *names: str) -> None:
    """All nodes (or those named) have the same rows, and the money is all there."""
    wanted = names or tuple(node.name for node in chain.nodes)
    found = {name: rows(chain, name) for name in wanted}
    first = found[wanted[0]]
    assert {name for name, have in found.items() if have != first} == set()
    assert sum(row.n for row in first) == MONEY


class Bank:
    """Writers of several isolation levels who transfer money; told to go elsewhere, they go. Each
    counts in a row of its own how often the server said that a transfer was committed."""

    LEVELS = ("read committed", "repeatable read", "serializable")

    def __init__(self, chain: Chain, at: str, *, two_phase: bool = False) -> None:
        self.chain, self.at = chain, at
        self.unexpected: list[str] = []
        self.told = 0
        self.done: dict[int, int] = {}
        self.doubts: dict[int, int] = {}  # the server was gone before it answered
        self._over = threading.Event()
        kinds = [(level, False) for level in self.LEVELS]
        kinds += [("read committed", True), ("repeatable read", True)] if two_phase else []
        self._threads = [
            threading.Thread(target=self._write, args=(at, *kind), daemon=True)
            for at, kind in enumerate(kinds)
        ]
        for number, thread in enumerate(self._threads):
            self.done[number] = self.doubts[number] = 0
            chain[self.at].db.execute("insert into done values (%s, 0)", [number])
            thread.start()

    DDL = "create table done (id int primary key, n int not null)"

    def _write(self, number: int, level: str, two_phase: bool) -> None:
        place = self.at
        while not self._over.is_set():
            try:
                with psycopg.connect(self.chain[place].settings.db, autocommit=True) as db:
                    while not self._over.is_set():
                        self._transfer(db, number, level, two_phase)
                        SYSTEM.sleep(0.005)
            except psycopg.Error as error:
                if error.sqlstate in CONTENTION:
                    continue
                place = self._elsewhere(error, place)

    def _elsewhere(self, error: psycopg.Error, place: str) -> str:
        """Return the node that an error names."""
        hint = error.diag.message_hint or ""
        named = re.search(r'(?:is node|Node) "([^"]+)".*connect to', hint)
        if named is None:
            self.unexpected.append(f"{place}: {error} {hint}")
            SYSTEM.sleep(0.05)
            return place
        self.told += 1
        SYSTEM.sleep(0.01)
        return named[1]

    def _transfer(
        self, db: psycopg.Connection[Any], number: int, level: str, two_phase: bool
    ) -> None:
        count = self.done[number] + 1
        one, two = (count * 7 + number) % ACCOUNTS, (count * 11 + number * 3 + 1) % ACCOUNTS
        db.execute(f"begin isolation level {level}")
        try:
            db.execute("select sum(n) from acct")  # the snapshot is of now
            db.execute("update acct set n = n - 1 where id = %s", [one])
            db.execute("update acct set n = n + 1 where id = %s", [two])
            db.execute("update done set n = n + 1 where id = %s", [number])
            if two_phase:
                db.execute(f"prepare transaction 'w{number}'")
                db.execute(f"commit prepared 'w{number}'")
            else:
                db.execute("commit")
        except psycopg.Error:
            status = db.info.transaction_status
            if status == psycopg.pq.TransactionStatus.UNKNOWN:
                self.doubts[number] += 1
            elif status != psycopg.pq.TransactionStatus.IDLE:
                db.execute("rollback")
            raise
        self.done[number] = count

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def require_kept(self, name: str) -> None:
        """Every transfer that was committed is there, and none that was not; of those that nobody
        knows of, any."""
        found = {row.id: row.n for row in rows(self.chain, name, "done")}
        most = {number: count + self.doubts[number] for number, count in self.done.items()}
        assert found.keys() == self.done.keys()
        assert all(self.done[k] <= found[k] <= most[k] for k in found), (found, self.done, most)


def make_bank(make_chain: Callable[..., Chain], nodes: int = 3, **more: Any) -> Chain:
    """A chain with the tables of a bank on all nodes."""
    chain = make_chain(nodes, **more)
    chain.table("public.acct", TABLE)
    chain.table("public.done", Bank.DDL)
    chain.root.execute(
        "insert into acct select i, 100 from generate_series(0, %s) i", [ACCOUNTS - 1]
    )
    chain.catch_up()
    return chain
