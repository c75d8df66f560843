"""Eight parts on two servers, and a third server where they come together.

    east   s1 s2 s3 s4 }   roots of sets of their names; one process has the workers of all
    west   s5 s6 s7 s8 }
    leaf   full            leaf of all eight, one process for the eight queues: tables are merged
           hall            leaf of s1 and s8 and root of the combined queue `company`
           stand           branch of `company`, and leaf of s1 and s8, which wait behind it there

Every database has a proxy of its own, so that one part can be cut off alone. The workers of roots
and of the combined queue are always plain (plain.py): the campaign's Java is that of `full`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg

from tests.torture.commands import Commands, Done
from tests.torture.ground import SERVER, TICKER_INI, WORKER_INI, Ground
from tests.torture.merging.schema import (
    COMBINED,
    KEYED,
    PARTS,
    TABLES,
    TOLD,
    WHOLE,
    WIDER,
    condition,
    rows,
)
from tests.torture.plain import COMMAND, PLAIN
from vedur.demo.server import available

EAST, WEST, LEAF = "east", "west", "leaf"
FULL, HALL, STAND = "full", "hall", "stand"
COMPANY = "company"
#: The parts of the combined queue, one of each server.
MEMBERS = (PARTS[0], PARTS[-1])
PLACES = {
    **dict.fromkeys(PARTS[:4], EAST),
    **dict.fromkeys(PARTS[4:], WEST),
    **dict.fromkeys((FULL, HALL, STAND), LEAF),
}
#: Processes of workers: names of their ini files.
PROCESSES = {
    "roots": PARTS,
    "worker": tuple(f"{FULL}_{part}" for part in PARTS),
    HALL: (HALL, *(f"{HALL}_{part}" for part in MEMBERS)),
    STAND: (STAND, *(f"{STAND}_{part}" for part in MEMBERS)),
}
TICKERS = {f"{server}_ticker": server for server in (EAST, WEST, LEAF)}
#: Twenty-two workers share two cores: they need not look as often as the one of a pair.
_WORKER = {**WORKER_INI, "loop_delay": "0.4"}
_BY_COLUMN = ("--part-column=shard",)
_SERVER = {**SERVER, "max_connections": "150"}


class MergeRig(Ground):
    """Names of places are those of databases."""

    def __init__(self, plain: bool) -> None:
        super().__init__(plain, shared_spark=False)
        #: scripts that were sent, and how often the nodes below have to run them
        self.scripts: dict[str, bool] = {}

    # -- beginning ------------------------------------------------------------------------------

    def start(self) -> MergeRig:
        """Servers, nodes, tables, daemons; returns when the first copies are done."""
        found = available()
        versions = {EAST: found.get(16) or found[min(found)], WEST: found[min(found)]}
        versions[LEAF] = found[max(found)]
        for name, binaries in versions.items():
            self.lab.server(name, binaries, **_SERVER)
        for name, server in PLACES.items():
            self.proxy(name, self.servers[server].port)
            self.lab.database(server, name, "t")
            with self.connect(name) as db:
                db.execute(TABLES)
                if name in PARTS:
                    db.execute(rows(name))
                elif name == FULL:
                    db.execute(WIDER)
        plain = {PLAIN: COMMAND} if self.plain else {}
        self.commands = Commands(self.base, {**self.env(), **plain})
        self._write_inis()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._create_part, PARTS))
        for name, server in TICKERS.items():
            self.start_process(name, "pgqd", [str(self.lab.inis[f"pgqd_{server}"])])
        self.start_workers("roots")
        self._create_leaf()
        self._create_combined()
        return self

    def _write_inis(self) -> None:
        spark = self.spark_section()
        for place in PLACES:
            queues = (place,) if place in PARTS else PARTS if place == FULL else (COMPANY, *MEMBERS)
            for queue in queues:
                name = self.ini(place, queue)
                self.lab.worker_ini(name, self.through(place), _WORKER, spark, queue=queue)
        for server in (EAST, WEST, LEAF):
            self.lab.ticker_ini(server, TICKER_INI, f"pgqd_{server}")

    @staticmethod
    def ini(place: str, queue: str) -> str:
        """The ini of a node, which gives its consumer its name, too."""
        return place if queue in (place, COMPANY) else f"{place}_{queue}"

    def _create_part(self, part: str) -> None:
        self.ok(part, "create-root", f"{part}_root", self.through(part))
        self.query(part, "update pgq.queue set queue_rotation_period = '2 seconds'")
        self.ok(part, "add-table", *WHOLE, *TOLD, *KEYED)

    def create_below(self, place: str, part: str, *more: str) -> None:
        """Make a place a leaf of a part."""
        words = ("create-leaf", place, self.through(place), f"--provider={self.through(part)}")
        self.ok(self.ini(place, part), *words, *more)

    def _create_leaf(self) -> None:
        for part in PARTS:
            self.create_below(FULL, part)
        self.add_whole(*WHOLE, *KEYED)
        for part in PARTS:
            self.add_told(part)
        self.start_workers("worker")
        self.wait(lambda: self.unfinished_tables(FULL) == 0, "first copies", 600.0)

    def _create_combined(self) -> None:
        self.ok(HALL, "create-root", HALL, self.through(HALL))
        self.query(HALL, "update pgq.queue set queue_rotation_period = '2 seconds'")
        for part in MEMBERS:
            self.create_below(HALL, part, f"--merge={COMPANY}")
        self.start_workers(HALL)
        self.ok(self.ini(HALL, MEMBERS[0]), "add-table", "--merge-all", *COMBINED)
        self.wait(lambda: self.unfinished_tables(HALL) == 0, "first copies of the parts", 600.0)
        words = ("create-branch", STAND, self.through(STAND), f"--provider={self.through(HALL)}")
        self.ok(STAND, *words)
        for part in MEMBERS:
            self.create_below(STAND, part, f"--merge={COMPANY}")
        self.start_workers(STAND)
        self.ok(STAND, "add-table", *COMBINED)
        self.wait(lambda: self.unfinished_tables(STAND) == 0, "first copies of the branch", 600.0)
        self.ok(self.ini(STAND, MEMBERS[0]), "add-table", "--merge-all", *COMBINED)

    def start_workers(self, name: str) -> None:
        """A process of several queues, as one that is kept alive."""
        inis = [str(self.lab.inis[ini]) for ini in PROCESSES[name]]
        plain = self.plain or name != "worker"
        self.start_process(name, "londiste3", [*inis, "worker"], plain=plain)

    # -- tables of the leaf ---------------------------------------------------------------------

    def add_whole(self, *names: str, by: str = PARTS[0], most: int = 0) -> None:
        """Tables of all parts, by one command, or one for each kind; `most` are loaded into a table
        at a time."""
        more = [f"--max-parallel-copy={most}"] if most else []
        keyed = [name for name in names if name in KEYED]
        for words, which in ((more, set(names) - set(keyed)), ([*more, *_BY_COLUMN], keyed)):
            if which:
                self.ok(self.ini(FULL, by), "add-table", "--merge-all", *words, *sorted(which))

    def add_told(self, part: str) -> None:
        """The part of a table, with the condition that tells its rows."""
        where = f"--where={condition(part)}"
        self.ok(self.ini(FULL, part), "add-table", "--no-merge", where, *TOLD)

    def add_keyed(self, part: str) -> None:
        """The part of a table whose parts a column tells."""
        self.ok(self.ini(FULL, part), "add-table", "--no-merge", *_BY_COLUMN, *KEYED)

    def ask(self, word: str, *inis: str) -> Done:
        """`londiste3 -s a.ini b.ini`."""
        return self.commands.run(word, *(str(self.lab.inis[ini]) for ini in inis))

    # -- reaching things ------------------------------------------------------------------------

    def connstr(self, name: str) -> str:
        """The database of that name."""
        return self.servers[PLACES[name]].connstr(name)

    def through(self, name: str) -> str:
        """The connect string that the product uses."""
        proxy = self.proxies[name]
        return f"host={proxy.host} port={proxy.port} user=postgres dbname={name}"

    @contextlib.contextmanager
    def cut_off(self, *names: str) -> Iterator[None]:
        """The network to some places is gone meanwhile."""
        for name in names:
            self.proxies[name].cut()
        try:
            yield
        finally:
            for name in names:
                self.proxies[name].restore()

    # -- facts ----------------------------------------------------------------------------------

    def unfinished_tables(self, place: str) -> int:
        """Tables of a place that are not ok, in any queue, and foreign keys still put aside."""
        text = (
            "select (select count(*) from londiste.table_info where local and (merge_state is"
            " distinct from 'ok' or custom_snapshot is not null or dropped_ddl is not null))"
            " + (select count(*) from londiste.pending_fkeys)"
        )
        return int(self.value(place, text))

    def position(self, place: str, queue: str) -> int:
        """The tick of a queue that a place has completed."""
        text = (
            "select last_tick_id from pgq_node.local_state"
            " where queue_name = %s and consumer_name = %s"
        )
        return int(self.value(place, text, [queue, self.ini(place, queue)]))

    def last_tick(self, place: str, queue: str) -> int:
        """The newest tick of a queue."""
        text = (
            "select max(tick_id) from pgq.tick join pgq.queue on queue_id = tick_queue"
            " where queue_name = %s"
        )
        return int(self.value(place, text, [queue]))

    def forced_ticks(self, queues: Iterable[tuple[str, str]], limit: float) -> dict[str, int]:
        """Of each queue (place, queue) a tick that was begun after now."""
        goals = {at: self.last_tick(*at) + 2 for at in queues}  # one may have been begun before
        found: dict[str, int] = {}
        deadline = time.monotonic() + limit
        while len(found) < len(goals):
            for (place, queue), goal in goals.items():
                if queue in found:
                    continue
                with contextlib.suppress(psycopg.OperationalError):
                    self.query(place, "select pgq.force_tick(%s)", [queue])
                if (last := self.last_tick(place, queue)) >= goal:
                    found[queue] = last
            if time.monotonic() > deadline:
                raise TimeoutError(f"no ticks after {goals} in {limit:.0f} s, but {found}")
            time.sleep(0.05)
        return found
