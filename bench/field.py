"""The ground that peers meet on: two PostgreSQL 15 servers, the walk-through's tables, its load.

Each peer has a database of its own on both servers, so one run can let them take turns under the
same settings. The load is what `login.sql` and `logout.sql` do, two changes in a transaction, run
by a procedure so that making a backlog does not take longer than measuring it.
"""

from __future__ import annotations

import json
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from vedur import db as vdb
from vedur.clock import SYSTEM
from vedur.demo.lab import QUEUE, Lab
from vedur.demo.server import available
from vedur.errors import StateError

RESULTS = Path(__file__).parent / "results"
MAJOR = 15
USERS = 200_000
TABLES = ("user_info", "user_session", "user_login_rec", "user_logout_rec")

#: Both servers alike; like a server in earnest but for the size and synchronous_commit.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "wal_level": "logical",
    "autovacuum": "off",
    "checkpoint_timeout": "30min",
    # room for the workers of every peer that lives in the server
    "max_worker_processes": "24",
    "max_replication_slots": "24",
    "max_wal_senders": "24",
}

SCHEMA = """
create table user_info (
    userid int primary key, engname text, cnname text, occupation text, birthday date,
    signname text, email text, qq numeric, crt_time timestamp, mod_time timestamp);
create table user_session (
    userid int primary key, logintime timestamp(0), login_count bigint default 0,
    logouttime timestamp(0), online_interval interval default interval '0');
create table user_login_rec (
    userid int, login_time timestamp, ip inet, id bigserial primary key);
create table user_logout_rec (
    userid int, logout_time timestamp, ip inet, id bigserial primary key);
"""

ROWS = f"""
insert into user_info
select i, 'digoal.zhou' || i, '德哥' || i, 'DBA', date '1970-01-01' + (i % 20000),
    E'公益是一辈子的事, I\\'m Digoal.Zhou, Just do it!', 'digoal' || i || '@126.com',
    276732431 + i, '2013-01-01', null
from generate_series(1, {USERS}) i;
insert into user_session (userid) select i from generate_series(1, {USERS}) i;
"""

LOAD = f"""
create procedure work(transactions int, seed float8) language plpgsql as $$
declare
    who int;
begin
    perform setseed(seed);
    for i in 1 .. transactions loop
        who := 1 + floor(random() * {USERS});
        if i % 2 = 0 then
            insert into user_login_rec (userid, login_time, ip)
                values (who, now(), inet_client_addr());
            update user_session set logintime = now(), login_count = login_count + 1
                where userid = who;
        else
            insert into user_logout_rec (userid, logout_time, ip)
                values (who, now(), inet_client_addr());
            update user_session set logouttime = now(),
                online_interval = online_interval + (now() - logintime) where userid = who;
        end if;
        commit;
    end loop;
end $$;
"""


def content(db: vdb.Database, table: str) -> object:
    """Compute the row count and an order-free sum over all rows: 60 bits of a hash of each."""
    text = (
        "select count(*), sum(('x' || substr(md5(t::text), 1, 15))::bit(60)::bigint)::numeric"
        f" from {table} t"
    )
    return tuple(db.one(text))


@dataclass
class Field:
    """Two servers and the databases of the peers on them."""

    lab: Lab = field(default_factory=Lab)

    def start(self, extra: Mapping[str, str] | None = None) -> Field:
        """Start both servers, with the settings that the peers of the run need."""
        binaries = available("debian").get(MAJOR)
        if binaries is None:
            raise StateError("PostgreSQL 15 of Debian is missing: apt install postgresql-15")
        for name in ("root", "leaf"):
            self.lab.server(name, binaries, **{**SETTINGS, **(extra or {})})
        return self

    def connstr(self, side: str, peer: str) -> str:
        """Return the connect string of a peer's database."""
        return self.lab.servers[side].connstr(peer)

    def database(self, peer: str) -> None:
        """Create the same tables with the same rows on both sides."""
        for side in ("root", "leaf"):
            self.create(side, peer)
            with self.open(side, peer) as db:
                db.execute(SCHEMA)
                db.execute(ROWS)
                db.execute("vacuum analyze")
        with self.open("root", peer) as db:
            db.execute(LOAD)

    def create(self, side: str, peer: str) -> None:
        """Create an empty database."""
        with vdb.connect(self.lab.servers[side].connstr(), autocommit=True) as admin:
            admin.execute(f'create database "{peer}"')

    def open(self, side: str, peer: str) -> vdb.Database:
        """Open a connection in autocommit mode."""
        return vdb.connect(self.connstr(side, peer), autocommit=True)

    def work(self, peer: str, events: int, clients: int = 2) -> float:
        """Run small transactions with that many changes in all; returns their seconds."""
        each = events // 2 // clients
        began = SYSTEM.monotonic()
        links = [self.open("root", peer) for _ in range(clients)]
        threads = [
            threading.Thread(target=link.execute, args=(f"call work({each}, {at / 10})",))
            for at, link in enumerate(links)
        ]
        for thread in threads:
            thread.start()
        for thread, link in zip(threads, links, strict=True):
            thread.join()
            link.close()
        return SYSTEM.monotonic() - began

    def mark(self, peer: str) -> str:
        """Write the last change of a piece of work; returns the value of the marked row."""
        with self.open("root", peer) as db:
            return str(
                db.value(
                    "update user_info set mod_time = clock_timestamp() where userid = 1"
                    " returning mod_time::text"
                )
            )

    def seen(self, peer: str, mark: str, timeout: float) -> None:
        """Wait until the marked row is on the other side."""
        text = "select mod_time::text from user_info where userid = 1"
        deadline = SYSTEM.monotonic() + timeout
        with self.open("leaf", peer) as db:
            while db.value(text) != mark:
                if SYSTEM.monotonic() > deadline:
                    raise StateError(f"{peer}: not caught up after {timeout:.0f} s")
                SYSTEM.sleep(0.01)

    def verify(self, peer: str, tables: Sequence[str] = TABLES) -> None:
        """Raise unless both sides hold the same rows."""
        with self.open("root", peer) as root, self.open("leaf", peer) as leaf:
            for table in tables:
                here, there = content(root, table), content(leaf, table)
                if here != there:
                    raise StateError(f"{peer}: {table} differs: {here} and {there}")

    def settle(self, timeout: float = 120.0) -> None:
        """Whoever reads the WAL has read it: peers that decode do so for all databases' changes,
        and nobody's turn should pay for that. A peer that rests reads nothing."""
        text = "select count(*) from pg_stat_replication where sent_lsn < %s::pg_lsn"
        deadline = SYSTEM.monotonic() + timeout
        for server in self.lab.servers.values():
            with vdb.connect(server.connstr(), autocommit=True) as db:
                here = str(db.value("select pg_current_wal_flush_lsn()::text"))
                while db.value(text, [here]) and SYSTEM.monotonic() < deadline:
                    SYSTEM.sleep(0.1)

    def checkpoint(self) -> None:
        """Run CHECKPOINT, so that no peer pays for what the others wrote."""
        self.settle()
        for server in self.lab.servers.values():
            with vdb.connect(server.connstr(), autocommit=True) as db:
                db.execute("checkpoint")

    def close(self) -> None:
        """Stop the servers and remove their files."""
        self.lab.close()


CopyState = Literal["copying", "loaded", "ready"]


def copy_state(ground: Field, peer: str, tables: Sequence[str]) -> CopyState:
    """Read the states of some tables from schema londiste, ours or upstream's."""
    text = "select table_name, merge_state from londiste.table_info where merge_state is not null"
    with ground.open("leaf", peer) as db:
        known = dict(db.query(text))
    states = [known.get(f"public.{table}", "in-copy") for table in tables]
    if all(state == "ok" for state in states):
        return "ready"
    return "copying" if "in-copy" in states else "loaded"


@dataclass
class Vedur:
    """Our own nodes on the field, through the commands as an operator has them."""

    ground: Field
    name: str = "vedur"
    settings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def missing() -> str:
        """Return nothing: Vedur is what is measured."""
        return ""

    def prepare(self) -> None:
        """Create the nodes with tables in sync; ticker and workers run."""
        self.ground.database(self.name)
        self.set_up({"bench": TABLES})
        self.ground.lab.londiste("leaf", "add-table", "--expect-sync", *TABLES)
        self.warm_up()

    def set_up(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Create the nodes with the tables of all parts on the provider; ticker and workers run."""
        ground, lab = self.ground, self.ground.lab
        for side in ("root", "leaf"):
            lab.worker_ini(side, ground.connstr(side, self.name), self.settings)
        lab.ticker_ini("root")
        lab.londiste("root", "create-root", "root", ground.connstr("root", self.name))
        lab.londiste(
            "leaf", "create-leaf", "leaf", ground.connstr("leaf", self.name),
            f"--provider={ground.connstr('root', self.name)}",
        )  # fmt: skip
        lab.start_ticker()
        lab.start_worker("root")
        for tables in parts.values():
            lab.londiste("root", "add-table", *tables, timeout=600)
        self.start()

    def subscribe(self, part: str, tables: Sequence[str]) -> None:
        """Begin the first copy, as an operator does."""
        self.ground.lab.londiste("leaf", "add-table", *tables, timeout=600)

    def state(self, part: str, tables: Sequence[str]) -> CopyState:
        """Read how far the copy is."""
        return copy_state(self.ground, self.name, tables)

    def unsubscribe(self, part: str, tables: Sequence[str]) -> None:
        """Remove the tables from the leaf again."""
        self.ground.lab.londiste("leaf", "remove-table", *tables)

    def warm_up(self) -> None:
        """Apply a first small batch: classes are loaded, tasks have their connections."""
        self.ground.work(self.name, 20_000)
        self.ground.seen(self.name, self.ground.mark(self.name), 120)

    def start(self) -> None:
        """Start the leaf's worker; its detailed log has the times of the steps."""
        lab = self.ground.lab
        lab.run("londiste3", "-v", "-d", str(lab.inis["leaf"]), "worker")

    def stop(self) -> None:
        """Stop the leaf's worker, with Java."""
        self.ground.lab.stop_daemon("leaf")

    @contextmanager
    def down(self) -> Iterator[None]:
        """Pause replication, as a disabled subscription does; the Spark session stays."""
        self._pause(True)
        yield

    def up(self) -> None:
        """Resume replication."""
        self._pause(False)

    def _pause(self, on: bool) -> None:
        """Do what `pause` and `resume` do, without the time that a command takes to start."""
        with self.ground.open("leaf", self.name) as db:
            db.execute(f"select pgq_node.set_consumer_paused('{QUEUE}', 'leaf', {on})")
            while not db.value("select uptodate from pgq_node.local_state"):
                SYSTEM.sleep(0.01)

    def close(self) -> None:
        """Nothing: the lab stops what it started."""

    @property
    def worker_pid(self) -> int:
        """Return the process id of the driver."""
        return int((self.ground.lab.base / "pid" / "leaf.pid").read_text())


def save(name: str, report: dict[str, Any]) -> Path:
    """Write a report beside the others (or to $BENCH_RESULTS), with the machine it is from."""
    place = Path(os.environ.get("BENCH_RESULTS") or RESULTS)
    place.mkdir(parents=True, exist_ok=True)
    target = place / f"{name}.json"
    target.write_text(json.dumps({**report, "machine": machine()}, indent=2) + "\n")
    return target


def machine() -> dict[str, Any]:
    """Describe the machine and the time."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return {
        "when": SYSTEM.now().isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_gb": memory,
        "system": platform.platform(),
        "python": platform.python_version(),
        "postgresql": MAJOR,
        "vedur": version("vedur"),
        "settings": SETTINGS,
    }


def load_average() -> float:
    """Return the load average."""
    return round(os.getloadavg()[0], 2)


def timed(action: Callable[[], object]) -> float:
    """Measure the seconds of an action."""
    began = SYSTEM.monotonic()
    action()
    return SYSTEM.monotonic() - began


__all__ = [
    "QUEUE", "TABLES", "CopyState", "Field", "Vedur", "content", "copy_state", "load_average",
    "save", "timed",
]  # fmt: skip
